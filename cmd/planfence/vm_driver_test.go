//go:build vm

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is its own driver: started with this word it does what the
// rest of the command line says, in a session or beside one.
const driverWord = "vm-driver"

func init() {
	if len(os.Args) < 3 || os.Args[1] != driverWord {
		return
	}
	if err := drive(os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintf(os.Stderr, "driver: %v\n", err)
		os.Exit(99)
	}
	os.Exit(0)
}

// setting is what a driver is told, as JSON.
type setting struct {
	Root  string
	FS    string
	Owner string // for chown(1)
	Sides []side
	Audit bool // the acts that an auditing session can run
	// Half: of what starts programs, which costs most of the time under
	// emulation, every second act: 1 or 2. 0: all. The file systems but ext4
	// share them between the users; system calls are made by both.
	Half int
	// Control: the acts that are tried without the fence. Interpreters take
	// seconds to start under emulation, so they are tried on ext4 alone;
	// elsewhere the same process that is refused outside succeeds inside.
	Control bool
}

func (s *setting) acts() ([]act, error) {
	k, err := kernelRelease()
	if err != nil {
		return nil, err
	}
	all := acts(host{fs: s.FS, kernel: k})
	programs := 0
	return slices.DeleteFunc(all, func(a act) bool {
		if a.call == nil {
			if programs++; s.Half != 0 && programs%2 != s.Half%2 {
				return true
			}
		}
		return s.Audit && (a.noAudit || a.inOnly) || s.Control && a.batch != nil && s.FS != "ext4"
	}), nil
}

func kernelRelease() (release, error) {
	var u unix.Utsname
	var r release
	if err := unix.Uname(&u); err != nil {
		return r, err
	}
	text := unix.ByteSliceToString(u.Release[:])
	if _, err := fmt.Sscanf(text, "%d.%d", &r[0], &r[1]); err != nil {
		return r, fmt.Errorf("kernel release %s: %w", text, err)
	}
	return r, nil
}

// actResult is what came of one act, one line of the driver's output.
type actResult struct {
	Act  string
	Side side
	Err  string // "": it succeeded; EACCES: refused; else what happened
	PID  int    // of the process that made the call
	PPID int
	Cold bool // no actResult: the parent is asked to drop cached names, and answers with a line
}

const refused = "EACCES"

func drive(verb string, args []string) error {
	var s setting // verb is act or write
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		return fmt.Errorf("setting: %w", err)
	}
	if verb == "write" {
		return writeOnDemand()
	}
	list, err := s.acts()
	if err != nil {
		return err
	}
	return actAll(&s, list)
}

func actAll(s *setting, list []act) error {
	if err := os.Chdir(s.Root); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	in := bufio.NewReader(os.Stdin)
	asked := false
	for i := range list {
		a := &list[i]
		if a.cold && !asked {
			asked = true
			if err := out.Encode(actResult{Cold: true}); err != nil {
				return err
			}
			if _, err := in.ReadString('\n'); err != nil {
				return fmt.Errorf("wait for the parent: %w", err)
			}
		}
		for _, r := range perform(s, a) {
			if err := out.Encode(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// perform runs one act in all its places.
func perform(s *setting, a *act) (out []actResult) {
	var places []place
	for _, sd := range s.Sides {
		if a.runs(sd) {
			places = append(places, a.at(s.Root, sd, s.Owner))
			out = append(out, actResult{Act: a.name, Side: sd, PID: os.Getpid(), PPID: os.Getppid()})
		}
	}
	if a.batch != nil {
		performBatch(a, places, out)
		return out
	}
	for i, p := range places {
		r := &out[i]
		if a.call != nil {
			r.Err = errnoName(a.call(p))
			continue
		}
		var argv []string
		for _, w := range a.argv {
			argv = append(argv, p.fill(w, a))
		}
		c, text := program(argv)
		r.Err = outcome(c.Run(), text.String())
		r.PID, r.PPID = c.ProcessState.Pid(), os.Getpid()
	}
	return out
}

func performBatch(a *act, places []place, out []actResult) {
	argv := a.batch
	for _, p := range places {
		argv = append(argv[:len(argv):len(argv)], p.d, p.s)
	}
	c, text := program(argv)
	err := c.Run()
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	for i := range out {
		out[i].PID, out[i].PPID = c.ProcessState.Pid(), os.Getpid()
		switch {
		case err != nil || len(lines) != len(out):
			out[i].Err = fmt.Sprintf("%v: %s", err, text)
		case lines[i] != "ok":
			out[i].Err = lines[i]
		}
	}
}

// program prepares a program with everything that it prints in one buffer.
func program(argv []string) (*exec.Cmd, *bytes.Buffer) {
	var text bytes.Buffer
	c := exec.Command(argv[0], argv[1:]...)
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader("new\n"), &text, &text
	c.WaitDelay = 10 * time.Second
	return c, &text
}

func errnoName(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return ""
	case errors.As(err, &errno):
		if name := unix.ErrnoName(errno); name == refused {
			return name
		}
	}
	return err.Error()
}

// outcome of a program: what people see of a refusal is the words.
func outcome(err error, text string) string {
	switch {
	case err == nil:
		return ""
	case strings.Contains(strings.ToLower(text), "permission denied"):
		return refused
	}
	return fmt.Sprintf("%v: %s", err, text)
}

// writeOnDemand prints its session's name, then opens for writing the path on
// each line of its input and prints what came of it.
func writeOnDemand() error {
	fmt.Println(os.Getenv("PLANFENCE_SESSION"))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		answer := errnoName(openClose(in.Text(), unix.O_WRONLY|unix.O_CREAT))
		if answer == "" {
			answer = "ok"
		}
		fmt.Println(answer)
	}
	return in.Err()
}
