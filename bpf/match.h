/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * match.h: from a dentry to a state of the table. Pure: reads the kernel's
 * dentries and one scope, writes nothing.
 *
 * The walk goes up by d_parent until it meets an anchor, and never crosses a
 * mount, so that the answer belongs to the object and not to the way it was
 * reached. From the anchor the table is then run downwards over the names, and
 * stops at the first state that is Dead or All: most names are never read.
 */
#ifndef PLANFENCE_MATCH_H
#define PLANFENCE_MATCH_H

/* Names shorter than this are always stored in the dentry (32 up to 6.7, 40 later). */
#define INLINE_NAME 32

/* Where the inline name lies; fixed at load time. */
static __always_inline __u32 inline_name_offset(void)
{
	if (bpf_core_field_exists(((struct dentry___old *)0)->d_iname))
		return bpf_core_field_offset(((struct dentry___old *)0)->d_iname);
	return bpf_core_field_offset(((struct dentry___new *)0)->d_shortname);
}

/*
 * One transition. A table that points outside itself is broken and matches
 * nothing.
 */
#define LAST_CELL ((__u32)(sizeof(((struct scope *)0)->cell) - sizeof(__u64)))

static __always_inline __u32 step(const struct scope *sc, __u32 s, __u32 class)
{
	__u32 off = s + class;
	__u64 c;

	if (off > LAST_CELL)
		return STATE_DEAD;
	c = *(const __u64 *)((const void *)sc->cell + off);
	return (__u32)c == s ? (__u32)(c >> 32) : STATE_DEAD;
}

/*
 * The same where rows may have a default, in class 0: for the general walk
 * alone, the fast one leaves such tables to it. The barrier keeps the compiler
 * from testing the cell that s came from in place of s, which the verifier
 * cannot relate to each other.
 */
static __always_inline __u32 step_default(const struct scope *sc, __u32 s, __u32 class)
{
	__u32 off = s + class;
	__u64 c;

	if (off > LAST_CELL)
		return STATE_DEAD;
	c = *(const __u64 *)((const void *)sc->cell + off);
	if ((__u32)c == s)
		return c >> 32;
	barrier_var(s);
	if (s > LAST_CELL)
		return STATE_DEAD;
	c = *(const __u64 *)((const void *)sc->cell + s);
	return (__u32)c == s ? (__u32)(c >> 32) : STATE_DEAD;
}

/* In d_flags: the file system compares names in its own way, perhaps without regard to case. */
#define OP_COMPARE DCACHE_OP_COMPARE

/* The walk's third answer beside the states: the general walk has to decide. */
#define STATE_SLOW 4

/*
 * The name of d, from state s behind the '/'. Inline names come as four words: a
 * variable offset into a BTF pointer is not loadable. What ends a step has a
 * block of its own, with a barrier: else each step begins by preparing for the end.
 */
static __noinline __u32 match_name(struct dentry *d, const struct scope *sc, __u32 s)
{
	const void *base = (const void *)d + inline_name_offset();
	__u32 len, off, i, j;
	__u64 w, c;

	len = d->d_name.len;
	if (len >= INLINE_NAME || d->d_flags & OP_COMPARE)
		return STATE_SLOW;
#pragma clang loop unroll(full)
	for (i = 0; i < INLINE_NAME / 8; i++) {
		w = *(const __u64 *)(base + 8 * i);
#pragma clang loop unroll(full)
		for (j = 0; j < 8; j++) {
			if (i * 8 + j == len)
				goto out;
			off = s + sc->class[w & 0xff];
			if (off > LAST_CELL)
				goto dead;
			c = *(const __u64 *)((const void *)sc->cell + off);
			if ((__u32)c != s)
				goto dead;
			s = c >> 32;
			if (s <= STATE_ALL)
				goto out;
			w >>= 8;
		}
	}
	return STATE_SLOW;
dead:
	barrier();
	return STATE_DEAD;
out:
	barrier();
	return s;
}

/*
 * A short name as two words, zeros in front: what lies behind a name in its
 * dentry is anything. The Go side has the same.
 */
static __always_inline void name_words(struct dentry *d, __u32 len, __u64 *w0, __u64 *w1)
{
	const void *base = (const void *)d + inline_name_offset();

	*w0 = *(const __u64 *)base;
	*w1 = 0;
	if (len <= 8)
		*w0 <<= (64 - 8 * len) & 63;
	else
		*w1 = *(const __u64 *)(base + 8) << ((128 - 8 * len) & 63);
}

/* Fibonacci hashing, the upper 11 bits. The Go side has the same line. */
static __always_inline __u32 name_hash(__u64 w0, __u64 w1, __u32 from)
{
	return (w0 ^ w1 ^ from) * 0x9E3779B97F4A7C15ull >> 53;
}

/* The name of d in the directory at state s, if the table of names has it. */
static __always_inline const struct name *find_name(const struct scope *sc, struct dentry *d, __u32 s)
{
	__u32 len = d->d_name.len;
	const struct name *n;
	__u64 w0, w1;

	if (len > NAME_SHORT || d->d_flags & OP_COMPARE)
		return NULL;
	name_words(d, len, &w0, &w1);
	n = &sc->name[name_hash(w0, w1, s)];
	return n->from == s && n->text[0] == w0 && n->text[1] == w1 ? n : NULL;
}

/* Does the state at a path satisfy the operation's need? */
static __always_inline __u32 satisfies(const struct scope *sc, __u32 s, __u32 need, bool defaults)
{
	__u32 end, below;

	if (s == STATE_ALL)
		return REASON_NONE;
	if (s == STATE_DEAD)
		return REASON_SCOPE;
	end = (defaults ? step_default(sc, s, sc->h.end) : step(sc, s, sc->h.end));
	if (need == NEED_SELF)
		return end != STATE_DEAD ? REASON_NONE : REASON_SCOPE;
	if (need == NEED_NAMED)
		return end == STATE_ACCEPT ? REASON_NONE : REASON_SCOPE;
	below = defaults ? step_default(sc, s, sc->h.slash) : step(sc, s, sc->h.slash);
	if (need == NEED_DIR) {
		if (end == STATE_ACCEPT)
			return REASON_NONE;
		return below != STATE_DEAD ? REASON_NONE : REASON_SCOPE;
	}
	if (end == STATE_DEAD)
		return REASON_SCOPE;
	return end == STATE_ACCEPT && below == STATE_ALL ?
		       REASON_NONE :
		       REASON_DIRECTORY;
}

/* Is d the very directory that the anchor names? The address alone may be reused. */
static __always_inline bool same_dir(struct dentry *d, __u64 ino, __u32 dev, __u32 generation)
{
	struct inode *inode = d->d_inode;

	return inode && inode->i_ino == ino && inode->i_generation == generation &&
	       d->d_sb->s_dev == dev;
}

/*
 * The same for the fast walk: the inode's address in place of the file system.
 * That both addresses were freed and taken by another directory of the same
 * number needs both holders of the descriptor gone, and a scope that nobody
 * has replaced since.
 */
static __always_inline bool same_inode(struct dentry *d, __u64 addr, __u64 ino)
{
	struct inode *inode = d->d_inode;

	return (__u64)inode == addr && inode && inode->i_ino == ino;
}

static __always_inline __u32 anchor_hash(__u32 lo)
{
	/* Fibonacci hashing; dentries are 64-byte aligned. The Go side has the same line. */
	return ((lo >> 6) * 0x9E3779B1u) >> 24;
}

/* The table of anchors: open addressing, at most ANCHOR_PROBES neighbours. */
static __always_inline const struct anchor *find_anchor(const struct scope *sc, __u64 dentry)
{
	__u32 h = anchor_hash((__u32)dentry);
	__u32 i;

#pragma clang loop unroll(full)
	for (i = 0; i < ANCHOR_PROBES; i++) {
		const struct anchor *a = &sc->h.anchors[(h + i) & (ANCHOR_SLOTS - 1)];

		if (a->dentry == dentry)
			return a;
		if (!a->dentry)
			return NULL;
	}
	return NULL;
}

/*
 * The fast walk: unrolled, one load a level, decides for paths of up to
 * FAST_DEPTH levels that hang below the root or directly below a file system's
 * root. Each level keeps its dentry in a variable of its own: chains in an
 * array would be indexed by a variable, which BTF pointers do not allow.
 *
 * Returns a reason, or STATE_SLOW | SLOW_BIT for the general walk to decide.
 */
#define SLOW_BIT 0x100

#define LEVELS(X)                                                                             \
	X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) \
		X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#define LEVELS_DOWN(X)                                                                         \
	X(23, 22) X(22, 21) X(21, 20) X(20, 19) X(19, 18) X(18, 17) X(17, 16) X(16, 15)        \
		X(15, 14) X(14, 13) X(13, 12) X(12, 11) X(11, 10) X(10, 9) X(9, 8) X(8, 7)     \
			X(7, 6) X(6, 5) X(5, 4) X(4, 3) X(3, 2) X(2, 1) X(1, 0)

#define DECLARE(n) struct dentry *d##n = NULL;
/* Is level n the root? Else one up. */
#define UP(n)                                                          \
	d##n = d;                                                      \
	if ((__u64)d == root) {                                        \
		if (!same_inode(d, h->root_id.inode, h->root_id.ino))  \
			return SLOW_BIT;                               \
		s = h->root_start;                                     \
		goto down##n;                                          \
	}                                                              \
	d = d->d_parent;
/*
 * Four levels, and then: is it a file system's root, and an anchor? Such a root
 * is its own parent, so that looking every four levels is enough; the walk
 * begins where it was first met.
 */
#define UP4(n0, n1, n2, n3)                                            \
	UP(n0) UP(n1) UP(n2) UP(n3)                                    \
	if (d == d##n3) {                                              \
		if (h->flags & SCOPE_INNER)                            \
			return SLOW_BIT;                               \
		a = find_anchor(sc, (__u64)d);                         \
		if (!a || !same_dir(d, a->ino, a->dev, a->generation)) \
			return SLOW_BIT;                               \
		s = a->start;                                          \
		if (d != d##n2)                                        \
			goto down##n3;                                 \
		if (d != d##n1)                                        \
			goto down##n2;                                 \
		if (d != d##n0)                                        \
			goto down##n1;                                 \
		goto down##n0;                                         \
	}
#define DOWN(n, under)                                                        \
	down##n : if (s <= STATE_ALL) goto done;                              \
	if (h->flags & SCOPE_NAMES && (name = find_name(sc, d##under, s))) {  \
		s = name->to;                                                 \
		if (under && name->below == STATE_ALL)                        \
			goto all;                                             \
	} else {                                                              \
		s = step(sc, s, h->slash);                                    \
		if (s <= STATE_ALL)                                           \
			goto done;                                            \
		if (s & STATE_SKIPS)                                          \
			goto leaf;                                            \
		s = match_name(d##under, sc, s);                              \
		if (s == STATE_SLOW)                                          \
			return SLOW_BIT;                                      \
	}

static __noinline __u32 fast_walk(struct dentry *d, const struct scope *sc, __u32 need)
{
	const struct scope_header *h = &sc->h;
	const __u64 root = h->root;
	const struct anchor *a;
	const struct name *name;
	__u32 s;
	LEVELS(DECLARE)

	if (h->flags & SCOPE_DEFAULTS)
		return SLOW_BIT;
	UP4(0, 1, 2, 3)
	UP4(4, 5, 6, 7)
	UP4(8, 9, 10, 11)
	UP4(12, 13, 14, 15)
	UP4(16, 17, 18, 19)
	UP4(20, 21, 22, 23)
	return SLOW_BIT;
	LEVELS_DOWN(DOWN)
down0:
	goto done;
leaf:
	s = match_name(d0, sc, s & ~STATE_SKIPS);
	if (s == STATE_SLOW)
		return SLOW_BIT;
	goto done;
all:
	s = STATE_ALL;
done:
	return satisfies(sc, s, need, false);
}

#endif
