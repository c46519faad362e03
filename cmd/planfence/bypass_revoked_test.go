//go:build vm

package main_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A switch of task with descriptors and mappings of the old scope still open.

const revokedText = "keep what is here\n"

// revokedWays write to a file through a descriptor that is open, or through what was
// mapped of it for reading.
var revokedWays = map[string]func(fd int, mapped []byte) error{
	"write":  func(fd int, _ []byte) error { _, err := unix.Write(fd, []byte("x")); return err },
	"pwrite": func(fd int, _ []byte) error { _, err := unix.Pwrite(fd, []byte("x"), 0); return err },
	"writev": func(fd int, _ []byte) error { _, err := unix.Writev(fd, [][]byte{[]byte("x")}); return err },
	"dup": func(fd int, _ []byte) error {
		other, err := unix.Dup(fd)
		if err == nil {
			_, err = unix.Write(other, []byte("x"))
		}
		return err
	},
	"child": func(fd int, _ []byte) error {
		c := exec.Command("sh", "-c", "echo x >&3")
		c.ExtraFiles = []*os.File{os.NewFile(uintptr(fd), "f")}
		return c.Run()
	},
	"ftruncate": func(fd int, _ []byte) error { return unix.Ftruncate(fd, 0) },
	"fallocate": func(fd int, _ []byte) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4)
	},
	"sendfile": func(fd int, _ []byte) error {
		return withFd("/etc/hostname", unix.O_RDONLY, func(from int) error { _, err := unix.Sendfile(fd, from, nil, 4); return err })
	},
	"copy_file_range": func(fd int, _ []byte) error {
		return withFd("/etc/hostname", unix.O_RDONLY, func(from int) error {
			_, err := unix.CopyFileRange(from, nil, fd, nil, 4, 0)
			if err == unix.EXDEV { // /etc lies elsewhere: from itself, then
				_, err = unix.CopyFileRange(fd, new(int64), fd, nil, 1, 0)
			}
			return err
		})
	},
	"splice": func(fd int, _ []byte) error {
		var p [2]int
		if err := unix.Pipe(p[:]); err != nil {
			return err
		}
		if _, err := unix.Write(p[1], []byte("x")); err != nil {
			return err
		}
		_, err := unix.Splice(p[0], nil, fd, nil, 1, 0)
		return err
	},
	"mmap": func(fd int, _ []byte) error {
		m, err := unix.Mmap(fd, 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err == nil {
			m[0] = 'x'
			err = unix.Msync(m, unix.MS_SYNC)
		}
		return err
	},
	"mmap-validate": func(fd int, _ []byte) error {
		m, err := unix.Mmap(fd, 0, 8, unix.PROT_WRITE, unix.MAP_SHARED_VALIDATE)
		if err == nil {
			m[0] = 'x'
			err = unix.Msync(m, unix.MS_SYNC)
		}
		return err
	},
	"mprotect": func(_ int, mapped []byte) error {
		err := unix.Mprotect(mapped, unix.PROT_READ|unix.PROT_WRITE)
		if err == nil {
			mapped[0] = 'x'
			err = unix.Msync(mapped, unix.MS_SYNC)
		}
		return err
	},
	"chmod": func(fd int, _ []byte) error { return unix.Fchmod(fd, 0o600) },
}

func revokedNames() []string {
	var names []string
	for n := range revokedWays {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// revokedMain opens a file a way, waits for a line, and tries each way: DIR.
func revokedMain(dir string) {
	fds, maps := map[string]int{}, map[string][]byte{}
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	for n := range revokedWays {
		fd, err := unix.Open(filepath.Join(dir, n), unix.O_RDWR, 0)
		fail(err)
		fds[n] = fd
		maps[n], err = unix.Mmap(fd, 0, 8, unix.PROT_READ, unix.MAP_SHARED)
		fail(err)
	}
	open, err := unix.Open(filepath.Join(dir, "mapped"), unix.O_RDWR, 0)
	fail(err)
	mapped, err := unix.Mmap(open, 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	fail(err)
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	_, err = in.ReadString('\n')
	fail(err)
	said := map[string]string{}
	for n, try := range revokedWays {
		if err := try(fds[n], maps[n]); err != nil {
			said[n] = err.Error()
			continue
		}
		said[n] = "ok"
	}
	b := make([]byte, 8)
	if _, err := unix.Pread(open, b, 0); err != nil { // reading goes on
		said["read"] = err.Error()
	}
	out, _ := json.Marshal(said)
	fmt.Println(string(out))
	_, _ = in.ReadString('\n')
	fmt.Fprintln(os.Stderr, mapped[0])
}

func revokedRun(t *testing.T, root string, switched bool) (map[string]string, []string) {
	t.Helper()
	b := newBench(t, root, 0)
	b.file(root+"/.claude/plan.json", `{"tasks":[{"id":"T1","scope":["one/"]},{"id":"T2","scope":["two/"]}]}`)
	b.file(root+"/.claude/active-task", "T1\n")
	b.mkdir(root + "/one")
	b.mkdir(root + "/two")
	for _, n := range append(revokedNames(), "mapped") {
		b.file(filepath.Join(root, "one", n), revokedText)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(planfence, "run", "--quiet", "--", self)
	c.Dir = root
	c.Env = append(os.Environ(), bypassEnv+"=revoked:"+root+"/one")
	var stderr strings.Builder
	c.Stderr = &stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the session is not ready: %s %s", lines.Text(), stderr.String())
	}
	if switched {
		task := exec.Command(planfence, "task", "T2")
		task.Dir = root
		if text, err := task.CombinedOutput(); err != nil {
			t.Fatalf("planfence task T2: %v: %s", err, text)
		}
	}
	_, err = io.WriteString(in, "go\n")
	if !lines.Scan() || err != nil {
		t.Fatalf("the session does not answer: %v: %s", err, stderr.String())
	}
	said := map[string]string{}
	if err := json.Unmarshal(lines.Bytes(), &said); err != nil {
		t.Fatalf("%s: %v", lines.Bytes(), err)
	}
	if switched {
		last := ""
		defer func() {
			if t.Failed() {
				t.Logf("status said\n%s", last)
			}
		}()
		eventually(t, "status lists the mapping that is open", func() bool {
			text, err := exec.Command(planfence, "status").Output()
			var ee *exec.ExitError
			if err != nil && !errors.As(err, &ee) {
				t.Fatal(err)
			}
			last = string(text)
			return strings.Contains(last, root+"/one/mapped")
		})
	}
	if err := errors.Join(in.Close(), c.Wait()); err != nil {
		t.Errorf("the session: %v: %s", err, stderr.String())
	}
	var records []string
	log, _ := os.ReadFile(root + "/.claude/blocked.log")
	for line := range strings.Lines(string(log)) {
		var r struct{ Kind, Rel, Reason string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if r.Kind == "block" {
			records = append(records, r.Reason+" "+r.Rel)
		}
	}
	slices.Sort(records)
	return said, records
}

// TestBypassRevoked: what was opened under the old scope cannot be written through
// after a switch of task, in any way, and each try is in the log.
func TestBypassRevoked(t *testing.T) {
	shareMounts(t)
	hold(t)
	free, records := revokedRun(t, "/work/revoked/stay", false)
	for _, n := range revokedNames() { // the control
		if free[n] != "ok" {
			t.Errorf("%s under the same task: %s", n, free[n])
		}
	}
	if len(records) > 0 {
		t.Errorf("records under the same task: %q", records)
	}
	root := "/work/revoked/switch"
	said, records := revokedRun(t, root, true)
	var want []string
	for _, n := range revokedNames() {
		reason := "revoked"
		switch n {
		case "child":
			if said[n] == "ok" {
				t.Errorf("%s after the switch: %s", n, said[n])
			}
		case "chmod":
			reason = "scope"
			fallthrough
		default:
			if said[n] != unix.EACCES.Error() {
				t.Errorf("%s after the switch: %s, want %s", n, said[n], unix.EACCES)
			}
		}
		want = append(want, reason+" one/"+n)
		if text, err := os.ReadFile(filepath.Join(root, "one", n)); err != nil || string(text) != revokedText {
			t.Errorf("%s: the file is %q, %v", n, text, err)
		}
	}
	if said["read"] != "" {
		t.Errorf("reading after the switch: %s", said["read"])
	}
	slices.Sort(want)
	if !slices.Equal(records, want) {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(records, "\n"), strings.Join(want, "\n"))
	}
}
