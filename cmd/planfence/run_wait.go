package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/companion"
	"planfence/cmd/planfence/internal/launch"
)

// wait passes signals on, stops with the command and goes on with it, and
// returns its exit status.
//
// The command is in planfence's own process group, so that what the terminal
// sends reaches it once, from the terminal itself.
func (s *fenced) wait(p *os.Process) int {
	hadTerminal := controlling()
	sig := make(chan os.Signal, 8)
	signal.Notify(sig, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(sig)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case n := <-sig:
				switch n {
				case unix.SIGINT, unix.SIGQUIT:
					if fromTerminal() {
						continue
					}
				case unix.SIGHUP:
					s.c.Reopen() // the log was rotated
					if !hadTerminal || controlling() {
						continue
					}
				}
				_ = p.Signal(n)
			}
		}
	}()
	who := p.Pid
	if os.Getpid() == 1 {
		who = -1 // the first process of a container gets everybody's orphans
	}
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(who, &ws, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR), err == nil && pid != p.Pid:
		case err != nil:
			s.say("wait for the command: %v", err)
			return launch.ExitFailure
		case ws.Exited():
			return ws.ExitStatus()
		case ws.Signaled():
			return 128 + int(ws.Signal())
		case ws.Stopped():
			stopWith(p)
		}
	}
}

// controlling reports whether there is a controlling terminal.
func controlling() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// fromTerminal reports whether SIGINT and SIGQUIT come from the terminal, which
// sends them to the command as well: planfence's process group has it.
func fromTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// stopGrace is how long a stop that the terminal sent to the whole process group
// takes to reach planfence itself.
const stopGrace = 50 * time.Millisecond

// stopWith stops planfence, as a command that has stopped itself alone would leave
// its shell waiting for nothing; when planfence goes on, so does the command.
func stopWith(p *os.Process) {
	time.Sleep(stopGrace)
	if !isStopped(p.Pid) {
		return // the terminal had stopped both, and both go on
	}
	// Without a shell above that could let it go on, the kernel ignores this one.
	_ = unix.Kill(unix.Getpid(), unix.SIGTSTP)
	time.Sleep(stopGrace)
	_ = p.Signal(syscall.SIGCONT)
}

func isStopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	return strings.HasPrefix(state, "T")
}

// nested refuses to raise a fence inside a fence: a process has one label, and a
// second session could only replace the first.
func nested(getenv func(string) string, args []string) error {
	name := getenv("PLANFENCE_SESSION")
	if name == "" || strings.Contains(name, "/") {
		return nil
	}
	st, err := companion.ReadState(name)
	if err != nil {
		return nil // it has ended
	}
	return hinted(fmt.Errorf("raise a fence inside session %s: a process has one fence, and that of the session holds already (task %s)",
		name, orNone(st.Task)), "run it directly: %s", strings.Join(args, " "))
}
