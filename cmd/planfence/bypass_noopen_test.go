//go:build vm

package main_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls newer than the constants at hand, the same on all architectures.
const (
	sysFchmodat2    = 452 // 6.6
	sysSetxattrat   = 463 // 6.13
	sysFileSetattr  = 469 // 6.17
	fsNoatime       = 0x80
	fsXflagNoatime  = 0x40
	fsIocSetflags   = 0x40086602
	fsIocGetflags   = 0x80086601
	fsIocFsgetxattr = 0x801c581f
	fsIocFssetxattr = 0x401c5820
)

var past = []unix.Timespec{{Sec: 1_000_000_000}, {Sec: 1_000_000_000}}

// acl is a valid access ACL that says no more than the mode does, but for a
// named user: system.posix_acl_access, version 2.
func acl() []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, uint32(2))
	for _, e := range [][3]uint32{{1, 6, 0xffffffff}, {2, 6, 4242}, {4, 4, 0xffffffff}, {16, 6, 0xffffffff}, {32, 4, 0xffffffff}} {
		_ = binary.Write(&b, binary.LittleEndian, []uint16{uint16(e[0]), uint16(e[1])})
		_ = binary.Write(&b, binary.LittleEndian, e[2])
	}
	return b.Bytes()
}

// same makes an attack of what must work in the scope and not outside.
func same(name string, act func(dir string) error) attack {
	return attack{name: name, try: func(s site) error { return act(s.Out) }, twin: func(s site) error { return act(s.In) }}
}

func (a attack) asRoot() attack                 { a.root = true; return a }
func (a attack) onExt4() attack                 { a.ext4 = true; return a }
func (a attack) since(ma, mi int) attack        { a.from = [2]int{ma, mi}; return a }
func (a attack) keepsDisk() attack              { a.keeps = true; return a }
func (a attack) with(f func(site) error) attack { a.setup = f; return a }

// noOpen changes files without ever opening one for writing.
func noOpen() []attack {
	withXattr := func(s site) error {
		return errors.Join(unix.Setxattr(s.In+"/f", "user.old", []byte("1"), 0), unix.Setxattr(s.Out+"/f", "user.old", []byte("1"), 0))
	}
	return []attack{
		same("truncate", func(d string) error { return unix.Truncate(d+"/f", 1) }),
		same("open-trunc-reading", func(d string) error {
			return withFd(d+"/f", unix.O_RDONLY|unix.O_TRUNC, func(int) error { return nil })
		}),
		same("creat", func(d string) error { return fresh(d + "/new") }),
		same("open-creat-reading", func(d string) error {
			return withFd(d+"/new2", unix.O_RDONLY|unix.O_CREAT, func(int) error { return nil })
		}),
		same("mkdir", func(d string) error { return os.Mkdir(d+"/new3", 0o755) }),
		same("rmdir", func(d string) error { return errors.Join(os.RemoveAll(d+"/sub/f"), unix.Rmdir(d+"/sub")) }),
		same("unlink", func(d string) error { return unix.Unlink(d + "/f") }),
		same("fifo", func(d string) error { return unix.Mkfifo(d+"/p", 0o644) }),
		same("mknod-regular", func(d string) error { return unix.Mknod(d+"/r", unix.S_IFREG|0o644, 0) }),
		same("mknod-socket", func(d string) error { return unix.Mknod(d+"/s", unix.S_IFSOCK|0o644, 0) }),
		{name: "mknod-device", root: true, keeps: true, // another name of a disk, in the scope itself
			try: func(s site) error { return unix.Mknod(s.In+"/disk", unix.S_IFBLK|0o600, int(unix.Mkdev(259, 0))) }},
		same("bind-socket", func(d string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := os.Chdir(d); err != nil { // a socket's path has 107 bytes at most
				return err
			}
			return unix.Bind(fd, &unix.SockaddrUnix{Name: "sock"})
		}),
		same("chmod", func(d string) error { return unix.Chmod(d+"/f", 0o600) }),
		same("chmod-by-fd", func(d string) error {
			return withFd(d+"/f", unix.O_RDONLY, func(fd int) error { return unix.Fchmod(fd, 0o640) })
		}),
		same("chmod-by-link", func(d string) error {
			return withFd(d+"/f", unix.O_PATH, func(fd int) error { return unix.Chmod(fdPath(fd), 0o604) })
		}),
		same("fchmodat2", func(d string) error {
			return withFd(d+"/f", unix.O_PATH, func(fd int) error {
				empty := []byte{0}
				_, _, e := unix.Syscall6(sysFchmodat2, uintptr(fd), uintptr(unsafe.Pointer(&empty[0])), 0o606, unix.AT_EMPTY_PATH, 0, 0)
				return errnoErr(e)
			})
		}).since(6, 6),
		same("chown", func(d string) error { return os.Chown(d+"/f", 4242, 4242) }).asRoot(),
		same("chown-nothing", func(d string) error { return os.Chown(d+"/f", os.Getuid(), os.Getgid()) }),
		same("lchown", func(d string) error {
			if !exists(d + "/l") {
				_ = os.Symlink("f", d+"/l")
			}
			return os.Lchown(d+"/l", 4242, 4242)
		}).asRoot(),
		same("utimes", func(d string) error { return unix.UtimesNanoAt(unix.AT_FDCWD, d+"/f", past, 0) }),
		same("utimes-by-fd", func(d string) error {
			return withFd(d+"/f", unix.O_RDONLY, func(fd int) error {
				_, _, e := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&past[0])), 0, 0, 0)
				return errnoErr(e)
			})
		}),
		same("touch-dir", func(d string) error { return unix.UtimesNanoAt(unix.AT_FDCWD, d, past, 0) }),
		same("setxattr", func(d string) error { return unix.Setxattr(d+"/f", "user.x", []byte("1"), 0) }),
		same("fsetxattr", func(d string) error {
			return withFd(d+"/f", unix.O_RDONLY, func(fd int) error { return unix.Fsetxattr(fd, "user.y", []byte("1"), 0) })
		}),
		same("setxattrat", func(d string) error {
			args := struct {
				value       uint64
				size, flags uint32
			}{size: 1}
			v, n, p := []byte("1"), []byte("user.z\x00"), []byte(d+"/f\x00")
			args.value = uint64(uintptr(unsafe.Pointer(&v[0])))
			at := unix.AT_FDCWD
			_, _, e := unix.Syscall6(sysSetxattrat, uintptr(at), uintptr(unsafe.Pointer(&p[0])), 0,
				uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args))
			return errnoErr(e)
		}).since(6, 13),
		same("removexattr", func(d string) error { return unix.Removexattr(d+"/f", "user.old") }).with(withXattr),
		same("setxattr-trusted", func(d string) error { return unix.Setxattr(d+"/f", "trusted.x", []byte("1"), 0) }).asRoot(),
		same("setcap", func(d string) error { // version 2, cap_dac_override permitted
			v := make([]byte, 20)
			binary.LittleEndian.PutUint32(v, 0x02000001)
			binary.LittleEndian.PutUint32(v[4:], 2)
			return unix.Setxattr(d+"/f", "security.capability", v, 0)
		}).asRoot(),
		same("acl", func(d string) error { return unix.Setxattr(d+"/f", "system.posix_acl_access", acl(), 0) }),
		same("acl-default", func(d string) error { return unix.Setxattr(d+"/sub", "system.posix_acl_default", acl(), 0) }),
		same("chattr", func(d string) error {
			return withFd(d+"/f", unix.O_RDONLY, func(fd int) error {
				var flags uint32
				if err := ioctl(fd, fsIocGetflags, &flags); err != nil {
					return err
				}
				flags |= fsNoatime
				return errors.Join(ioctl(fd, fsIocSetflags, &flags), unix.Fchmod(fd, 0o644))
			})
		}),
		same("fssetxattr", func(d string) error {
			return withFd(d+"/f", unix.O_RDONLY, func(fd int) error {
				var x [7]uint32
				if err := ioctl(fd, fsIocFsgetxattr, &x[0]); err != nil {
					return err
				}
				x[0] |= fsXflagNoatime
				return errors.Join(ioctl(fd, fsIocFssetxattr, &x[0]), unix.Fchmod(fd, 0o644))
			})
		}),
		same("file-setattr", func(d string) error {
			p := []byte(d + "/f\x00")
			x := struct {
				xflags                              uint64
				extsize, nextents, projid, cowextsz uint32
			}{xflags: fsXflagNoatime}
			at := unix.AT_FDCWD
			_, _, e := unix.Syscall6(sysFileSetattr, uintptr(at), uintptr(unsafe.Pointer(&p[0])),
				uintptr(unsafe.Pointer(&x)), unsafe.Sizeof(x), 0, 0)
			return errnoErr(e)
		}).since(6, 17),
		same("resize-fs", func(d string) error { // EXT4_IOC_RESIZE_FS to nothing: EINVAL if it is asked
			return withFd(d, unix.O_RDONLY, func(fd int) error {
				var size [2]uint32
				if err := ioctl(fd, 0x40086610, &size[0]); err != nil && !errors.Is(err, unix.EACCES) {
					return nil
				}
				return unix.EACCES
			})
		}).asRoot().onExt4().keepsDisk().onlyTry(),
	}
}

func (a attack) onlyTry() attack { a.twin = nil; return a }

func errnoErr(e unix.Errno) error {
	if e != 0 {
		return e
	}
	return nil
}
