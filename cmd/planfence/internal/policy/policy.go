// Package policy puts together what one session may write: the task's scope,
// the operator's allowances, git's state, profiles, and what the fence itself
// stands on. It needs both plans and the disk, so it fits neither package plan
// nor package loader.
package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"planfence/plan"
)

// Config is what an operator chose for a session. All paths are absolute and
// resolved.
type Config struct {
	Root         string   `json:"root"`
	Plan         string   `json:"plan"`          // the plan file
	TaskFile     string   `json:"task_file"`     // the active-task file
	Log          string   `json:"log"`           // "" : no file
	Allow        []string `json:"allow"`         // as given with --allow
	Profiles     []string `json:"profiles"`      // names, for people
	ProfilePaths []string `json:"profile_paths"` // what they open, absolute; ! excludes
	Git          bool     `json:"git"`           // git's state is writable
	Siblings     bool     `json:"siblings"`      // saving through a sibling is allowed
	Hardlinks    bool     `json:"hardlinks"`     // --hardlinks=allow
	Idle         string   `json:"idle"`          // open or closed: with no active task
	TempDir      string   `json:"temp_dir"`      // the session's private directory
	State        string   `json:"state"`         // planfence's own directory
	Binary       string   `json:"binary"`        // the planfence executable
	Sockets      []string `json:"sockets"`       // patterns of control sockets
}

// Kind says what a session's scope rests on at the moment.
type Kind string

// Kinds of a scope.
const (
	Task    Kind = "task"    // a task of the plan is active
	Idle    Kind = "idle"    // none is: only what is protected is refused
	Closed  Kind = "closed"  // none is, and the session is closed then
	Unknown Kind = "unknown" // the active id is not in the plan
)

// Groups of the compiled table.
const (
	System  = 0 // absolute paths
	Project = 1 // relative to the root
	Sockets = 2 // control sockets, by the end of their path
)

// Policy is a compiled scope with the reasons behind it.
type Policy struct {
	Kind   Kind
	TaskID string
	Table  *plan.Table
	groups []plan.Group
	labels [][]string
}

// ActiveTask tells an id's kind; t is nil unless the kind is Task.
func ActiveTask(p *plan.Plan, id, idle string) (Kind, *plan.Task) {
	if id == "" {
		if idle == "closed" {
			return Closed, nil
		}
		return Idle, nil
	}
	if t := p.Task(id); t != nil {
		return Task, t
	}
	return Unknown, nil
}

// Compile builds the policy for the active id ("" for none).
func (c *Config) Compile(p *plan.Plan, id string) (*Policy, error) {
	kind, task := ActiveTask(p, id, c.Idle)
	pol := &Policy{Kind: kind, TaskID: id}
	var sys, proj []plan.Rule
	var sysWhy, projWhy []string
	system := func(why string, e plan.Entry, base string) {
		sys = append(sys, plan.Rule{Entry: e, Base: base})
		sysWhy = append(sysWhy, why)
	}
	literal := func(why, path string, below bool) {
		system(why, plan.LiteralEntry(strings.TrimPrefix(path, "/"), below), "")
	}
	deny := func(why, path string, below bool) {
		system(why, plan.LiteralExclude(strings.TrimPrefix(path, "/"), below), "")
	}

	if kind == Idle {
		system("no active task", plan.Everything, "")
	}
	literal("shared memory", "/dev/shm", true)
	literal("terminals", "/dev/pts", true) // sudo and sshd give them to their users
	if c.TempDir != "" {
		literal("the session's temporary directory", c.TempDir, true)
	}
	for _, a := range c.Allow {
		e, err := AllowEntry(a, c.Root)
		if err != nil {
			return nil, fmt.Errorf("--allow %s: %w", a, err)
		}
		system("--allow "+a, e, "")
	}
	if c.Git {
		for _, g := range gitRules(c.Root) {
			system(g.why, g.entry, g.base)
		}
	}
	profiles, err := profileRules(c)
	if err != nil {
		return nil, err
	}
	for _, r := range profiles {
		system(r.why, r.entry, r.base)
	}
	// What the fence stands on. Exclusions win over everything above.
	for _, d := range c.protected(task) {
		deny("protected: "+d.what, d.path, d.below)
	}
	deny("protected: kernel settings", "/proc/sys", true)
	deny("protected: kernel settings", "/proc/sysrq-trigger", false)
	deny("protected: kernel settings", "/sys", true)
	// The fence itself lets a process write its own entries, its threads' and its children's.
	processes, err := plan.ParseEntry("!*/**", plan.ParseOptions{})
	if err != nil {
		return nil, err
	}
	system("protected: other processes", processes, "/proc")

	if task != nil {
		for _, e := range task.Scope {
			proj = append(proj, plan.Rule{Entry: e, Siblings: c.Siblings && !e.Exclude && c.namesFile(e)})
			projWhy = append(projWhy, e.Text)
		}
	}
	var socks []plan.Rule
	for _, s := range c.Sockets {
		e, err := plan.ParseEntry(s, plan.ParseOptions{})
		if err != nil {
			return nil, fmt.Errorf("control socket %s: %w", s, err)
		}
		socks = append(socks, plan.Rule{Entry: e})
	}
	socketLabels := c.Sockets
	if c.TempDir != "" { // what listens there was started inside, and is fenced itself
		own := "!**/" + escape(filepath.Base(c.TempDir)) + "/**"
		e, err := plan.ParseEntry(own, plan.ParseOptions{})
		if err != nil {
			return nil, fmt.Errorf("temporary directory %s: %w", c.TempDir, err)
		}
		socks = append(socks, plan.Rule{Entry: e})
		socketLabels = append(slices.Clip(socketLabels), own)
	}
	pol.groups = []plan.Group{
		{Rules: sys, Inherit: -1},
		{Rules: proj, Inherit: System, Path: c.Root},
		{Rules: socks, Inherit: -1},
	}
	pol.labels = [][]string{sysWhy, projWhy, socketLabels}
	if pol.Table, err = tables.compile(pol.groups); err != nil {
		return nil, err
	}
	return pol, nil
}

// namesFile reports whether a literal entry names a file: it is no directory today.
func (c *Config) namesFile(e plan.Entry) bool {
	path, ok := e.Literal()
	if !ok {
		return false
	}
	st, err := os.Stat(filepath.Join(c.Root, path))
	return err != nil || !st.IsDir()
}

// AllowEntry parses what --allow takes: a literal path or a scope-style pattern,
// absolute or relative to the root.
func AllowEntry(text, root string) (plan.Entry, error) {
	if !strings.HasPrefix(text, "/") {
		text = filepath.Join(root, "/") + "/" + text
	}
	text = resolvePrefix(text)
	e, err := plan.ParseEntry(text, plan.ParseOptions{Root: "/"})
	if err != nil {
		return e, err
	}
	if e.Exclude {
		return e, fmt.Errorf("an allowance cannot exclude")
	}
	return e, nil
}

// resolvePrefix resolves the links in the leading directories of a pattern that
// exist and hold no wildcard.
func resolvePrefix(text string) string {
	for dir := text; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if strings.ContainsAny(dir, "*?{\\") {
			continue
		}
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return real + strings.TrimPrefix(text, dir)
		}
	}
	return text
}

type protected struct {
	what, path string
	below      bool
}

// protected lists what no scope opens. The plan is left out for a task whose
// scope names it literally.
func (c *Config) protected(task *plan.Task) []protected {
	out := []protected{
		{"the active-task file", c.TaskFile, false},
		{"the state of sessions", c.State, true},
		{"the planfence program", c.Binary, false},
	}
	if c.Log != "" {
		out = append(out, protected{"the block log", c.Log, false})
		for i := range 9 { // rotated logs
			out = append(out, protected{"the block log", fmt.Sprintf("%s.%d", c.Log, i+1), false},
				protected{"the block log", fmt.Sprintf("%s.%d.gz", c.Log, i+1), false})
		}
	}
	if !c.namesPlan(task) {
		out = append(out, protected{"the plan", c.Plan, false})
	}
	// Files that are links: what they lead to, hop by hop.
	for _, hop := range hops(c.Plan) {
		out = append(out, protected{"what the plan links to", hop, false})
	}
	for _, hop := range hops(c.TaskFile) {
		out = append(out, protected{"what the active-task file links to", hop, false})
	}
	return slices.DeleteFunc(out, func(p protected) bool { return p.path == "" })
}

// hops returns the paths that a symbolic link leads over, resolved, without
// the link itself.
func hops(path string) []string {
	var out []string
	for range 16 {
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(to))
		if err != nil {
			break
		}
		path = filepath.Join(dir, filepath.Base(to))
		out = append(out, path)
		// A directory of the way that is a link (as Kubernetes swaps them) is one as well.
		for d := filepath.Dir(to); d != "/" && d != "."; d = filepath.Dir(d) {
			if st, err := os.Lstat(d); err == nil && st.Mode()&os.ModeSymlink != 0 {
				if real, err := filepath.EvalSymlinks(filepath.Dir(d)); err == nil {
					out = append(out, filepath.Join(real, filepath.Base(d)))
				}
			}
		}
	}
	return out
}

func (c *Config) namesPlan(task *plan.Task) bool {
	if task == nil {
		return false
	}
	rel, err := filepath.Rel(c.Root, c.Plan)
	if err != nil {
		return false
	}
	for _, e := range task.Scope {
		if path, ok := e.Literal(); ok && !e.Exclude && path == rel {
			return true
		}
	}
	return false
}

// Start returns the table's state at an absolute directory.
func (p *Policy) Start(root, dir string) plan.State {
	if dir == root {
		return p.Table.Start[Project]
	}
	if rel, ok := strings.CutPrefix(dir, root+"/"); ok {
		return p.Table.Walk(p.Table.Start[Project], "/"+rel)
	}
	if dir == "/" {
		return p.Table.Start[System]
	}
	return p.Table.Walk(p.Table.Start[System], dir)
}

// Need is what a path must be for an operation.
type Need int

// Needs, as the fence has them.
const (
	Self Need = iota // in scope
	Dir              // in scope, or a directory in which something could be
	Tree             // in scope with everything below
)

// Allowed judges an absolute, resolved path as the kernel would.
func (p *Policy) Allowed(root, path string, need Need) bool {
	t, s := p.Table, p.Start(root, path)
	switch need {
	case Dir:
		return t.End(s) == plan.Accept || t.LiveBelow(s)
	case Tree:
		return t.AllBelow(s)
	}
	return t.End(s) != plan.Dead
}

// Guard returns what tells whether a path is refused because the fence stands on
// it, as links lead now.
func (c *Config) Guard(p *plan.Plan, taskID string) func(path string) bool {
	list := c.protected(p.Task(taskID))
	return func(path string) bool {
		return slices.ContainsFunc(list, func(d protected) bool {
			return path == d.path || d.below && strings.HasPrefix(path, d.path+"/")
		})
	}
}

// Protected reports whether a path is refused because the fence stands on it,
// and what it is.
func (c *Config) Protected(p *plan.Plan, taskID, path string) (string, bool) {
	for _, d := range c.protected(p.Task(taskID)) {
		if path == d.path || d.below && strings.HasPrefix(path, d.path+"/") {
			return d.what, true
		}
	}
	return "", false
}
