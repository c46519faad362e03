//go:build vm

package main_test

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelItself are attacks that have the kernel write, wait or look for code on the
// attacker's behalf. They are made with a task and, by TestBypassIdle, without.
func kernelItself() []attack {
	return []attack{
		{name: "module-by-name", root: true, keeps: true, try: func(s site) error {
			return requested("dummy", "ifb", s, func(name string) error {
				// A network interface that does not exist: the kernel looks for a module of its name.
				return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, func(fd int) error {
					var req [40]byte
					copy(req[:unix.IFNAMSIZ-1], name)
					_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCGIFFLAGS, uintptr(unsafe.Pointer(&req[0])))
					if e == unix.ENODEV {
						return nil
					}
					return fmt.Errorf("interface %s: %w", name, e)
				})
			})
		}},
		{name: "quota", root: true, keeps: true, twin: func(s site) error { return quotactl(s, 0x800004) }, // Q_GETFMT
			try: func(s site) error { return quotactl(s, 0x800002) }}, // Q_QUOTAON
		{name: "clock", root: true, keeps: true, try: func(site) error {
			now := unix.NsecToTimespec(time.Now().UnixNano())
			return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
		}},
		{name: "mount-disk", root: true, keeps: true,
			try: func(s site) error { return apart(s, true, "disk", rootDevice()) }},
		{name: "mount-disk-api", root: true, keeps: true,
			try: func(s site) error { return apart(s, true, "disk-api", rootDevice()) }},
		{name: "lock-state", root: true, keeps: true, twin: func(s site) error { // readers of databases take locks wherever these lie
			return withFd(s.Out+"/f", unix.O_RDONLY, func(fd int) error {
				return errors.Join(unix.Flock(fd, unix.LOCK_SH), unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_RDLCK}))
			})
		}, try: func(s site) error {
			return withFd("/run/planfence/lock", unix.O_RDONLY, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX) })
		}},
		{name: "lease-plan", keeps: true, try: func(s site) error {
			return withFd(plan(s), unix.O_RDONLY, lease)
		}},
		{name: "permission-events", root: true, keeps: true,
			twin: func(s site) error {
				return errors.Join(watch(s.Out, unix.FAN_CLASS_NOTIF, unix.FAN_OPEN|unix.FAN_MODIFY), inotify(s.Out))
			},
			try: func(s site) error { return watch(s.In+"/mnt", unix.FAN_CLASS_CONTENT, unix.FAN_OPEN_PERM) }},
		{name: "line-discipline", root: true, keeps: true, try: onTerminal(0x5423)}, // TIOCSETD
		{name: "console-keys", root: true, keeps: true, try: onTerminal(0x4b49)},    // KDSKBSENT
		{name: "console-switch", root: true, keeps: true, try: onTerminal(0x560b)},  // VT_LOCKSWITCH
		{name: "rmdir-mounted", root: true, keeps: true,
			setup: func(s site) error { return unix.Mount("t", s.In+"/mnt", "tmpfs", 0, "") },
			twin:  func(s site) error { return apart(s, true, "rmdir-own") },
			try:   func(s site) error { return apart(s, true, "rmdir-mounted") }},
	}
}

// waits are attacks that make others wait for whatever they open outside the scope.
func waits() []attack {
	return []attack{
		{name: "lease", keeps: true, try: func(s site) error { return withFd(s.Out+"/f", unix.O_RDONLY, lease) },
			twin: func(s site) error { return withFd(s.In+"/f", unix.O_RDONLY, lease) }},
		{name: "delegation", keeps: true, from: [2]int{6, 19}, try: func(s site) error { return withFd(s.Out, unix.O_RDONLY|unix.O_DIRECTORY, delegation) },
			twin: func(s site) error { return withFd(s.In, unix.O_RDONLY|unix.O_DIRECTORY, delegation) }},
	}
}

func init() {
	parts["disk"] = func(d string, args []string) error {
		return unix.Mount(args[0], d+"/in/mnt", "ext4", 0, "")
	}
	parts["disk-api"] = func(d string, args []string) error {
		fs, err := unix.Fsopen("ext4", 0)
		if err != nil {
			return err
		}
		if err := unix.FsconfigSetString(fs, "source", args[0]); err != nil {
			return err
		}
		return unix.FsconfigCreate(fs)
	}
	parts["rmdir-mounted"] = func(d string, _ []string) error {
		return errors.Join(unix.Unmount(d+"/in/mnt", unix.MNT_DETACH), os.Remove(d+"/in/mnt"))
	}
	parts["rmdir-own"] = func(d string, _ []string) error {
		own := d + "/in/own"
		return errors.Join(os.Mkdir(own, 0o755), unix.Mount("t", own, "tmpfs", 0, ""), unix.Unmount(own, 0), os.Remove(own))
	}
}

// requested has the kernel look for a module, and reports whether it is there then:
// one for the control, another for the fenced, of which the kernel has but one each.
func requested(free, fenced string, s site, ask func(name string) error) error {
	name := free
	if s.Fenced {
		name = fenced
	}
	if err := ask(name); err != nil {
		return err
	}
	_, err := os.Stat("/sys/module/" + name)
	return err
}

func withSocket(domain, typ, proto int, f func(fd int) error) error {
	fd, err := unix.Socket(domain, typ, proto)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return f(fd)
}

// quotactl asks about the quota of the users of the root's file system, which keeps
// none: what the kernel then says is no refusal.
func quotactl(s site, cmd uintptr) error {
	return withFd(s.In, unix.O_RDONLY|unix.O_DIRECTORY, func(fd int) error {
		var b [128]byte
		_, _, e := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), cmd<<8, 0, uintptr(unsafe.Pointer(&b[0])), 0, 0)
		return unlessRefused(e)
	})
}

// unlessRefused: every other error says that the kernel went on to look.
func unlessRefused(e unix.Errno) error {
	if e == unix.EACCES || e == unix.EPERM {
		return e
	}
	return nil
}

func lease(fd int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return err
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return err
}

// delegation: include/uapi/linux/fcntl.h, from 6.19.
func delegation(fd int) error {
	d := struct {
		flags     uint32
		typ, zero uint16
	}{typ: unix.F_RDLCK}
	_, _, e := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), 1040, uintptr(unsafe.Pointer(&d)))
	if e != 0 {
		return e
	}
	return nil
}

func watch(path string, class uint, mask uint64) error {
	fd, err := unix.FanotifyInit(class|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.FanotifyMark(fd, unix.FAN_MARK_ADD, mask, unix.AT_FDCWD, path)
}

func inotify(path string) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, path, unix.IN_ALL_EVENTS)
	return err
}

// onTerminal makes a request on a new pseudo terminal. A request of virtual consoles
// alone gets ENOTTY there, which is no refusal.
func onTerminal(cmd uintptr) func(site) error {
	return func(site) error {
		return withFd("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, func(m int) error {
			var n uint32
			if err := errors.Join(ioctl(m, unix.TIOCSPTLCK, &n), ioctl(m, unix.TIOCGPTN, &n)); err != nil {
				return err
			}
			return withFd(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY, func(t int) error {
				var b [1024]byte
				_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(t), cmd, uintptr(unsafe.Pointer(&b[0])))
				return unlessRefused(e)
			})
		})
	}
}
