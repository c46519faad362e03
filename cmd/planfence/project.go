package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"planfence/cmd/planfence/internal/policy"
	"planfence/loader"
)

// projectFlags are the flags that say where the project is.
type projectFlags struct {
	plan, root, task string
}

func (p *projectFlags) add(f *pflag.FlagSet) {
	f.StringVar(&p.plan, "plan", "", "the plan `file` (default: .claude/plan.json or plan.json in the root or above)")
	f.StringVar(&p.root, "root", "", "the project's root `directory` (default: the checkout that the plan lies in)")
	f.StringVar(&p.task, "task", "", "the active task's `id` (default: $ACTIVE_TASK, else the file active-task beside the plan)")
}

// planNames are looked for in a directory, in this order.
var planNames = []string{".claude/plan.json", "plan.json"}

// project is where everything lies, absolute and resolved.
type project struct {
	root, plan, taskFile, log string
}

// find finds the project from the flags and the working directory.
func (p *projectFlags) find() (*project, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	out := &project{plan: p.plan, root: p.root}
	if out.plan == "" {
		from := cwd
		if p.root != "" {
			from = p.root
		}
		if out.plan, err = searchPlan(from); err != nil {
			return nil, err
		}
	}
	if out.plan, err = filepath.Abs(out.plan); err != nil {
		return nil, fmt.Errorf("find the plan: %w", err)
	}
	// The directory is resolved, the file itself is not: it may be a link that is swapped.
	dir, err := filepath.EvalSymlinks(filepath.Dir(out.plan))
	if err != nil {
		return nil, hinted(fmt.Errorf("find the plan %s: %w", out.plan, cause(err)), "planfence init writes a first plan; --plan names another file")
	}
	out.plan = filepath.Join(dir, filepath.Base(out.plan))
	if _, err := os.Stat(out.plan); err != nil {
		return nil, hinted(fmt.Errorf("read the plan %s: %w", out.plan, cause(err)), "planfence init writes a first plan; --plan names another file")
	}
	if out.root == "" {
		out.root = rootOf(out.plan)
	}
	if out.root, err = filepath.Abs(out.root); err != nil {
		return nil, fmt.Errorf("find the root: %w", err)
	}
	if out.root, err = filepath.EvalSymlinks(out.root); err != nil {
		return nil, fmt.Errorf("find the root: %w", err)
	}
	if st, err := os.Stat(out.root); err != nil || !st.IsDir() {
		return nil, hinted(fmt.Errorf("the root %s is no directory", out.root), "--root names the project's directory")
	}
	out.taskFile = filepath.Join(filepath.Dir(out.plan), "active-task")
	out.log = filepath.Join(filepath.Dir(out.plan), "blocked.log")
	return out, nil
}

// cause returns the error number behind an error of the os package.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func searchPlan(from string) (string, error) {
	dir, err := filepath.Abs(from)
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		for _, n := range planNames {
			if st, err := os.Stat(filepath.Join(d, n)); err == nil && st.Mode().IsRegular() {
				return filepath.Join(d, n), nil
			}
		}
		if d == "/" {
			break
		}
	}
	return "", hinted(fmt.Errorf("no plan: neither %s nor %s in %s or above", planNames[0], planNames[1], dir),
		"planfence init writes a first plan; --plan names the file")
}

// rootOf returns the project's root for a plan: the nearest directory at or
// above it that holds .git, else the plan's directory, or the one above that
// if its name begins with a dot (.claude).
func rootOf(planFile string) string {
	dir := filepath.Dir(planFile)
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(filepath.Join(d, ".git")); err == nil {
			return d
		}
		if d == "/" {
			break
		}
	}
	if strings.HasPrefix(filepath.Base(dir), ".") {
		return filepath.Dir(dir)
	}
	return dir
}

// config returns the policy's configuration for a project with everything at
// its default.
func (p *project) config() policy.Config {
	self, _ := os.Executable()
	if r, err := filepath.EvalSymlinks(self); err == nil {
		self = r
	}
	return policy.Config{
		Root: p.root, Plan: p.plan, TaskFile: p.taskFile, Log: p.log, Git: true, Siblings: true,
		Idle: "open", State: loader.StateDir, Binary: self, Sockets: policy.ControlSockets,
	}
}
