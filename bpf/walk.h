/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * walk.h: the general walk, for what the fast one leaves: more than FAST_DEPTH
 * levels, names too long to be inline, anchors that are no file system's root.
 * It takes addresses as numbers and costs about 100 instructions a level and
 * 20 a byte; nothing is refused for depth below MAX_DEPTH.
 *
 * Down is the hard direction: dentries point up. The levels are taken in
 * chunks of CHUNK that fit on the stack, each found by walking up again from
 * the leaf, so no memory is needed that an allocation could fail to give.
 */
#ifndef PLANFENCE_WALK_H
#define PLANFENCE_WALK_H

#define CHUNK 24
#define CHUNKS (MAX_DEPTH / CHUNK + 1)

/*
 * Up to 6.6 the verifier follows a callback of bpf_loop once and takes what that
 * leaves for what any number of turns leaves: code that needs a second turn to
 * be reached is dead to it, and removed. So what a later turn changes must be
 * unknown from the start: a number read from a map, not a constant.
 */
struct general {
	const struct scope *sc;
	__u64 leaf;
	__u64 cur;
	__u32 n;     /* levels between leaf and anchor */
	__u32 s;
	__u32 stop;  /* up: the level to begin keeping at */
	__u32 base;  /* down: the level of chain[0] */
	__u32 reason;
	__u32 left;  /* bytes of the name */
	__u64 name;
	__u64 chain[CHUNK];
};

static __always_inline __u64 read_u64(__u64 addr, __u32 off)
{
	__u64 v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), (const void *)(addr + off));
	return v;
}

static __always_inline __u32 read_u32(__u64 addr, __u32 off)
{
	__u32 v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), (const void *)(addr + off));
	return v;
}

#define OFF(type, field) bpf_core_field_offset(((struct type *)0)->field)

static __always_inline bool same_dir_addr(__u64 d, const struct anchor *a)
{
	__u64 inode = read_u64(d, OFF(dentry, d_inode));
	__u64 sb = read_u64(d, OFF(dentry, d_sb));

	return inode && read_u64(inode, OFF(inode, i_ino)) == a->ino &&
	       read_u32(inode, OFF(inode, i_generation)) == a->generation &&
	       read_u32(sb, OFF(super_block, s_dev)) == a->dev;
}

/* One level up; ends at an anchor (s set) or at a file system's root. */
static long general_up(__u64 i, void *arg)
{
	struct general *g = arg;
	const struct anchor *a;
	__u64 parent;

	a = find_anchor(g->sc, g->cur);
	if (a && same_dir_addr(g->cur, a)) {
		g->s = a->start;
		g->reason = REASON_NONE;
		return 1;
	}
	parent = read_u64(g->cur, OFF(dentry, d_parent));
	if (!parent || parent == g->cur) {
		g->reason = REASON_UNKNOWN;
		return 1;
	}
	g->cur = parent;
	g->n = i + 1;
	return 0;
}

/* One level up, keeping the levels base .. base+CHUNK-1. */
static long general_keep(__u64 i, void *arg)
{
	struct general *g = arg;
	__u32 at = (__u32)i - g->base;

	if (at < CHUNK)
		g->chain[at] = g->cur;
	g->cur = read_u64(g->cur, OFF(dentry, d_parent));
	return 0;
}

/* Eight bytes of a name; a callback is verified once, a loop once a turn. */
static long general_word(__u64 i, void *arg)
{
	struct general *g = arg;
	__u32 left = g->left, k, s = g->s;
	__u64 w = read_u64(g->name, (__u32)i * 8);

	for (k = 0; k < 8; k++) {
		if (k >= left || s <= STATE_ALL)
			break;
		s = step_default(g->sc, s, g->sc->class[w & 0xff]);
		w >>= 8;
	}
	g->s = s;
	g->left = left > 8 ? left - 8 : 0;
	return s <= STATE_ALL;
}

/*
 * May the name of d be spelled in another way? Where names are compared
 * without regard to case the dentry has the spelling of whoever looked first,
 * not the file's, so the name proves nothing.
 */
static __noinline bool caseless(__u64 d)
{
	__u64 magic, dir;

	if (!(read_u32(d, OFF(dentry, d_flags)) & DCACHE_OP_COMPARE))
		return false;
	magic = read_u64(read_u64(d, OFF(dentry, d_sb)), OFF(super_block, s_magic));
	if (magic != EXT4_SUPER_MAGIC && magic != F2FS_SUPER_MAGIC && magic != TMPFS_MAGIC &&
	    magic != OVERLAYFS_SUPER_MAGIC)
		return magic != PROC_SUPER_MAGIC; /* vfat and the like: all directories */
	dir = read_u64(read_u64(d, OFF(dentry, d_parent)), OFF(dentry, d_inode));
	return read_u32(dir, OFF(inode, i_flags)) & S_CASEFOLD;
}

/* One level down: '/' and the name. */
static long general_down(__u64 i, void *arg)
{
	struct general *g = arg;
	__u32 at = g->stop - 1 - (__u32)i;
	__u64 d;

	if (at >= CHUNK)
		return 1;
	d = g->chain[at];
	g->left = read_u32(d, OFF(dentry, d_name.len));
	g->name = read_u64(d, OFF(dentry, d_name.name));
	if (g->left > NAME_MAX) {
		g->reason = REASON_TOO_LONG;
		return 1;
	}
	g->s = step_default(g->sc, g->s, g->sc->h.slash) & ~STATE_SKIPS;
	if (g->s > STATE_ALL && caseless(d)) {
		g->reason = REASON_CASELESS;
		return 1;
	}
	if (g->s > STATE_ALL)
		bpf_loop((g->left + 7) / 8, general_word, g, 0);
	return g->s <= STATE_ALL;
}

/* One chunk of levels: the uppermost that is not yet matched. */
static long general_chunk(__u64 i, void *arg)
{
	struct general *g = arg;

	if (!g->n || g->s <= STATE_ALL || g->reason)
		return 1;
	g->base = g->n > CHUNK ? g->n - CHUNK : 0;
	g->stop = g->n - g->base;
	g->cur = g->leaf;
	bpf_loop(g->n, general_keep, g, 0);
	bpf_loop(g->stop, general_down, g, 0);
	g->n = g->base;
	return 0;
}

/* File systems whose files are the kernel's settings, other machines of it included. */
static __always_inline bool kernel_settings(__u64 magic)
{
	return magic == PROC_SUPER_MAGIC || magic == SYSFS_MAGIC || magic == BPF_FS_MAGIC ||
	       magic == DEBUGFS_MAGIC || magic == TRACEFS_MAGIC || magic == SECURITYFS_MAGIC ||
	       magic == CONFIGFS_MAGIC || magic == CGROUP_SUPER_MAGIC ||
	       magic == CGROUP2_SUPER_MAGIC || magic == BINFMTFS_MAGIC || magic == EFIVARFS_MAGIC ||
	       magic == SELINUX_MAGIC || magic == SMACK_MAGIC || magic == RDTGROUP_SUPER_MAGIC ||
	       magic == PSTOREFS_MAGIC || magic == NFSD_MAGIC;
}

/* Is d the root of a file system that the session mounted, empty, for itself? */
static __noinline bool own_root(__u64 d, __u64 session)
{
	struct link_key k = {};

	k.object.inode = read_u64(d, OFF(dentry, d_inode));
	if (!k.object.inode)
		return false;
	k.object.ino = read_u64(k.object.inode, OFF(inode, i_ino));
	k.object.generation = read_u32(k.object.inode, OFF(inode, i_generation));
	k.object.dev = read_u32(read_u64(d, OFF(dentry, d_sb)), OFF(super_block, s_dev));
	k.session = session;
	return bpf_map_lookup_elem(&own_roots, &k);
}

/* A global function: verified once, not once a caller. */
__noinline int general_walk(__u64 dentry, __u32 slot, __u32 need)
{
	struct general g = {};
	const struct scope *sc;
	__u32 zero = 0;
	void *inner;

	inner = bpf_map_lookup_elem(&scopes, &slot);
	if (!inner)
		return REASON_NO_TASK;
	sc = bpf_map_lookup_elem(inner, &zero);
	if (!sc)
		return REASON_NO_TASK;
	g.sc = sc;
	g.n = sc->h.zero;
	g.leaf = g.cur = dentry;
	g.reason = REASON_TOO_DEEP;
	bpf_loop(MAX_DEPTH, general_up, &g, 0);
	if (g.reason == REASON_UNKNOWN && own_root(g.cur, sc->h.session))
		return REASON_NONE;
	if (g.reason == REASON_UNKNOWN && (sc->h.flags & SCOPE_OPEN)) {
		__u64 magic = read_u64(read_u64(dentry, OFF(dentry, d_sb)), OFF(super_block, s_magic));

		/* A new mount of one of these shows the same kernel settings again. */
		if (kernel_settings(magic))
			return REASON_PROTECTED;
		/* Opened by handle: the walk ended before it came to any name. */
		if (read_u32(g.cur, OFF(dentry, d_flags)) & DCACHE_DISCONNECTED)
			return REASON_UNKNOWN;
		return REASON_NONE; /* no task is active: only what is protected is refused */
	}
	if (g.reason)
		return g.reason;
	bpf_loop(CHUNKS, general_chunk, &g, 0);
	if (g.reason)
		return g.reason;
	return satisfies(sc, g.s, need, true);
}

/*
 * The names from d up to its file system's root, or to the first mount's root,
 * run from a start state of their own: for control sockets, which are known by
 * the end of their path wherever they are mounted. 0: accepted. Their patterns
 * begin with any directories, so anchors play no part.
 */
static long general_up_all(__u64 i, void *arg)
{
	struct general *g = arg;
	__u64 parent = read_u64(g->cur, OFF(dentry, d_parent));

	if (!parent || parent == g->cur)
		return 1;
	g->cur = parent;
	g->n = i + 1;
	return 0;
}

__noinline int general_walk_from(__u64 dentry, __u32 slot, __u32 start)
{
	struct general g = {};
	const struct scope *sc;
	__u32 zero = 0;
	void *inner;

	inner = bpf_map_lookup_elem(&scopes, &slot);
	if (!inner)
		return 1;
	sc = bpf_map_lookup_elem(inner, &zero);
	if (!sc)
		return 1;
	g.sc = sc;
	g.n = sc->h.zero;
	g.leaf = g.cur = dentry;
	g.s = start;
	bpf_loop(MAX_DEPTH, general_up_all, &g, 0);
	bpf_loop(CHUNKS, general_chunk, &g, 0);
	return satisfies(sc, g.s, NEED_SELF, true);
}

#endif
