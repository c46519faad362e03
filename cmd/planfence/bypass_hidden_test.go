//go:build vm

package main_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A session whose shell does, line by line, what a test tells it.

type servant struct {
	t    *testing.T
	root string
	c    *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	err  strings.Builder
}

const servantLoop = `while read -r line; do out=$(eval "$line" 2>&1); echo "$? ${out//$'\n'/ }"; done`

// obedient starts it as root; flags are planfence run's.
func obedient(t *testing.T, root string, flags ...string) *servant {
	t.Helper()
	s := &servant{t: t, root: root}
	s.c = exec.Command(planfence, append(append([]string{"run", "--quiet"}, flags...), "--", "bash", "-c", servantLoop)...)
	s.c.Dir, s.c.Stderr = root, &s.err
	var err error
	if s.in, err = s.c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewScanner(out)
	if err := s.c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	return s
}

func (s *servant) end() {
	s.in.Close()
	if err := s.c.Wait(); err != nil {
		s.t.Errorf("the session: %v: %s", err, s.err.String())
	}
}

// do runs a line and returns its exit status and what it said.
func (s *servant) do(line string) string {
	s.t.Helper()
	if _, err := io.WriteString(s.in, line+"\n"); err != nil || !s.out.Scan() {
		s.t.Fatalf("the session does not answer: %v: %s", err, s.err.String())
	}
	return s.out.Text()
}

// must runs a line that has to work.
func (s *servant) must(line string) {
	s.t.Helper()
	if got := s.do(line); !strings.HasPrefix(got, "0 ") {
		s.t.Fatalf("%s: %s", line, got)
	}
}

// refused runs a line that has to fail.
func (s *servant) refused(line string) {
	s.t.Helper()
	if got := s.do(line); strings.HasPrefix(got, "0 ") {
		s.t.Errorf("%s: worked: %s", line, got)
	}
}

func (s *servant) task(args ...string) {
	s.t.Helper()
	c := exec.Command(planfence, append([]string{"task"}, args...)...)
	c.Dir = s.root
	if text, err := c.CombinedOutput(); err != nil {
		s.t.Fatalf("planfence task: %v: %s", err, text)
	}
}

// hiding are ways to have a file of the old scope open where no descriptor of the
// session shows it by its name: hold opens one/f and, once the file go is there,
// writes to it, and at the end makes the file done.
var hiding = map[string]string{
	"mount namespace": `unshare -m --propagation private sh -c 'mount --bind one two/mnt; exec 3>>two/mnt/f; echo > ready; until [ -e go ]; do sleep 0.02; done; echo x >&3; echo $? > done'`,
	"waiting for a lease": `python3 -c '
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
held = os.open("one/f", os.O_RDONLY)
fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_RDLCK)
if os.fork() == 0:
    os.close(held)
    open("ready", "w").close()
    f = os.open("one/f", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(f, b"x\n")
        said = "0"
    except OSError as e:
        said = str(e)
    open("done", "w").write(said)
    os._exit(0)
while not os.path.exists("go"):
    time.sleep(0.02)
os.close(held)
os.wait()'`,
	"passed on from process to process": `python3 -c '
import os, time
f = os.open("one/f", os.O_WRONLY | os.O_APPEND)
open("ready", "w").close()
while not os.path.exists("go"):
    if os.fork() != 0:
        os._exit(0)
try:
    os.write(f, b"x\n")
    said = "0"
except OSError as e:
    said = str(e)
open("done", "w").write(said)'`,
}

func hidingBench(t *testing.T, name string) *bench {
	b := newBench(t, "/work/hidden/"+strings.ReplaceAll(name, " ", "-"), 0)
	b.file(b.root+"/.claude/plan.json", `{"tasks":[{"id":"PM","scope":[".claude/plan.json"]},{"id":"T1","scope":["one/","ready","done"]},{"id":"T2","scope":["two/","ready","done"]}]}`)
	b.file(b.root+"/.claude/active-task", "T1\n")
	for _, d := range []string{"/one", "/two", "/two/mnt"} {
		b.mkdir(b.root + d)
	}
	for _, f := range []string{"/one/f", "/two/mnt/f", "/ready", "/done"} {
		b.file(b.root+f, "keep\n")
	}
	return b
}

func wrote(t *testing.T, path string) bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) != "keep\n"
}

// TestBypassHidden: a switch of task revokes also what is open where a look through
// the session's descriptors does not find it, however long it waits.
func TestBypassHidden(t *testing.T) {
	shareMounts(t)
	hold(t)
	for name, script := range hiding {
		for _, switched := range []bool{false, true} { // the control first
			t.Run(fmt.Sprintf("%s, switched=%v", name, switched), func(t *testing.T) {
				b := hidingBench(t, fmt.Sprintf("%s-%v", name, switched))
				s := obedient(t, b.root)
				if err := os.WriteFile(b.root+"/hold", []byte(script), 0o644); err != nil {
					t.Fatal(err)
				}
				s.must("(bash hold > /dev/null 2>&1 &)")
				eventually(t, "the file is open", func() bool { return wrote0(b.root + "/ready") })
				if switched {
					s.task("T2")
					s.must("true")
					// Long enough for several looks: they must not end the revocation.
					for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
						if m, _ := filepath.Glob("/run/planfence/sessions/*/revoking"); len(m) == 0 {
							t.Fatal("the revocation has ended while the file is open")
						}
					}
				}
				b.file(b.root+"/go", "")
				eventually(t, "it has been tried", func() bool { return wrote(t, b.root+"/done") })
				if wrote(t, b.root+"/one/f") == switched {
					said, _ := os.ReadFile(b.root + "/done")
					t.Errorf("written after the switch: %v; the attacker was told %q", switched, said)
				}
			})
		}
	}
}

// wrote0 reports whether a program has emptied or written a file that was not empty.
func wrote0(path string) bool {
	text, err := os.ReadFile(path)
	return err == nil && string(text) != "keep\n"
}

// TestBypassPlanKept: the PM's descriptor of the plan is of no use once no task is active.
func TestBypassPlanKept(t *testing.T) {
	shareMounts(t)
	hold(t)
	b := hidingBench(t, "plan")
	b.file(b.root+"/.claude/active-task", "PM\n")
	s := obedient(t, b.root)
	if err := os.WriteFile(b.root+"/hold", []byte(`exec 3>>.claude/plan.json; until [ -e go ]; do sleep 0.02; done; echo x >&3; echo done > /dev/shm/planfence-done`), 0o644); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove("/dev/shm/planfence-done")
	was, err := os.ReadFile(b.root + "/.claude/plan.json")
	if err != nil {
		t.Fatal(err)
	}
	s.must("exec 3>>.claude/plan.json; (sh hold > /dev/null 2>&1 &)")
	s.task("--none")
	time.Sleep(3 * time.Second) // longer than the looks that would end the revocation
	b.file(b.root+"/go", "")
	eventually(t, "it has been tried", func() bool { _, err := os.Stat("/dev/shm/planfence-done"); return err == nil })
	now, err := os.ReadFile(b.root + "/.claude/plan.json")
	if err != nil || string(now) != string(was) {
		t.Errorf("the plan was %q and is %q, %v", was, now, err)
	}
}

// TestBypassInFlight pins what a switch of task does not reach: a call that was let go
// on before it and writes what comes later through a pipe. From 6.8 the kernel asks
// once a call, before that once a piece.
func TestBypassInFlight(t *testing.T) {
	shareMounts(t)
	hold(t)
	b := hidingBench(t, "flight")
	s := obedient(t, b.root)
	if err := os.WriteFile(b.root+"/hold", []byte(`python3 -c '
import os, threading, time
r, w = os.pipe()
f = os.open("one/f", os.O_WRONLY)
def late():
    while not os.path.exists("go"):
        time.sleep(0.02)
    os.write(w, b"x")
    os.close(w)
threading.Thread(target=late).start()
open("ready", "w").close()
try:
    os.splice(r, f, 1)
    said = "0"
except OSError as e:
    said = str(e)
open("done", "w").write(said)'`), 0o644); err != nil {
		t.Fatal(err)
	}
	s.must("(bash hold > /dev/null 2>&1 &)")
	eventually(t, "the call waits", func() bool { return wrote0(b.root + "/ready") })
	time.Sleep(200 * time.Millisecond) // from "ready" to the call itself
	s.task("T2")
	b.file(b.root+"/go", "")
	eventually(t, "it has ended", func() bool { return wrote(t, b.root+"/done") })
	if got, want := wrote(t, b.root+"/one/f"), !before(kernelLine(), [2]int{6, 8}); got != want {
		t.Errorf("written by a call that was on its way: %v, want %v", got, want)
	}
}

// TestBypassLinkAccount: removals that fail do not make the account of a file's names
// larger than it is.
func TestBypassLinkAccount(t *testing.T) {
	shareMounts(t)
	hold(t)
	b := newBench(t, "/work/account", 0)
	b.mkdir(b.root + "/t/in")
	b.file(b.root+"/.claude/plan.json", `{"tasks":[{"id":"T","scope":["t/in/"]}]}`)
	s := obedient(t, b.root, "--task", "T")
	s.must("echo keep > t/in/a; ln t/in/a t/in/b; echo more >> t/in/a")
	s.must("chattr +i t/in/a")
	for range 4 {
		s.refused("rm -f t/in/a")
	}
	command(t, "chattr", "-i", b.root+"/t/in/a")
	command(t, "ln", b.root+"/t/in/a", b.root+"/outside")
	s.refused("echo x >> t/in/a")
	if text, err := os.ReadFile(b.root + "/outside"); err != nil || string(text) != "keep\nmore\n" {
		t.Errorf("outside is %q, %v", text, err)
	}
}
