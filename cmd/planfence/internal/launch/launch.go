// Package launch starts the fenced command: a copy of planfence is started as
// the command's process, waits until it is labelled, shows by a canary that it
// really is refused a write, takes the user's identity, and becomes the command.
package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Name is argv[0] of the copy; main hands such a process to [Shim].
const Name = "planfence-shim"

// Spec is what the copy is told.
type Spec struct {
	Path   string   // of the command's executable
	Args   []string // argv
	Env    []string
	Dir    string
	UID    int
	GID    int
	Groups []int
	Switch bool   // take the identity above
	Canary string // a file that the process could write were it not fenced
	Audit  bool   // the canary is only recorded
}

// Exit statuses of planfence itself, as env(1) and sudo(8) have them.
const (
	ExitFailure     = 125
	ExitNotExecable = 126
	ExitNotFound    = 127
)

// Child is a command between start and exec.
type Child struct {
	Cmd  *exec.Cmd
	orig *os.File // to the copy
	ans  *os.File // from it
}

// Start starts the copy. It does nothing before [Child.Go].
func Start(s Spec) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the planfence program: %w", err)
	}
	r1, w1, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	r2, w2, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer r1.Close()
	defer w2.Close()
	cmd := exec.Command(self)
	cmd.Args = []string{Name}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{r1, w2}
	cmd.Env = []string{"GOMAXPROCS=1"}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", self, err)
	}
	c := &Child{Cmd: cmd, orig: w1, ans: r2}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if err := c.send(b); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Child) send(b []byte) error {
	n := uint32(len(b))
	head := []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}
	if _, err := c.orig.Write(append(head, b...)); err != nil {
		return fmt.Errorf("talk to the command's process: %w", err)
	}
	return nil
}

// Canary lets the labelled process try its write and returns what came of it:
// nil if it was refused with EACCES (or, in an auditing session, went through).
func (c *Child) Canary() error {
	if err := c.send([]byte("canary")); err != nil {
		return err
	}
	return c.answer()
}

// Go lets the process become the command. The error, if any, is that of exec:
// fs.ErrNotExist, fs.ErrPermission and so on.
func (c *Child) Go() error {
	if err := c.send([]byte("go")); err != nil {
		return err
	}
	err := c.answer()
	if errors.Is(err, io.EOF) {
		return nil // the pipe closed at exec
	}
	return err
}

// Kill ends a process that has not become the command.
func (c *Child) Kill() {
	_ = c.Cmd.Process.Kill()
	_ = c.Cmd.Wait()
}

func (c *Child) answer() error {
	b, err := receive(c.ans)
	if err != nil {
		return err
	}
	if len(b) == 0 {
		return nil
	}
	var e struct {
		Errno int
		Text  string
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return fmt.Errorf("read the process's answer: %w", err)
	}
	if e.Errno != 0 {
		return fmt.Errorf("%s: %w", e.Text, syscall.Errno(e.Errno))
	}
	return errors.New(e.Text)
}

func receive(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := uint32(head[0]) | uint32(head[1])<<8 | uint32(head[2])<<16 | uint32(head[3])<<24
	if n > 16<<20 {
		return nil, fmt.Errorf("message of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// Shim is the copy's main. The caller has locked the main goroutine to the
// main thread from an init function: it is the thread group's leader that is
// labelled, and the thread that calls execve is the one that lives on.
func Shim() {
	if unix.Gettid() != unix.Getpid() {
		fmt.Fprintln(os.Stderr, "planfence: start the command: not on the main thread")
		os.Exit(ExitFailure)
	}
	runtime.LockOSThread()
	in, out := os.NewFile(3, "orders"), os.NewFile(4, "answers")
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	reply := func(err error) {
		var b []byte
		if err != nil {
			var errno syscall.Errno
			errors.As(err, &errno)
			text := strings.TrimSuffix(err.Error(), ": "+errno.Error())
			b, _ = json.Marshal(struct {
				Errno int
				Text  string
			}{int(errno), text})
		}
		n := len(b)
		_, _ = out.Write(append([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}, b...))
	}
	var s Spec
	b, err := receive(in)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		os.Exit(ExitFailure) // the companion is gone: nothing to tell to nobody
	}
	for {
		order, err := receive(in)
		if err != nil {
			os.Exit(ExitFailure)
		}
		switch string(order) {
		case "canary":
			reply(canary(s))
		case "go":
			reply(become(s))
			os.Exit(ExitFailure)
		}
	}
}

func canary(s Spec) error {
	f, err := os.OpenFile(s.Canary, os.O_WRONLY, 0)
	if err == nil {
		f.Close()
		if s.Audit {
			return nil
		}
		return errors.New("a write outside the scope was not refused")
	}
	if errors.Is(err, unix.EACCES) && !s.Audit {
		return nil
	}
	return fmt.Errorf("a write outside the scope failed, but not by the fence: %w", err)
}

func become(s Spec) error {
	if s.Switch {
		if err := syscall.Setgroups(s.Groups); err != nil {
			return fmt.Errorf("set groups: %w", err)
		}
		if err := syscall.Setresgid(s.GID, s.GID, s.GID); err != nil {
			return fmt.Errorf("set gid %d: %w", s.GID, err)
		}
		if err := syscall.Setresuid(s.UID, s.UID, s.UID); err != nil {
			return fmt.Errorf("set uid %d: %w", s.UID, err)
		}
	}
	if err := os.Chdir(s.Dir); err != nil {
		return fmt.Errorf("enter %s: %w", s.Dir, err)
	}
	// Descriptors above 2 are not inherited, whoever left them open.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close descriptors: %w", err)
	}
	err := syscall.Exec(s.Path, s.Args, s.Env)
	return fmt.Errorf("run %s: %w", s.Path, err)
}
