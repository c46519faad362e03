package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/companion"
	"planfence/cmd/planfence/internal/policy"
	"planfence/plan"
)

// checkResult is one path's verdict.
type checkResult struct {
	Path    string   `json:"path"`          // absolute, links resolved
	Rel     string   `json:"rel,omitempty"` // to the root, where inside it
	Task    string   `json:"task"`
	Op      string   `json:"op"`
	Verdict string   `json:"verdict"`         // allow, refuse
	Rule    string   `json:"rule"`            // entry, sibling, directory, exclusion, contents, none, protected, allowance, no-task
	Entry   string   `json:"entry,omitempty"` // the deciding entry
	At      string   `json:"at,omitempty"`    // its file:line:column
	Sibling string   `json:"sibling,omitempty"`
	Owner   []string `json:"owner,omitempty"`   // other tasks in whose scope the path lies
	Suggest string   `json:"suggest,omitempty"` // the edit of the plan that would allow it
	Note    string   `json:"note,omitempty"`
}

type checkFlags struct {
	projectFlags
	op     string
	asJSON bool
}

func newCheck(e *env) *cobra.Command {
	f := &checkFlags{}
	c := &cobra.Command{
		Use:   "check [flags] [PATH...]",
		Short: "Say whether paths may be written, and which rule decides",
		Long: `check judges paths with the compiled scope that the kernel uses. Links are
resolved as the kernel would. Without a path it shows the active task and its
scope. Inside a session it needs neither privileges nor flags.

The exit status is 1 if any path would be refused.`,
		Example: `  planfence check src/slug.js
  planfence check --task T2 --op mkdir docs/new
  planfence check`,
		RunE: func(_ *cobra.Command, args []string) error { return f.run(e, args) },
	}
	f.add(c.Flags())
	c.Flags().StringVar(&f.op, "op", "write", "the `operation`: write, mkdir, rename, rename-dir, unlink, chmod, …")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON, one object a path")
	return c
}

// scopeAtHand is what check judges by.
type scopeAtHand struct {
	cfg  policy.Config
	plan *plan.Plan
	id   string
	pol  *policy.Policy
	live string // the session's name, inside one
}

// atHand finds the scope: the session's own inside one, else the project's.
func (f *checkFlags) atHand(e *env) (*scopeAtHand, error) {
	s := &scopeAtHand{}
	var fixed string
	if name := e.getenv("PLANFENCE_SESSION"); name != "" && f.plan == "" && f.root == "" {
		if st, err := companion.ReadState(name); err == nil {
			s.cfg, s.live, fixed = st.Config, name, st.Task
		}
	}
	if s.live == "" {
		p, err := f.find()
		if err != nil {
			return nil, err
		}
		s.cfg = p.config()
		fixed = e.getenv("ACTIVE_TASK")
	}
	if f.task != "" {
		fixed = f.task
	}
	var err error
	if s.plan, err = companion.ReadPlan(s.cfg.Plan, s.cfg.Root); err != nil {
		return nil, err
	}
	if s.id = fixed; s.id == "" && s.live == "" {
		if s.id, err = companion.ReadTask(s.cfg.TaskFile); err != nil {
			return nil, err
		}
	}
	if s.id != "" && s.plan.Task(s.id) == nil && f.task != "" {
		return nil, hinted(errors.New(companion.UnknownTask(s.plan, s.id)), "--task with one of these ids")
	}
	s.pol, err = s.cfg.Compile(s.plan, s.id)
	return s, err
}

func (f *checkFlags) run(e *env, args []string) error {
	op, err := plan.ParseOp(f.op)
	if err != nil {
		return err
	}
	s, err := f.atHand(e)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return s.show(e, f.asJSON)
	}
	refused := false
	for _, a := range args {
		r, err := s.judge(a, op, f.op)
		if err != nil {
			return err
		}
		refused = refused || r.Verdict != "allow"
		if f.asJSON {
			if err := json.NewEncoder(e.stdout).Encode(r); err != nil {
				return err
			}
			continue
		}
		r.print(e)
	}
	if refused {
		return &exitError{code: 1}
	}
	return nil
}

// resolve follows links as the kernel would on the way to writing a path that
// may not exist yet. The last step is followed for operations on contents, not
// for those on names.
func resolve(path string, op plan.Op, name string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", path, err)
	}
	followLast := op == plan.Write
	switch name {
	case "unlink", "rmdir", "rename", "rename-dir", "symlink", "link", "mknod":
		followLast = false
	}
	for range 40 { // ELOOP's limit, MAXSYMLINKS
		dir, base := filepath.Dir(abs), filepath.Base(abs)
		if dir != "/" {
			if dir, err = resolveDir(dir); err != nil {
				return "", err
			}
		}
		abs = filepath.Join(dir, base)
		to, err := os.Readlink(abs)
		if !followLast || err != nil {
			return abs, nil
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		abs = to
	}
	return "", fmt.Errorf("find %s: too many links", path)
}

// resolveDir resolves a directory whose lower part may not exist yet.
func resolveDir(dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		return real, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find %s: %w", dir, cause(err))
	}
	up := filepath.Dir(dir)
	if up == dir {
		return dir, nil
	}
	if to, err := os.Readlink(dir); err == nil { // a dangling link
		if !filepath.IsAbs(to) {
			to = filepath.Join(up, to)
		}
		return resolveDir(to)
	}
	if up, err = resolveDir(up); err != nil {
		return "", err
	}
	return filepath.Join(up, filepath.Base(dir)), nil
}

func (s *scopeAtHand) judge(arg string, op plan.Op, name string) (*checkResult, error) {
	path, err := resolve(arg, op, name)
	if err != nil {
		return nil, err
	}
	if name == "rename" {
		if st, err := os.Lstat(path); err == nil && st.IsDir() {
			op = plan.MoveDir
		}
	}
	r := &checkResult{Path: path, Task: s.id, Op: name, Verdict: "refuse"}
	if rel, ok := strings.CutPrefix(path, strings.TrimSuffix(s.cfg.Root, "/")+"/"); ok {
		r.Rel = rel
	}
	need := map[plan.Op]policy.Need{plan.Write: policy.Self, plan.Mkdir: policy.Dir, plan.MoveDir: policy.Tree}[op]
	if s.pol.Allowed(s.cfg.Root, path, need) {
		r.Verdict = "allow"
	}
	what, protected := s.cfg.Protected(s.plan, s.id, path)
	task := s.plan.Task(s.id)
	switch {
	case protected && r.Verdict == "refuse":
		r.Rule, r.Note = "protected", what+" is protected from every task"
	case task == nil && s.id == "" && r.Verdict == "allow":
		r.Rule, r.Note = "no-task", "no task is active: only the fence's own files are protected"
	case task == nil:
		r.Rule = "no-task"
		if s.id != "" {
			r.Note = companion.UnknownTask(s.plan, s.id)
		}
	case r.Rel == "" && path != s.cfg.Root:
		r.Rule = "none"
		if r.Verdict == "allow" {
			r.Rule, r.Note = "allowance", "outside the project, opened by the fence or the operator"
		} else {
			r.Note = "outside the project: run --allow opens it"
		}
	default:
		v := s.plan.ExplainWith(task, r.Rel, op, plan.ExplainOptions{NoSiblings: !s.cfg.Siblings, IsDir: s.isDir})
		r.Rule, r.Sibling, r.Owner = string(v.Kind), v.Sibling, v.Owners
		if v.Entry != nil {
			r.Entry, r.At = v.Entry.Text, fmt.Sprintf("%s:%s", s.cfg.Plan, v.Entry.Pos)
		}
		switch {
		case r.Verdict == "allow" && !v.Allowed:
			r.Rule, r.Entry, r.At, r.Note = "allowance", "", "", "opened by git's or a profile's allowance or by the operator"
		case r.Verdict == "refuse" && (v.Allowed || s.closed(path)):
			r.Rule, r.Entry, r.At, r.Note = "protected", "", "", "it makes something run later, outside the fence: closed to every task"
		case r.Verdict == "refuse":
			r.Suggest = v.Suggest
		}
	}
	if r.Verdict == "allow" && need == policy.Self && !s.cfg.Hardlinks {
		if n := links(path); n > 1 {
			r.Note = fmt.Sprintf("it has %d hard links: writing it in place is refused (hardlink) unless the session made them", n)
		}
	}
	return r, nil
}

// closed reports whether a path is refused to every task whatever its scope.
func (s *scopeAtHand) closed(path string) bool {
	open := s.cfg
	open.Idle = "open"
	all, err := open.Compile(s.plan, "")
	return err == nil && !all.Allowed(s.cfg.Root, path, policy.Self)
}

func (s *scopeAtHand) isDir(rel string) bool {
	st, err := os.Stat(filepath.Join(s.cfg.Root, rel))
	return err == nil && st.IsDir()
}

func (r *checkResult) print(e *env) {
	name := r.Rel
	if name == "" {
		name = r.Path
	}
	task := r.Task
	if task == "" {
		task = "none"
	}
	var why []string
	switch r.Rule {
	case "entry":
		why = append(why, fmt.Sprintf("entry %q at %s", r.Entry, r.At))
	case "sibling":
		why = append(why, fmt.Sprintf("sibling %s of entry %q at %s", r.Sibling, r.Entry, r.At))
	case "directory":
		why = append(why, fmt.Sprintf("directory on the way to entry %q at %s", r.Entry, r.At))
	case "exclusion":
		why = append(why, fmt.Sprintf("excluded by %q at %s", r.Entry, r.At))
	case "contents":
		why = append(why, fmt.Sprintf("entry %q at %s does not cover all below", r.Entry, r.At))
	case "none":
		why = append(why, "no entry covers it")
	}
	if r.Note != "" {
		why = append(why, r.Note)
	}
	if len(r.Owner) > 0 {
		why = append(why, "owner "+strings.Join(r.Owner, ", "))
	}
	fmt.Fprintf(e.stdout, "%s\t%s (task %s: %s)\n", r.Verdict, blocklog.Printable(name), task, strings.Join(why, "; "))
	if r.Suggest != "" {
		fmt.Fprintf(e.stderr, "hint: %s\n", r.Suggest)
	}
}

// show prints the active task and its scope.
func (s *scopeAtHand) show(e *env, asJSON bool) error {
	task := s.plan.Task(s.id)
	var entries []string
	title := ""
	if task != nil {
		title = task.Title
		for _, en := range task.Scope {
			entries = append(entries, en.Text)
		}
	}
	if asJSON {
		return json.NewEncoder(e.stdout).Encode(map[string]any{
			"session": s.live, "task": s.id, "title": title, "kind": s.pol.Kind, "scope": entries,
			"root": s.cfg.Root, "plan": s.cfg.Plan, "allow": s.cfg.Allow, "profiles": s.cfg.Profiles, "temp_dir": s.cfg.TempDir})
	}
	if s.live != "" {
		fmt.Fprintf(e.stdout, "session  %s\n", s.live)
	}
	fmt.Fprintf(e.stdout, "root     %s\nplan     %s\n", blocklog.Printable(s.cfg.Root), blocklog.Printable(s.cfg.Plan))
	switch s.pol.Kind {
	case policy.Task:
		fmt.Fprintf(e.stdout, "task     %s  %s\n", s.id, blocklog.Printable(title))
		if len(entries) == 0 {
			fmt.Fprintln(e.stdout, "scope    nothing: a read-only task")
		}
		for i, en := range entries {
			head := "        "
			if i == 0 {
				head = "scope   "
			}
			fmt.Fprintf(e.stdout, "%s %s\n", head, blocklog.Printable(en))
		}
	case policy.Unknown:
		fmt.Fprintf(e.stdout, "task     %s: everything is refused\n", companion.UnknownTask(s.plan, s.id))
	case policy.Closed:
		fmt.Fprintln(e.stdout, "task     none: everything is refused")
	default:
		fmt.Fprintln(e.stdout, "task     none: only the fence's own files are protected")
	}
	if s.cfg.TempDir != "" {
		fmt.Fprintf(e.stdout, "also     %s, /dev/shm, git's state", s.cfg.TempDir)
		if len(s.cfg.Profiles) > 0 {
			fmt.Fprintf(e.stdout, ", profiles %s", strings.Join(s.cfg.Profiles, " "))
		}
		for _, a := range s.cfg.Allow {
			fmt.Fprintf(e.stdout, ", %s", blocklog.Printable(a))
		}
		fmt.Fprintln(e.stdout)
	}
	return nil
}

// links returns a regular file's number of hard links, 0 for anything else.
func links(path string) uint64 {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() {
		return 0
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return uint64(sys.Nlink)
	}
	return 0
}
