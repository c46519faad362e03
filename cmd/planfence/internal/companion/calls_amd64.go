package companion

import "golang.org/x/sys/unix"

// olderCalls are those of this architecture alone, and those of 32-bit programs on it,
// whose numbers mean something else there (arch/x86/entry/syscalls/syscall_32.tbl:
// open, creat, openat, splice, sendfile, sendfile64).
var olderCalls = []int{unix.SYS_OPEN, unix.SYS_CREAT, 5, 8, 295, 313, 187, 239}
