package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"planfence/cmd/planfence/internal/companion"
	"planfence/plan"
)

// Dispatches have a plan of their own, dispatch/plan.json beside the project's,
// with an active-task file beside it. A session that was started with
//
//	planfence run --root . --plan .claude/dispatch/plan.json -- WORKER
//
// follows it: a worker that is a process of its own then has the scope that the
// dispatch declares.
const dispatchDir = "dispatch"

// keepDispatches is how many tasks stay in that plan, for the owners of paths in
// records.
const keepDispatches = 100

type dispatchTask struct {
	ID    string   `json:"id"`
	Title string   `json:"title"`
	Scope []string `json:"scope"`
}

type dispatchPlan struct {
	Tasks []dispatchTask `json:"tasks"`
}

// enforce puts a declared scope in force for the session that follows the plan
// of dispatches, and says in words what holds the subagent now.
func enforce(s *scopeAtHand, scope []string) (string, error) {
	if s.live != "" {
		return "not enforced: the subagent shares the agent's process; what holds both is the scope of session " + s.live, nil
	}
	if s.cfg.Plan == "" {
		return "", hinted(errNoPlan, "planfence init writes one")
	}
	dir := filepath.Join(filepath.Dir(s.cfg.Plan), dispatchDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("enforce a dispatch: %w", err)
	}
	t := dispatchTask{ID: "D-" + time.Now().UTC().Format("20060102T150405.000000000"), Title: "a dispatch's declared scope"}
	for _, abs := range scope {
		rel, ok := strings.CutPrefix(abs, strings.TrimSuffix(s.cfg.Root, "/")+"/")
		if !ok {
			return "", hinted(fmt.Errorf("enforce a dispatch: %s is not below the project %s", abs, s.cfg.Root), "declare directories or files of the project")
		}
		t.Scope = append(t.Scope, plan.LiteralText(rel))
	}
	name := filepath.Join(dir, "plan.json")
	var p dispatchPlan
	b, err := os.ReadFile(name)
	switch {
	case err == nil:
		if err := json.Unmarshal(b, &p); err != nil {
			return "", fmt.Errorf("enforce a dispatch: read %s: %w", name, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("enforce a dispatch: %w", err)
	}
	p.Tasks = append(p.Tasks, t)
	p.Tasks = p.Tasks[max(0, len(p.Tasks)-keepDispatches):]
	if b, err = json.MarshalIndent(p, "", "  "); err != nil {
		return "", fmt.Errorf("enforce a dispatch: %w", err)
	}
	if err := replaceFile(name, append(b, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("enforce a dispatch: %w", err)
	}
	taskFile := filepath.Join(dir, "active-task")
	if err := writeTask(taskFile, t.ID); err != nil {
		return "", err
	}
	if err := awaitTask(taskFile, t.ID); err != nil {
		return "", err
	}
	states, err := companion.States()
	if err != nil {
		return "", err
	}
	for _, st := range states {
		if st.Config.TaskFile == taskFile && st.Config.Root == s.cfg.Root && st.Task == t.ID && !st.Fixed && companion.Alive(st.Name) {
			return fmt.Sprintf("enforced as task %s of session %s, for the process that runs there", t.ID, st.Name), nil
		}
	}
	return fmt.Sprintf("not enforced: no session follows %s, and a subagent in the agent's own process has that process's scope; a worker of its own gets it with planfence run --root %s --plan %s", name, s.cfg.Root, name), nil
}

// replaceFile writes a file in one step, with the owner of its directory. Links
// are followed: settings are often links into a collection of dotfiles.
func replaceFile(name string, b []byte, mode fs.FileMode) error {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(b); err != nil {
		f.Close()
		return err
	}
	if err := f.Chmod(mode); err != nil {
		f.Close()
		return err
	}
	own(f, filepath.Dir(name))
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
