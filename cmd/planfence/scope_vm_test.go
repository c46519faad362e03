//go:build vm

// The kernel's answer for random scopes and paths: one session whose plan has a
// task for each scope. For each task a tree of random paths is made, a fenced
// child tries one operation on each, and what it was answered and what is then
// found on disk is compared with the compiled table, with what check would have
// said, and with the reference matcher.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/companion"
	"planfence/plan"
	"planfence/plan/plantest"
)

const (
	scopeVMTasks = 50
	scopeVMPaths = 200 // of a task
	scopeVMSeed  = 12
	scopeVMWait  = 30 * time.Second // for a task to be in force
	scopeVMWord  = "scope-vm-child"
)

// scopeVMAct is one thing to try on a path that is prepared for it.
type scopeVMAct struct {
	Op   string
	Path []byte // relative to the root; names need not be UTF-8
	To   []byte `json:",omitempty"` // of a rename
}

func init() {
	if len(os.Args) == 3 && os.Args[1] == scopeVMWord {
		if err := scopeVMChild(os.Args[2]); err != nil {
			fmt.Fprintf(os.Stderr, "scope child: %v\n", err)
			os.Exit(99)
		}
		os.Exit(0)
	}
}

// scopeVMChild tells its session's name, then answers lists of acts, a line each.
func scopeVMChild(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(os.Getenv("PLANFENCE_SESSION")); err != nil {
		return err
	}
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	for in.More() {
		var acts []scopeVMAct
		if err := in.Decode(&acts); err != nil {
			return err
		}
		answers := make([]string, len(acts))
		for i, a := range acts {
			answers[i] = "ok"
			if err := a.try(); err != nil {
				answers[i] = err.Error()
				var errno syscall.Errno
				if errors.As(err, &errno) {
					answers[i] = unix.ErrnoName(errno)
				}
			}
		}
		if err := out.Encode(answers); err != nil {
			return err
		}
	}
	return nil
}

func (a *scopeVMAct) try() error {
	p := string(a.Path)
	switch a.Op {
	case "open":
		return scopeVMOpen(p, unix.O_WRONLY)
	case "create":
		return scopeVMOpen(p, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	case "truncate":
		return unix.Truncate(p, 1)
	case "chmod":
		return unix.Chmod(p, 0o700)
	case "unlink":
		return unix.Unlink(p)
	case "mkdir":
		return unix.Mkdir(p, 0o755)
	case "rename-dir":
		return unix.Rename(p, string(a.To))
	}
	return fmt.Errorf("no act is called %s", a.Op)
}

func scopeVMOpen(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// prepare makes what the act is tried on. Its parents are there.
func (a *scopeVMAct) prepare(root string) error {
	p := filepath.Join(root, string(a.Path))
	switch a.Op {
	case "open", "truncate", "unlink":
		return os.WriteFile(p, []byte("keep\n"), 0o644)
	case "chmod":
		if _, err := os.Lstat(p); err == nil { // a directory on the way to others
			return nil
		}
		return os.WriteFile(p, nil, 0o644)
	case "rename-dir":
		return os.Mkdir(p, 0o755)
	}
	return nil
}

// done reports whether the disk shows that the act happened.
func (a *scopeVMAct) done(root string) bool {
	st, err := os.Lstat(filepath.Join(root, string(a.Path)))
	switch a.Op {
	case "unlink", "rename-dir":
		return err != nil
	case "create", "mkdir":
		return err == nil
	case "truncate":
		return err == nil && st.Size() == 1
	}
	return err == nil && st.Mode().Perm() == 0o700
}

// scopeVMScopes makes scopes that a plan can hold.
func scopeVMScopes(g plantest.Gen) [][]string {
	var out [][]string
	for len(out) < scopeVMTasks {
		s := g.Scope(5)
		if one := g.Scope(1); !plantest.Wild(one[0]) {
			s = append(s, one...)
		}
		if strings.HasPrefix(s[0], "!") { // a scope needs more than exclusions
			slices.Reverse(s)
		}
		if !strings.HasPrefix(s[0], "!") {
			out = append(out, s)
		}
	}
	return out
}

// scopeVMGen makes entries that a plan can hold: they are UTF-8.
func scopeVMGen() plantest.Gen {
	return plantest.New(scopeVMSeed, func(s string) bool {
		_, err := plan.ParseEntry(s, plan.ParseOptions{})
		return err == nil && utf8.ValidString(s)
	})
}

// scopeVMActs chooses paths for a scope and an act for each. dirs are the
// directories that they lie in, parents first.
func scopeVMActs(g plantest.Gen, scope []string) (acts []scopeVMAct, dirs []string) {
	paths, inner := map[string]bool{}, map[string]bool{}
	var order []string
	files := scopeVMFiles(g, scope)
	for len(order) < scopeVMPaths {
		p := g.Path()
		switch g.IntN(8) {
		case 0:
			if len(files) > 0 {
				p = scopeVMSibling(g, files[g.IntN(len(files))])
			}
		case 1, 2, 3, 4:
			p = g.Near(scope)
		}
		below := func(f string) bool { return strings.HasPrefix(p, f+"/") }
		if p == "" || paths[p] || len(p) > 1000 || slices.ContainsFunc(files, below) {
			continue
		}
		paths[p] = true
		order = append(order, p)
		for i := range len(p) {
			if p[i] == '/' {
				inner[p[:i]] = true
			}
		}
	}
	for _, p := range order {
		a := scopeVMAct{Op: []string{"open", "open", "truncate", "chmod", "unlink", "create", "create", "mkdir", "mkdir", "rename-dir"}[g.IntN(10)], Path: []byte(p)}
		if a.Op == "rename-dir" {
			if to := p + "a"; paths[to] || inner[to] {
				a.Op = "mkdir"
			} else {
				a.To = []byte(to)
			}
		}
		if inner[p] {
			a = scopeVMAct{Op: "chmod", Path: []byte(p)}
		}
		acts = append(acts, a)
	}
	for d := range inner {
		dirs = append(dirs, d)
	}
	slices.Sort(dirs) // a directory sorts before what it holds
	return acts, dirs
}

// scopeVMFiles are the paths that entries name and that are to be files, or
// missing: the other ones become directories sooner or later.
func scopeVMFiles(g plantest.Gen, scope []string) []string {
	var out []string
	for _, text := range scope {
		e, err := plan.ParseEntry(text, plan.ParseOptions{})
		if lit, ok := e.Literal(); err == nil && ok && !e.Exclude && !e.Dir() && g.IntN(3) > 0 {
			out = append(out, lit)
		}
	}
	return out
}

// scopeVMSibling makes a name beside a file: a sibling, or almost one.
func scopeVMSibling(g plantest.Gen, lit string) string {
	dir, name := filepath.Split(lit)
	name = strings.ReplaceAll([]string{"NAME~", "NAME.tmp.1.a", "NAME.x.tmp", ".NAME.swp", ".NAME.Ab1", "NAME.17", ".#NAME", "#NAME#", "4913", "sedAb12Cd",
		"NAME", "NAME.", "NAME.1a", "#NAME", "sedAb12C", ".NAME", "NAME~/x", "49133"}[g.IntN(18)], "NAME", name)
	return dir + name
}

// scopeVMTally counts kinds of decisions.
type scopeVMTally map[string]int

// scopeVMWant is what must come of an act.
type scopeVMWant struct {
	plan  *plan.Plan
	task  *plan.Task
	table *plan.Table
	ref   plantest.Reference
	isDir func(string) bool
	paths []string
}

// judge compares the three on this side and returns their verdict.
func (w *scopeVMWant) judge(a *scopeVMAct, path string, n scopeVMTally) (bool, error) {
	op, err := plan.ParseOp(a.Op)
	if err != nil {
		return false, err
	}
	s := w.table.Walk(w.table.Start[0], "/"+path)
	var byTable bool
	ref := w.ref.Judge(path)
	byReference := ref != plantest.Refused
	switch op {
	case plan.Mkdir:
		byTable = w.table.End(s) == plan.Accept || w.table.LiveBelow(s)
		byReference = ref == plantest.Covered
		// That nothing below could be in scope no reference can say; what the
		// other paths show it must not deny.
		for _, p := range w.paths {
			byReference = byReference || strings.HasPrefix(p, path+"/") && w.ref.Judge(p) != plantest.Refused
		}
		if byTable && !byReference {
			byReference = w.table.LiveBelow(s)
		}
	case plan.MoveDir:
		byTable = w.table.AllBelow(s)
		byReference = byTable && ref == plantest.Covered && w.ref.Judge(path+"/any/where") == plantest.Covered
	default:
		byTable = w.table.End(s) != plan.Dead
	}
	v := w.plan.ExplainWith(w.task, path, op, plan.ExplainOptions{IsDir: w.isDir})
	n[a.Op+" "+string(v.Kind)]++
	if byTable != v.Allowed || byTable != byReference {
		return false, fmt.Errorf("%s %q: the table allows it: %v, check: %v (%s), the reference: %v", a.Op, path, byTable, v.Allowed, v.Kind, byReference)
	}
	return byTable, nil
}

// scopeVMTry is what came of one task.
type scopeVMTry struct {
	task    *plan.Task
	scope   []string
	isDir   map[string]bool // what was a directory when the scope was compiled
	acts    []scopeVMAct
	answers []string
	done    []bool // what the disk shows
}

// compare judges every act of a task; the errors are nil where all agree.
func (x *scopeVMTry) compare(p *plan.Plan, n scopeVMTally) []error {
	out := make([]error, len(x.acts))
	w := scopeVMWant{plan: p, task: x.task, isDir: func(path string) bool { return x.isDir[path] }, ref: plantest.Reference{Entries: x.scope}}
	w.ref.IsDir = w.isDir
	for _, p := range plan.SiblingPatterns {
		w.ref.Siblings = append(w.ref.Siblings, p.Pattern)
	}
	for _, a := range x.acts {
		w.paths = append(w.paths, string(a.Path))
	}
	var err error
	if w.table, err = scopeVMTable(x.task, w.isDir); err != nil {
		return []error{err}
	}
	for k := range x.acts {
		a := &x.acts[k]
		want, err := w.judge(a, string(a.Path), n)
		if err == nil && a.To != nil {
			var to bool
			to, err = w.judge(a, string(a.To), n)
			want = want && to
		}
		verdict := "EACCES"
		if want {
			verdict = "ok"
			n["allowed"]++
		}
		switch {
		case err != nil:
			out[k] = err
		case len(x.answers) != len(x.acts):
			out[k] = fmt.Errorf("%d answers to %d acts", len(x.answers), len(x.acts))
		case x.answers[k] != verdict:
			out[k] = fmt.Errorf("%s %q: the kernel says %s, want %s", a.Op, a.Path, x.answers[k], verdict)
		case a.Op != "open" && x.done[k] != want:
			out[k] = fmt.Errorf("%s %q: the kernel says %s; done on disk: %v", a.Op, a.Path, x.answers[k], x.done[k])
		}
	}
	return out
}

// scopeVMSession is a running session with the child in it.
type scopeVMSession struct {
	dir       string
	name      string
	cmd       *exec.Cmd
	text      bytes.Buffer
	in        *json.Encoder
	close     func() error
	out       *json.Decoder
	switching time.Duration
}

func scopeVMStart(t *testing.T, scopes [][]string) *scopeVMSession {
	t.Helper()
	s := &scopeVMSession{dir: t.TempDir()}
	type task struct {
		ID    string   `json:"id"`
		Scope []string `json:"scope"`
	}
	var tasks []task
	for i, sc := range scopes {
		tasks = append(tasks, task{fmt.Sprintf("T%d", i), sc})
	}
	b, err := json.MarshalIndent(map[string]any{"tasks": tasks}, "", " ")
	if err == nil {
		err = os.Mkdir(s.dir+"/.claude", 0o755)
	}
	if err == nil {
		err = os.WriteFile(s.dir+"/.claude/plan.json", b, 0o644)
	}
	if err == nil {
		err = os.WriteFile(s.dir+"/.claude/active-task", []byte("T0\n"), 0o644)
	}
	self, err2 := os.Executable()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command("/usr/local/bin/planfence", "run", "--quiet", "--", self, scopeVMWord, s.dir)
	s.cmd.Dir, s.cmd.Stderr = s.dir, &s.text
	in, err := s.cmd.StdinPipe()
	out, err2 := s.cmd.StdoutPipe()
	if err := errors.Join(err, err2, s.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	s.in, s.out, s.close = json.NewEncoder(in), json.NewDecoder(out), in.Close
	if err := s.out.Decode(&s.name); err != nil || s.name == "" {
		t.Fatalf("the session does not begin: %v: %s", err, &s.text)
	}
	return s
}

// activate switches the task and waits until the session says that it is in
// force, with a scope that was compiled after the switch.
func (s *scopeVMSession) activate(t *testing.T, task string) {
	t.Helper()
	began := time.Now()
	// In one step: an empty file would be no task for a moment.
	next := s.dir + "/.claude/next"
	err := os.WriteFile(next, []byte(task+"\n"), 0o644)
	if err = errors.Join(err, os.Rename(next, s.dir+"/.claude/active-task")); err != nil {
		t.Fatal(err)
	}
	for {
		st, err := companion.ReadState(s.name)
		if err == nil && st.Task == task && st.StaleWhy == "" {
			s.switching += time.Since(began)
			return
		}
		if time.Since(began) > scopeVMWait {
			t.Fatalf("%s is not in force after %v: %v, state %+v: %s", task, scopeVMWait, err, st, &s.text)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// clear empties the root but for the plan's directory.
func (s *scopeVMSession) clear(t *testing.T) {
	t.Helper()
	ents, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range ents {
		if e.Name() != ".claude" {
			if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestScopeKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("not root: this test runs in a virtual machine, see scripts/vm")
	}
	began := time.Now()
	g := scopeVMGen()
	scopes := scopeVMScopes(g)
	s := scopeVMStart(t, scopes)
	loaded := time.Since(began)
	p, err := companion.ReadPlan(s.dir+"/.claude/plan.json", s.dir)
	if err != nil {
		t.Fatal(err)
	}
	// What is answered is compared while the session goes on.
	tries := make(chan *scopeVMTry, len(scopes))
	compared := make(chan struct{})
	n := scopeVMTally{}
	pairs, wrong := 0, 0
	go func() {
		defer close(compared)
		for x := range tries {
			for _, err := range x.compare(p, n) {
				pairs++
				if err == nil {
					continue
				}
				if wrong++; wrong <= 10 {
					t.Errorf("scope %q: %v", x.scope, err)
				}
			}
		}
	}()
	finish := sync.OnceFunc(func() { close(tries); <-compared })
	defer finish()
	// The first task is in force from the start, with another tree: it comes last.
	for i := range scopes {
		i = (i + 1) % len(scopes)
		x := &scopeVMTry{task: &p.Tasks[i], scope: scopes[i], isDir: map[string]bool{}}
		var dirs []string
		x.acts, dirs = scopeVMActs(g, scopes[i])
		s.clear(t)
		for _, d := range dirs {
			x.isDir[d] = true
			if err := os.Mkdir(filepath.Join(s.dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for k := range x.acts {
			a := &x.acts[k]
			if err := a.prepare(s.dir); err != nil {
				t.Fatal(err)
			}
			if a.Op == "rename-dir" {
				x.isDir[string(a.Path)] = true
			}
		}
		s.activate(t, x.task.ID)
		if err := errors.Join(s.in.Encode(x.acts), s.out.Decode(&x.answers)); err != nil {
			t.Fatalf("the session does not answer: %v: %s", err, &s.text)
		}
		for k := range x.acts {
			x.done = append(x.done, x.acts[k].done(s.dir))
		}
		tries <- x
	}
	asked := time.Since(began)
	if err := errors.Join(s.close(), s.cmd.Wait()); err != nil {
		t.Errorf("the session: %v: %s", err, &s.text)
	}
	ended := time.Since(began)
	finish()
	allowed := n["allowed"]
	t.Logf("%d pairs, %d allowed, %d wrong; session after %.1f s, asked after %.1f s (%d switches: %.1f s), ended after %.1f s, compared after %.1f s",
		pairs, allowed, wrong, loaded.Seconds(), asked.Seconds(), len(scopes), s.switching.Seconds(), ended.Seconds(), time.Since(began).Seconds())
	t.Logf("%v", n)
	if pairs < scopeVMTasks*scopeVMPaths || allowed < pairs/5 || allowed > pairs*4/5 {
		t.Errorf("%d of %d pairs are allowed: the generator is no good", allowed, pairs)
	}
	for _, kind := range []string{"create sibling", "mkdir directory", "open exclusion", "rename-dir contents", "rename-dir entry", "mkdir none"} {
		if n[kind] == 0 {
			t.Errorf("no pair is decided as %q: the generator is no good", kind)
		}
	}
}

// scopeVMTable compiles a task's scope for a tree.
func scopeVMTable(task *plan.Task, isDir func(string) bool) (*plan.Table, error) {
	var rules []plan.Rule
	for _, e := range task.Scope {
		lit, ok := e.Literal()
		rules = append(rules, plan.Rule{Entry: e, Siblings: ok && !e.Exclude && !isDir(lit)})
	}
	return plan.Compile([]plan.Group{{Rules: rules, Inherit: -1}}, plan.Limits{})
}
