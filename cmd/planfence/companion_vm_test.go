//go:build vm

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/companion"
)

var setsid = &syscall.SysProcAttr{Setsid: true}

// TestCompanion: the companion follows, records, survives and ends as its
// contract says. One session that does nothing keeps the programs loaded.
func TestCompanion(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("not root: these tests run in a virtual machine, see scripts/vm")
	}
	keep := startKeeper(t)
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"status", testStatus},
		{"foreign-pins", testForeign},
		{"log-opening", testLogOpening},
		{"rotation", testRotation},
		{"full-disk", testFullDisk},
		{"streams", testStreams},
		{"metrics", testMetrics},
		{"killed", testKilled},
		{"bad-plan", testBadPlan},
		{"latency", testLatency},
		{"switches", testSwitches},
		{"flood", testFlood},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			c.test(t)
			t.Logf("%.1f s", time.Since(began).Seconds())
		})
	}
	keep.end(t)
}

const companionPlan = `{"tasks": [
  {"id": "T1", "scope": ["in/", "a/", "both/", "!both/no"]},
  {"id": "T2", "scope": ["b/", "both/", "!both/no"]}]}
`

// tree makes a project with a plan in a directory of its own.
func tree(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for _, d := range []string{".git", ".claude", "in", "out", "a", "b", "both/no", "never"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for _, f := range []string{"in/f", "out/f", "a/f", "b/g", "both/no/f", "never/f"} {
		must(t, os.WriteFile(filepath.Join(dir, f), nil, 0o644))
	}
	must(t, os.WriteFile(dir+"/.claude/plan.json", []byte(companionPlan), 0o644))
	must(t, os.WriteFile(dir+"/.claude/active-task", []byte("T1\n"), 0o644))
	return dir
}

// live is a session whose command does what it is told.
type live struct {
	t    *testing.T
	dir  string
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	text *lines
}

// lines is what a process has printed so far.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts a session in dir and waits until its command runs.
func start(t *testing.T, dir string, flags ...string) *live {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	l := &live{t: t, dir: dir, text: &lines{}}
	l.cmd = exec.Command(planfence, append(append([]string{"run"}, flags...), "--", self, companionWord)...)
	l.cmd.Dir, l.cmd.Stderr = dir, l.text
	l.cmd.WaitDelay = 10 * time.Second
	l.in, err = l.cmd.StdinPipe()
	must(t, err)
	out, err := l.cmd.StdoutPipe()
	must(t, err)
	must(t, l.cmd.Start())
	l.out = bufio.NewReader(out)
	t.Cleanup(func() { l.in.Close(); _ = l.cmd.Wait() })
	l.name = l.answer()
	return l
}

func (l *live) answer() string {
	l.t.Helper()
	s, err := l.out.ReadString('\n')
	if err != nil {
		l.t.Fatalf("the session does not answer: %v: %s", err, l.text)
	}
	return strings.TrimSpace(s)
}

// send gives an order without waiting for the answer.
func (l *live) send(order ...string) {
	l.t.Helper()
	if _, err := fmt.Fprintln(l.in, strings.Join(order, " ")); err != nil {
		l.t.Fatalf("the session does not listen: %v: %s", err, l.text)
	}
}

func (l *live) ask(order ...string) string {
	l.t.Helper()
	l.send(order...)
	return l.answer()
}

// want gives an order and checks the answer.
func (l *live) want(answer string, order ...string) {
	l.t.Helper()
	if got := l.ask(order...); got != answer {
		l.t.Errorf("%s: %s, want %s", strings.Join(order, " "), got, answer)
	}
}

// end ends the command and waits for the session's end.
func (l *live) end() {
	l.t.Helper()
	must(l.t, l.in.Close())
	if err := l.cmd.Wait(); err != nil {
		l.t.Errorf("the session: %v: %s", err, l.text)
	}
}

func (l *live) state() *companion.State {
	s, err := companion.ReadState(l.name)
	if err != nil {
		return &companion.State{}
	}
	return s
}

func (l *live) log() string { return l.dir + "/.claude/blocked.log" }

// records reads the log and its rotated files.
func records(t *testing.T, path string) (all []*blocklog.Record) {
	t.Helper()
	bad, err := blocklog.ReadAll(path, func(r *blocklog.Record) { all = append(all, r) })
	if err != nil {
		return nil
	}
	if bad > 0 {
		t.Errorf("%d lines of %s are no records", bad, path)
	}
	return all
}

// kinds counts the records of a kind.
func kinds(all []*blocklog.Record, kind string) (n int) {
	for _, r := range all {
		if r.Kind == kind {
			n++
		}
	}
	return n
}

// replace changes a file by renaming another onto it.
func replace(t *testing.T, path, text string) {
	t.Helper()
	must(t, errors.Join(os.WriteFile(path+".new", []byte(text), 0o644), os.Rename(path+".new", path)))
}

// size is a file's size, -1 if it is not there.
func size(path string) int64 {
	st, err := os.Lstat(path)
	if err != nil {
		return -1
	}
	return st.Size()
}
