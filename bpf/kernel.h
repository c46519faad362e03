/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * kernel.h: the kernel types that the fence reads, and of each only the fields
 * that it reads. Offsets are relocated at load time from the running kernel's
 * BTF (CO-RE), so order and size here mean nothing.
 */
#ifndef PLANFENCE_KERNEL_H
#define PLANFENCE_KERNEL_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

#define barrier() asm volatile("" ::: "memory")

#define CORE __attribute__((preserve_access_index))

/* include/uapi/linux/bpf.h: only what is used. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
#define BPF_F_NO_PREALLOC 1
#define BPF_F_MMAPABLE (1 << 10)
#define BPF_NOEXIST 1
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1
#define BPF_RB_NO_WAKEUP 1

/* Error numbers, include/uapi/asm-generic/errno*.h. */
#define EPERM 1
#define EAGAIN 11
#define ENOMEM 12
#define EACCES 13
#define EINVAL 22
#define ENOPARAM 519

/* include/uapi/asm-generic/mman-common.h, include/linux/mm.h */
#define PROT_WRITE 0x2
#define MAP_SHARED 0x1
#define VM_WRITE 0x2
#define VM_SHARED 0x8

/* include/linux/fs.h, include/uapi/linux/stat.h, include/uapi/asm-generic/fcntl.h */
#define FMODE_WRITE 0x2
#define FMODE_CREATED 0x100000
#define O_CREAT 0100
#define O_TRUNC 01000
#define MS_REMOUNT 32
#define MS_BIND 4096
#define MS_PROPAGATION ((1 << 17) | (1 << 18) | (1 << 19) | (1 << 20)) /* unbindable, private, slave, shared */
#define S_CASEFOLD (1 << 15)
#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define S_IFLNK 0120000
#define S_IFREG 0100000
#define S_IFBLK 0060000
#define S_IFDIR 0040000
#define S_IFCHR 0020000
#define S_IFIFO 0010000
#define RENAME_EXCHANGE 2
#define F_UNLCK 2
#define F_SETLEASE 1024
#define F_SETDELEG 1040
#define MAY_WRITE 2
#define ATTR_MODE (1 << 0)
#define ATTR_UID (1 << 1)
#define ATTR_GID (1 << 2)
#define ATTR_SIZE (1 << 3)
#define ATTR_ATIME (1 << 4)
#define ATTR_MTIME (1 << 5)
#define MINORBITS 20

/* include/linux/dcache.h: set while the file system has not looked the name up yet. */
#define DCACHE_PAR_LOOKUP_OLD 0x10000000
#define DCACHE_MOUNTED_OLD 0x10000
enum dentry_flags {
	DCACHE_PAR_LOOKUP = 1 << 24, /* an enum, and renumbered, from 6.15 */
	DCACHE_MOUNTED = 1 << 15,    /* in whatever namespace */
	DCACHE_DISCONNECTED = 1 << 5,
	DCACHE_OP_COMPARE = 1 << 1,
};

/* Limits of the kernel that loop bounds mirror. */
#define NAME_MAX 255
#define PATH_MAX 4096
#define MAX_PID_NS_LEVEL 32

/* Super block magics, include/uapi/linux/magic.h. */
#define PROC_SUPER_MAGIC 0x9fa0
#define SYSFS_MAGIC 0x62656572
#define BPF_FS_MAGIC 0xcafe4a11
#define DEBUGFS_MAGIC 0x64626720
#define TRACEFS_MAGIC 0x74726163
#define SECURITYFS_MAGIC 0x73636673
#define CONFIGFS_MAGIC 0x62656570 /* fs/configfs/mount.c */
#define CGROUP_SUPER_MAGIC 0x27e0eb
#define CGROUP2_SUPER_MAGIC 0x63677270
#define BINFMTFS_MAGIC 0x42494e4d
#define EFIVARFS_MAGIC 0xde5e81e4
#define SELINUX_MAGIC 0xf97cff8c
#define SMACK_MAGIC 0x43415d53
#define RDTGROUP_SUPER_MAGIC 0x7655821
#define PSTOREFS_MAGIC 0x6165676C
#define NFSD_MAGIC 0x6e667364 /* fs/nfsd/nfsctl.c */
#define OVERLAYFS_SUPER_MAGIC 0x794c7630
#define TMPFS_MAGIC 0x01021994
#define EXT4_SUPER_MAGIC 0xEF53
#define F2FS_SUPER_MAGIC 0xF2F52010

/* include/linux/fs.h: mounted by the kernel for itself (pipes, sockets, memfds). */
#define SB_KERNMOUNT (1 << 22)

/* A mount that only the kernel sees (fs/mount.h, MNT_NS_INTERNAL = ERR_PTR(-EINVAL)). */
#define MNT_NS_INTERNAL ((__u64)-EINVAL)

/* include/linux/sched.h: an io_uring worker, or a worker made for a user's device. */
#define PF_USER_WORKER 0x4000
#define PF_IO_WORKER 0x10

struct qstr {
	u32 hash;
	u32 len;
	const unsigned char *name;
} CORE;

/* include/linux/fs.h: mounts a block device. */
#define FS_REQUIRES_DEV 1

struct file_system_type {
	const char *name;
	int fs_flags;
} CORE;

struct user_namespace {
	int level;
} CORE;

struct dentry;
struct super_block {
	u32 s_dev;
	struct dentry *s_root;
	struct user_namespace *s_user_ns;
	unsigned long s_magic;
	unsigned long s_flags;
	struct file_system_type *s_type;
} CORE;

struct inode {
	u16 i_mode;
	unsigned int i_flags;
	unsigned int i_nlink;
	u32 i_rdev;
	u32 i_generation;
	unsigned long i_ino;
	struct super_block *i_sb;
} CORE;

struct dentry {
	unsigned int d_flags;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct super_block *d_sb;
} CORE;

/* The inline name: an array of bytes until 6.13, then a union of bytes and words. */
struct dentry___old {
	unsigned char d_iname[1];
} CORE;
union shortname_store {
	unsigned char string[1];
} CORE;
struct dentry___new {
	union shortname_store d_shortname;
} CORE;

struct vfsmount {
	struct dentry *mnt_root;
	struct super_block *mnt_sb;
	int mnt_flags;
} CORE;

struct mnt_namespace;

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	struct mnt_namespace *mnt_ns;
	int mnt_id;
	int mnt_group_id;
} CORE;

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
} CORE;

struct file {
	unsigned int f_mode;
	unsigned int f_flags;
	struct path f_path;
	struct inode *f_inode;
} CORE;

struct vm_area_struct {
	unsigned long vm_flags;
	struct file *vm_file;
} CORE;

struct iattr {
	unsigned int ia_valid;
} CORE;

struct upid {
	int nr;
} CORE;

struct hlist_head {
	void *first;
} CORE;

struct hlist_node {
	void *next;
} CORE;

struct pid {
	unsigned int level;
	struct hlist_head tasks[1];
	struct upid numbers[1];
} CORE;

struct proc_inode {
	struct pid *pid;
	struct inode vfs_inode;
} CORE;

typedef struct {
	unsigned int val;
} kuid_t;

struct cred {
	kuid_t uid;
	kuid_t euid;
} CORE;

struct mm_struct {
	struct file *exe_file;
} CORE;

struct nsproxy {
	struct mnt_namespace *mnt_ns;
} CORE;

struct bpf_local_storage;
struct io_uring_task;

/* fs/namei.c: a walk along a path; stack[0] is the link that it last ended at. */
struct saved {
	struct path link;
} CORE;
struct nameidata {
	struct saved *stack;
} CORE;

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct hlist_node pid_links[1];
	const struct cred *cred;
	const struct cred *real_cred;
	struct mm_struct *mm;
	struct nsproxy *nsproxy;
	struct io_uring_task *io_uring;
	struct nameidata *nameidata;
	struct bpf_local_storage *bpf_storage;
	char comm[16];
} CORE;

struct sock {
	u16 sk_family; /* not a field of struct sock: see unix_sock below */
};

struct unix_sock {
	struct path path;
} CORE;

/* From 6.17, together with the hook inode_file_setattr. */
struct file_kattr {
	u32 flags;
} CORE;

struct fs_context {
	struct file_system_type *fs_type;
} CORE;

struct io_uring_cmd {
	struct file *file;
} CORE;

enum kernel_read_file_id {
	READING_MODULE = 2,
	READING_KEXEC_IMAGE = 3,
	READING_KEXEC_INITRAMFS = 4,
	READING_POLICY = 5,
};
enum kernel_load_data_id {
	LOADING_MODULE = 2,
	LOADING_KEXEC_IMAGE = 3,
	LOADING_KEXEC_INITRAMFS = 4,
	LOADING_POLICY = 5,
};

/* include/linux/security.h */
enum lockdown_reason {
	LOCKDOWN_NONE,
	LOCKDOWN_MODULE_SIGNATURE,
	LOCKDOWN_HIBERNATION,
	LOCKDOWN_DEBUGFS,
	LOCKDOWN_INTEGRITY_MAX,
};

struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
} CORE;
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} CORE;

#endif
