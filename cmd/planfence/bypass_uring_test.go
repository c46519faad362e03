//go:build vm

package main_test

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// io_uring by hand: include/uapi/linux/io_uring.h. One request at a time.

const (
	opWritev   = 2
	opOpenat   = 18
	opStatx    = 21
	opWrite    = 23
	opOpenat2  = 28
	opRenameat = 35
	opUnlinkat = 36
	opMkdirat  = 37
	opSymlink  = 38
	opLinkat   = 39
	opSetxattr = 42

	setupSQPoll     = 2
	sqeAsync        = 16
	enterGetevents  = 1
	enterSQWakeup   = 2
	sqNeedWakeup    = 1
	offSQRing       = 0
	offCQRing       = 0x8000000
	offSQEs         = 0x10000000
	sysUringSetup   = 425
	sysUringEnter   = 426
	sysUringReg     = 427
	registerPersona = 9
)

type uringParams struct {
	sqEntries, cqEntries, flags, cpu, idle, features, wq uint32
	_                                                    [3]uint32
	sq                                                   struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

type sqe struct {
	op, flags        uint8
	ioprio           uint16
	fd               int32
	off, addr        uint64
	len, opflags     uint32
	user             uint64
	buf, personality uint16
	file             int32
	addr3, _         uint64
}

type uring struct {
	fd         int
	p          uringParams
	sq, cq     []byte
	sqes       []byte
	poll       bool
	keepsAlive []any
}

func newUring(flags uint32) (*uring, error) {
	u := &uring{poll: flags&setupSQPoll != 0}
	u.p.flags, u.p.idle = flags, 2000
	fd, _, e := unix.Syscall(sysUringSetup, 8, uintptr(unsafe.Pointer(&u.p)), 0)
	if e != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", e)
	}
	u.fd = int(fd)
	var err error
	if u.sq, err = unix.Mmap(u.fd, offSQRing, int(u.p.sq.array+4*u.p.sqEntries), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, err
	}
	if u.cq, err = unix.Mmap(u.fd, offCQRing, int(u.p.cq.cqes+16*u.p.cqEntries), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, err
	}
	u.sqes, err = unix.Mmap(u.fd, offSQEs, 64*int(u.p.sqEntries), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return u, err
}

func at32(b []byte, off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&b[off])) }

func (u *uring) path(p string) uint64 {
	b := append([]byte(p), 0)
	u.keepsAlive = append(u.keepsAlive, b)
	return uint64(uintptr(unsafe.Pointer(&b[0])))
}

// do submits one request and returns its result.
func (u *uring) do(r sqe) (int, error) {
	tail := at32(u.sq, u.p.sq.tail)
	i := *tail & *at32(u.sq, u.p.sq.mask)
	*(*sqe)(unsafe.Pointer(&u.sqes[64*i])) = r
	*at32(u.sq, u.p.sq.array+4*i) = i
	atomic.StoreUint32(tail, *tail+1)
	flags, submit := uintptr(enterGetevents), uintptr(1)
	if u.poll {
		submit = 0
		if atomic.LoadUint32(at32(u.sq, u.p.sq.flags))&sqNeedWakeup != 0 {
			flags |= enterSQWakeup
		}
	}
	head := at32(u.cq, u.p.cq.head)
	for end := time.Now().Add(20 * time.Second); atomic.LoadUint32(at32(u.cq, u.p.cq.tail)) == *head; {
		if _, _, e := unix.Syscall6(sysUringEnter, uintptr(u.fd), submit, 1, flags, 0, 0); e != 0 && e != unix.EINTR && e != unix.EAGAIN {
			return 0, fmt.Errorf("io_uring_enter: %w", e)
		}
		submit = 0
		if time.Now().After(end) {
			return 0, errors.New("io_uring: no answer")
		}
	}
	res := *(*int32)(unsafe.Pointer(&u.cq[u.p.cq.cqes+16*(*head&*at32(u.cq, u.p.cq.mask))+8]))
	atomic.StoreUint32(head, *head+1)
	if res < 0 {
		return 0, unix.Errno(-res)
	}
	return int(res), nil
}

const here = unix.AT_FDCWD

// requests are what is asked of a ring, in directory d with a place in scope at in.
var requests = []struct {
	name string
	do   func(u *uring, d, in string, flags uint8) error
}{
	{"open", func(u *uring, d, _ string, flags uint8) error {
		fd, err := u.do(sqe{op: opOpenat, flags: flags, fd: here, addr: u.path(d + "/f"), opflags: unix.O_WRONLY | unix.O_APPEND})
		if err != nil {
			return err
		}
		b := []byte("x")
		u.keepsAlive = append(u.keepsAlive, b)
		_, err = u.do(sqe{op: opWrite, flags: flags, fd: int32(fd), addr: uint64(uintptr(unsafe.Pointer(&b[0]))), len: 1, off: ^uint64(0)})
		return err
	}},
	{"create", func(u *uring, d, _ string, flags uint8) error {
		how := &unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT, Mode: 0o644}
		u.keepsAlive = append(u.keepsAlive, how)
		_, err := u.do(sqe{op: opOpenat2, flags: flags, fd: here, addr: u.path(d + "/new-u"), len: uint32(unsafe.Sizeof(*how)), off: uint64(uintptr(unsafe.Pointer(how)))})
		return err
	}},
	{"rename", func(u *uring, d, in string, flags uint8) error {
		_, err := u.do(sqe{op: opRenameat, flags: flags, fd: here, addr: u.path(in + "/f"), len: uint32(0xffffff9c), off: u.path(d + "/renamed")})
		if err != nil {
			return err
		}
		_, err = u.do(sqe{op: opRenameat, flags: flags, fd: here, addr: u.path(d + "/renamed"), len: uint32(0xffffff9c), off: u.path(in + "/f")})
		return err
	}},
	{"link", func(u *uring, d, in string, flags uint8) error {
		_, err := u.do(sqe{op: opLinkat, flags: flags, fd: here, addr: u.path(in + "/f"), len: uint32(0xffffff9c), off: u.path(d + "/linked")})
		return err
	}},
	{"symlink", func(u *uring, d, _ string, flags uint8) error {
		_, err := u.do(sqe{op: opSymlink, flags: flags, fd: here, addr: u.path("f"), off: u.path(d + "/sym-u")})
		return err
	}},
	{"mkdir", func(u *uring, d, _ string, flags uint8) error {
		_, err := u.do(sqe{op: opMkdirat, flags: flags, fd: here, addr: u.path(d + "/dir-u"), len: 0o755})
		return err
	}},
	{"setxattr", func(u *uring, d, _ string, flags uint8) error {
		v := []byte("1")
		u.keepsAlive = append(u.keepsAlive, v)
		_, err := u.do(sqe{op: opSetxattr, flags: flags, addr: u.path("user.u"), off: uint64(uintptr(unsafe.Pointer(&v[0]))), len: 1, addr3: u.path(d + "/f")})
		return err
	}},
	{"unlink", func(u *uring, d, _ string, flags uint8) error {
		if !exists(d + "/gone") { // in scope: the file f is needed yet
			if err := fresh(d + "/gone"); err != nil {
				return errors.Join(err, removeBy(u, d+"/f", flags))
			}
		}
		return removeBy(u, d+"/gone", flags)
	}},
}

func removeBy(u *uring, path string, flags uint8) error {
	_, err := u.do(sqe{op: opUnlinkat, flags: flags, fd: here, addr: u.path(path)})
	return err
}

// uringAttacks makes each request inline, by a worker, and by the polling thread.
func uringAttacks() []attack {
	var out []attack
	for _, m := range []struct {
		name  string
		setup uint32
		flags uint8
	}{{"", 0, 0}, {"-async", 0, sqeAsync}, {"-sqpoll", setupSQPoll, 0}} {
		for _, r := range requests {
			run := func(d string, s site) error {
				u, err := newUring(m.setup)
				if err != nil {
					return err
				}
				return r.do(u, d, s.In, m.flags)
			}
			out = append(out, attack{name: "uring-" + r.name + m.name,
				try:  func(s site) error { return run(s.Out, s) },
				twin: func(s site) error { return run(s.In+"/sub", site{In: s.In}) },
				setup: func(s site) error {
					if err := os.WriteFile(s.In+"/sub/f", []byte("keep\n"), 0o644); err != nil {
						return err
					}
					return chownLike(s.In+"/sub/f", s.D)
				}})
		}
	}
	return append(out, attack{name: "uring-other-credentials", root: true, try: uringCreds})
}

// chownLike gives path the owner of another file.
func chownLike(path, like string) error {
	var st unix.Stat_t
	if err := unix.Stat(like, &st); err != nil {
		return err
	}
	return os.Lchown(path, int(st.Uid), int(st.Gid))
}

// uringCreds sets an attribute by a request that runs with other credentials,
// as overlayfs does at work on its layers.
func uringCreds(s site) error {
	u, err := newUring(0)
	if err != nil {
		return err
	}
	id, _, e := unix.Syscall6(sysUringReg, uintptr(u.fd), registerPersona, 0, 0, 0, 0)
	if e != 0 {
		return e
	}
	if err := unix.Setresgid(-1, 1000, -1); err != nil {
		return err
	}
	v := []byte("1")
	_, err = u.do(sqe{op: opSetxattr, personality: uint16(id), addr: u.path("user.u"), off: uint64(uintptr(unsafe.Pointer(&v[0]))), len: 1, addr3: u.path(s.Out + "/f")})
	return err
}
