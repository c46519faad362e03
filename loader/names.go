package loader

import "planfence/bpf"

// Operations as records name them.
var ops = map[bpf.LsmOp]string{
	bpf.LsmOpOP_OPEN: "open", bpf.LsmOpOP_CREATE: "create", bpf.LsmOpOP_MKDIR: "mkdir",
	bpf.LsmOpOP_MKNOD: "mknod", bpf.LsmOpOP_SYMLINK: "symlink", bpf.LsmOpOP_LINK: "link",
	bpf.LsmOpOP_UNLINK: "unlink", bpf.LsmOpOP_RMDIR: "rmdir", bpf.LsmOpOP_RENAME: "rename",
	bpf.LsmOpOP_TRUNCATE: "truncate", bpf.LsmOpOP_CHMOD: "chmod", bpf.LsmOpOP_CHOWN: "chown",
	bpf.LsmOpOP_UTIMES: "utimes", bpf.LsmOpOP_SETXATTR: "setxattr", bpf.LsmOpOP_REMOVEXATTR: "removexattr",
	bpf.LsmOpOP_SETACL: "setacl", bpf.LsmOpOP_IOCTL: "ioctl", bpf.LsmOpOP_RECEIVE: "receive",
	bpf.LsmOpOP_WRITE: "write", bpf.LsmOpOP_PTRACE: "ptrace", bpf.LsmOpOP_KILL: "kill",
	bpf.LsmOpOP_SETRLIMIT: "setrlimit", bpf.LsmOpOP_BPF: "bpf", bpf.LsmOpOP_MODULE: "module",
	bpf.LsmOpOP_MOUNT: "mount", bpf.LsmOpOP_UMOUNT: "umount", bpf.LsmOpOP_CONNECT: "connect",
	bpf.LsmOpOP_IOURING: "io_uring", bpf.LsmOpOP_LOCK: "lock", bpf.LsmOpOP_QUOTA: "quota", bpf.LsmOpOP_SETTIME: "settime",
}

// Reasons as records name them.
var reasons = map[bpf.LsmReason]string{
	bpf.LsmReasonREASON_SCOPE: "scope", bpf.LsmReasonREASON_NO_TASK: "no-task",
	bpf.LsmReasonREASON_PROTECTED: "protected", bpf.LsmReasonREASON_HARDLINK: "hardlink",
	bpf.LsmReasonREASON_DEVICE: "device", bpf.LsmReasonREASON_UNKNOWN: "unknown-object",
	bpf.LsmReasonREASON_TOO_DEEP: "too-deep", bpf.LsmReasonREASON_TOO_LONG: "too-long",
	bpf.LsmReasonREASON_DIRECTORY: "directory", bpf.LsmReasonREASON_REVOKED: "revoked",
	bpf.LsmReasonREASON_PROCESS: "process", bpf.LsmReasonREASON_KERNEL: "kernel",
	bpf.LsmReasonREASON_MOUNT: "mount", bpf.LsmReasonREASON_SOCKET: "socket",
	bpf.LsmReasonREASON_NO_MEMORY: "no-memory", bpf.LsmReasonREASON_CASELESS: "caseless",
}

func opName(op uint8) string { return nameOf(ops[bpf.LsmOp(op)]) }

func reasonName(reason uint8) string { return nameOf(reasons[bpf.LsmReason(reason)]) }

func nameOf(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
