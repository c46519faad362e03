//go:build vm

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openClose opens a file as open(2) does, writes a byte if it can, and closes it.
func openClose(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		_, err = unix.Write(fd, []byte("x"))
	}
	return errors.Join(err, unix.Close(fd))
}

// withFile calls f with a descriptor for reading.
func withFile(path string, f func(fd int) error) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s for reading: %v", path, err) // an EACCES here is none of the act's
	}
	return errors.Join(f(fd), unix.Close(fd))
}

// longAgo is a time that no file has yet.
var longAgo = []unix.Timespec{{Sec: 1_000_000_000}, {Sec: 1_000_000_000}}

// calls are single system calls of the driver.
func calls(h host) []act {
	opening := func(name string, flags int) act {
		return act{name: name, call: func(p place) error { return openClose(p.d+"/f", flags) }, want: one("open", "@d/f")}
	}
	out := []act{
		opening("open-wronly", unix.O_WRONLY),
		opening("open-rdwr", unix.O_RDWR),
		opening("open-append", unix.O_WRONLY|unix.O_APPEND),
		opening("open-trunc", unix.O_WRONLY|unix.O_TRUNC),
		opening("open-creat", unix.O_WRONLY|unix.O_CREAT),
		opening("open-rdonly-trunc", unix.O_RDONLY|unix.O_TRUNC),
		{name: "open-new", call: func(p place) error { return openClose(p.d+"/new", unix.O_WRONLY|unix.O_CREAT) }, want: one("create", "@d/new")},
		{name: "open-excl", call: func(p place) error { return openClose(p.d+"/new", unix.O_RDWR|unix.O_CREAT|unix.O_EXCL) }, want: one("create", "@d/new")},
		{name: "open-new-rdonly", call: func(p place) error { return openClose(p.d+"/new", unix.O_RDONLY|unix.O_CREAT) }, want: one("create", "@d/new")},
		{name: "open-creat-rdonly", call: func(p place) error { return openClose(p.d+"/f", unix.O_RDONLY|unix.O_CREAT) }, allowed: true},
		// With nothing cached the kernel asks whether the file may be created before it knows that it exists.
		{name: "cold-creat", cold: true, call: func(p place) error { return openClose(p.d+"/f", unix.O_WRONLY|unix.O_CREAT) }, want: one("open", "@d/f")},
		{name: "cold-new", cold: true, call: func(p place) error { return openClose(p.d+"/new", unix.O_WRONLY|unix.O_CREAT) }, want: one("create", "@d/new")},
		{name: "cold-creat-rdonly", cold: true, call: func(p place) error { return openClose(p.d+"/f", unix.O_RDONLY|unix.O_CREAT) }, allowed: true},
		{name: "cold-link", cold: true, call: func(p place) error { return openClose(p.d+"/l", unix.O_WRONLY|unix.O_CREAT) }, want: one("open", "@d/f")},
		{name: "cold-link-in", cold: true, setup: func(p place) error { return os.Symlink(p.s+"/f", p.d+"/in") },
			call: func(p place) error { return openClose(p.d+"/in", unix.O_WRONLY|unix.O_CREAT) }, allowed: true},
		{name: "open-link", call: func(p place) error { return openClose(p.d+"/l", unix.O_WRONLY) }, want: one("open", "@d/f")},
		{name: "open-link-in", outOnly: true, setup: func(p place) error { return os.Symlink(p.d+"/f", p.s+"/l") },
			call: func(p place) error { return openClose(p.s+"/l", unix.O_WRONLY) }, want: one("open", "@d/f")},
		{name: "open-procfd", call: func(p place) error {
			return withFile(p.d+"/f", func(fd int) error { return openClose(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY) })
		}, want: one("open", "@d/f")},
		{name: "tmpfile", copiesUp: true, needs: func(h host) bool { return h.fs != "overlay" || h.kernel.atLeast(6, 10) }, call: tmpfile, want: one("open", "@d/*"), audit: []want{{op: "open", path: "@d/*"}, {op: "link", path: "@d/*", path2: "@d/new"}}},
		// On overlayfs a write in place parts the names of a lower layer's file.
		{name: "hardlink", outOnly: true, needs: func(h host) bool { return h.fs != "overlay" }, owner: []string{}, setup: func(p place) error { return os.Link(p.d+"/f", p.s+"/hard") },
			call: func(p place) error { return openClose(p.s+"/hard", unix.O_WRONLY) },
			want: []want{{op: "open", path: "@s/hard", reason: "hardlink"}}},
		{name: "call-truncate", call: func(p place) error { return unix.Truncate(p.d+"/f", 1) }, want: one("truncate", "@d/f")},
		{name: "call-unlink", call: func(p place) error { return unix.Unlink(p.d + "/f") }, want: one("unlink", "@d/f")},
		{name: "call-rmdir", call: func(p place) error { return unix.Rmdir(p.d + "/sub") }, want: one("rmdir", "@d/sub")},
		{name: "call-mkdir", call: func(p place) error { return unix.Mkdir(p.d+"/new", 0o755) }, want: one("mkdir", "@d/new")},
		{name: "call-mkfifo", call: func(p place) error { return unix.Mknod(p.d+"/new", unix.S_IFIFO|0o644, 0) }, want: one("mknod", "@d/new")},
		{name: "call-mknod", call: func(p place) error { return unix.Mknod(p.d+"/new", unix.S_IFREG|0o644, 0) }, want: one("create", "@d/new")},
		{name: "call-bind", call: bind, want: one("mknod", "@d/new")},
		{name: "call-symlink", call: func(p place) error { return unix.Symlink("f", p.d+"/new") }, want: one("symlink", "@d/new")},
		{name: "call-link", call: func(p place) error { return unix.Link(p.d+"/f", p.d+"/new") }, want: two("link", "@d/f", "@d/new")},
		{name: "link-out", call: func(p place) error { return unix.Link(p.s+"/f", p.d+"/new") }, want: two("link", "@s/f", "@d/new")},
		{name: "link-in", call: func(p place) error { return unix.Link(p.d+"/f", p.s+"/new") }, want: two("link", "@d/f", "@s/new")},
		{name: "rename", call: func(p place) error { return unix.Rename(p.d+"/f", p.d+"/new") }, want: two("rename", "@d/f", "@d/new")},
		{name: "rename-over", call: func(p place) error { return unix.Rename(p.s+"/f", p.d+"/f") }, want: two("rename", "@s/f", "@d/f")},
		{name: "rename-dir", call: func(p place) error { return unix.Rename(p.d+"/sub", p.s+"/new") }, want: two("rename", "@d/sub", "@s/new")},
		{name: "rename-dir-out", setup: func(p place) error { return os.Mkdir(p.s+"/sub", 0o755) },
			call: func(p place) error { return unix.Rename(p.s+"/sub", p.d+"/new") }, want: two("rename", "@s/sub", "@d/new")},
		{name: "exchange", call: renameat2(unix.RENAME_EXCHANGE, "f"), want: two("rename", "@s/f", "@d/f")},
		{name: "noreplace", call: renameat2(unix.RENAME_NOREPLACE, "new"), want: two("rename", "@s/f", "@d/new")},
		{name: "call-chmod", call: func(p place) error { return unix.Chmod(p.d+"/f", 0o600) }, want: one("chmod", "@d/f")},
		{name: "fchmod", call: func(p place) error {
			return withFile(p.d+"/f", func(fd int) error { return unix.Fchmod(fd, 0o600) })
		}, want: one("chmod", "@d/f")},
		{name: "chmod-dir", call: func(p place) error { return unix.Chmod(p.d+"/sub", 0o700) }, want: one("chmod", "@d/sub")},
		{name: "call-chown", call: func(p place) error { return unix.Chown(p.d+"/f", -1, os.Getgid()) }, want: one("chown", "@d/f")},
		{name: "fchown", call: func(p place) error {
			return withFile(p.d+"/f", func(fd int) error { return unix.Fchown(fd, -1, os.Getgid()) })
		}, want: one("chown", "@d/f")},
		{name: "lchown", call: func(p place) error { return unix.Lchown(p.d+"/l", -1, os.Getgid()) }, want: one("chown", "@d/l")},
		{name: "utimens", call: func(p place) error { return unix.UtimesNanoAt(unix.AT_FDCWD, p.d+"/f", longAgo, 0) }, want: one("utimes", "@d/f")},
		{name: "utimens-now", call: func(p place) error { return unix.UtimesNanoAt(unix.AT_FDCWD, p.d+"/f", nil, 0) }, want: one("utimes", "@d/f")},
		{name: "utimens-link", call: func(p place) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, p.d+"/l", longAgo, unix.AT_SYMLINK_NOFOLLOW)
		}, want: one("utimes", "@d/l")},
		{name: "call-setxattr", needs: userXattr, call: func(p place) error { return unix.Setxattr(p.d+"/f", "user.k", []byte("1"), 0) }, want: one("setxattr", "@d/f")},
		{name: "fsetxattr", needs: userXattr, call: func(p place) error {
			return withFile(p.d+"/f", func(fd int) error { return unix.Fsetxattr(fd, "user.k", []byte("1"), 0) })
		}, want: one("setxattr", "@d/f")},
		{name: "removexattr", needs: userXattr, setup: func(p place) error { return unix.Setxattr(p.d+"/f", "user.k", []byte("1"), 0) },
			call: func(p place) error { return unix.Removexattr(p.d+"/f", "user.k") }, want: one("removexattr", "@d/f")},
		{name: "default-acl", call: func(p place) error {
			return unix.Setxattr(p.d+"/sub", "system.posix_acl_default", minimalACL, 0)
		}, want: one(setaclOp(h), "@d/sub")},
		{name: "setflags", call: func(p place) error {
			return withFile(p.d+"/f", func(fd int) error {
				return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, noatimeFlag)
			})
		}, want: one("ioctl", "@d/f")},
		{name: "file-setattr", needs: func(h host) bool { return h.kernel.atLeast(6, 17) && h.fs != "overlay" }, call: fileSetattr, want: one("ioctl", "@d/f")},
	}
	return out
}

// setaclOp: inode_set_acl exists from 6.2; before, an ACL is an attribute.
func setaclOp(h host) string {
	if h.kernel.atLeast(6, 2) {
		return "setacl"
	}
	return "setxattr"
}

// userXattr: tmpfs has user attributes from 6.6.
func userXattr(h host) bool { return h.fs != "tmpfs" || h.kernel.atLeast(6, 6) }

// noatimeFlag is FS_NOATIME_FL, include/uapi/linux/fs.h: every file system here
// has it, and an owner may set it.
const noatimeFlag = 0x80

// minimalACL is u::rwx,g::r-x,o::r-x, as include/uapi/linux/posix_acl_xattr.h has it.
var minimalACL = func() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range [][2]uint16{{0x01, 7}, {0x04, 5}, {0x20, 5}} {
		b = binary.LittleEndian.AppendUint16(b, e[0])
		b = binary.LittleEndian.AppendUint16(b, e[1])
		b = binary.LittleEndian.AppendUint32(b, 0xffffffff)
	}
	return b
}()

// renameat2 renames the second directory's f with flags.
func renameat2(flags uint, to string) func(p place) error {
	return func(p place) error {
		return unix.Renameat2(unix.AT_FDCWD, p.s+"/f", unix.AT_FDCWD, p.d+"/"+to, flags)
	}
}

// tmpfile makes a file without a name and, if it may, gives it one.
func tmpfile(p place) error {
	fd, err := unix.Open(p.d, unix.O_WRONLY|unix.O_TMPFILE|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, p.d+"/new", unix.AT_SYMLINK_FOLLOW)
}

func bind(p place) error {
	// A socket's address has 108 bytes: bind below a descriptor of the directory.
	dir, err := os.Open(p.d)
	if err != nil {
		return fmt.Errorf("open %s: %v", p.d, err)
	}
	defer dir.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/new", dir.Fd()))
	if err != nil {
		return err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l.Close()
}

// fileSetattr is file_setattr(2), from 6.17.
func fileSetattr(p place) error {
	path, err := unix.BytePtrFromString(p.d + "/f")
	if err != nil {
		return err
	}
	attr := struct { // struct file_attr, include/uapi/linux/fs.h
		xflags                              uint64
		extsize, nextents, projid, cowextsz uint32
	}{xflags: 0x40} // FS_XFLAG_NOATIME
	dir := unix.AT_FDCWD
	_, _, errno := unix.Syscall6(469, uintptr(dir), uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
