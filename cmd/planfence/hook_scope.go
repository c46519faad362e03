package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"planfence/cmd/planfence/internal/agenthook"
	"planfence/cmd/planfence/internal/companion"
	"planfence/cmd/planfence/internal/policy"
)

// sessionOf returns the state of the session that the process is in, or nil.
func sessionOf(e *env) *companion.State {
	name := e.getenv("PLANFENCE_SESSION")
	if name == "" || strings.ContainsRune(name, '/') {
		return nil
	}
	st, err := companion.ReadState(name)
	if err != nil {
		return nil
	}
	return st
}

// sessionTemp is where the hook may keep small files inside a session, "" outside.
func sessionTemp(e *env) string {
	if st := sessionOf(e); st != nil {
		return st.Config.TempDir
	}
	return ""
}

// scope finds what a call is judged by, nil where there is no plan or no task
// is active, and the directory that relative paths start from. Inside a session
// it is the session's, as the kernel has it; elsewhere what run would enforce
// for that agent.
func (f *hookFlags) scope(e *env, call *agenthook.Call) (*scopeAtHand, string, error) {
	base := baseDir(e, call)
	s := &scopeAtHand{}
	st := sessionOf(e)
	if st != nil && f.plan == "" && f.root == "" {
		if st.Mode == "audit" { // nothing is refused there; the kernel records it
			return nil, base, nil
		}
		s.cfg, s.live, s.id = st.Config, st.Name, st.Task
	} else {
		p, err := f.findFor(e, call, base)
		if err != nil || p == nil {
			return nil, base, err
		}
		s.cfg = p.config()
		s.cfg.Profiles, err = policy.ChooseProfiles(nil, call.Agent, e.getenv)
		if err != nil {
			return nil, base, err
		}
		s.cfg.ProfilePaths = policy.ProfilePaths(s.cfg.Profiles, e.getenv("HOME"), e.getenv)
		if s.id = e.getenv("ACTIVE_TASK"); s.id == "" && f.task == "" {
			if s.id, err = companion.ReadTask(s.cfg.TaskFile); err != nil {
				return nil, base, err
			}
		}
	}
	if f.task != "" {
		s.id = f.task
	}
	if s.id == "" && s.cfg.Idle != "closed" {
		return nil, base, nil
	}
	var err error
	if s.live == "" {
		st = nil
	}
	if err = s.readPlan(st); err != nil {
		return nil, base, err
	}
	s.pol, err = s.cfg.Compile(s.plan, s.id)
	return s, base, err
}

// baseDir is what relative paths of a call are relative to.
func baseDir(e *env, call *agenthook.Call) string {
	dirs := append([]string{call.CWD}, call.Roots...)
	for _, dir := range append(dirs, projectDir(e)) {
		if filepath.IsAbs(dir) {
			return filepath.Clean(dir)
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return "/"
	}
	return dir
}

// projectDir is the project as the agent tells its hooks, "" where it does not.
func projectDir(e *env) string {
	for _, v := range []string{"CLAUDE_PROJECT_DIR", "CURSOR_PROJECT_DIR", "GEMINI_PROJECT_DIR"} {
		if dir := e.getenv(v); filepath.IsAbs(dir) {
			return dir
		}
	}
	return ""
}

// findFor finds the project of a call; nil where none has a plan. The project
// is the agent's, not where it happens to have changed its directory to: a
// directory with a plan of its own would else be a way out. A linked worktree
// of the project's checkout is the project, too, with its own root; what it
// lacks of plan and active task is the checkout's.
func (f *hookFlags) findFor(e *env, call *agenthook.Call, base string) (*project, error) {
	if f.plan != "" || f.root != "" {
		return f.find()
	}
	start := projectDir(e)
	if start == "" && len(call.Roots) > 0 {
		start = call.Roots[0]
	}
	if start == "" {
		start = base
	}
	tree, main := linkedWorktree(base)
	found, err := searchPlan(start)
	if err != nil && main != "" {
		found, err = searchPlan(main)
	}
	if err != nil {
		if f.task != "" || e.getenv("ACTIVE_TASK") != "" {
			return nil, err // a task is said to be active: without a plan it cannot be judged by
		}
		return nil, nil
	}
	p, err := (&projectFlags{plan: found}).find()
	if err != nil || main == "" || p.root == tree || p.root != main {
		return p.orMain(main), err
	}
	own := projectFlags{plan: p.plan, root: tree}
	if here, err := searchPlan(tree); err == nil && strings.HasPrefix(here, tree+"/") {
		own.plan = here
	}
	p, err = own.find()
	return p.orMain(main), err
}

// orMain takes the main checkout's active-task file where a worktree has none.
func (p *project) orMain(main string) *project {
	if p == nil || main == "" || p.root == main {
		return p
	}
	if _, err := os.Lstat(p.taskFile); err == nil {
		return p
	}
	if found, err := searchPlan(main); err == nil {
		p.taskFile = filepath.Join(filepath.Dir(found), "active-task")
	}
	return p
}

// linkedWorktree returns the root of the linked worktree that dir lies in, and
// the root of the main checkout; "" where it is none.
func linkedWorktree(dir string) (tree, main string) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", ""
	}
	for ; ; dir = filepath.Dir(dir) {
		if st, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			dirs := policy.GitDirs(dir)
			if st.Mode().IsRegular() && len(dirs) == 2 && filepath.Base(dirs[1]) == ".git" {
				return dir, filepath.Dir(dirs[1])
			}
			return "", ""
		}
		if dir == "/" {
			return "", ""
		}
	}
}

// gate judges the prompt of a dispatch. It needs no active task: whoever calls
// the hook for dispatches wants their scope declared.
func (f *hookFlags) gate(e *env, call *agenthook.Call) error {
	base := baseDir(e, call)
	var cfg policy.Config
	id, live := "", ""
	if st := sessionOf(e); st != nil && f.plan == "" && f.root == "" {
		cfg, id, live = st.Config, st.Task, st.Name
	} else if p, err := f.findFor(e, call, base); err != nil {
		return answer(e, agenthook.Refuse(call, "", cannotJudge(err)))
	} else if p != nil {
		cfg = p.config()
		id, _ = companion.ReadTask(cfg.TaskFile)
	} else {
		cfg.Root = or(projectDir(e), base)
	}
	s := &scopeAtHand{cfg: cfg, id: id, live: live}
	g := &agenthook.Gate{Project: cfg.Root, Homes: agenthook.Homes(e.getenv)}
	o := g.Judge(call.Prompt())
	if len(o.Missing) > 0 {
		rec := s.hookRecord(call, "dispatch", "dispatch refused: it lacks "+strings.Join(o.Missing, "; "))
		rec.Verdict, rec.Reason = "block", "undeclared"
		s.log(e, rec)
		return answer(e, agenthook.Refuse(call, "", g.Reason(o)))
	}
	note := "declared only: nothing holds the subagent to it"
	if live != "" {
		note = "declared only: the subagent shares the agent's process, and what holds both is the scope of session " + live
	}
	if f.enforce {
		var err error
		if note, err = enforce(s, o.Scope); err != nil {
			return answer(e, agenthook.Refuse(call, "", cannotJudge(err)))
		}
	}
	s.log(e, s.hookRecord(call, "dispatch", fmt.Sprintf("dispatch with the scope %s: %s", strings.Join(o.Scope, ", "), note)))
	return nil
}

func or(values ...string) string {
	i := slices.IndexFunc(values, func(s string) bool { return s != "" })
	if i < 0 {
		return ""
	}
	return values[i]
}

var errNoPlan = errors.New("no plan: a dispatch's scope is enforced beside one")
