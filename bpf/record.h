/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * record.h: what is told of a refusal. The verdict has been reached before
 * anything here runs, and nothing here changes it: where the ring is full the
 * event is lost, the loss is counted, and the totals are counted all the same.
 */
#ifndef PLANFENCE_RECORD_H
#define PLANFENCE_RECORD_H

#define SMALL_NAMES 832
#define SMALL_LEVELS 32

struct small_event {
	struct event e;
	char names[SMALL_NAMES + INLINE_NAME];
};

struct large_event {
	struct event e;
	char names[PATHS_MAX + NAME_MAX + 1];
};

static __always_inline void fill_event(struct event *e, struct task_struct *task, __u64 session,
				       __u64 generation, __u64 seq, __u32 op, __u32 reason,
				       __u32 flags, __u32 arg)
{
	struct pid *pid = task->thread_pid;
	__u64 at;
	__u64 id = bpf_get_current_pid_tgid();

	e->seq = seq;
	e->time = bpf_ktime_get_boot_ns();
	e->session = session;
	e->generation = generation;
	e->pid = id >> 32;
	e->tid = (__u32)id;
	e->ppid = task->real_parent->tgid;
	e->uid = task->cred->uid.val;
	/* The number in the innermost pid namespace: numbers[] is as long as level. */
	e->nspid = (__u32)id;
	if (pid->level) {
		at = (__u64)pid->level * bpf_core_type_size(struct upid);
		if (at > MAX_PID_NS_LEVEL * 64)
			at = 0;
		bpf_probe_read_kernel(&e->nspid, sizeof(e->nspid), (const void *)pid + OFF(pid, numbers) + at);
	}
	e->arg = arg;
	e->flags = flags;
	e->op = op;
	e->reason = reason;
	e->dev = e->dev2 = e->mnt_id = 0;
	e->anchor = e->anchor2 = e->exe_anchor = NO_ANCHOR;
	e->len = e->len2 = e->exe_len = e->used = 0;
	e->mode = 0;
	e->exe = e->exe_ino = 0;
	/* As bpf_get_current_comm would, but for what lies behind the NUL. */
	*(__u64 *)e->comm = *(const __u64 *)((const void *)task + OFF(task_struct, comm));
	*(__u64 *)(e->comm + 8) = *(const __u64 *)((const void *)task + OFF(task_struct, comm) + 8);
}

/* A BTF pointer as a number: arithmetic on the pointer itself is refused. */
static __always_inline __u64 number(struct label *l, const void *p)
{
	*(volatile __u64 *)&l->number = (__u64)p;
	return *(volatile __u64 *)&l->number;
}

/*
 * Is there an inode behind a name that may not exist (yet)? Kernels from 6.4 to 6.15 hold
 * the d_inode of a hook's argument to be never NULL (until commit 560bb43c4cd7, "bpf:
 * Make inode->d_inode trusted_or_null"): a test of the pointer itself may be removed
 * as dead, and reading through it is not guarded. So the number is tested. Everywhere
 * else a d_inode is that of something that exists.
 */
static __always_inline bool exists(struct label *l, const struct inode *inode)
{
	return number(l, inode);
}

static __always_inline void note_object(struct label *l, struct event *e, struct dentry *d)
{
	struct inode *inode = d->d_inode;

	e->dev = d->d_sb->s_dev;
	if (exists(l, inode) && inode)
		e->mode = inode->i_mode;
}

/*
 * Appends the names from d up to its anchor, leaf first, at r->e.used. Returns
 * the bytes written, or NO_ROOM for the large form to take over.
 *
 * The offset is kept in the record and read back at each level: the verifier
 * then sees an unknown number, the same at each turn, and joins its states; a
 * number in a register has another range at each turn and no two join.
 */
#define NO_ROOM 0xffff

static __noinline __u32 small_path(struct small_event *r, struct dentry *d, const struct scope *sc,
				   __u32 *anchor)
{
	volatile __u16 *used = &r->e.used;
	const __u32 iname = inline_name_offset();
	const __u32 begin = *used;
	const struct anchor *a;
	struct dentry *parent;
	__u32 i, len, off;

	if (sc->h.flags & SCOPE_INNER)
		return NO_ROOM; /* any level may be an anchor: the large form looks */
	for (i = 0; i < SMALL_LEVELS; i++) {
		if ((__u64)d == sc->h.root) {
			*anchor = sc->h.root_anchor;
			return *used - begin;
		}
		parent = d->d_parent;
		if (parent == d)
			break;
		len = d->d_name.len;
		off = *used;
		if (off > SMALL_NAMES - NAME_MAX - 1 || len > NAME_MAX)
			return NO_ROOM;
		if (len < INLINE_NAME) {
			const void *base = (const void *)d + iname;
			char *to = r->names + off;

			*(__u64 *)to = *(const __u64 *)base;
			if (len > 8) {
				*(__u64 *)(to + 8) = *(const __u64 *)(base + 8);
				*(__u64 *)(to + 16) = *(const __u64 *)(base + 16);
				*(__u64 *)(to + 24) = *(const __u64 *)(base + 24);
			}
		} else {
			bpf_probe_read_kernel(r->names + off, len & NAME_MAX,
					      (const void *)d->d_name.name);
		}
		off += len & NAME_MAX;
		r->names[off] = '/';
		*used = off + 1;
		d = parent;
	}
	if (i == SMALL_LEVELS)
		return NO_ROOM;
	a = find_anchor(sc, (__u64)d);
	if (a)
		*anchor = a->id;
	return *used - begin;
}

struct writer {
	struct large_event *r;
	const struct scope *sc;
	__u64 cur;
	__u32 anchor;
	__u32 cut;
};

static long large_level(__u64 i, void *arg)
{
	struct writer *w = arg;
	const struct anchor *a;
	__u64 parent;
	volatile __u16 *used = &w->r->e.used; /* see small_path */
	__u32 len, off = *used;

	a = find_anchor(w->sc, w->cur);
	if (a) {
		w->anchor = a->id;
		return 1;
	}
	parent = read_u64(w->cur, OFF(dentry, d_parent));
	if (!parent || parent == w->cur)
		return 1;
	len = read_u32(w->cur, OFF(dentry, d_name.len)) & NAME_MAX;
	if (off >= PATHS_MAX || off + len + 1 > w->r->e.limit) {
		w->cut = 1;
		return 1;
	}
	bpf_probe_read_kernel(w->r->names + off, len,
			      (const void *)read_u64(w->cur, OFF(dentry, d_name.name)));
	off += len;
	w->r->names[off] = '/';
	*used = off + 1;
	w->cur = parent;
	return 0;
}

/* Appends a path; returns the bytes written. limit bounds what all paths so far may take. */
static __always_inline __u32 large_path(struct large_event *r, __u32 limit, __u64 d,
					const struct scope *sc, __u32 *anchor)
{
	struct writer w = { .r = r, .sc = sc, .cur = d, .anchor = NO_ANCHOR };
	volatile __u16 *used = &r->e.used;
	__u32 begin = *used;

	if (!d)
		return 0;
	r->e.limit = limit;
	bpf_loop(MAX_DEPTH, large_level, &w, 0);
	*anchor = w.anchor;
	if (w.cut)
		r->e.flags |= EVENT_CUT;
	return *used - begin;
}

/*
 * The event for paths that do not fit the small form. A global function:
 * verified once. what packs op, reason and flags.
 */
__noinline int large_record(__u32 slot, __u32 what, __u64 d1, __u64 d2, __u64 exe)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct scope *sc;
	__u32 zero = 0;
	struct session_row *row;
	struct large_event *r;
	struct label *l;
	__u64 seq;
	void *inner, *ring;

	row = bpf_map_lookup_elem(&sessions, &slot);
	inner = bpf_map_lookup_elem(&scopes, &slot);
	ring = bpf_map_lookup_elem(&rings, &slot);
	l = bpf_task_storage_get(&labels, task, 0, 0);
	if (!row || !inner || !l)
		return 0;
	sc = bpf_map_lookup_elem(inner, &zero);
	if (!sc)
		return 0;
	seq = l->number;
	if (!ring) {
		__sync_fetch_and_add(&row->lost, 1);
		return 0;
	}
	r = bpf_ringbuf_reserve(ring, sizeof(*r), 0);
	if (!r) {
		__sync_fetch_and_add(&row->lost, 1);
		return 0;
	}
	fill_event(&r->e, task, sc->h.session, sc->h.generation, seq, what & 0xff,
		   (what >> 8) & 0xff, (what >> 16) & 0xffff, 0);
	if (d1) {
		__u64 inode = read_u64(d1, OFF(dentry, d_inode));

		r->e.dev = read_u32(read_u64(d1, OFF(dentry, d_sb)), OFF(super_block, s_dev));
		if (inode)
			r->e.mode = read_u32(inode, OFF(inode, i_mode)) & 0xffff;
	}
	/* Room is kept for the second path and the executable: PATH_MAX each. */
	r->e.len = large_path(r, PATH_MAX, d1, sc, &r->e.anchor);
	r->e.len2 = large_path(r, r->e.used + PATH_MAX, d2, sc, &r->e.anchor2);
	r->e.exe_len = large_path(r, PATHS_MAX, exe, sc, &r->e.exe_anchor);
	if (exe) {
		r->e.exe = read_u64(exe, OFF(dentry, d_inode));
		r->e.exe_ino = read_u64(r->e.exe, OFF(inode, i_ino));
	}
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

static __noinline int record(struct label *l, const struct scope *sc, __u32 what,
			     struct dentry *d1, struct dentry *d2)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 op = what & (OP_MAX - 1), reason = (what >> 8) & 0xff;
	__u32 slot = l->slot, n;
	__u32 anchor = NO_ANCHOR;
	struct session_row *row;
	struct small_event *r;
	struct file *exe = NULL;
	struct dentry *exe_dentry = NULL;
	struct object key = {};
	__u64 seq, n1 = 0, n2 = 0, n3 = 0, *totals;
	__u32 taken;
	void *ring;

	row = bpf_map_lookup_elem(&sessions, &slot);
	if (!row)
		return 0;
	if (task->mm)
		exe = task->mm->exe_file;
	if (exe)
		exe_dentry = exe->f_path.dentry;
	if (reason >= REASON_MAX)
		reason = REASON_NONE;
	totals = sc->h.flags & SCOPE_AUDIT ? &row->audited[0][0] : &row->refused[0][0];
	/* The tentative refusal of this call was none: one system call counts once. */
	if ((what >> 16) & (EVENT_SUPERSEDES | EVENT_RETRACTS)) {
		taken = l->pending_reason;
		if (taken < REASON_MAX)
			__sync_fetch_and_add(&totals[OP_CREATE * REASON_MAX + taken], -1);
	}
	if (!((what >> 16) & EVENT_RETRACTS))
		__sync_fetch_and_add(&totals[op * REASON_MAX + reason], 1);
	seq = __sync_fetch_and_add(&row->seq, 1) + 1;
	ring = bpf_map_lookup_elem(&rings, &slot);
	if (!ring) {
		__sync_fetch_and_add(&row->lost, 1);
		return 0;
	}
	r = bpf_ringbuf_reserve(ring, sizeof(*r), 0);
	if (!r) {
		__sync_fetch_and_add(&row->lost, 1);
		return 0;
	}
	fill_event(&r->e, task, sc->h.session, sc->h.generation, seq, op, reason, what >> 16, 0);
	if (d1) {
		note_object(l, &r->e, d1);
		n = small_path(r, d1, sc, &anchor);
		if (n == NO_ROOM)
			goto large;
		r->e.anchor = anchor;
		r->e.len = n;
	}
	if (d2) {
		r->e.dev2 = d2->d_sb->s_dev;
		anchor = NO_ANCHOR;
		n = small_path(r, d2, sc, &anchor);
		if (n == NO_ROOM)
			goto large;
		r->e.anchor2 = anchor;
		r->e.len2 = n;
	}
	/* The executable: its path once, then its identity for the reader's cache. */
	if (exe) {
		key.inode = (__u64)exe->f_inode;
		key.ino = exe->f_inode->i_ino;
		key.dev = slot;
		key.generation = (__u32)sc->h.session;
		r->e.exe = key.inode;
		r->e.exe_ino = key.ino;
		if (l->exe != key.inode || l->exe_ino != key.ino) {
			l->exe = key.inode;
			l->exe_ino = key.ino;
			if (!bpf_map_lookup_elem(&exes, &key)) {
				__u64 one = 1;

				bpf_map_update_elem(&exes, &key, &one, 0);
				goto large;
			}
		}
	}
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
large:
	bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
	if (d1)
		n1 = number(l, d1);
	if (d2)
		n2 = number(l, d2);
	if (exe_dentry)
		n3 = number(l, exe_dentry);
	l->number = seq;
	return large_record(slot, what, n1, n2, n3);
}

#endif
