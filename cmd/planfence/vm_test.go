//go:build vm

// The tests of enforcement. They run as root on a kernel that holds the fence,
// which scripts/vm gives them:
//
//	CGO_ENABLED=0 go test -c -tags vm -o DIR/fence.test ./cmd/planfence
//	scripts/vm --kernel 6.12 --share DIR -- /mnt/share/fence.test -test.v
//
// or, both in one, make test-vm. Each row of the table of acts is done three
// times on every file system as root and as a user (programs on ext4 by both,
// elsewhere by one of them): without the fence, where it
// must succeed and change something, so that the row can fail; in a session
// inside the scope, likewise; and outside the scope, where it must be refused,
// change nothing and leave exactly its records.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// account is who a session's command runs as.
type account struct {
	name, home, owner string
	uid               int
}

var users = []*account{
	{name: "root", home: "/root", owner: "1:1", uid: 0},
	{name: "dev", home: "/home/dev", owner: "dev:dev", uid: 1000},
}

// limit bounds every command that is waited for.
const limit = 150 * time.Second

// planfence is the installed program.
const planfence = "/usr/local/bin/planfence"

var passed, failed atomic.Int64

// count counts a row for the last line.
func count(t *testing.T, name string, err error) {
	t.Helper()
	if err != nil {
		failed.Add(1)
		t.Errorf("%s: %v", name, err)
		return
	}
	passed.Add(1)
}

func TestVM(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("not root: these tests run in a virtual machine, see scripts/vm")
	}
	k, err := kernelRelease()
	must(t, err)
	began := time.Now()
	keep := startKeeper(t)
	mustRun(t, "modprobe", "-a", "loop", "btrfs", "xfs", "overlay")
	repo := t.TempDir()
	must(t, os.Chmod(filepath.Dir(repo), 0o755))
	must(t, makeRepo(repo))
	t.Run("rows", func(t *testing.T) {
		for i := range fileSystems {
			f := &fileSystems[i]
			t.Run(f.name, func(t *testing.T) {
				dir := f.mounted(t)
				for n, u := range users {
					t.Run(u.name, func(t *testing.T) {
						t.Parallel()
						testRows(t, &rows{fs: f, user: u, dir: filepath.Join(dir, u.name), repo: repo, odd: n})
					})
				}
				if f.name == "ext4" {
					dev := users[1]
					t.Run("audit", func(t *testing.T) {
						t.Parallel()
						testRows(t, &rows{fs: f, user: dev, dir: dev.dir(t, dir, "audit"), repo: repo, audit: true})
					})
					for name, test := range map[string]func(*testing.T, *account, string){
						"exit": testExit, "always": testAlways, "stdout": testStdout, "tasks": testTasks,
					} {
						t.Run(name, func(t *testing.T) {
							t.Parallel()
							test(t, dev, dev.dir(t, dir, name))
						})
					}
				}
			})
		}
	})
	keep.end(t)
	fmt.Printf("%d.%d: %d passed, %d failed\n", k[0], k[1], passed.Load(), failed.Load())
	t.Logf("%.0f s", time.Since(began).Seconds())
}

// keeper is a session that does nothing: while it lives other sessions join its
// programs, which is ten times as fast as loading them.
type keeper struct {
	cmd   *exec.Cmd
	stdin io.Closer
	text  *bytes.Buffer
}

func startKeeper(t *testing.T) *keeper {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "plan.json"), []byte(planText), 0o644))
	k := &keeper{text: &bytes.Buffer{}}
	k.cmd = exec.Command(planfence, "run", "--quiet", "--task", "T1", "--", "cat")
	k.cmd.Dir, k.cmd.Stderr = dir, k.text
	in, err := k.cmd.StdinPipe()
	must(t, err)
	k.stdin = in
	must(t, k.cmd.Start())
	return k
}

// end ends the last session and checks that the fence goes with it.
func (k *keeper) end(t *testing.T) {
	t.Helper()
	must(t, k.stdin.Close())
	err := k.cmd.Wait()
	if err != nil {
		t.Fatalf("the session that keeps the fence: %v\n%s", err, k.text)
	}
	pins, err := filepath.Glob("/sys/fs/bpf/planfence-*")
	must(t, err)
	if len(pins) != 0 {
		t.Errorf("pins are left after the last session: %q", pins)
	}
	if left, _ := os.ReadDir("/run/planfence/sessions"); len(left) != 0 {
		t.Errorf("states of sessions are left: %v", left)
	}
}

// dir makes a directory of the user's.
func (u *account) dir(t *testing.T, base, name string) string {
	t.Helper()
	d := filepath.Join(base, name)
	must(t, os.Mkdir(d, 0o755))
	must(t, os.Chown(d, u.uid, u.uid))
	return d
}

// as runs f with the user's identity in file systems, on a thread of its own.
func (u *account) as(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		_, errGid := unix.SetfsgidRetGid(u.uid)
		_, errUid := unix.SetfsuidRetUid(u.uid)
		err := errors.Join(errGid, errUid)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// command prepares a program that runs as the user, outside the fence.
func (u *account) command(ctx context.Context, argv ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.WaitDelay = 10 * time.Second
	c.Env = append(os.Environ(), "HOME="+u.home, "USER="+u.name, "LOGNAME="+u.name)
	if u.uid != 0 {
		id := uint32(u.uid)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	}
	return c
}

// fenced prepares a session whose command runs as the user: root starts it
// directly, others with sudo.
func (u *account) fenced(ctx context.Context, args ...string) *exec.Cmd {
	argv := append([]string{planfence, "run"}, args...)
	if u.uid != 0 {
		argv = append([]string{"sudo", "-n"}, argv...)
	}
	return u.command(ctx, argv...)
}

// driver returns the command line of this binary as a driver.
func driver(t *testing.T, verb string, s setting) []string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	b, err := json.Marshal(s)
	must(t, err)
	return []string{self, driverWord, verb, string(b)}
}

// rows is one run of the table.
type rows struct {
	fs    *fileSystem
	user  *account
	dir   string // of the user on the file system
	repo  string
	odd   int  // 0 or 1: which half of the programs is run, and of an overlay's files copied up
	audit bool // in an auditing session
}

func testRows(t *testing.T, w *rows) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	began := time.Now()
	s := setting{Root: w.dir + "/p", FS: w.fs.name, Owner: w.user.owner, Sides: []side{outside, inside}, Audit: w.audit}
	if w.audit {
		s.Sides = s.Sides[:1]
	}
	if w.fs.name != "ext4" {
		s.Half = 1 + w.odd
	}
	c := s
	c.Root, c.Sides, c.Control = w.dir+"/c", []side{outside}, true
	w.make(t, s)
	if !w.audit {
		w.make(t, c)
	}
	if w.fs.layered {
		layer(t, w.dir, w.odd)
		must(t, os.Chown(w.dir, w.user.uid, w.user.uid))
	}
	list, err := s.acts()
	must(t, err)
	t.Logf("tree: %.1f s", time.Since(began).Seconds())
	if !w.audit {
		before, after, results := w.control(ctx, t, c)
		free := byAct(results)
		list, err := c.acts()
		must(t, err)
		for i := range list {
			if list[i].runs(outside) {
				count(t, "without the fence: "+list[i].name, w.checkDone(&list[i], outside, free, before, after))
			}
		}
	}

	t.Logf("control: %.1f s", time.Since(began).Seconds())
	stop := beside(w.user, s.Root+"/out/beside")
	e := &expectation{root: s.Root, verdict: "block", uid: uint32(w.user.uid), driver: driver(t, "act", s)[0]}
	if w.audit {
		e.verdict = "would-block"
	}
	before, after, results, log := w.session(ctx, t, s, e)
	count(t, "the unfenced process", stop())
	got := byAct(results)
	for i := range list {
		a := &list[i]
		if a.runs(inside) && !w.audit {
			count(t, "inside the scope: "+a.name, w.checkDone(a, inside, got, before, after))
		}
		if !a.runs(outside) {
			continue
		}
		err := w.checkRefused(a, got, before, after)
		if w.audit || a.allowed {
			err = w.checkDone(a, outside, got, before, after)
		}
		if err == nil && !a.allowed {
			err = log.matchAll(e, a, a.at(s.Root, outside, s.Owner), got[actKey{a.name, outside}], w.audit)
		}
		count(t, "outside the scope: "+a.name, err)
	}
	for _, r := range log.blocks {
		if !r.taken {
			count(t, "the log", fmt.Errorf("a record that no act accounts for: %s", r.show()))
		}
	}
	log.checkTotals(t, e.verdict)
	if w.fs.name != "tmpfs" { // which has no other place for its names than the cache
		count(t, "cold caches", log.checkCold())
	}
	if w.fs.layered {
		count(t, "the upper layer", checkUpper(w.dir, w.odd, list))
	}
	t.Logf("all: %.1f s, %.1f s of them in the session", time.Since(began).Seconds(), e.to.Sub(e.from).Seconds())
}

// mount returns where the file system is mounted.
func (w *rows) mount() string {
	if w.fs.layered {
		return w.dir
	}
	return filepath.Join(fsBase, w.fs.name)
}

// make makes a tree.
func (w *rows) make(t *testing.T, s setting) {
	t.Helper()
	list, err := s.acts()
	must(t, err)
	must(t, w.user.as(func() error { return makeTree(s.Root, w.repo, list, s.Sides...) }))
}

type actKey struct {
	act  string
	side side
}

func byAct(rs []actResult) map[actKey]actResult {
	m := map[actKey]actResult{}
	for _, r := range rs {
		m[actKey{r.Act, r.Side}] = r
	}
	return m
}

// control runs the acts without the fence.
func (w *rows) control(ctx context.Context, t *testing.T, c setting) (before, after map[string]string, rs []actResult) {
	t.Helper()
	before, err := snapshot(c.Root)
	must(t, err)
	rs = converse(t, w.user.command(ctx, driver(t, "act", c)...), w.mount())
	after, err = snapshot(c.Root)
	must(t, err)
	return before, after, rs
}

// session runs the acts in a session and reads its log.
func (w *rows) session(ctx context.Context, t *testing.T, s setting, e *expectation) (before, after map[string]string, rs []actResult, l *blockLog) {
	t.Helper()
	before, err := snapshot(s.Root)
	must(t, err)
	args := []string{"--quiet", "--task", "T1"}
	if w.audit {
		args = append(args, "--mode", "audit")
	}
	cmd := w.user.fenced(ctx, append(append(args, "--"), driver(t, "act", s)...)...)
	cmd.Dir = s.Root
	e.from = time.Now()
	rs = converse(t, cmd, w.mount())
	e.to = time.Now()
	after, err = snapshot(s.Root)
	must(t, err)
	return before, after, rs, readLog(t, s.Root+"/.claude/blocked.log")
}

// converse runs a driver and reads its results; when it asks, the names that the
// kernel has cached of what is mounted on mount are dropped.
func converse(t *testing.T, cmd *exec.Cmd, mount string) (out []actResult) {
	t.Helper()
	var text bytes.Buffer
	in, err := cmd.StdinPipe()
	must(t, err)
	results, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = &text
	must(t, cmd.Start())
	sc := bufio.NewScanner(results)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var r actResult
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			t.Errorf("the driver says %q: %v", sc.Text(), err)
			continue
		}
		if !r.Cold {
			out = append(out, r)
			continue
		}
		// Remounting drops all names of one file system that are not in use; drop_caches
		// would drop every program's pages as well, and cost each session seconds.
		must(t, unix.Mount("", mount, "", unix.MS_REMOUNT, ""))
		_, err := in.Write([]byte("\n"))
		must(t, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, &text)
	}
	return out
}

// changed tells which of the act's directories are not what they were, "" if
// none.
func (w *rows) changed(a *act, s side, before, after map[string]string) (diff string) {
	keys := []string{string(s) + "/" + a.dir, "in/" + a.dir + "." + string(s[0])}
	if a.also != "" {
		keys = append(keys, a.also)
	}
	for _, k := range keys {
		b, c := before[k], after[k]
		if a.copiesUp && w.fs.layered {
			_, b, _ = strings.Cut(b, "\n")
			_, c, _ = strings.Cut(c, "\n")
		}
		if b != c {
			diff += fmt.Sprintf("%s before:\n%safter:\n%s", k, b, c)
		}
	}
	return diff
}

// checkDone checks that an act succeeded and did something.
func (w *rows) checkDone(a *act, s side, got map[actKey]actResult, before, after map[string]string) error {
	r, ok := got[actKey{a.name, s}]
	if !ok {
		return errors.New("not run")
	}
	if r.Err != "" {
		return errors.New(r.Err)
	}
	if !a.allowed && w.changed(a, s, before, after) == "" {
		return errors.New("nothing changed")
	}
	return nil
}

// checkRefused checks that an act was refused and changed nothing.
func (w *rows) checkRefused(a *act, got map[actKey]actResult, before, after map[string]string) error {
	r, ok := got[actKey{a.name, outside}]
	if !ok {
		return errors.New("not run")
	}
	if r.Err != refused {
		return fmt.Errorf("not refused: %q", r.Err)
	}
	if diff := w.changed(a, outside, before, after); diff != "" {
		return errors.New(diff)
	}
	return nil
}

// beside writes as the user, unfenced, in a directory outside the scope until
// the function that it returns is called, which tells of the first write that
// failed.
func beside(u *account, d string) func() error {
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		done <- u.as(func() error {
			tick := time.NewTicker(20 * time.Millisecond) // it shares the processors with what is tested
			defer tick.Stop()
			for n := 0; ; n++ {
				f := fmt.Sprintf("%s/f%d", d, n%8)
				err := errors.Join(os.WriteFile(f, []byte("x"), 0o644), os.Chmod(f, 0o600), os.Rename(f, f+"r"), os.Link(f+"r", f),
					os.Mkdir(d+"/sub", 0o755), os.Remove(d+"/sub"), os.Remove(f+"r"))
				if err != nil {
					return fmt.Errorf("round %d: %w", n, err)
				}
				select {
				case <-stop:
					return nil
				case <-tick.C:
				}
			}
		})
	}()
	return func() error {
		close(stop)
		return <-done
	}
}
