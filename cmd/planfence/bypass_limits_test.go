//go:build vm

package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"planfence/loader"
)

// fencedShell is a shell in a session that is given one command after another, so
// that an operator can act in between.
type fencedShell struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	text strings.Builder // of stderr
}

func newShell(t *testing.T, root string, flags ...string) *fencedShell {
	t.Helper()
	s := &fencedShell{t: t}
	s.cmd = exec.Command(planfence, append(append([]string{"run", "--quiet", "--task", "T"}, flags...), "--", "sh")...)
	s.cmd.Dir, s.cmd.Stderr = root, &s.text
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewScanner(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.in.Close(); _ = s.cmd.Wait() })
	return s
}

// do runs a command in the session and reports whether it worked.
func (s *fencedShell) do(command string) bool {
	s.t.Helper()
	_, err := fmt.Fprintf(s.in, "(%s) >/dev/null 2>&1; echo $?\n", command)
	if err != nil || !s.out.Scan() {
		s.t.Fatalf("the session does not answer to %s: %v: %s", command, err, s.text.String())
	}
	return s.out.Text() == "0"
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("lstat %s: %v", path, err)
	}
	return st.Ino
}

// TestBypassInodeReused: what the session may do to a file or directory does not
// pass on to another one that gets its inode number.
func TestBypassInodeReused(t *testing.T) {
	shareMounts(t)
	hold(t)
	const at = "/work/reuse"
	image(t, at, "mkfs.ext4", "-q") // to itself, so that the next file gets the number that was freed last
	b := newBench(t, at+"/p", 0)
	s := b.site(&attack{name: "r"})
	extra := at + "/extra"
	b.mkdir(extra)
	sh := newShell(t, b.root, "--allow", extra+"/")
	if !sh.do("echo x > t/r/in/a && ln t/r/in/a t/r/in/b && echo y > t/r/in/b") {
		t.Fatalf("links of its own in scope: %s", sh.text.String())
	}
	was := inode(t, s.In+"/a")
	if !sh.do("rm t/r/in/a t/r/in/b") {
		t.Fatal("its own links cannot be removed")
	}
	// Two names again, and of the same number, but one of them lies outside.
	victim, reused := "", false
	for i := range 50 {
		victim = fmt.Sprintf("%s/victim%d", s.Out, i)
		b.file(victim, "keep\n")
		if reused = inode(t, victim) == was; reused {
			break
		}
	}
	if !reused {
		t.Fatalf("inode %d was not used again", was)
	}
	if err := os.Link(victim, s.In+"/v"); err != nil {
		t.Fatal(err)
	}
	if sh.do("echo x > t/r/in/v") {
		t.Error("a link from outside was written through")
	}
	if text, _ := os.ReadFile(victim); string(text) != "keep\n" {
		t.Errorf("the file outside is %q", text)
	}
	// The directory that --allow opened goes, and others may get its number.
	if !sh.do("echo x > " + extra + "/f && rm " + extra + "/f") {
		t.Error("--allow does not hold")
	}
	if err := os.Remove(extra); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		d := fmt.Sprintf("%s/d%d", s.Out, i)
		b.mkdir(d)
		if sh.do("echo x > "+d+"/f") || exists(d+"/f") {
			t.Fatalf("%s, inode %d, was written to", d, inode(t, d))
		}
	}
	b.mkdir(extra)
	if !sh.do("echo x > " + extra + "/f") {
		t.Errorf("the allowed directory, made again, is refused: %s", sh.text.String())
	}
}

// TestBypassFull: what does not fit is refused or an error that says so.
func TestBypassFull(t *testing.T) {
	shareMounts(t)
	hold(t)
	b := newBench(t, "/work/full", 0)
	s := b.site(&attack{name: "r"})
	run := func(flags ...string) (int, string) {
		c := exec.Command(planfence, append(append([]string{"run", "--quiet", "--task", "T"}, flags...), "--", "touch", s.In+"/started")...)
		c.Dir = b.root
		text, _ := c.CombinedOutput()
		return c.ProcessState.ExitCode(), string(text)
	}
	t.Run("anchors", func(t *testing.T) {
		// Each mounted file system that is opened needs its own anchor.
		var flags []string
		for i := range loader.MaxAnchors + 1 {
			d := fmt.Sprintf("/work/anchors/%d", i)
			b.mkdir(d)
			if err := unix.Mount("none", d, "tmpfs", 0, "size=64k"); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Unmount(d, unix.MNT_DETACH) }()
			flags = append(flags, "--allow", d+"/")
		}
		code, text := run(flags...)
		if code != 125 || !strings.Contains(text, "anchors, at most "+strconv.Itoa(loader.MaxAnchors)) || exists(s.In+"/started") {
			t.Errorf("exit status %d: %s", code, text)
		}
	})
	t.Run("sessions", func(t *testing.T) {
		fence, err := loader.OpenExisting()
		if err != nil {
			t.Fatal(err)
		}
		defer fence.Close()
		n := 0
		for ; ; n++ {
			unlock, err := loader.Lock()
			if err != nil {
				t.Fatal(err)
			}
			x, err := fence.NewSession()
			unlock()
			if errors.Is(err, loader.ErrFull) {
				if hint := new(loader.Problem); !errors.As(err, &hint) || !strings.Contains(hint.Hint, "planfence status") {
					t.Errorf("no way out: %v", err)
				}
				break
			}
			if err != nil {
				t.Fatalf("session %d: %v", n, err)
			}
			defer x.Close()
		}
		if n != 127 { // beside the one that is held
			t.Errorf("%d sessions, then none", n)
		}
		// Nobody is in these sessions and nobody keeps them: the next run clears them away.
		if code, text := run(); code != 0 {
			t.Errorf("exit status %d: %s", code, text)
		}
	})
	t.Run("links", func(t *testing.T) {
		if err := os.WriteFile(s.Out+"/outside", []byte("keep\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(s.Out+"/outside", s.In+"/inside"); err != nil {
			t.Fatal(err)
		}
		out, _ := fencedRun(t, b.root, 0, "links:"+s.In, "--task", "T")
		if strings.TrimSpace(out) != "full" {
			t.Errorf("it says %s", out)
		}
		if text, _ := os.ReadFile(s.Out + "/outside"); string(text) != "keep\n" {
			t.Errorf("the file outside is %q", text)
		}
	})
	if code, text := run(); code != 0 || !exists(s.In+"/started") { // the control
		t.Errorf("with room for it: exit status %d: %s", code, text)
	}
}

// linksMain makes files with two names until the fence cannot account for more of
// them, and looks that a link from outside is refused then, as before.
func linksMain(dir string) {
	fail := func(format string, args ...any) {
		fmt.Printf(format+"\n", args...)
		os.Exit(0)
	}
	write := func(path string) error {
		return withFd(path, unix.O_WRONLY|unix.O_TRUNC, func(int) error { return nil })
	}
	refused := 0
	if err := os.Mkdir(filepath.Join(dir, "many"), 0o755); err != nil {
		fail("%v", err)
	}
	for i := range 70_000 { // the map has room for 65,536
		a, b := fmt.Sprintf("%s/many/a%d", dir, i), fmt.Sprintf("%s/many/b%d", dir, i)
		fd, err := unix.Open(a, unix.O_CREAT|unix.O_WRONLY, 0o644)
		if err != nil {
			fail("create %s: %v", a, err)
		}
		_ = unix.Close(fd)
		if err := unix.Link(a, b); err != nil {
			if err != unix.EACCES {
				fail("link %s: %v", b, err)
			}
			refused++
			continue
		}
		if i >= 100 && (i < 65_000 || i%100 > 0) {
			continue
		}
		switch err := write(b); {
		case err == nil:
		case !errors.Is(err, unix.EACCES):
			fail("%v", err)
		case i < 100:
			fail("link %d is refused already: %v", i, err)
		default:
			refused++
		}
	}
	if refused == 0 {
		fail("the limit was not met")
	}
	if err := write(filepath.Join(dir, "inside")); !errors.Is(err, unix.EACCES) {
		fail("a link from outside: %v", err)
	}
	fmt.Println("full")
}
