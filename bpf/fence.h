/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * fence.h: what the BPF programs and user space share. The Go side of every
 * type here is generated from the compiled object's BTF; nothing is written
 * twice.
 */
#ifndef PLANFENCE_FENCE_H
#define PLANFENCE_FENCE_H

/* Limits. The Go side reads them through enum limit. */
enum limit {
	MAX_SESSIONS = 128,	  /* session slots */
	ANCHOR_SLOTS = 256,	  /* size of a scope's anchor table, a power of two */
	ANCHOR_PROBES = 8,	  /* longest run of neighbouring slots looked at */
	MAX_STDIO = 3,		  /* objects behind descriptors 0, 1, 2 */
	MAX_TTYS = 4,		  /* device numbers of the operator's terminals */
	NAME_SLOTS = 2048,	  /* size of a scope's table of names, a power of two */
	NAME_SHORT = 16,	  /* bytes of the longest name in it */
	MAX_CELLS = 514045,	  /* cells of a table: with the rest of its scope it fills
				     the 4 MiB that a map's value may have on 6.1 */
	MAX_CLASSES = 256,
	FAST_DEPTH = 24,	  /* levels of the unrolled walk */
	MAX_DEPTH = 2048,	  /* levels of the general walk: PATH_MAX / 2 */
	PATHS_MAX = 12288,	  /* bytes of names in one event */
	COMM_LEN = 16,
	LINK_ACCOUNTS = 65536,	  /* files whose extra links are accounted for */
	OWN_ROOTS = 1024,	  /* file systems that sessions mounted for themselves */
};

/* Results of the table, as in package plan. */
enum state {
	STATE_DEAD = 0,
	STATE_ALL = 1,
	STATE_ACCEPT = 2,
	STATE_SIBLING = 3,
	/*
	 * Added to a state, in a transition over '/': whatever name follows, the next
	 * '/' comes back to this state, so that only the last name of a path has to be
	 * read. As below a `**`. States are multiples of 8.
	 */
	STATE_SKIPS = 4,
};

enum op {
	OP_NONE,
	OP_OPEN,
	OP_CREATE,
	OP_MKDIR,
	OP_MKNOD,
	OP_SYMLINK,
	OP_LINK,
	OP_UNLINK,
	OP_RMDIR,
	OP_RENAME,
	OP_TRUNCATE,
	OP_CHMOD,
	OP_CHOWN,
	OP_UTIMES,
	OP_SETXATTR,
	OP_REMOVEXATTR,
	OP_SETACL,
	OP_IOCTL,
	OP_RECEIVE,
	OP_WRITE,
	OP_PTRACE,
	OP_KILL,
	OP_SETRLIMIT,
	OP_BPF,
	OP_MODULE,
	OP_MOUNT,
	OP_UMOUNT,
	OP_CONNECT,
	OP_IOURING,
	OP_LOCK,
	OP_QUOTA,
	OP_SETTIME,
	OP_MAX = 32,
};

enum reason {
	REASON_NONE,
	REASON_SCOPE,	    /* outside the scope of the active task */
	REASON_NO_TASK,	    /* no scope is in force and the session is closed */
	REASON_PROTECTED,   /* what the fence itself stands on */
	REASON_HARDLINK,    /* the file has names that the fence cannot account for */
	REASON_DEVICE,	    /* a device that is not on the list */
	REASON_UNKNOWN,	    /* an object that lies under no anchor */
	REASON_TOO_DEEP,    /* more than MAX_DEPTH levels */
	REASON_TOO_LONG,    /* a name longer than NAME_MAX */
	REASON_DIRECTORY,   /* a directory that is not wholly in scope cannot be moved */
	REASON_REVOKED,	    /* opened under a scope that is no longer in force */
	REASON_PROCESS,	    /* a process outside the session */
	REASON_KERNEL,	    /* bpf, modules, kexec, quotas, the clock */
	REASON_MOUNT,	    /* a mount that would change what others see */
	REASON_SOCKET,	    /* a control socket that runs commands for others */
	REASON_NO_MEMORY,   /* the kernel had none to decide with */
	REASON_CASELESS,    /* names in this directory are compared without regard to case */
	REASON_MAX = 24,
};

/* What a path must be for an operation. */
enum need {
	NEED_SELF,  /* in scope */
	NEED_DIR,   /* in scope, or a directory in which something could be */
	NEED_NAMED, /* in scope, not only as a sibling of a saved file */
	NEED_TREE,  /* in scope with everything below it */
};

enum scope_flag {
	SCOPE_AUDIT = 1 << 0,	  /* refuse nothing, record what would have been */
	SCOPE_OPEN = 1 << 1,	  /* what lies under no anchor is allowed (no active task) */
	SCOPE_HARDLINKS = 1 << 3, /* --hardlinks=allow */
	SCOPE_INNER = 1 << 4,	  /* an anchor other than the root is no file system's root */
	SCOPE_DEFAULTS = 1 << 2,  /* rows of the table have defaults */
	SCOPE_NAMES = 1 << 6,	  /* the table of names has some */
	SCOPE_DENY = 1 << 5,	  /* no task's scope is in force: everything is refused */
};

enum event_flag {
	EVENT_WOULD = 1 << 0,	   /* audit: it was not refused */
	EVENT_TENTATIVE = 1 << 1,  /* open(O_CREAT) before the look-up: may be taken back */
	EVENT_SUPERSEDES = 1 << 2, /* takes the place of this thread's tentative event */
	EVENT_RETRACTS = 1 << 3,   /* takes it back: the file was there and only read */
	EVENT_CUT = 1 << 4,	   /* not all names fitted */
	EVENT_DIR = 1 << 5,	   /* the object is a directory */
	EVENT_PATH2 = 1 << 6,	   /* it is the second path that was refused */
};

enum role {
	ROLE_FENCED,
	ROLE_COMPANION, /* never refused, never signalled by the fenced */
};

/* The object behind a descriptor, named so that a reused pointer never matches. */
struct object {
	__u64 inode; /* address */
	__u64 ino;
	__u32 dev; /* s_dev of its super block */
	__u32 generation;
};

struct anchor {
	__u64 dentry; /* address; 0: empty slot */
	__u64 ino;
	__u32 dev;
	__u32 generation;
	__u32 start; /* state of the table at this directory */
	__u32 id;    /* index in the companion's list of anchor paths */
};

/*
 * Everything that decides for one session, as one value: replaced whole, by one
 * pointer, so that no operation sees half of a change.
 */
struct scope_header {
	__u64 session;	  /* random identity of the session; 0 never */
	__u64 generation; /* counts the changes, from 1 */
	__u64 root;	  /* address of the project root's dentry */
	struct object root_id;
	__u64 overlay_start, overlay_end; /* text of overlayfs, 0: not known */
	__u64 mnt_ns; /* address of the mount namespace that the session began in */
	struct object state; /* the directory of sessions' state and locks */
	__u32 flags;
	__u32 root_start;
	__u32 root_anchor; /* id of the root in the companion's list */
	__u32 zero;	   /* always 0, which the verifier does not know: see walk.h */
	__u32 socket_start; /* state from which control sockets' paths are judged */
	__u32 companion;    /* tgid of the companion, initial pid namespace */
	__u16 slash;	    /* class of '/' */
	__u16 end;	    /* class of the end of a path */
	__u16 ttys;
	__u16 stdios;
	__u32 tty[MAX_TTYS]; /* i_rdev */
	struct object stdio[MAX_STDIO];
	struct anchor anchors[ANCHOR_SLOTS];
};

/*
 * What the table says of a whole name: from the state of a directory, over '/'
 * and the name, to the state of what has it. It says nothing that the cells do
 * not say, only sooner.
 */
struct name {
	__u64 text[2]; /* see name_words */
	__u32 from;    /* 0: empty slot */
	__u32 to;
	__u32 below; /* STATE_ALL if all below the name is covered */
	__u32 pad;
};

struct scope {
	struct scope_header h;
	__u16 class[MAX_CLASSES];
	struct name name[NAME_SLOTS];
	__u64 cell[MAX_CELLS];
};

/* The label on a task. */
struct label {
	__u64 session;
	__u32 slot;
	__u32 role;
	/* The last tentative create of this thread: see path_mknod. */
	__u64 pending_parent;
	__u64 pending_hash;
	__u32 pending_reason;
	__u32 pending_tentative;
	/* The last open that audit let pass, so that its O_TRUNC is not told twice. */
	__u64 audited;
	/* The executable whose path the reader has been told last, of this task. */
	__u64 exe;
	__u64 exe_ino;
	/* A BTF pointer stored here comes back as a number (verifier, all versions). */
	__u64 number;
};

struct session_row {
	__u64 session; /* 0: the slot is free */
	__u64 seq;	/* events made */
	__u64 lost;	/* events that found no room */
	__u64 refused[OP_MAX][REASON_MAX];
	__u64 audited[OP_MAX][REASON_MAX];
};

/*
 * One refusal. Names follow the header leaf first, each ended by '/'; a path
 * ends at its anchor (or at its file system's root where it has none).
 */
struct event {
	__u64 seq; /* from 1, per session */
	__u64 time; /* CLOCK_BOOTTIME, ns */
	__u64 session;
	__u64 generation;
	__u64 exe; /* address of the executable's inode, for the companion's cache */
	__u64 exe_ino;
	__u32 pid, tid, ppid, uid;
	__u32 nspid;
	__u32 dev, dev2; /* s_dev */
	__u32 mnt_id;	 /* 0: not known */
	__u32 anchor, anchor2, exe_anchor; /* id, or NO_ANCHOR */
	__u32 arg; /* op-specific: signal, ioctl command, bpf command, target pid */
	__u16 len, len2, exe_len; /* bytes of names */
	__u16 flags;
	__u8 op;
	__u8 reason;
	__u16 mode; /* i_mode of the object, 0: none */
	__u16 used; /* all bytes of names */
	__u16 limit;
	__u16 pad[2];
	char comm[COMM_LEN];
};
#define NO_ANCHOR 0xffffffffu

/* Answer to the companion's question "what is behind this descriptor". */
struct answer {
	struct object object;
	__u64 dentry;
	__u64 mnt_ns; /* of the asking process */
	__u32 mode;
	__u32 rdev;
	__u32 is_root; /* the dentry is its file system's root */
	__u32 tgid; /* of the asking process, initial pid namespace */
	__u64 magic;
	__u64 done;
};

/* ioctl(fd, ASK, token): answered only for tokens that are in `answers`. */
#define ASK 0x7066c0deu

#endif
