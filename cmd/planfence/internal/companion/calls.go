package companion

import "golang.org/x/sys/unix"

// writingCalls are system calls that open or write a file and may wait meanwhile: for
// a lease to be broken, for a pipe to be filled, for memory to be filled in.
var writingCalls = append([]int{
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SPLICE, unix.SYS_SENDFILE,
	unix.SYS_COPY_FILE_RANGE, unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_PWRITE64, unix.SYS_PWRITEV, unix.SYS_PWRITEV2,
	unix.SYS_FALLOCATE, unix.SYS_FTRUNCATE, unix.SYS_IO_SUBMIT,
}, olderCalls...)
