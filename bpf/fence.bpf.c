//go:build ignore

// SPDX-License-Identifier: Dual MIT/GPL
/*
 * The fence. For every task that carries a label it decides, operation by
 * operation, whether a path may be written, and refuses with -EACCES where the
 * answer is no or cannot be found. Tasks without a label leave at the first
 * look-up.
 *
 *   hook                 stops
 *   task_alloc           leaving the session: every new task inherits the label
 *   file_open            opening for writing
 *   path_mknod           creating files, devices, FIFOs, binding sockets
 *   path_mkdir, _rmdir, _unlink, _symlink, _link, _rename
 *                        changing directories; both names where there are two
 *   path_truncate, _chmod, _chown
 *   inode_setattr        times
 *   inode_setxattr, _removexattr, _set_acl, _remove_acl
 *   file_ioctl           inode flags, clones, terminals' input queues, devices
 *   file_receive         descriptors passed by somebody else
 *   file_fcntl, file_lock, path_notify
 *                        making others wait: leases, planfence's own locks, permission events
 *   ptrace_access_check, task_kill, file_send_sigiotask, task_setrlimit
 *                        hands of processes outside the session
 *   bpf, kernel_read_file, kernel_load_data, kernel_module_request, locked_down,
 *   quotactl, settime    the kernel itself
 *   sb_mount, move_mount, sb_umount, sb_pivotroot, sb_remount, fs_context_parse_param
 *                        what others see under a name; stacking file systems
 *   sb_kern_mount        nothing: remembers the file systems of a session's own
 *   unix_stream_connect  daemons that run commands for whoever asks
 *   uring_override_creds, uring_cmd
 *
 * What a fenced process cannot forge: its label (task storage, written by the
 * companion alone and copied by task_alloc), the dentries' parents and names
 * (the kernel's own tree; changing it is what is being refused), and the
 * addresses of anchors, which are held by descriptors and checked against
 * (s_dev, i_ino, i_generation).
 *
 * One source gives both attach modes: BPF LSM programs, and with -DFMOD_RET
 * fmod_ret programs on the security_* functions.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "fence.h"

#ifdef FMOD_RET
#define HOOK(name) SEC("fmod_ret/security_" #name)
#define HOOK_SETTIME SEC("fmod_ret/security_settime64")
#else
#define HOOK(name) SEC("lsm/" #name)
#define HOOK_SETTIME SEC("lsm/settime")
#endif

/* Set by the loader from the running kernel's BTF. */
const volatile bool setattr_has_idmap; /* inode_setattr(idmap, dentry, attr), from 6.3 */
const volatile bool acl_hooks;	       /* inode_set_acl exists, from 6.2 */

/* key: none (the task); value: its label. Written by the companion and task_alloc. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct label);
} labels SEC(".maps");

/* key: session slot; value: totals. Written here and, at the start, by the companion. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SESSIONS);
	__type(key, __u32);
	__type(value, struct session_row);
} sessions SEC(".maps");

/* Mapped by the companion while it is filled: only what is used is touched. */
struct scope_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct scope));
};

/* key: session slot; value: its scope in force. Written by the companion. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_SESSIONS);
	__uint(key_size, sizeof(__u32));
	__array(values, struct scope_map);
} scopes SEC(".maps");

struct ring_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

/* key: session slot; value: its ring. Read by the companion on a timer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_SESSIONS);
	__uint(key_size, sizeof(__u32));
	__array(values, struct ring_map);
} rings SEC(".maps");

/* key: executable (dev holds the slot, generation half of the session); value: 1. Whose path the reader has been told. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct object);
	__type(value, __u64);
} exes SEC(".maps");

struct link_key {
	struct object object;
	__u64 session;
};

/* key: a file and a session; value: how many of its names the session accounts for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, LINK_ACCOUNTS);
	__type(key, struct link_key);
	__type(value, __u32);
} link_counts SEC(".maps");

/* key: root of a file system and a session that mounted it new and empty; value: 1. Written by sb_kern_mount. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, OWN_ROOTS);
	__type(key, struct link_key);
	__type(value, __u32);
} own_roots SEC(".maps");

/* key: a random token; value: what is behind the descriptor that it was asked for with. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, struct answer);
} answers SEC(".maps");

#include "match.h"
#include "walk.h"
#include "record.h"

/* For bpf2go: the types that Go shares. */
const struct event *unused_event __attribute__((unused));
const struct label *unused_label __attribute__((unused));
const struct scope_header *unused_header __attribute__((unused));
const struct answer *unused_answer __attribute__((unused));
const enum op unused_op __attribute__((unused));
const enum reason unused_reason __attribute__((unused));
const enum scope_flag unused_scope_flag __attribute__((unused));
const enum event_flag unused_event_flag __attribute__((unused));
const enum limit unused_limit __attribute__((unused));
const enum role unused_role __attribute__((unused));
const enum state unused_state __attribute__((unused));

/* ---- who ---------------------------------------------------------------- */

/* The label of the current task if it is fenced. The cheap test comes first. */
static __always_inline struct label *fenced(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct label *l;

	if (!task->bpf_storage)
		return NULL;
	l = bpf_task_storage_get(&labels, task, 0, 0);
	if (!l || l->role != ROLE_FENCED)
		return NULL;
	return l;
}

static __always_inline struct scope *scope_of(const struct label *l)
{
	__u32 slot = l->slot, zero = 0;
	struct scope *sc;
	void *inner;

	inner = bpf_map_lookup_elem(&scopes, &slot);
	if (!inner)
		return NULL;
	sc = bpf_map_lookup_elem(inner, &zero);
	if (!sc || sc->h.session != l->session)
		return NULL;
	return sc;
}

/* ---- verdict ------------------------------------------------------------ */

/* A refusal: counted, told, and made, unless the session only audits. */
static __always_inline int refuse(struct label *l, struct scope *sc, __u32 op, __u32 reason,
				  __u32 flags, struct dentry *d1, struct dentry *d2)
{
	if (reason == REASON_SCOPE && (sc->h.flags & SCOPE_DENY))
		reason = REASON_NO_TASK;
	if (sc->h.flags & SCOPE_AUDIT)
		flags |= EVENT_WOULD;
	record(l, sc, op | reason << 8 | flags << 16, d1, d2);
	return sc->h.flags & SCOPE_AUDIT ? 0 : -EACCES;
}

/* No scope for a labelled task: it cannot be judged, so it may not write. */
static __always_inline int refuse_blind(const struct label *l, __u32 op)
{
	__u32 slot = l->slot;
	struct session_row *row = bpf_map_lookup_elem(&sessions, &slot);

	if (row) {
		__sync_fetch_and_add(&row->refused[op & (OP_MAX - 1)][REASON_NO_TASK], 1);
		__sync_fetch_and_add(&row->lost, 1);
	}
	return -EACCES;
}

static __always_inline __u32 walk(struct label *l, struct scope *sc, struct dentry *d, __u32 need)
{
	__u32 r = fast_walk(d, sc, need);

	if (r == SLOW_BIT)
		r = general_walk(number(l, d), l->slot, need);
	return r;
}

/*
 * The same answer by the general walk alone, for hooks that are not called
 * often enough to pay for a fast walk of their own at every load.
 */
static __always_inline __u32 walk_rarely(struct label *l, struct dentry *d, __u32 need)
{
	return general_walk(number(l, d), l->slot, need);
}

static __always_inline void object_of(struct object *o, struct inode *inode)
{
	o->inode = (__u64)inode;
	o->ino = inode->i_ino;
	o->dev = inode->i_sb->s_dev;
	o->generation = inode->i_generation;
}

/* Has the file names that the session cannot account for? */
static __always_inline bool stray_links(const struct label *l, const struct scope *sc,
					struct inode *inode)
{
	struct link_key k = {};
	__u32 nlink = inode->i_nlink, *known;

	if (nlink <= 1 || (inode->i_mode & S_IFMT) == S_IFDIR)
		return false;
	if (sc->h.flags & (SCOPE_HARDLINKS | SCOPE_OPEN))
		return false; /* the operator allows it, or no task is active */
	object_of(&k.object, inode);
	k.session = l->session;
	known = bpf_map_lookup_elem(&link_counts, &k);
	return !known || *known < nlink || (__s32)*known < 0;
}

/*
 * One accounted name less. If the operation fails yet, the account is short: refusing.
 * Two that race for the last one leave a negative account, which is none.
 */
static __always_inline void unaccount(const struct label *l, struct inode *inode)
{
	struct link_key k = {};
	__u32 *known;

	if (inode->i_nlink < 2)
		return;
	object_of(&k.object, inode);
	k.session = l->session;
	known = bpf_map_lookup_elem(&link_counts, &k);
	if (known && (__s32)*known > 0)
		__sync_fetch_and_add(known, -1);
}

/* May the object at d be changed in place? */
static __always_inline __u32 in_place(struct label *l, struct scope *sc, struct dentry *d)
{
	struct inode *inode = d->d_inode;
	__u32 r = walk_rarely(l, d, NEED_SELF);

	if (!r && inode && stray_links(l, sc, inode))
		r = REASON_HARDLINK;
	return r;
}

/* A mount that only the kernel uses: overlayfs' layers, pipes, sockets, memfds. */
static __always_inline bool internal_mount(const struct vfsmount *mnt)
{
	__u64 ns = 0;

	bpf_probe_read_kernel(&ns, sizeof(ns),
			      (const void *)mnt + (OFF(mount, mnt_ns) - OFF(mount, mnt)));
	return ns == MNT_NS_INTERNAL;
}

#define STACK_FRAMES 32

/* Is overlayfs among the callers? Looked at only when about to refuse. */
static __noinline bool from_overlay(void *ctx, const struct scope *sc)
{
	__u64 ip[STACK_FRAMES] = {}, start = sc->h.overlay_start, end = sc->h.overlay_end;
	__u32 i;

	if (bpf_get_stack(ctx, ip, sizeof(ip), 0) < 0)
		return false;
	for (i = 0; i < STACK_FRAMES; i++)
		if (ip[i] >= start && ip[i] < end)
			return true;
	return false;
}

/*
 * For the hooks that are given no mount: a file system that the kernel mounted
 * for itself, or overlayfs at work on one of its layers. The latter runs with
 * the mounter's credentials, and shows on the call stack. Credentials alone do
 * not tell: an io_uring request can run with older ones of its own. Where the
 * place of overlayfs' code is not known, a task that uses io_uring is refused.
 * Stacking file systems cannot be mounted from inside.
 */
static __always_inline bool internal_dentry(void *ctx, const struct scope *sc, struct dentry *d)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct super_block *sb = d->d_sb;

	if (sb->s_flags & SB_KERNMOUNT)
		return true;
	if (sb->s_magic == OVERLAYFS_SUPER_MAGIC)
		return false;
	if (task->cred == task->real_cred)
		return false;
	if (sc->h.overlay_start)
		return from_overlay(ctx, sc);
	if (task->flags & (PF_IO_WORKER | PF_USER_WORKER))
		return false;
	return !task->io_uring;
}

/* Devices that may be opened for writing wherever their node lies. */
static __always_inline bool harmless_device(const struct scope *sc, __u32 mode, __u32 rdev)
{
	__u32 major = rdev >> MINORBITS, minor = rdev & ((1u << MINORBITS) - 1), i;

	if ((mode & S_IFMT) != S_IFCHR)
		return false;
	/* Documentation/admin-guide/devices.txt: null, zero, full, random, urandom */
	if (major == 1)
		return minor == 3 || minor == 5 || minor == 7 || minor == 8 || minor == 9;
	/* tty and ptmx */
	if (major == 5 && (minor == 0 || minor == 2))
		return true;
	/* Unix98 pseudo terminals */
	if (major >= 136 && major <= 143)
		return true;
	for (i = 0; i < MAX_TTYS; i++)
		if (i < sc->h.ttys && sc->h.tty[i] == rdev)
			return true;
	return false;
}

/*
 * Further ones while no task is active. Never those that reach a disk (sg, nvme,
 * mtd), memory, or another's keyboard (input, uinput, virtual consoles).
 */
static __always_inline bool idle_device(__u32 mode, __u32 rdev)
{
	__u32 major = rdev >> MINORBITS, minor = rdev & ((1u << MINORBITS) - 1);

	if ((mode & S_IFMT) != S_IFCHR)
		return false;
	/* tun, fuse, kvm */
	if (major == 10)
		return minor == 200 || minor == 229 || minor == 232;
	/* serial lines; cameras, sound, graphics */
	return (major == 4 && minor >= 64) || major == 166 || major == 188 || major == 81 ||
	       major == 116 || major == 195 || major == 226;
}

/* Eight characters as a word, as they lie in memory (the objects are little-endian). */
#define PROC_NAME(a, b, c, d, e, f, g, h)                                                        \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 | \
	 (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)

/*
 * Of an inode of proc: an entry of the process itself, of a thread of it or of its child
 * (fenced as well: labels are inherited), and the id maps of others, which the
 * kernel guards: whoever makes a user namespace has them written from outside.
 */
static __noinline bool own_proc_entry(struct inode *inode, struct dentry *d)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 pid = 0, name, other;

	bpf_probe_read_kernel(&pid, sizeof(pid),
			      (const void *)inode +
				      ((long)OFF(proc_inode, pid) - (long)OFF(proc_inode, vfs_inode)));
	if (!pid)
		return false;
	if (pid == (__u64)task->thread_pid || pid == (__u64)task->group_leader->thread_pid)
		return true;
	name = read_u64((__u64)d->d_name.name, 0);
	if (d->d_name.len == 7 && (name == PROC_NAME('u', 'i', 'd', '_', 'm', 'a', 'p', 0) ||
				   name == PROC_NAME('g', 'i', 'd', '_', 'm', 'a', 'p', 0)))
		return true;
	if (d->d_name.len == 9 && name == PROC_NAME('s', 'e', 't', 'g', 'r', 'o', 'u', 'p'))
		return true;
	/* tasks[PIDTYPE_PID] heads a list of one task. */
	other = read_u64(pid, OFF(pid, tasks));
	if (!other)
		return false;
	other -= OFF(task_struct, pid_links);
	if (read_u32(other, OFF(task_struct, tgid)) == task->tgid)
		return true;
	other = read_u64(other, OFF(task_struct, real_parent));
	return read_u32(other, OFF(task_struct, tgid)) == task->tgid;
}

/* What the operator opened as descriptor 0, 1 or 2. */
static __always_inline bool operators_stdio(const struct scope *sc, struct inode *inode)
{
	__u32 i;

	for (i = 0; i < MAX_STDIO; i++) {
		const struct object *o = &sc->h.stdio[i];

		if (i < sc->h.stdios && o->inode == (__u64)inode && o->ino == inode->i_ino &&
		    o->generation == inode->i_generation && o->dev == inode->i_sb->s_dev)
			return true;
	}
	return false;
}

/*
 * A file reached through a descriptor: the exceptions that hold whatever the
 * path is. Looked at only when about to refuse.
 */
static __always_inline bool always_writable(const struct scope *sc, const struct path *path,
					    struct inode *inode)
{
	if (inode->i_sb->s_magic == PROC_SUPER_MAGIC && own_proc_entry(inode, path->dentry))
		return true;
	return operators_stdio(sc, inode) || internal_mount(path->mnt);
}

/* Judge writing the contents of an object: 0 or the reason. */
static __always_inline __u32 judge_contents(struct label *l, struct scope *sc,
					    const struct path *path, struct inode *inode, bool often)
{
	struct dentry *d = path->dentry;
	__u32 mode = inode->i_mode, r;

	if ((mode & S_IFMT) == S_IFCHR || (mode & S_IFMT) == S_IFBLK) {
		/* By type, whatever the path says: the node may have been made in scope. */
		if (harmless_device(sc, mode, inode->i_rdev))
			return REASON_NONE;
		if ((sc->h.flags & SCOPE_OPEN) && idle_device(mode, inode->i_rdev))
			return REASON_NONE; /* no task is active */
		return internal_mount(path->mnt) ? REASON_NONE : REASON_DEVICE;
	}
	r = often ? walk(l, sc, d, NEED_SELF) : walk_rarely(l, d, NEED_SELF);
	/* The dentry's inode: up to 6.7 overlayfs opens its real file under the same path. */
	if (!r && (often && inode == d->d_inode ? stray_links(l, sc, inode) : stray_links(l, sc, d->d_inode)))
		r = REASON_HARDLINK;
	if (r && always_writable(sc, path, inode))
		r = REASON_NONE;
	return r;
}

/* ---- hooks: tasks ------------------------------------------------------- */

HOOK(task_alloc)
int BPF_PROG(task_alloc, struct task_struct *task, unsigned long clone_flags, int ret)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct label *l, *child;

	if (ret)
		return ret;
	if (!current->bpf_storage)
		return 0;
	l = bpf_task_storage_get(&labels, current, 0, 0);
	if (!l || l->role != ROLE_FENCED)
		return 0; /* not fenced: the companion's children are labelled one by one */
	child = bpf_task_storage_get(&labels, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!child)
		return -ENOMEM; /* a task that cannot be labelled is not made */
	child->session = l->session;
	child->slot = l->slot;
	child->role = l->role;
	return 0;
}

/* ---- hooks: files ------------------------------------------------------- */

/* The kernel's own hash and length of a name, as d_name.hash_len (not loadable whole on 6.1). */
static __always_inline __u64 name_key(struct dentry *d)
{
	return (__u64)d->d_name.len << 32 | d->d_name.hash;
}

/*
 * Was the tentative create that the label remembers one of a symbolic link, over which the same call has
 * come here? For the log alone: what is read belongs to a walk that goes on.
 */
static __noinline bool followed_pending(const struct label *l, struct task_struct *task)
{
	__u64 link;

	if (!task->nameidata)
		return false;
	link = read_u64((__u64)task->nameidata->stack, OFF(saved, link.dentry));
	return link && read_u64(link, OFF(dentry, d_parent)) == l->pending_parent &&
	       read_u32(link, OFF(dentry, d_name.len)) == l->pending_hash >> 32 &&
	       read_u32(link, OFF(dentry, d_name.hash)) == (__u32)l->pending_hash;
}

/* Out of line, so that the hook itself needs no registers saved for those it lets go. */
static __noinline int open_fenced(struct file *file, struct task_struct *task)
{
	struct label *l;
	struct scope *sc;
	struct dentry *d;
	bool pending, writes = file->f_mode & FMODE_WRITE || file->f_flags & O_TRUNC;
	__u32 r, flags = 0;

	l = bpf_task_storage_get(&labels, task, 0, 0);
	if (!l || l->role != ROLE_FENCED)
		return 0; /* not fenced */
	sc = scope_of(l);
	if (!sc)
		return writes ? refuse_blind(l, OP_OPEN) : 0;
	d = file->f_path.dentry;
	pending = l->pending_parent && l->pending_parent == (__u64)d->d_parent &&
		  l->pending_hash == name_key(d);
	/* The create was real (only an auditing session gets here): told already. */
	if (pending && file->f_mode & FMODE_CREATED) {
		l->pending_parent = 0;
		return 0;
	}
	if (l->pending_parent && l->pending_tentative)
		pending = pending || followed_pending(l, task);
	else
		pending = false;
	if (pending) {
		l->pending_parent = 0;
		flags = EVENT_SUPERSEDES;
	}
	if (!writes)
		r = REASON_NONE;
	else
		r = judge_contents(l, sc, &file->f_path, file->f_inode, true);
	if (!r) {
		if (pending)
			record(l, sc, OP_CREATE | REASON_SCOPE << 8 | EVENT_RETRACTS << 16, d, NULL);
		return 0;
	}
	if (sc->h.flags & SCOPE_AUDIT) {
		if (file->f_mode & FMODE_CREATED)
			return 0; /* told as a create */
		l->audited = (__u64)d;
	}
	return refuse(l, sc, OP_OPEN, r, flags, d, NULL);
}

HOOK(file_open)
int BPF_PROG(file_open, struct file *file, int ret)
{
	struct task_struct *task;

	if (ret)
		return ret;
	/* Reading is not fenced, but O_TRUNC cuts through O_RDONLY; see path_mknod for O_CREAT. */
	if (!(file->f_mode & FMODE_WRITE) && !(file->f_flags & (O_CREAT | O_TRUNC)))
		return 0;
	task = bpf_get_current_task_btf();
	return task->bpf_storage ? open_fenced(file, task) : 0;
}

HOOK(path_truncate)
int BPF_PROG(path_truncate, const struct path *path, int ret)
{
	struct label *l;
	struct scope *sc;
	struct dentry *d;
	__u32 r;

	if (ret)
		return ret;
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_TRUNCATE);
	d = path->dentry;
	if (l->audited) {
		bool told = l->audited == (__u64)d;

		l->audited = 0;
		if (told)
			return 0; /* an auditing session's open(O_TRUNC): told as an open */
	}
	r = judge_contents(l, sc, path, d->d_inode, false);
	return r ? refuse(l, sc, OP_TRUNCATE, r, 0, d, NULL) : 0;
}

/* ---- hooks: names ------------------------------------------------------- */

/* Set in d_flags while something is mounted there, in whatever namespace. */
static __always_inline bool mounted(struct dentry *d)
{
	if (bpf_core_enum_value_exists(enum dentry_flags, DCACHE_MOUNTED))
		return d->d_flags & bpf_core_enum_value(enum dentry_flags, DCACHE_MOUNTED);
	return d->d_flags & DCACHE_MOUNTED_OLD;
}

/*
 * Would removing the name take somebody's mount away? The kernel says EBUSY for a
 * mount point of the caller's own namespace, and detaches what others mounted there.
 */
static __always_inline bool detaches(const struct scope *sc, struct dentry *d)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return mounted(d) && (__u64)task->nsproxy->mnt_ns != sc->h.mnt_ns;
}

/* One name in a directory. */
static __always_inline int one_name(const struct path *dir, struct dentry *d, __u32 op, __u32 need,
				    bool often)
{
	struct label *l = fenced();
	struct scope *sc;
	__u32 r;

	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, op);
	r = often ? walk(l, sc, d, need) : walk_rarely(l, d, need);
	if (!r && (op == OP_RMDIR || op == OP_UNLINK) && detaches(sc, d))
		r = REASON_MOUNT;
	if (!r || internal_mount(dir->mnt))
		return 0; /* in scope, or the kernel's own */
	return refuse(l, sc, op, r, 0, d, NULL);
}

/* Set in d_flags while the file system has not looked the name up. */
static __always_inline bool in_lookup(struct dentry *d)
{
	if (bpf_core_enum_value_exists(enum dentry_flags, DCACHE_PAR_LOOKUP))
		return d->d_flags & bpf_core_enum_value(enum dentry_flags, DCACHE_PAR_LOOKUP);
	return d->d_flags & DCACHE_PAR_LOOKUP_OLD;
}

/*
 * open(O_CREAT) asks here before it looks the name up. If the file turns out
 * to exist the refusal is dropped by the kernel and file_open asks again, in
 * the same call, or path_mknod does where it is a link to another name. So
 * such a refusal is told as tentative and remembered in the label, and they
 * take it back or take its place.
 */
HOOK(path_mknod)
int BPF_PROG(path_mknod, const struct path *dir, struct dentry *dentry, unsigned int mode,
	     unsigned int dev, int ret)
{
	__u32 type = mode & S_IFMT, r, flags = 0, op;
	struct label *l;
	struct scope *sc;

	if (ret)
		return ret;
	l = fenced();
	if (!l)
		return 0;
	op = type == 0 || type == S_IFREG ? OP_CREATE : OP_MKNOD;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, op);
	if (l->pending_parent && l->pending_tentative && followed_pending(l, bpf_get_current_task_btf()))
		record(l, sc, OP_CREATE | REASON_SCOPE << 8 | EVENT_RETRACTS << 16, dentry, NULL);
	l->pending_parent = 0;
	/* A device node is another name of the device. 0:0 is overlayfs' whiteout. */
	if ((type == S_IFBLK || type == S_IFCHR) && dev)
		r = REASON_DEVICE;
	else
		r = walk(l, sc, dentry, NEED_SELF);
	if (!r || internal_mount(dir->mnt))
		return 0; /* in scope, or the kernel's own */
	if (op == OP_CREATE) {
		l->pending_parent = (__u64)dentry->d_parent;
		l->pending_hash = name_key(dentry);
		l->pending_reason = sc->h.flags & SCOPE_DENY && r == REASON_SCOPE ? REASON_NO_TASK : r;
		l->pending_tentative = in_lookup(dentry);
		if (l->pending_tentative)
			flags = EVENT_TENTATIVE;
		else if (!(sc->h.flags & SCOPE_AUDIT))
			l->pending_parent = 0;
	}
	return refuse(l, sc, op, r, flags, dentry, NULL);
}

HOOK(path_mkdir)
int BPF_PROG(path_mkdir, const struct path *dir, struct dentry *dentry, unsigned int mode, int ret)
{
	return ret ? ret : one_name(dir, dentry, OP_MKDIR, NEED_DIR, true);
}

HOOK(path_rmdir)
int BPF_PROG(path_rmdir, const struct path *dir, struct dentry *dentry, int ret)
{
	return ret ? ret : one_name(dir, dentry, OP_RMDIR, NEED_SELF, false);
}

HOOK(path_symlink)
int BPF_PROG(path_symlink, const struct path *dir, struct dentry *dentry, const char *old, int ret)
{
	return ret ? ret : one_name(dir, dentry, OP_SYMLINK, NEED_SELF, false);
}

HOOK(path_unlink)
int BPF_PROG(path_unlink, const struct path *dir, struct dentry *dentry, int ret)
{
	struct inode *inode;
	struct label *l;
	int err;

	if (ret)
		return ret;
	err = one_name(dir, dentry, OP_UNLINK, NEED_SELF, true);
	if (err)
		return err;
	l = fenced();
	inode = dentry->d_inode;
	if (l && inode)
		unaccount(l, inode);
	return 0;
}

/*
 * Both names by one scope. The companion waits, after it has changed a scope, for
 * programs that run, so a run meets one change at most: where there was one, both
 * names are judged again, by what it finds then.
 */
static __always_inline struct scope *judge_again(struct label *l, struct scope *sc, struct dentry *d1,
						 struct dentry *d2, __u32 need, __u32 *r, __u32 *flags)
{
	struct scope *now = scope_of(l);

	if (now == sc)
		return sc;
	if (!now) {
		*r = REASON_UNKNOWN;
		return sc;
	}
	*flags = 0;
	*r = walk_rarely(l, d1, need);
	if (!*r) {
		*flags = EVENT_PATH2;
		*r = walk_rarely(l, d2, need);
	}
	if (!*r && scope_of(l) != now)
		*r = REASON_UNKNOWN; /* more than one change: not met */
	return now;
}

HOOK(path_link)
int BPF_PROG(path_link, struct dentry *old_dentry, const struct path *new_dir,
	     struct dentry *new_dentry, int ret)
{
	struct link_key k = {};
	struct inode *inode;
	struct label *l;
	struct scope *sc;
	__u32 r, flags = 0, nlink, fresh, *known;

	if (ret)
		return ret;
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_LINK);
	r = walk_rarely(l, old_dentry, NEED_SELF);
	if (!r) {
		flags = EVENT_PATH2;
		r = walk_rarely(l, new_dentry, NEED_SELF);
	}
	sc = judge_again(l, sc, old_dentry, new_dentry, NEED_SELF, &r, &flags);
	if (r && !internal_mount(new_dir->mnt))
		return refuse(l, sc, OP_LINK, r, flags, old_dentry, new_dentry);
	inode = old_dentry->d_inode;
	if (!inode || r)
		return 0; /* the kernel's own */
	/*
	 * Account for the new name, but only of a file all of whose names are
	 * accounted for already. If the link fails yet the account is one too
	 * high, which only helps a name that somebody outside makes later.
	 */
	object_of(&k.object, inode);
	k.session = l->session;
	nlink = inode->i_nlink;
	known = bpf_map_lookup_elem(&link_counts, &k);
	if (known && nlink > 1) {
		if (*known == nlink)
			__sync_fetch_and_add(known, 1);
	} else if (nlink <= 1) {
		fresh = nlink + 1;
		bpf_map_update_elem(&link_counts, &k, &fresh, 0);
	}
	return 0;
}

HOOK(path_rename)
int BPF_PROG(path_rename, const struct path *old_dir, struct dentry *old_dentry,
	     const struct path *new_dir, struct dentry *new_dentry, unsigned int how, int ret)
{
	struct inode *old, *new;
	struct label *l;
	struct scope *sc;
	__u32 r, need = NEED_SELF, flags = 0;
	bool over;

	if (ret)
		return ret;
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_RENAME);
	old = old_dentry->d_inode;
	new = new_dentry->d_inode;
	over = exists(l, new);
	/* A directory takes along what is below it, at both ends. */
	if (old && (old->i_mode & S_IFMT) == S_IFDIR)
		need = NEED_TREE;
	else if ((how & RENAME_EXCHANGE) && over && new && (new->i_mode & S_IFMT) == S_IFDIR)
		need = NEED_TREE;
	/* A second fast walk behind the first would be half of the verifier's limit on 7.2. */
	r = walk(l, sc, old_dentry, need);
	if (!r) {
		flags = EVENT_PATH2;
		r = walk_rarely(l, new_dentry, need);
	}
	sc = judge_again(l, sc, old_dentry, new_dentry, need, &r, &flags);
	if (!r && over && !(how & RENAME_EXCHANGE) && detaches(sc, new_dentry)) {
		r = REASON_MOUNT;
		flags = EVENT_PATH2;
	}
	if (r && !internal_mount(old_dir->mnt))
		return refuse(l, sc, OP_RENAME, r, flags, old_dentry, new_dentry);
	/* In scope, or the kernel's own. What is renamed over has one accounted name less. */
	if (old && over && new && old != new && !(how & RENAME_EXCHANGE) && (old->i_mode & S_IFMT) != S_IFDIR)
		unaccount(l, new);
	return 0;
}

/* ---- hooks: metadata ---------------------------------------------------- */

static __always_inline int metadata(const struct path *path, __u32 op)
{
	struct label *l = fenced();
	struct scope *sc;
	struct dentry *d;
	__u32 r;

	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, op);
	d = path->dentry;
	r = in_place(l, sc, d);
	if (!r || internal_mount(path->mnt))
		return 0; /* in scope, or the kernel's own */
	return refuse(l, sc, op, r, 0, d, NULL);
}

static __always_inline int metadata_dentry(void *ctx, struct dentry *d, __u32 op)
{
	struct label *l = fenced();
	struct scope *sc;
	__u32 r;

	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, op);
	r = in_place(l, sc, d);
	if (!r || internal_dentry(ctx, sc, d))
		return 0; /* in scope, or the kernel's own */
	return refuse(l, sc, op, r, 0, d, NULL);
}

HOOK(path_chmod)
int BPF_PROG(path_chmod, const struct path *path, unsigned short mode, int ret)
{
	return ret ? ret : metadata(path, OP_CHMOD);
}

/*
 * uid and gid are not declared: kuid_t is a struct, which 6.1 does not take as
 * an argument of a typed program. So the earlier verdict, the fourth argument,
 * is read from the context.
 */
HOOK(path_chown)
int path_chown(unsigned long long *ctx)
{
	const struct path *path = (const struct path *)ctx[0];
	int ret = (int)ctx[3];

	return ret ? ret : metadata(path, OP_CHOWN);
}

#include "guard.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
