//go:build vm

package main_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The bypass suite: what an attacker who knows Linux would try from inside a
// session. Every attack is run twice: first without the fence, where it must
// succeed and change what it is aimed at (the positive control), then fenced,
// where the same directory must be found exactly as it was. Legal work that
// looks alike, the twin, must succeed in the fence.

// site is one attack's directory D. Only D/in and D/g/**/*.md are in scope.
type site struct {
	D      string
	In     string // D/in: holds f ("keep\n"), the directory sub
	Out    string // D/out: holds f, the symbolic link l to f, sub/f
	Root   string // of the project
	Target int    // a process that belongs to the fence: the companion, or a stand-in for it
	Root0  bool   // the attacker is root
	Fenced bool
}

type attack struct {
	name    string
	root    bool               // only root can do this
	setup   func(s site) error // before it, outside the fence
	try     func(s site) error // nil: the attacker thinks that it worked
	twin    func(s site) error // legal work; must return nil
	keeps   bool               // nothing to be seen on disk: only the answer tells
	from    [2]int             // first kernel line that has what it takes
	until   [2]int             // first kernel line that no longer has it
	tmpfile bool               // makes files without a name: overlayfs can from 6.3
	ext4    bool               // only there, not on overlayfs
}

func attacks() []attack {
	var out []attack
	for _, l := range [][]attack{twoNames(), noOpen(), views(), hands(), uringAttacks(), fenceItself(), kernelItself(), waits(), processes()} {
		out = append(out, l...)
	}
	return out
}

// planfence is the program under test: the test binary stands in for it on PATH.
const planfence = "/usr/local/bin/planfence"

const bypassEnv = "PLANFENCE_BYPASS"

type order struct {
	Sites map[string]site
	Names []string
}

type report struct {
	Name, Err, Twin string
	Worked          bool
}

// init makes a copy of the test binary an attacker: the driver of a session, or
// the process of one attack.
func init() {
	what, arg, ok := strings.Cut(os.Getenv(bypassEnv), ":")
	if !ok {
		return
	}
	switch what {
	case "drive":
		drive(arg)
	case "attack":
		attackMain(arg)
	case "race":
		raceMain(arg)
	case "revoked":
		revokedMain(arg)
	case "links":
		linksMain(arg)
	case "devices":
		devicesMain(arg)
	case "load":
		loadMain(arg)
	case "fuzz":
		fuzzMain(arg)
	case "part":
		os.Exit(part(arg))
	}
	os.Exit(0)
}

func drive(path string) {
	var o order
	if err := readJSON(path, &o); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for _, n := range o.Names {
		s := o.Sites[n]
		if s.Fenced {
			s.Target = os.Getppid() // the companion
		}
		b, _ := json.Marshal(perform(n, s))
		fmt.Println(string(b))
	}
}

// perform makes one attack: in a thread of its own that ends with it, or in a
// process of its own where it leaves traces on the whole process.
func perform(name string, s site) report {
	r := report{Name: name}
	if strings.HasPrefix(name, "uring-") || name == "ptrace" {
		b, _ := json.Marshal(s)
		out, err := child("attack:"+name, string(b))
		if jerr := json.Unmarshal(out, &r); jerr != nil {
			r.Err = fmt.Sprintf("died: %v: %s", err, out)
		}
		return r
	}
	done := make(chan report, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is not used again
		done <- attempted(name, s)
	}()
	select {
	case r = <-done:
	case <-time.After(30 * time.Second):
		r.Err = "no answer"
	}
	return r
}

// child runs a copy of the test binary in a role; it is killed after 30 seconds.
func child(role string, args ...string) ([]byte, error) {
	c := exec.Command("/proc/self/exe", args...)
	c.Env = append(os.Environ(), bypassEnv+"="+role)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t := time.AfterFunc(30*time.Second, func() { _ = unix.Kill(-c.Process.Pid, unix.SIGKILL) })
	defer t.Stop()
	return c.Output()
}

func attackMain(name string) {
	var s site
	if err := json.Unmarshal([]byte(os.Args[1]), &s); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	b, _ := json.Marshal(attempted(name, s))
	fmt.Println(string(b))
}

// attempted makes the attack, after its legal twin where the fence is.
func attempted(name string, s site) report {
	r := report{Name: name}
	for _, a := range attacks() {
		if a.name != name {
			continue
		}
		if s.Fenced && a.twin != nil {
			if err := a.twin(s); err != nil {
				r.Twin = err.Error()
			}
		}
		err := a.try(s)
		if err != nil {
			r.Err = err.Error()
		}
		r.Worked = err == nil
	}
	return r
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// kernelLine returns the running kernel's major and minor.
func kernelLine() (v [2]int) {
	var u unix.Utsname
	_ = unix.Uname(&u)
	_, _ = fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &v[0], &v[1])
	return v
}

func before(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }

func (a *attack) applies(root, ext4 bool) bool {
	k := kernelLine()
	return (root || !a.root) && !before(k, a.from) && (a.until == [2]int{} || before(k, a.until)) &&
		(ext4 || !a.ext4 && !a.keeps && !(a.tmpfile && before(k, [2]int{6, 3})))
}

// bench is a project with a directory an attack.
type bench struct {
	t    *testing.T
	root string // of the project
	uid  int
}

const devUID = 1000

func newBench(t *testing.T, root string, uid int) *bench {
	t.Helper()
	b := &bench{t, root, uid}
	b.mkdir(filepath.Dir(root))
	b.mkdir(root)
	b.mkdir(root + "/.claude")
	b.mkdir(root + "/t")
	b.file(root+"/.claude/plan.json", `{"tasks":[{"id":"T","scope":["t/*/in/","t/*/g/**/*.md"]}]}`)
	return b
}

func (b *bench) mkdir(path string) {
	b.t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Chown(path, b.uid, b.uid); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) file(path, text string) {
	b.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Chown(path, b.uid, b.uid); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) site(a *attack) site {
	b.t.Helper()
	d := filepath.Join(b.root, "t", a.name)
	s := site{D: d, In: d + "/in", Out: d + "/out", Root: b.root, Root0: b.uid == 0}
	for _, p := range []string{d, s.In, s.In + "/sub", s.In + "/mnt", s.Out, s.Out + "/sub", d + "/g", d + "/g/n.md"} {
		b.mkdir(p)
	}
	for _, p := range []string{s.In + "/f", s.Out + "/f", s.Out + "/sub/f", d + "/g/n.md/f"} {
		b.file(p, "keep\n")
	}
	if err := os.Symlink("f", s.Out+"/l"); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Lchown(s.Out+"/l", b.uid, b.uid); err != nil {
		b.t.Fatal(err)
	}
	if a.setup != nil {
		if err := a.setup(s); err != nil {
			b.t.Fatalf("%s: setup: %v", a.name, err)
		}
	}
	return s
}

// standIn starts a process that is there to be attacked.
func standIn(t *testing.T) int {
	t.Helper()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c.Process.Pid
}

// asUser runs a role of the test binary unfenced, as a user.
func asUser(uid int, role string, args ...string) ([]byte, error) {
	c := exec.Command("/proc/self/exe", args...)
	c.Env = append(os.Environ(), bypassEnv+"="+role)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	return c.Output()
}

func reports(t *testing.T, out []byte) map[string]report {
	t.Helper()
	m := map[string]report{}
	sc := bufio.NewScanner(strings.NewReader(string(out)))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var r report
		if json.Unmarshal(sc.Bytes(), &r) == nil {
			m[r.Name] = r
		}
	}
	return m
}

// TestBypass runs every attack as a user and as root, on the root's file system
// and on overlayfs.
func TestBypass(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("needs root: run it with make test-bypass")
	}
	shareMounts(t)
	hold(t)
	for _, c := range []struct {
		name, base string
		uid        int
	}{
		{"ext4-dev", "/work/ext4-dev", devUID},
		{"ext4-root", "/work/ext4-root", 0},
		{"overlay-dev", "/work/ovl/dev", devUID},
		{"overlay-root", "/work/ovl/root", 0},
	} {
		t.Run(c.name, func(t *testing.T) { bypass(t, c.base, c.uid, attacks(), "--task", "T") })
	}
}

// TestBypassIdle runs the attacks on what the fence stands on while no task is
// active: all else is allowed then, this is not.
func TestBypassIdle(t *testing.T) {
	shareMounts(t)
	hold(t)
	bypass(t, "/work/idle", 0, slices.Concat(fenceItself(), kernelItself(), processes()))
}

func bypass(t *testing.T, base string, uid int, all []attack, flags ...string) {
	if strings.HasPrefix(base, "/work/ovl") {
		overlay(t, "/work/ovl")
	}
	free, fenced := newBench(t, base+"/free", uid), newBench(t, base+"/p", uid)
	oFree, oFenced := order{Sites: map[string]site{}}, order{Sites: map[string]site{}}
	list := map[string]attack{}
	for _, a := range all {
		if !a.applies(uid == 0, !strings.HasPrefix(base, "/work/ovl")) {
			continue
		}
		list[a.name] = a
		s := free.site(&a)
		s.Target = standIn(t)
		oFree.Sites[a.name], oFree.Names = s, append(oFree.Names, a.name)
		s = fenced.site(&a)
		s.Fenced = true
		oFenced.Sites[a.name], oFenced.Names = s, append(oFenced.Names, a.name)
	}
	// The control runs beside the fenced session, in a project of its own.
	was, before := digests(oFree), digests(oFenced)
	var control map[string]report
	var wg sync.WaitGroup
	wg.Go(func() {
		out, err := asUser(uid, "drive:"+writeOrder(t, oFree))
		if err != nil {
			t.Errorf("the control: %v: %s", err, out)
		}
		control = reports(t, out)
	})
	got, log := session(t, fenced.root, uid, oFenced, flags...)
	wg.Wait()
	now, after := digests(oFree), digests(oFenced)
	for _, n := range oFenced.Names {
		t.Run(n, func(t *testing.T) {
			a, c, r := list[n], control[n], got[n]
			if !c.Worked {
				t.Errorf("the control did not work: %s", c.Err)
			}
			if !a.keeps && was[n] == now[n] {
				t.Errorf("the control changed nothing")
			}
			if r.Name == "" {
				t.Fatalf("the attack was not made")
			}
			if d := diff(before[n], after[n]); d != "" {
				t.Errorf("changed outside the scope (the attacker says: %q):\n%s", r.Err, d)
			}
			if a.keeps && r.Worked {
				t.Errorf("it worked")
			}
			if r.Twin != "" {
				t.Errorf("legal work was refused: %s", r.Twin)
			}
			if t.Failed() {
				for _, l := range log {
					if strings.Contains(l, "/t/"+n+"/") {
						t.Log(l)
					}
				}
			}
		})
	}
}

func writeOrder(t *testing.T, o order) string {
	b, err := json.Marshal(o)
	if err != nil {
		t.Error(err)
		return ""
	}
	f, err := os.CreateTemp("/var/tmp", "order-")
	if err != nil {
		t.Error(err)
		return ""
	}
	defer f.Close()
	if err := errors.Join(f.Chmod(0o644), func() error { _, err := f.Write(b); return err }()); err != nil {
		t.Error(err)
	}
	return f.Name()
}

// session runs the attacks in the fence and returns what they say, and the log.
func session(t *testing.T, root string, uid int, o order, flags ...string) (map[string]report, []string) {
	t.Helper()
	out, log := fencedRun(t, root, uid, "drive:"+writeOrder(t, o), flags...)
	return reports(t, []byte(out)), log
}

// fencedRun runs a role of the test binary in a session and returns
// its output and the block log.
func fencedRun(t *testing.T, root string, uid int, role string, flags ...string) (string, []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(planfence, append(append([]string{"run", "--quiet", "--user", strconv.Itoa(uid)}, flags...), "--", self)...)
	c.Dir = root
	c.Env = append(os.Environ(), bypassEnv+"="+role)
	var out, stderr strings.Builder
	c.Stdout, c.Stderr = &out, &stderr
	if err := c.Run(); err != nil {
		t.Errorf("the session: %v\n%s%s", err, stderr.String(), out.String())
	}
	log, _ := os.ReadFile(root + "/.claude/blocked.log")
	return out.String(), strings.Split(string(log), "\n")
}

// planfenceRun runs a command as root in a session of task T and returns its exit
// status and what it said.
func planfenceRun(root string, argv ...string) (int, string) {
	c := exec.Command(planfence, append([]string{"run", "--quiet", "--task", "T", "--"}, argv...)...)
	c.Dir = root
	b, err := c.CombinedOutput()
	if c.ProcessState == nil {
		return 125, err.Error()
	}
	return c.ProcessState.ExitCode(), string(b)
}
