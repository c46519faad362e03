/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * guard.h: the hooks beside the plain file operations: metadata that comes
 * without a mount, ioctls, descriptors of others, other processes, the kernel
 * itself, mounts, control sockets.
 */
#ifndef PLANFENCE_GUARD_H
#define PLANFENCE_GUARD_H

/* ---- metadata without a mount ------------------------------------------- */

/* The dentry stands first up to 6.2, second behind the idmap later. */
HOOK(inode_setattr)
int inode_setattr(unsigned long long *ctx)
{
	struct dentry *d;
	struct iattr *attr;
	unsigned int valid;
	int ret;

	/* The context is loaded at constant offsets only: the compiler must not merge these. */
	if (setattr_has_idmap) {
		d = (struct dentry *)ctx[1];
		attr = (struct iattr *)ctx[2];
		ret = (int)ctx[3];
		barrier();
	} else {
		d = (struct dentry *)ctx[0];
		attr = (struct iattr *)ctx[1];
		ret = (int)ctx[2];
		barrier_var(d);
	}
	if (ret)
		return ret;
	valid = attr->ia_valid;
	/* Times only: mode, owner and size have hooks of their own, which see the mount. */
	if (!(valid & (ATTR_ATIME | ATTR_MTIME)) || (valid & (ATTR_MODE | ATTR_UID | ATTR_GID | ATTR_SIZE)))
		return 0;
	return metadata_dentry(ctx, d, OP_UTIMES);
}

HOOK(inode_setxattr)
int inode_setxattr(unsigned long long *ctx)
{
	struct dentry *d = (struct dentry *)ctx[1];
	int ret = (int)ctx[6];

	return ret ? ret : metadata_dentry(ctx, d, OP_SETXATTR);
}

HOOK(inode_removexattr)
int inode_removexattr(unsigned long long *ctx)
{
	struct dentry *d = (struct dentry *)ctx[1];
	int ret = (int)ctx[3];

	return ret ? ret : metadata_dentry(ctx, d, OP_REMOVEXATTR);
}

HOOK(inode_set_acl)
int inode_set_acl(unsigned long long *ctx)
{
	struct dentry *d = (struct dentry *)ctx[1];
	int ret = (int)ctx[4];

	return ret ? ret : metadata_dentry(ctx, d, OP_SETACL);
}

HOOK(inode_remove_acl)
int inode_remove_acl(unsigned long long *ctx)
{
	struct dentry *d = (struct dentry *)ctx[1];
	int ret = (int)ctx[3];

	return ret ? ret : metadata_dentry(ctx, d, OP_SETACL);
}

/* From 6.18: the file_setattr(2) call, inode flags by path. */
HOOK(inode_file_setattr)
int inode_file_setattr(unsigned long long *ctx)
{
	struct dentry *d = (struct dentry *)ctx[0];
	int ret = (int)ctx[2];
	struct label *l;

	if (ret)
		return ret;
	l = fenced();
	if (!l)
		return 0;
	if (l->audited) {
		bool told = l->audited == (__u64)d;

		l->audited = 0;
		if (told)
			return 0; /* an auditing session's ioctl: told as that */
	}
	return metadata_dentry(ctx, d, OP_IOCTL);
}

/* ---- ioctl -------------------------------------------------------------- */

/* include/uapi/asm-generic/ioctls.h, linux/fs.h: requests that only read. */
static __noinline bool reading_ioctl(__u32 cmd)
{
	switch (cmd) {
	case 0x5401: /* TCGETS, isatty() */
	case 0x5413: /* TIOCGWINSZ */
	case 0x540f: /* TIOCGPGRP */
	case 0x541b: /* FIONREAD */
	case 0x5421: /* FIONBIO */
	case 0x5450: /* FIONCLEX */
	case 0x5451: /* FIOCLEX */
	case 0x5452: /* FIOASYNC */
	case 0x5460: /* FIOQSIZE */
	case 1:	     /* FIBMAP */
	case 2:	     /* FIGETBSZ */
	case 0x80086601: /* FS_IOC_GETFLAGS */
	case 0x80046601: /* FS_IOC32_GETFLAGS */
	case 0x80087601: /* FS_IOC_GETVERSION */
	case 0xc020660b: /* FS_IOC_FIEMAP */
	case 0x801c581f: /* FS_IOC_FSGETXATTR */
	case 0x81009431: /* FS_IOC_GETFSLABEL */
	case 0x80111500: /* FS_IOC_GETFSUUID */
	case 0x8400941f: /* BTRFS_IOC_FS_INFO */
	case 0xd0009412: /* BTRFS_IOC_INO_LOOKUP */
	case 0xd000941e: /* BTRFS_IOC_DEV_INFO */
	case 0x8100943c: /* BTRFS_IOC_GET_SUBVOL_INFO, size varies */
	case 0xc0109414: /* BTRFS_IOC_SPACE_INFO */
	case 0x80086604: /* FS_IOC_GETVERSION of ext4 */
	case 0xc0046686: /* FS_IOC_MEASURE_VERITY */
	case 0xc0286687: /* FS_IOC_READ_VERITY_METADATA */
	case 0x400c6615: /* FS_IOC_GET_ENCRYPTION_POLICY */
	case 0xc0096616: /* FS_IOC_GET_ENCRYPTION_POLICY_EX */
	case 0x40046629: /* EXT4_IOC_GETSTATE */
	case 0x6612:	 /* EXT4_IOC_PRECACHE_EXTENTS */
	case 0x8100587e: /* XFS_IOC_FSGEOMETRY */
	case 0x8070587c: /* XFS_IOC_FSGEOMETRY_V4 */
	case 0x800c581e: /* XFS_IOC_DIOINFO */
	case 0x801c582d: /* XFS_IOC_FSGETXATTRA */
	case 0x8004f50c: /* F2FS_IOC_GET_FEATURES */
	case 0x80047210: /* FAT_IOCTL_GET_ATTRIBUTES */
		return true;
	}
	return false;
}

/* Requests that end in inode_file_setattr, where there is one. */
static __always_inline bool setattr_ioctl(__u32 cmd)
{
	return cmd == 0x40086602 || /* FS_IOC_SETFLAGS */
	       cmd == 0x40046602 || /* FS_IOC32_SETFLAGS */
	       cmd == 0x401c5820;   /* FS_IOC_FSSETXATTR */
}

/* Requests that change the one object that they are made on. */
static __noinline bool object_ioctl(__u32 cmd)
{
	switch (cmd) {
	case 0x40086602: /* FS_IOC_SETFLAGS */
	case 0x40046602: /* FS_IOC32_SETFLAGS */
	case 0x401c5820: /* FS_IOC_FSSETXATTR */
	case 0x40087602: /* FS_IOC_SETVERSION */
	case 0x40049409: /* FICLONE */
	case 0x4020940d: /* FICLONERANGE */
	case 0x40806685: /* FS_IOC_ENABLE_VERITY */
	case 0x40305828: /* FS_IOC_RESVSP */
	case 0x4030582a: /* FS_IOC_RESVSP64 */
	case 0x4030582b: /* FS_IOC_UNRESVSP64 */
	case 0x40305839: /* FS_IOC_ZERO_RANGE */
	case 0xc028660f: /* EXT4_IOC_MOVE_EXT: the donor is opened for writing */
	case 0x660c:	 /* EXT4_IOC_ALLOC_DA_BLKS */
	case 0x800c6613: /* FS_IOC_SET_ENCRYPTION_POLICY */
	case 0x50009402: /* BTRFS_IOC_DEFRAG */
	case 0x40309410: /* BTRFS_IOC_DEFRAG_RANGE */
	case 0xf501:	 /* F2FS_IOC_START_ATOMIC_WRITE */
	case 0xf502:	 /* F2FS_IOC_COMMIT_ATOMIC_WRITE */
	case 0xf505:	 /* F2FS_IOC_ABORT_ATOMIC_WRITE */
	case 0x40047211: /* FAT_IOCTL_SET_ATTRIBUTES */
		return true;
	}
	return false;
}

/*
 * Requests to a terminal that reach whoever uses it next: typing (TIOCSTI,
 * TIOCLINUX pastes), what its keys say, where the console's output goes, which
 * line discipline works on it, which screen is shown. Of a virtual console's
 * letters only the requests that read are let through.
 */
static __noinline bool typing_ioctl(__u32 cmd)
{
	__u32 letter = cmd >> 8;

	switch (cmd) {
	case 0x5412: /* TIOCSTI */
	case 0x541c: /* TIOCLINUX */
	case 0x541d: /* TIOCCONS */
	case 0x5423: /* TIOCSETD */
		return true;
	case 0x4b31: /* KDGETLED */
	case 0x4b33: /* KDGKBTYPE */
	case 0x4b3b: /* KDGETMODE */
	case 0x4b40: /* GIO_SCRNMAP */
	case 0x4b44: /* KDGKBMODE */
	case 0x4b46: /* KDGKBENT */
	case 0x4b48: /* KDGKBSENT */
	case 0x4b4a: /* KDGKBDIACR */
	case 0x4b4c: /* KDGETKEYCODE */
	case 0x4b60: /* GIO_FONT */
	case 0x4b62: /* KDGKBMETA */
	case 0x4b64: /* KDGKBLED */
	case 0x4b66: /* GIO_UNIMAP */
	case 0x4b69: /* GIO_UNISCRNMAP */
	case 0x4b6b: /* GIO_FONTX */
	case 0x4b70: /* GIO_CMAP */
	case 0x4bfa: /* KDGKBDIACRUC */
	case 0x5600: /* VT_OPENQRY */
	case 0x5601: /* VT_GETMODE */
	case 0x5603: /* VT_GETSTATE */
		return false;
	}
	return letter == 'K' || letter == 'V';
}

/* Block devices: sizes and geometry, include/uapi/linux/fs.h. */
static __noinline bool reading_block_ioctl(__u32 cmd)
{
	switch (cmd) {
	case 0x125e:	 /* BLKROGET */
	case 0x1260:	 /* BLKGETSIZE */
	case 0x1263:	 /* BLKRAGET */
	case 0x1265:	 /* BLKFRAGET */
	case 0x1267:	 /* BLKSECTGET */
	case 0x1268:	 /* BLKSSZGET */
	case 0x1278:	 /* BLKIOMIN */
	case 0x1279:	 /* BLKIOOPT */
	case 0x127a:	 /* BLKALIGNOFF */
	case 0x127b:	 /* BLKPBSZGET */
	case 0x127e:	 /* BLKROTATIONAL */
	case 0x80081272: /* BLKGETSIZE64 */
	case 0x80041270: /* BLKBSZGET */
		return true;
	}
	return false;
}

/* The letters that file systems' requests are made of: ext4 and the generic ones, xfs, btrfs, f2fs, fat. */
static __always_inline bool file_system_letter(__u32 letter)
{
	return letter == 'f' || letter == 'X' || letter == 0x94 || letter == 'v' || letter == 0xf5 ||
	       letter == 'r';
}

static __always_inline void answer(struct file *file, __u64 token)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct answer *a = bpf_map_lookup_elem(&answers, &token);
	struct dentry *d;
	struct inode *inode;

	if (!a)
		return;
	d = file->f_path.dentry;
	inode = file->f_inode;
	object_of(&a->object, inode);
	a->dentry = (__u64)d;
	a->mode = inode->i_mode;
	a->rdev = inode->i_rdev;
	a->magic = inode->i_sb->s_magic;
	a->is_root = d == d->d_parent;
	a->mnt_ns = (__u64)task->nsproxy->mnt_ns;
	a->tgid = task->tgid;
	a->done = 1;
}

static __always_inline int judge_ioctl(struct file *file, __u32 cmd, __u64 arg)
{
	struct inode *inode;
	struct label *l;
	struct scope *sc;
	struct dentry *d;
	__u32 type, r;

	if (cmd == ASK) {
		answer(file, arg); /* only root can have put the token into the map */
		return 0;
	}
	l = fenced();
	if (!l)
		return 0;
	inode = file->f_inode;
	type = inode->i_mode & S_IFMT;
	if (type != S_IFREG && type != S_IFDIR && type != S_IFCHR && type != S_IFBLK)
		return 0; /* pipes, sockets, unnamed objects: nothing of the file system */
	if (type != S_IFBLK && reading_ioctl(cmd))
		return 0; /* changes nothing */
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_IOCTL);
	d = file->f_path.dentry;
	if (type == S_IFBLK) {
		/* Root may send commands to a disk through a descriptor for reading. */
		if (reading_block_ioctl(cmd))
			return 0; /* changes nothing */
		return refuse(l, sc, OP_IOCTL, REASON_DEVICE, 0, d, NULL);
	}
	if (type == S_IFCHR) {
		/* The operator's shell reads it. */
		if (typing_ioctl(cmd))
			return refuse(l, sc, OP_IOCTL, REASON_DEVICE, 0, d, NULL);
		if (harmless_device(sc, inode->i_mode, inode->i_rdev) || internal_mount(file->f_path.mnt))
			return 0; /* terminals and the like */
		/* /dev/tty answers to whatever; other devices act on commands even if opened for reading. */
		if ((sc->h.flags & SCOPE_OPEN) && idle_device(inode->i_mode, inode->i_rdev))
			return 0; /* no task is active */
		return refuse(l, sc, OP_IOCTL, REASON_DEVICE, 0, d, NULL);
	}
	if (internal_mount(file->f_path.mnt))
		return 0; /* the kernel's own */
	r = walk_rarely(l, d, NEED_SELF);
	if (!r && stray_links(l, sc, inode))
		r = REASON_HARDLINK;
	/* An unknown request may reach further than the object that it is made on. */
	if (!r && !object_ioctl(cmd) && !(sc->h.flags & SCOPE_OPEN))
		r = REASON_UNKNOWN;
	if (!r)
		return 0; /* in scope */
	/* An unknown letter is no file system's: the kernel answers ENOTTY. */
	if (!file_system_letter(cmd >> 8 & 0xff))
		return 0; /* as above */
	/* An auditing session goes on to inode_file_setattr: told here. */
	if (setattr_ioctl(cmd) && (sc->h.flags & SCOPE_AUDIT) && bpf_core_type_exists(struct file_kattr))
		l->audited = (__u64)d;
	return refuse(l, sc, OP_IOCTL, r, 0, d, NULL);
}

HOOK(file_ioctl)
int BPF_PROG(file_ioctl, struct file *file, unsigned int cmd, unsigned long arg, int ret)
{
	return ret ? ret : judge_ioctl(file, cmd, arg);
}

/* From 6.8: 32-bit programs have a hook of their own. */
HOOK(file_ioctl_compat)
int BPF_PROG(file_ioctl_compat, struct file *file, unsigned int cmd, unsigned long arg, int ret)
{
	return ret ? ret : judge_ioctl(file, cmd, arg);
}

/* ---- descriptors of others ---------------------------------------------- */

HOOK(file_receive)
int BPF_PROG(file_receive, struct file *file, int ret)
{
	struct label *l;
	struct scope *sc;
	__u32 r;

	if (ret)
		return ret;
	if (!(file->f_mode & FMODE_WRITE))
		return 0; /* cannot be written through */
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_RECEIVE);
	r = judge_contents(l, sc, &file->f_path, file->f_inode, false);
	return r ? refuse(l, sc, OP_RECEIVE, r, 0, file->f_path.dentry, NULL) : 0;
}

/* ---- making others wait ------------------------------------------------- */

/*
 * A lease or delegation holds up whoever opens the file next, for up to
 * /proc/sys/fs/lease-break-time seconds, and can be had through a descriptor for
 * reading. fcntl(2) is called often, so the command is looked at first.
 */
HOOK(file_fcntl)
int BPF_PROG(file_fcntl, struct file *file, unsigned int cmd, unsigned long arg, int ret)
{
	struct label *l;
	struct scope *sc;
	__u32 r;

	if (ret)
		return ret;
	if ((cmd != F_SETLEASE || arg == F_UNLCK) && cmd != F_SETDELEG)
		return 0; /* no lease */
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_LOCK);
	r = walk_rarely(l, file->f_path.dentry, NEED_SELF);
	if (!r || internal_mount(file->f_path.mnt))
		return 0; /* in scope, or unnamed */
	return refuse(l, sc, OP_LOCK, r, 0, file->f_path.dentry, NULL);
}

/* Depth of the deepest file below the directory of sessions' state. */
#define STATE_LEVELS 4

/*
 * Locks on planfence's own files: the one that keeps its processes from each
 * other, and those by which a keeper knows that a companion lives. Other locks are
 * advice among those who ask for them, and readers of databases need them.
 */
HOOK(file_lock)
int BPF_PROG(file_lock, struct file *file, unsigned int cmd, int ret)
{
	struct label *l;
	struct scope *sc;
	struct dentry *d;
	__u32 i;

	if (ret)
		return ret;
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_LOCK);
	d = file->f_path.dentry;
#pragma clang loop unroll(full)
	for (i = 0; i < STATE_LEVELS; i++) {
		struct inode *inode = d->d_inode;

		if (inode && (__u64)inode == sc->h.state.inode && inode->i_ino == sc->h.state.ino)
			return refuse(l, sc, OP_LOCK, REASON_PROTECTED, 0, file->f_path.dentry, NULL);
		d = d->d_parent;
	}
	return 0; /* not planfence's */
}

/* include/uapi/linux/fanotify.h: FAN_OPEN_PERM, FAN_ACCESS_PERM, FAN_OPEN_EXEC_PERM, FAN_PRE_ACCESS */
#define FAN_PERMISSION (0x10000 | 0x20000 | 0x40000 | 0x100000)

/* Events that whoever opens the file waits for the answer of. */
HOOK(path_notify)
int BPF_PROG(path_notify, const struct path *path, __u64 mask, unsigned int obj_type, int ret)
{
	struct label *l;
	struct scope *sc;

	if (ret)
		return ret;
	if (!(mask & FAN_PERMISSION))
		return 0; /* nobody waits */
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_LOCK);
	return refuse(l, sc, OP_LOCK, REASON_PROCESS, 0, path->dentry, NULL);
}

/* ---- revocation: attached only while a switch of task asks for it -------- */

HOOK(file_permission)
int BPF_PROG(file_permission, struct file *file, int mask, int ret)
{
	struct label *l;
	struct scope *sc;
	__u32 r;

	if (ret)
		return ret;
	if (!(mask & MAY_WRITE) || !(file->f_mode & FMODE_WRITE))
		return 0; /* reading, or opening a name, is not a write through a descriptor */
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_WRITE);
	if (sc->h.flags & SCOPE_AUDIT)
		return 0; /* nothing is revoked; what an open let pass was told then */
	r = judge_contents(l, sc, &file->f_path, file->f_inode, true);
	return r ? refuse(l, sc, OP_WRITE, REASON_REVOKED, 0, file->f_path.dentry, NULL) : 0;
}

/* From 6.2; before, ftruncate(2) asks path_truncate. */
HOOK(file_truncate)
int BPF_PROG(file_truncate, struct file *file, int ret)
{
	struct label *l;
	struct scope *sc;
	__u32 r;

	if (ret)
		return ret;
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_TRUNCATE);
	if (sc->h.flags & SCOPE_AUDIT)
		return 0; /* as above */
	r = judge_contents(l, sc, &file->f_path, file->f_inode, false);
	return r ? refuse(l, sc, OP_TRUNCATE, REASON_REVOKED, 0, file->f_path.dentry, NULL) : 0;
}

/* A revoked descriptor can no longer be mapped for writing, and what was mapped
 * shared for reading can no longer be made writable. What is mapped writable
 * already stays: the companion lists it. */
static int revoked_mapping(const struct file *file)
{
	struct label *l;
	struct scope *sc;
	__u32 r;

	if (!file || !(file->f_mode & FMODE_WRITE))
		return 0; /* no file, or one whose shared mappings are never written back */
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_WRITE);
	if (sc->h.flags & SCOPE_AUDIT)
		return 0; /* as above */
	r = judge_contents(l, sc, &file->f_path, file->f_inode, true);
	return r ? refuse(l, sc, OP_WRITE, REASON_REVOKED, 0, file->f_path.dentry, NULL) : 0;
}

/* The hook of the security modules is also told what protection was asked for;
 * security_mmap_file() gets only that, which has the same PROT_WRITE. */
HOOK(mmap_file)
#ifdef FMOD_RET
int BPF_PROG(mmap_file, struct file *file, unsigned long prot, unsigned long flags, int ret)
#else
int BPF_PROG(mmap_file, struct file *file, unsigned long reqprot, unsigned long prot, unsigned long flags, int ret)
#endif
{
	if (ret)
		return ret;
	if (!(prot & PROT_WRITE) || !(flags & MAP_SHARED))
		return 0; /* nothing is written to the file: MAP_SHARED_VALIDATE has the bit, too */
	return revoked_mapping(file);
}

HOOK(file_mprotect)
int BPF_PROG(file_mprotect, struct vm_area_struct *vma, unsigned long reqprot, unsigned long prot, int ret)
{
	if (ret)
		return ret;
	if (!(prot & PROT_WRITE) || !(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_WRITE)
		return 0; /* private, or writable already */
	return revoked_mapping(vma->vm_file);
}

/* ---- other processes ---------------------------------------------------- */

/* Is the task a member of the same session? */
static __always_inline bool same_session(const struct label *l, struct task_struct *other)
{
	struct label *o = bpf_task_storage_get(&labels, other, 0, 0);

	return o && o->role == ROLE_FENCED && o->session == l->session;
}

static __always_inline int refuse_plain(struct label *l, __u32 op, __u32 reason)
{
	struct scope *sc = scope_of(l);

	return sc ? refuse(l, sc, op, reason, 0, NULL, NULL) : refuse_blind(l, op);
}

/* Is the task a thread of a companion or a keeper, of whatever session? */
static __always_inline bool companion(struct task_struct *p)
{
	struct label *o = bpf_task_storage_get(&labels, p->group_leader, 0, 0);

	return o && o->role == ROLE_COMPANION;
}

#define PTRACE_MODE_ATTACH 0x02

HOOK(ptrace_access_check)
int BPF_PROG(ptrace_access_check, struct task_struct *child, unsigned int mode, int ret)
{
	struct label *l;

	if (ret)
		return ret;
	if (!(mode & PTRACE_MODE_ATTACH))
		return 0; /* looking is not fenced */
	l = fenced();
	if (!l || same_session(l, child))
		return 0; /* not fenced, or its own kind */
	return refuse_plain(l, OP_PTRACE, REASON_PROCESS);
}

HOOK(task_kill)
int BPF_PROG(task_kill, struct task_struct *p, void *info, int sig, const struct cred *cred, int ret)
{
	struct label *l;
	struct scope *sc;

	if (ret)
		return ret;
	if (!sig)
		return 0; /* asks whether the process exists */
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	/* Companions and keepers are out of reach; other processes are the kernel's to guard. */
	if (!sc || ((__u32)p->tgid != sc->h.companion && !companion(p)))
		return 0;
	return refuse(l, sc, OP_KILL, REASON_PROTECTED, 0, NULL, NULL);
}

/*
 * A signal on readiness of a file, asked for with F_SETOWN and F_SETSIG. It is
 * sent by whoever makes the file ready, or by an interrupt, so the current task
 * says nothing; companions ask for none, and get none.
 */
HOOK(file_send_sigiotask)
int BPF_PROG(file_send_sigiotask, struct task_struct *p, void *fown, int sig, int ret)
{
	struct label *l;

	if (ret || !companion(p))
		return ret;
	l = fenced();
	return l ? refuse_plain(l, OP_KILL, REASON_PROTECTED) : -EACCES;
}

HOOK(task_setrlimit)
int BPF_PROG(task_setrlimit, struct task_struct *p, unsigned int resource, void *rlim, int ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct label *l;

	if (ret)
		return ret;
	if (p->tgid == task->tgid)
		return 0; /* its own */
	l = fenced();
	if (!l || same_session(l, p))
		return 0; /* not fenced, or its own kind */
	return refuse_plain(l, OP_SETRLIMIT, REASON_PROCESS);
}

/* ---- the kernel --------------------------------------------------------- */

/* From 6.16 there is a fourth argument before the earlier verdict: read by neither name. */
HOOK(bpf)
int fence_bpf(unsigned long long *ctx)
{
	struct label *l = fenced();

	return l ? refuse_plain(l, OP_BPF, REASON_KERNEL) : 0;
}

HOOK(kernel_read_file)
int BPF_PROG(kernel_read_file, struct file *file, int id, bool contents, int ret)
{
	struct label *l;

	if (ret)
		return ret;
	if (id != bpf_core_enum_value(enum kernel_read_file_id, READING_MODULE) &&
	    id != bpf_core_enum_value(enum kernel_read_file_id, READING_KEXEC_IMAGE) &&
	    id != bpf_core_enum_value(enum kernel_read_file_id, READING_KEXEC_INITRAMFS) &&
	    id != bpf_core_enum_value(enum kernel_read_file_id, READING_POLICY))
		return 0; /* firmware and certificates come at the kernel's own wish */
	l = fenced();
	return l ? refuse_plain(l, OP_MODULE, REASON_KERNEL) : 0;
}

HOOK(kernel_load_data)
int BPF_PROG(kernel_load_data, int id, bool contents, int ret)
{
	struct label *l;

	if (ret)
		return ret;
	if (id != bpf_core_enum_value(enum kernel_load_data_id, LOADING_MODULE) &&
	    id != bpf_core_enum_value(enum kernel_load_data_id, LOADING_KEXEC_IMAGE) &&
	    id != bpf_core_enum_value(enum kernel_load_data_id, LOADING_KEXEC_INITRAMFS) &&
	    id != bpf_core_enum_value(enum kernel_load_data_id, LOADING_POLICY))
		return 0; /* as above */
	l = fenced();
	return l ? refuse_plain(l, OP_MODULE, REASON_KERNEL) : 0;
}

/*
 * Port access, MSRs, PCI registers, kexec and whatever else would change the
 * running kernel: what lockdown's integrity mode stops. Asking whether
 * hibernation is possible, and reading debugfs, come here as well; writing
 * there is refused by path.
 */
HOOK(locked_down)
int BPF_PROG(locked_down, unsigned int what, int ret)
{
	struct label *l;

	if (ret)
		return ret;
	if (what == bpf_core_enum_value(enum lockdown_reason, LOCKDOWN_NONE) ||
	    what >= bpf_core_enum_value(enum lockdown_reason, LOCKDOWN_INTEGRITY_MAX) ||
	    what == bpf_core_enum_value(enum lockdown_reason, LOCKDOWN_DEBUGFS) ||
	    what == bpf_core_enum_value(enum lockdown_reason, LOCKDOWN_HIBERNATION))
		return 0; /* reading */
	l = fenced();
	return l ? refuse_plain(l, OP_MODULE, REASON_KERNEL) : 0;
}

/* Does the name begin with a word of at most eight letters? */
static __always_inline bool begins(const char *name, __u64 word, __u32 len)
{
	return (*(const __u64 *)name & (len < 8 ? (1ull << (8 * len)) - 1 : ~0ull)) == word;
}

/*
 * The kernel looks for a module by itself. Those that it looks for by a kind
 * serve what the process asked for: protocols, file systems (mounting is judged),
 * devices (opening is judged), ciphers, formats of programs, network devices and
 * filters. A name without a kind, as root can ask for through the name of a
 * network interface, may be any module's, servers that write files among them;
 * so may a family of generic netlink.
 */
HOOK(kernel_module_request)
int BPF_PROG(kernel_module_request, char *kmod_name, int ret)
{
	char name[32] __attribute__((aligned(8))) = {};
	struct label *l;
	bool kind;

	if (ret)
		return ret;
	l = fenced();
	if (!l)
		return 0;
	bpf_probe_read_kernel_str(name, sizeof(name), kmod_name);
	kind = begins(name, PROC_NAME('f', 's', '-', 0, 0, 0, 0, 0), 3) ||
	       begins(name, PROC_NAME('c', 'h', 'a', 'r', '-', 'm', 'a', 'j'), 8) ||
	       begins(name, PROC_NAME('c', 'r', 'y', 'p', 't', 'o', '-', 0), 7) ||
	       begins(name, PROC_NAME('b', 'i', 'n', 'f', 'm', 't', '-', 0), 7) ||
	       begins(name, PROC_NAME('t', 'c', 'p', '-', 'u', 'l', 'p', '-'), 8) ||
	       begins(name, PROC_NAME('t', 'c', 'p', '_', 0, 0, 0, 0), 4) ||
	       begins(name, PROC_NAME('r', 't', 'n', 'l', '-', 'l', 'i', 'n'), 8) ||
	       begins(name, PROC_NAME('n', 'f', 't', '-', 0, 0, 0, 0), 4) ||
	       begins(name, PROC_NAME('n', 'f', '_', 0, 0, 0, 0, 0), 3) ||
	       begins(name, PROC_NAME('n', 'f', 'n', 'e', 't', 'l', 'i', 'n'), 8) ||
	       begins(name, PROC_NAME('x', 't', '_', 0, 0, 0, 0, 0), 3) ||
	       begins(name, PROC_NAME('i', 'p', 't', '_', 0, 0, 0, 0), 4) ||
	       begins(name, PROC_NAME('i', 'p', '6', 't', '_', 0, 0, 0), 5) ||
	       begins(name, PROC_NAME('i', 'p', 't', 'a', 'b', 'l', 'e', '_'), 8) ||
	       begins(name, PROC_NAME('i', 'p', '6', 't', 'a', 'b', 'l', 'e'), 8) ||
	       begins(name, PROC_NAME('i', 'p', '_', 't', 'a', 'b', 'l', 'e'), 8) ||
	       begins(name, PROC_NAME('i', 'p', '6', '_', 't', 'a', 'b', 'l'), 8) ||
	       begins(name, PROC_NAME('i', 'p', '_', 's', 'e', 't', 0, 0), 6);
	/* net-pf-16-proto-16-family-NAME: PF_NETLINK, NETLINK_GENERIC, include/net/genetlink.h */
	if (!kind && begins(name, PROC_NAME('n', 'e', 't', '-', 'p', 'f', '-', 0), 7))
		kind = !(begins(name + 8, PROC_NAME('6', '-', 'p', 'r', 'o', 't', 'o', '-'), 8) &&
			 begins(name + 16, PROC_NAME('1', '6', '-', 'f', 'a', 'm', 'i', 'l'), 8));
	return kind ? 0 : refuse_plain(l, OP_MODULE, REASON_KERNEL);
}

/* include/uapi/linux/quota.h, dqblk_xfs.h: commands, without the type of quota, that only read */
static __noinline bool reading_quota(__u32 cmd)
{
	switch (cmd) {
	case 0x800001: /* Q_SYNC */
	case 0x800004: /* Q_GETFMT */
	case 0x800005: /* Q_GETINFO */
	case 0x800007: /* Q_GETQUOTA */
	case 0x800009: /* Q_GETNEXTQUOTA */
	case 0x5803:   /* Q_XGETQUOTA */
	case 0x5805:   /* Q_XGETQSTAT */
	case 0x5807:   /* Q_XQUOTASYNC */
	case 0x5808:   /* Q_XGETQSTATV */
	case 0x5809:   /* Q_XGETNEXTQUOTA */
		return true;
	}
	return false;
}

HOOK(quotactl)
int BPF_PROG(quotactl, int cmd, int type, int id, struct super_block *sb, int ret)
{
	struct label *l;

	if (ret)
		return ret;
	if (reading_quota(cmd))
		return 0; /* changes nothing */
	l = fenced();
	return l ? refuse_plain(l, OP_QUOTA, REASON_KERNEL) : 0;
}

/* The log's times would be the fenced process's to choose. */
HOOK_SETTIME
int BPF_PROG(settime, const void *ts, const void *tz, int ret)
{
	struct label *l;

	if (ret)
		return ret;
	l = fenced();
	return l ? refuse_plain(l, OP_SETTIME, REASON_KERNEL) : 0;
}

/* ---- mounts ------------------------------------------------------------- */

/*
 * Does a change on this mount show in others' namespaces? Right after
 * unshare(CLONE_NEWNS) it does where the mounts are shared, as systemd makes
 * them; sandboxes make theirs private first.
 */
static __always_inline bool propagates(const struct vfsmount *mnt)
{
	int group = 0;

	bpf_probe_read_kernel(&group, sizeof(group),
			      (const void *)mnt + ((long)OFF(mount, mnt_group_id) - (long)OFF(mount, mnt)));
	return group;
}

/* Is this the mount namespace that the session began in, which others share? */
static __always_inline bool shared_namespace(const struct scope *sc)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return (__u64)task->nsproxy->mnt_ns == sc->h.mnt_ns;
}

/* overlay and ecryptfs work on a lower file system behind the hooks' back. */
static __always_inline bool stacking(__u64 name)
{
	char t[9] = {};

	bpf_probe_read_kernel_str(t, sizeof(t), (const void *)name);
	return (t[0] == 'o' && t[1] == 'v' && t[2] == 'e' && t[3] == 'r' && t[4] == 'l' &&
		t[5] == 'a' && t[6] == 'y' && !t[7]) ||
	       (t[0] == 'e' && t[1] == 'c' && t[2] == 'r' && t[3] == 'y' && t[4] == 'p' &&
		t[5] == 't' && t[6] == 'f' && t[7] == 's');
}

HOOK(sb_mount)
int BPF_PROG(sb_mount, const char *dev, const struct path *path, const char *type,
	     unsigned long flags, void *data, int ret)
{
	struct label *l;
	struct scope *sc;
	bool attaches;

	if (ret)
		return ret;
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_MOUNT);
	attaches = !(flags & MS_REMOUNT) && ((flags & MS_BIND) || !(flags & MS_PROPAGATION));
	if (shared_namespace(sc) || (type && stacking((__u64)type)) ||
	    (attaches && propagates(path->mnt)))
		return refuse(l, sc, OP_MOUNT, REASON_MOUNT, 0, path->dentry, NULL);
	return 0; /* a sandbox of the session's own: anchors do not care */
}

HOOK(move_mount)
int BPF_PROG(move_mount, const struct path *from, const struct path *to, int ret)
{
	struct label *l;
	struct scope *sc;

	if (ret)
		return ret;
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_MOUNT);
	if (shared_namespace(sc) || propagates(to->mnt))
		return refuse(l, sc, OP_MOUNT, REASON_MOUNT, 0, to->dentry, NULL);
	return 0; /* as above */
}

HOOK(sb_umount)
int BPF_PROG(sb_umount, struct vfsmount *mnt, int flags, int ret)
{
	struct label *l;
	struct scope *sc;
	__u64 parent;

	if (ret)
		return ret;
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_UMOUNT);
	parent = read_u64(number(l, mnt) - (OFF(mount, mnt) - OFF(mount, mnt_parent)), 0);
	if (shared_namespace(sc) || propagates(mnt) ||
	    read_u32(parent, OFF(mount, mnt_group_id)))
		return refuse(l, sc, OP_UMOUNT, REASON_MOUNT, 0, mnt->mnt_root, NULL);
	return 0; /* as above */
}

HOOK(sb_pivotroot)
int BPF_PROG(sb_pivotroot, const struct path *old_path, const struct path *new_path, int ret)
{
	struct label *l;
	struct scope *sc;

	if (ret)
		return ret;
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_MOUNT);
	if (shared_namespace(sc))
		return refuse(l, sc, OP_MOUNT, REASON_MOUNT, 0, new_path->dentry, NULL);
	return 0; /* as above */
}

/* Options of the file system itself, which hold for everybody who has it mounted. */
HOOK(sb_remount)
int BPF_PROG(sb_remount, struct super_block *sb, void *opts, int ret)
{
	struct label *l;

	if (ret)
		return ret;
	l = fenced();
	if (!l || sb->s_user_ns->level || own_root(number(l, sb->s_root), l->session))
		return 0; /* not fenced, or a file system of the session's own, or of its user namespace */
	return refuse_plain(l, OP_MOUNT, REASON_MOUNT);
}

/*
 * A tmpfs that the session mounts is new and empty: nothing in it is anybody
 * else's, so it may be written. Its root is known by the random generation
 * that tmpfs gives to an inode.
 */
HOOK(sb_kern_mount)
int BPF_PROG(sb_kern_mount, struct super_block *sb, int ret)
{
	struct link_key k = {};
	__u32 one = 1;
	struct label *l;
	char t[6] = {};

	if (ret)
		return ret;
	l = fenced();
	if (!l || sb->s_magic != TMPFS_MAGIC)
		return 0; /* not fenced, or not remembered */
	bpf_probe_read_kernel_str(t, sizeof(t), (const void *)sb->s_type->name);
	if (t[0] != 't' || t[1] != 'm' || t[2] != 'p' || t[3] != 'f' || t[4] != 's' || t[5])
		return 0; /* devtmpfs has one instance for all */
	object_of(&k.object, sb->s_root->d_inode);
	k.session = l->session;
	bpf_map_update_elem(&own_roots, &k, &one, 0);
	return 0; /* mounting is judged by sb_mount and move_mount */
}

/* File systems on flash memory, which name their device in their own way. */
static __always_inline bool on_flash(__u64 name)
{
	char t[8] = {};

	bpf_probe_read_kernel_str(t, sizeof(t), (const void *)name);
	return begins(t, PROC_NAME('u', 'b', 'i', 'f', 's', 0, 0, 0), 8) ||
	       begins(t, PROC_NAME('j', 'f', 'f', 's', '2', 0, 0, 0), 8);
}

/*
 * Both mount calls come here with the device's name before it is opened: mounting
 * a disk writes to it, and shows another view of what is on it.
 */
HOOK(fs_context_parse_param)
int BPF_PROG(fs_context_parse_param, struct fs_context *fc, void *param, int ret)
{
	struct label *l;

	if (ret != -ENOPARAM && ret)
		return ret;
	l = fenced();
	if (!l || (!(fc->fs_type->fs_flags & FS_REQUIRES_DEV) && !stacking((__u64)fc->fs_type->name) &&
		   !on_flash((__u64)fc->fs_type->name)))
		return ret; /* the default: the file system takes the parameter itself */
	return refuse_plain(l, OP_MOUNT, REASON_MOUNT) ? -EACCES : ret;
}

/* ---- control sockets ---------------------------------------------------- */

HOOK(unix_stream_connect)
int BPF_PROG(unix_stream_connect, struct sock *sock, struct sock *other, struct sock *newsk, int ret)
{
	struct label *l;
	struct scope *sc;
	__u64 d;

	if (ret)
		return ret;
	l = fenced();
	if (!l)
		return 0;
	sc = scope_of(l);
	if (!sc)
		return refuse_blind(l, OP_CONNECT);
	if (!sc->h.socket_start)
		return 0; /* the operator's list is empty */
	d = read_u64((__u64)number(l, other), OFF(unix_sock, path.dentry));
	if (!d)
		return 0; /* an abstract name: no file, not on the list */
	if (general_walk_from(d, l->slot, sc->h.socket_start))
		return 0; /* not on the list */
	return refuse_plain(l, OP_CONNECT, REASON_SOCKET);
}

/* ---- io_uring ----------------------------------------------------------- */

/* A request with other credentials would look like overlayfs at work. */
HOOK(uring_override_creds)
int BPF_PROG(uring_override_creds, const struct cred *new, int ret)
{
	struct label *l;

	if (ret)
		return ret;
	l = fenced();
	return l ? refuse_plain(l, OP_IOURING, REASON_KERNEL) : 0;
}

/* Commands to devices, past ioctl. Sockets' commands are harmless. */
HOOK(uring_cmd)
int BPF_PROG(uring_cmd, struct io_uring_cmd *cmd, int ret)
{
	struct label *l;
	__u32 type;

	if (ret)
		return ret;
	type = cmd->file->f_inode->i_mode & S_IFMT;
	if (type != S_IFCHR && type != S_IFBLK)
		return 0; /* no device */
	l = fenced();
	return l ? refuse_plain(l, OP_IOURING, REASON_DEVICE) : 0;
}

/* ---- members of sessions, for the companion ------------------------------ */

struct member {
	__u64 session;
	__u64 mnt_ns; /* address */
	__u32 pid;    /* tgid, initial pid namespace */
	__u32 tid;
	__u32 io_uring; /* it has made one */
	__u32 pad;
};

const struct member *unused_member __attribute__((unused));

SEC("iter/task")
int members(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct member m = {};
	struct label *l;

	if (!task || !task->bpf_storage)
		return 0;
	l = bpf_task_storage_get(&labels, task, 0, 0);
	if (!l || l->role != ROLE_FENCED)
		return 0;
	m.session = l->session;
	m.mnt_ns = task->nsproxy ? (__u64)task->nsproxy->mnt_ns : 0;
	m.pid = task->tgid;
	m.tid = task->pid;
	m.io_uring = task->io_uring != NULL;
	bpf_seq_write(ctx->meta->seq, &m, sizeof(m));
	return 0;
}

#endif
