//go:build vm

package main_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fenceItself are attacks on what the fence stands on, and on the kernel below
// it. They are made with a task and, by TestBypassIdle, without.
func fenceItself() []attack {
	// open for writing is enough: unfenced it works and changes nothing.
	opens := func(name, path string) attack {
		return attack{name: name, root: true, keeps: true, try: func(s site) error {
			return withFd(path, unix.O_WRONLY, func(int) error { return nil })
		}}
	}
	call := func(name string, nr uintptr, args ...uintptr) attack {
		return attack{name: name, root: true, keeps: true, try: func(s site) error {
			var x [6]uintptr
			copy(x[:], args)
			_, _, e := unix.Syscall6(nr, x[0], x[1], x[2], x[3], x[4], x[5])
			if e == unix.EACCES || e == unix.EPERM {
				return e
			}
			return nil // the kernel went on to look at the arguments
		}}
	}
	attr := make([]byte, 128)
	junk := make([]byte, 4096)
	list := []attack{
		{name: "plan-write", keeps: true, try: func(s site) error { return scrawl(plan(s)) }},
		{name: "plan-rename-over", keeps: true, try: func(s site) error { return os.Rename(s.In+"/plan.json", plan(s)) },
			setup: func(s site) error { return copyFile(plan(s), s.In+"/plan.json") }},
		{name: "plan-unlink", keeps: true, try: func(s site) error { return back(os.Remove(plan(s)), s) },
			setup: func(s site) error { return copyFile(plan(s), s.D+"/plan.json") }},
		{name: "plan-link", keeps: true, try: func(s site) error { return os.Link(plan(s), s.In+"/p") }},
		{name: "plan-move-dir", keeps: true, try: func(s site) error {
			d := filepath.Dir(plan(s))
			return errors.Join(os.Rename(d, d+"-moved"), os.Rename(d+"-moved", d))
		}},
		{name: "active-task", keeps: true, try: func(s site) error {
			return errors.Join(fresh(filepath.Dir(plan(s))+"/active-task"), os.Remove(filepath.Dir(plan(s))+"/active-task"))
		}},
		{name: "log", keeps: true, try: func(s site) error {
			p := filepath.Dir(plan(s)) + "/blocked.log"
			if !s.Fenced {
				p += ".free"
				_ = fresh(p)
			}
			return scrawl(p)
		}},
		{name: "log-remove", keeps: true, try: func(s site) error {
			p := filepath.Dir(plan(s)) + "/blocked.log"
			if !s.Fenced {
				p += ".free2"
				_ = fresh(p)
			}
			return os.Remove(p)
		}},
		{name: "state", root: true, keeps: true, try: func(site) error { return fresh("/run/planfence/x") }},
		{name: "state-move", root: true, keeps: true, try: func(site) error {
			return errors.Join(os.Rename("/run/planfence", "/run/planfence-moved"), os.Rename("/run/planfence-moved", "/run/planfence"))
		}},
		{name: "binary", root: true, keeps: true, try: func(s site) error {
			return errors.Join(os.Rename("/usr/local/bin/planfence", "/usr/local/bin/pf"), os.Rename("/usr/local/bin/pf", "/usr/local/bin/planfence"))
		}},
		{name: "binary-move-dir", root: true, keeps: true, try: func(s site) error {
			return errors.Join(os.Rename("/usr/local/bin", "/usr/local/bin2"), os.Rename("/usr/local/bin2", "/usr/local/bin"))
		}},
		{name: "pins", root: true, keeps: true, try: func(s site) error {
			return errors.Join(fresh0(os.Mkdir("/sys/fs/bpf/planfence-x", 0o700)), os.Remove("/sys/fs/bpf/planfence-x"))
		}},
		{name: "pins-second-mount", root: true, keeps: true,
			try: func(s site) error { return apart(s, true, "kernel-fs", "bpf", "mkdir") }},
		{name: "umount", root: true, setup: mountOver, try: func(s site) error { return unix.Unmount(s.Out+"/sub", unix.MNT_DETACH) }},
		{name: "umount-shared", root: true, setup: mountOver, try: ns("umount", false)},
		{name: "mount-shared-namespace", root: true, try: func(s site) error { return unix.Mount(s.In, s.Out, "", unix.MS_BIND, "") }},
		call("bpf", unix.SYS_BPF, 11 /* BPF_PROG_GET_NEXT_ID */, ptr(attr), 128),
		call("init-module", unix.SYS_INIT_MODULE, ptr(junk), 4096, ptr(attr)),
		{name: "finit-module", root: true, keeps: true, try: func(s site) error {
			return withFd("/etc/hostname", unix.O_RDONLY, func(fd int) error {
				if err := unix.FinitModule(fd, "", 0); errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
					return err
				}
				return nil // no module, but it was looked at
			})
		}},
		call("kexec", unix.SYS_KEXEC_LOAD, 0, 0, 0, 0),
		call("iopl", sysIopl, 3),
		call("ioperm", sysIoperm, 0x80, 1, 1),
		opens("core-pattern", "/proc/sys/kernel/core_pattern"),
		opens("sysrq", "/proc/sysrq-trigger"),
		opens("sysfs", "/sys/kernel/mm/ksm/run"),
		{name: "core-pattern-new-proc", root: true, keeps: true,
			try: func(s site) error { return apart(s, true, "kernel-fs", "proc", "sys/kernel/core_pattern") }},
		{name: "sysfs-second-mount", root: true, keeps: true,
			try: func(s site) error { return apart(s, true, "kernel-fs", "sysfs", "kernel/mm/ksm/run") }},
		{name: "cgroup", root: true, keeps: true,
			try: func(s site) error { return apart(s, true, "kernel-fs", "cgroup2", "mkdir") }},
		{name: "debugfs", root: true, keeps: true,
			try: func(s site) error { return apart(s, true, "kernel-fs", "debugfs", "sched/verbose") }},
		opens("block-device", "/dev/nvme0n1"),
		opens("disk-commands", "/dev/nvme0"),
		opens("dev-kmsg", "/dev/kmsg"),
		{name: "dev-mem", root: true, keeps: true, try: func(s site) error {
			return withFd("/dev/mem", unix.O_RDWR, func(int) error { return nil })
		}},
		{name: "disk-commands-reading", root: true, keeps: true, try: func(s site) error {
			return withFd("/dev/nvme0n1", unix.O_RDONLY, func(fd int) error { // BLKFLSBUF
				return ioctl(fd, 0x1261, nil)
			})
		}},
		{name: "terminal-input", root: true, keeps: true, try: terminalInput},
	}
	socket := func(name, path string) attack {
		return attack{name: name, keeps: true,
			setup: func(s site) error { return listen(s, path) },
			try: func(s site) error {
				c, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", mustDir(s.In), path))
				if err == nil {
					c.Close()
				}
				return err
			}}
	}
	list = append(list, socket("socket-docker", "docker.sock"), socket("socket-podman", "podman.sock"), socket("socket-tmux", "tmux-1000/default"))
	return append(list, attack{name: "socket-other", keeps: true, // legal: an ordinary daemon's
		setup: func(s site) error { return listen(s, "ok.sock") },
		twin: func(s site) error {
			c, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/ok.sock", mustDir(s.In)))
			if err == nil {
				c.Close()
			}
			return err
		},
		try: func(s site) error { return refusedHere(s) }})
}

func fresh0(err error) error { return err }

func ptr(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

func plan(s site) string { return s.Root + "/.claude/plan.json" }

// back puts the plan back for those that come next.
func back(err error, s site) error {
	if err == nil {
		err = copyFile(s.D+"/plan.json", plan(s))
	}
	return err
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, b, 0o644); err != nil || os.Getuid() != 0 {
		return err
	}
	return chownLike(to, filepath.Dir(to))
}

// mountOver hides what the digest then misses or finds.
func mountOver(s site) error { return unix.Mount("t", s.Out+"/sub", "tmpfs", 0, "") }

// listen is a daemon outside the session.
func listen(s site, name string) error {
	dir := filepath.Dir(filepath.Join(s.In, name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", mustDir(dir), filepath.Base(name)))
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return os.Chmod(filepath.Join(s.In, name), 0o777)
}

// terminalInput types into a terminal, as if its user had.
func terminalInput(s site) error {
	return withFd("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, func(m int) error {
		var n uint32
		if err := errors.Join(ioctl(m, unix.TIOCSPTLCK, &n), ioctl(m, unix.TIOCGPTN, &n)); err != nil {
			return err
		}
		return withFd(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY, func(t int) error {
			c := uint32('x')
			return ioctl(t, unix.TIOCSTI, &c)
		})
	})
}
