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
	"time"

	"github.com/spf13/cobra"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/companion"
	"planfence/cmd/planfence/internal/policy"
	"planfence/plan"
)

// checkResult is one path's verdict.
type checkResult struct {
	Given   string   `json:"given,omitempty"`      // as asked for
	Path    string   `json:"path"`                 // absolute, links resolved; bytes that are no UTF-8 as \xHH
	Exact   string   `json:"path_bytes,omitempty"` // then its bytes in base64
	Rel     string   `json:"rel,omitempty"`        // to the root, where inside it
	Task    string   `json:"task"`
	Op      string   `json:"op"`
	Verdict string   `json:"verdict"`         // allow, refuse
	Rule    string   `json:"rule"`            // entry, sibling, directory, exclusion, contents, none, protected, allowance, no-task, device, unreachable
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
	opSet  bool // --op was given
}

func newCheck(e *env) *cobra.Command {
	f := &checkFlags{}
	c := &cobra.Command{
		Use:   "check [flags] [PATH...]",
		Short: "Say whether paths may be written, and which rule decides",
		Long: `check judges paths with the compiled scope that the kernel uses. Links are
resolved as the kernel would; a path need not exist. One that ends in a slash and
does not exist yet is a directory to be made. An operation on two names, such as a
rename, needs both of them.

Without a path it shows the active task and its scope. Inside a session it needs
neither privileges nor flags.

The exit status is 1 if any path would be refused.`,
		Example: `  planfence check src/slug.js
  planfence check --task T2 --op mkdir docs/new
  planfence check`,
		RunE: func(c *cobra.Command, args []string) error {
			f.opSet = c.Flags().Changed("op")
			return f.run(e, args)
		},
	}
	f.add(c.Flags())
	c.Flags().StringVar(&f.op, "op", "write", "the `operation`: "+strings.Join(plan.OpNames(), ", "))
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

	stale *companion.State // the session, when its plan on disk is not the one in force
}

// readPlan reads the plan in force, or the project's outside a session.
func (s *scopeAtHand) readPlan(st *companion.State) (err error) {
	if st == nil {
		s.plan, err = companion.ReadPlan(s.cfg.Plan, s.cfg.Root)
		return err
	}
	if st.StaleWhy != "" {
		s.stale = st
	}
	s.plan, err = st.PlanInForce()
	return err
}

// atHand finds the scope: the session's own inside one, else the project's.
func (f *checkFlags) atHand(e *env) (*scopeAtHand, error) {
	s := &scopeAtHand{}
	var fixed string
	var st *companion.State
	if f.plan == "" && f.root == "" {
		st = sessionOf(e)
	}
	if st != nil {
		s.cfg, s.live, fixed = st.Config, st.Name, st.Task
	} else {
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
	if err = s.readPlan(st); err != nil {
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
		return hinted(err, "--op takes %s", strings.Join(plan.OpNames(), ", "))
	}
	s, err := f.atHand(e)
	if err != nil {
		return err
	}
	if !f.asJSON {
		s.plan.File = shortPath(s.plan.File)
	}
	if s.stale != nil {
		fmt.Fprintf(e.stderr, "planfence: the plan on disk is not in force since %s: %s\nhint: repair it, and the session follows; until then the last good plan decides\n",
			s.stale.StaleSince.Local().Format(time.DateTime), blocklog.Printable(s.stale.StaleWhy))
	}
	if len(args) == 0 {
		return s.show(e, f.asJSON)
	}
	refused := false
	for _, a := range args {
		op, name := op, f.op
		if !f.opSet && strings.HasSuffix(a, "/") {
			if _, err := os.Stat(a); errors.Is(err, fs.ErrNotExist) {
				op, name = plan.Mkdir, "mkdir"
			}
		}
		r, err := s.judge(a, op, name)
		if err != nil {
			return err
		}
		refused = refused || r.Verdict != "allow"
		if f.asJSON {
			blocklog.SetPath(&r.Path, &r.Exact, r.Path)
			var unused string
			blocklog.SetPath(&r.Rel, &unused, r.Rel)
			blocklog.SetPath(&r.Given, &unused, r.Given)
			if err := encode(e, r); err != nil {
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

func (s *scopeAtHand) judge(arg string, op plan.Op, name string) (*checkResult, error) {
	path, err := resolve(arg, name)
	if errors.Is(err, errUnreachable) {
		abs, _ := filepath.Abs(arg)
		return &checkResult{Given: arg, Path: abs, Rel: s.rel(abs), Task: s.id, Op: name, Verdict: "refuse", Rule: "unreachable", Note: err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	if name == "rename" {
		if st, err := os.Lstat(path); err == nil && st.IsDir() {
			op = plan.MoveDir
		}
	}
	r := &checkResult{Given: arg, Path: path, Rel: s.rel(path), Task: s.id, Op: name, Verdict: "refuse"}
	need := map[plan.Op]policy.Need{plan.Write: policy.Self, plan.Mkdir: policy.Dir, plan.MoveDir: policy.Tree}[op]
	if s.pol.Allowed(s.cfg.Root, path, need) {
		r.Verdict = "allow"
	}
	what, protected := s.cfg.Protected(s.plan, s.id, path)
	if why, device := alwaysWritable(path, name); why != "" {
		r.Verdict, r.Rule, r.Note = "allow", "allowance", why
		return r, nil
	} else if device && s.pol.Kind != policy.Idle {
		r.Verdict, r.Rule, r.Note = "refuse", "device", "a device is judged by its type: this one is closed to every task"
		return r, nil
	}
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
		v := s.plan.ExplainWith(task, r.Rel, op, plan.ExplainOptions{NoSiblings: !s.cfg.Siblings, IsDir: s.isDir(r.Rel)})
		r.Rule, r.Sibling, r.Owner = string(v.Kind), v.Sibling, v.Owners
		if v.Entry != nil {
			r.Entry, r.At = v.Entry.Text, fmt.Sprintf("%s:%s", s.plan.File, v.Entry.Pos)
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

// encode prints one line of JSON.
func encode(e *env, v any) error {
	enc := json.NewEncoder(e.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// list is a list that JSON does not show as null.
func list(l []string) []string { return append([]string{}, l...) }

// closed reports whether a path is refused to every task whatever its scope.
func (s *scopeAtHand) closed(path string) bool {
	open := s.cfg
	open.Idle = "open"
	all, err := open.Compile(s.plan, "")
	return err == nil && !all.Allowed(s.cfg.Root, path, policy.Self)
}

// rel is a path relative to the root, "" for the root and what is outside.
func (s *scopeAtHand) rel(path string) string {
	if rel, ok := strings.CutPrefix(path, strings.TrimSuffix(s.cfg.Root, "/")+"/"); ok {
		return rel
	}
	return ""
}

// isDir reports whether a path relative to the root is, or leads to, a directory;
// judged itself, a link is none.
func (s *scopeAtHand) isDir(judged string) func(rel string) bool {
	return func(rel string) bool {
		stat := os.Stat
		if rel == judged {
			stat = os.Lstat
		}
		st, err := stat(filepath.Join(s.cfg.Root, rel))
		return err == nil && st.IsDir()
	}
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
	case "no-task":
		if r.Note == "" {
			why = append(why, "no task is active: everything is refused")
		}
	}
	if given, err := filepath.Abs(r.Given); err == nil && given != r.Path && r.Rule != "unreachable" {
		why = append(why, "by way of "+blocklog.Printable(r.Given))
	}
	if r.Note != "" {
		why = append(why, r.Note)
	}
	if len(r.Owner) > 0 {
		why = append(why, "owner "+strings.Join(r.Owner, ", "))
	}
	fmt.Fprintf(e.stdout, "%s\t%s (task %s: %s)\n", r.Verdict, blocklog.Printable(name), blocklog.Printable(task), strings.Join(why, "; "))
	if r.Suggest != "" {
		fmt.Fprintf(e.stderr, "hint: %s\n", r.Suggest)
	}
}

// show prints the active task and its scope.
func (s *scopeAtHand) show(e *env, asJSON bool) error {
	task := s.plan.Task(s.id)
	entries := []string{} // a list in JSON, even for a read-only task
	title := ""
	if task != nil {
		title = task.Title
		for _, en := range task.Scope {
			entries = append(entries, en.Text)
		}
	}
	if asJSON {
		return encode(e, map[string]any{
			"session": s.live, "task": s.id, "title": title, "kind": s.pol.Kind, "scope": entries,
			"root": s.cfg.Root, "plan": s.cfg.Plan, "stale": s.stale != nil, "allow": list(s.cfg.Allow), "profiles": list(s.cfg.Profiles), "temp_dir": s.cfg.TempDir})
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
