//go:build vm

package main_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hands are other tasks that write for the attacker.
func hands() []attack {
	sh := func(script string) func(s site) error {
		return func(s site) error {
			c := exec.Command("sh", "-c", script)
			c.Env = append(os.Environ(), "F="+s.Out+"/f", "IN="+s.In)
			if b, err := c.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, b)
			}
			return nil
		}
	}
	return []attack{
		{name: "thread", try: func(s site) error {
			c := make(chan error)
			go func() { runtime.LockOSThread(); c <- scrawl(s.Out + "/f") }()
			return <-c
		}},
		{name: "exec", try: sh(`echo x >> "$F"`), twin: sh(`echo x >> "$IN/f"`)},
		{name: "double-fork", try: sh(`(setsid sh -c 'echo x >> "$F"' &) ; sleep 0.3; grep -q x "$F"`)},
		{name: "vfork", try: func(s site) error { // os/exec clones with CLONE_VFORK
			return exec.Command("cp", "/etc/hostname", s.Out+"/f").Run()
		}},
		{name: "clone-parent", try: func(s site) error {
			c := exec.Command("cp", "/etc/hostname", s.Out+"/f")
			c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_PARENT}
			if err := c.Start(); err != nil {
				return err
			}
			time.Sleep(500 * time.Millisecond) // not our child: it cannot be waited for
			if b, _ := os.ReadFile(s.Out + "/f"); string(b) == "keep\n" {
				return errors.New("not written")
			}
			return nil
		}},
		{name: "setuid", try: sh(`sudo -n sh -c "echo x >> '$F'"`), twin: sh(`sudo -n sh -c "echo x >> '$IN/f'"`)},
		{name: "new-namespaces", try: sh(`unshare -Urmpif --mount-proc sh -c 'echo x >> "$F"'`), twin: sh(`unshare -Urmpif --mount-proc sh -c 'echo x >> "$IN/f"'`)},
		{name: "bubblewrap", try: sh(`bwrap --bind / / --dev /dev --proc /proc --tmpfs /tmp --unshare-all sh -c 'echo x >> "$F"'`),
			twin: sh(`bwrap --bind / / --dev /dev --proc /proc --tmpfs /tmp --unshare-all sh -c 'echo x >> "$IN/f" && echo t > /tmp/t && mkdir -p /tmp/a/b'`)},
		{name: "received-descriptor", setup: serveFd, try: receiveFd},
		{name: "git-hook", try: sh(`mkdir -p "$IN/r" && cd "$IN/r" && git init -q . && printf '#!/bin/sh\necho x >> "$F"\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m m && grep -q x "$F"`)},
		{name: "symlink-proc-fd", try: sh(`exec 5< "$F"; ln -s /proc/self/fd/5 "$IN/link5"; echo x >> "$IN/link5"`)},
	}
}

// serveFd hands a descriptor open for writing to whoever connects, from a
// process outside the session.
func serveFd(s site) error {
	path := filepath.Join(s.In, "fd.sock")
	l, err := net.Listen("unix", "/proc/self/fd/"+fmt.Sprint(mustDir(s.In))+"/fd.sock")
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o777); err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f, err := os.OpenFile(s.Out+"/f", os.O_WRONLY|os.O_APPEND, 0)
			if err == nil {
				_, _, _ = c.(*net.UnixConn).WriteMsgUnix([]byte("f"), unix.UnixRights(int(f.Fd())), nil)
				f.Close()
			}
			c.Close()
		}
	}()
	return nil
}

func mustDir(path string) int {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		panic(err)
	}
	return fd
}

func receiveFd(s site) error {
	c, err := net.Dial("unix", "/proc/self/fd/"+fmt.Sprint(mustDir(s.In))+"/fd.sock")
	if err != nil {
		return err
	}
	defer c.Close()
	b, oob := make([]byte, 8), make([]byte, 64)
	_, n, _, _, err := c.(*net.UnixConn).ReadMsgUnix(b, oob)
	if err != nil {
		return err
	}
	ms, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(ms) == 0 {
		return fmt.Errorf("no descriptor came: %v", err)
	}
	fds, err := unix.ParseUnixRights(&ms[0])
	if err != nil || len(fds) == 0 {
		return fmt.Errorf("no descriptor came: %v", err)
	}
	return scrawlFd(fds[0])
}

// processes are attacks on a process outside the session. A user cannot reach
// the companion of root anyway.
func processes() []attack {
	raw := func(nr uintptr, a ...uintptr) error {
		var x [6]uintptr
		copy(x[:], a)
		_, _, e := unix.Syscall6(nr, x[0], x[1], x[2], x[3], x[4], x[5])
		return errnoErr(e)
	}
	alive := func(s site) error { // a stand-in is a zombie when it has died
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Target))
		if err != nil || state(b) == 'Z' {
			return nil
		}
		return errors.New("it lives on")
	}
	return []attack{
		{name: "kill", root: true, keeps: true, try: func(s site) error { return unix.Kill(s.Target, unix.SIGCONT) },
			twin: func(s site) error {
				c := exec.Command("sleep", "100")
				return errors.Join(c.Start(), c.Process.Kill())
			}},
		{name: "kill-group", root: true, keeps: true, try: func(s site) error {
			pgid, err := unix.Getpgid(s.Target)
			if err != nil || !s.Fenced {
				return err
			}
			_ = unix.Kill(-pgid, unix.SIGURG) // reaches the fenced ones: the companion must not get SIGKILL
			return unix.Kill(s.Target, unix.SIGKILL)
		}},
		{name: "sigqueue", root: true, keeps: true, try: func(s site) error {
			info := make([]byte, 128)
			binary.NativeEndian.PutUint32(info, uint32(unix.SIGCONT))
			code := int32(-1) // SI_QUEUE
			binary.NativeEndian.PutUint32(info[8:], uint32(code))
			return raw(unix.SYS_RT_SIGQUEUEINFO, uintptr(s.Target), uintptr(unix.SIGCONT), uintptr(unsafe.Pointer(&info[0])))
		}},
		{name: "pidfd-signal", root: true, keeps: true, try: func(s site) error {
			fd, err := unix.PidfdOpen(s.Target, 0)
			if err != nil {
				return err
			}
			return unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
		}},
		{name: "sigio", root: true, keeps: true, try: func(s site) error {
			var p [2]int
			if err := unix.Pipe(p[:]); err != nil {
				return err
			}
			for _, c := range [][2]int{{unix.F_SETOWN, s.Target}, {unix.F_SETSIG, int(unix.SIGKILL)}, {unix.F_SETFL, unix.O_ASYNC}} {
				if _, err := unix.FcntlInt(uintptr(p[0]), c[0], c[1]); err != nil {
					return err
				}
			}
			if err := scrawlFd(p[1]); err != nil {
				return err
			}
			for range 20 {
				if alive(s) == nil {
					return nil
				}
				time.Sleep(20 * time.Millisecond)
			}
			return alive(s)
		}},
		{name: "prlimit", root: true, keeps: true, try: func(s site) error {
			return unix.Prlimit(s.Target, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}, nil)
		}},
		{name: "ptrace", root: true, keeps: true, try: func(s site) error {
			runtime.LockOSThread()
			return errors.Join(unix.PtraceSeize(s.Target))
		}, twin: func(s site) error {
			runtime.LockOSThread()
			c := exec.Command("sleep", "100")
			if err := c.Start(); err != nil {
				return err
			}
			return errors.Join(unix.PtraceSeize(c.Process.Pid), c.Process.Kill())
		}},
		{name: "process-vm-writev", root: true, keeps: true, try: func(s site) error {
			b := []byte{0}
			at, err := writable(s.Target)
			if err != nil {
				return err
			}
			_, err = unix.ProcessVMWritev(s.Target, []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: at, Len: 1}}, 0)
			return err
		}},
		{name: "proc-mem", root: true, keeps: true, try: func(s site) error {
			return withFd(fmt.Sprintf("/proc/%d/mem", s.Target), unix.O_RDWR, func(int) error { return nil })
		}},
		{name: "pidfd-getfd", root: true, keeps: true, try: func(s site) error {
			fd, err := unix.PidfdOpen(s.Target, 0)
			if err != nil {
				return err
			}
			_, err = unix.PidfdGetfd(fd, 0, 0)
			return err
		}},
		{name: "oom-score", root: true, keeps: true, try: func(s site) error {
			return withFd(fmt.Sprintf("/proc/%d/oom_score_adj", s.Target), unix.O_WRONLY, func(int) error { return nil })
		}},
	}
}

// state is the letter in /proc/PID/stat.
func state(stat []byte) byte {
	for i := len(stat) - 1; i >= 0; i-- {
		if stat[i] == ')' && i+2 < len(stat) {
			return stat[i+2]
		}
	}
	return 0
}

// writable finds an address of a process that can be written: its stack.
func writable(pid int) (uintptr, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	var at uint64
	i := len(b) - 1
	for b[i] != ')' {
		i--
	}
	n := 0
	for f := range strings.FieldsSeq(string(b[i+2:])) {
		if n++; n == 26 { // startstack
			_, err = fmt.Sscan(f, &at)
		}
	}
	return uintptr(at), err
}
