package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"planfence/cmd/planfence/internal/companion"
)

func newTask(e *env) *cobra.Command {
	var pf projectFlags
	var none bool
	c := &cobra.Command{
		Use:   "task [ID]",
		Short: "Show or change the active task",
		Long: `task without an argument prints the id of the active task. With one it writes
the id to the active-task file; sessions follow within 100 ms.`,
		Example: "  planfence task T2\n  planfence task --none",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := pf.find()
			if err != nil {
				return err
			}
			if len(args) == 0 && !none {
				id, err := companion.ReadTask(p.taskFile)
				if err != nil {
					return err
				}
				if id == "" {
					return &exitError{code: 1, err: errors.New("no task is active"), hint: "planfence task ID starts one"}
				}
				_, err = fmt.Fprintln(e.stdout, id)
				return err
			}
			if none && len(args) > 0 {
				return errors.New("either an id or --none, not both")
			}
			id := ""
			if !none {
				pl, err := companion.ReadPlan(p.plan, p.root)
				if err != nil {
					return err
				}
				id = args[0]
				if pl.Task(id) == nil {
					return hinted(errors.New(companion.UnknownTask(pl, id)), "planfence task ID with one of these")
				}
			}
			if err := writeTask(p.taskFile, id); err != nil {
				return err
			}
			return awaitTask(p.taskFile, id)
		},
	}
	pf.add(c.Flags())
	c.Flags().BoolVar(&none, "none", false, "end the task: no task is active")
	return c
}

// How long task waits for sessions to follow: far longer than a machine needs that is
// not short of processors, and for one that keeps its scope as its plan is broken.
const (
	awaitMost   = 30 * time.Second
	awaitBroken = 5 * time.Second
)

// awaitTask waits until the sessions that follow the file have the task in
// force; a session that does not in time is an error.
func awaitTask(path, id string) error {
	began := time.Now()
	nudged := map[string]bool{}
	for {
		states, err := companion.States()
		if err != nil {
			return err
		}
		var late *companion.State
		for _, s := range states {
			if s.Config.TaskFile == path && !s.Fixed && s.Task != id && companion.Alive(s.Name) {
				late = s
				if !nudged[s.Name] {
					nudged[s.Name] = true
					companion.Nudge(s.Name)
				}
			}
		}
		if late == nil {
			return nil
		}
		waited := time.Since(began)
		if waited > awaitBroken && late.StaleWhy != "" {
			return hinted(fmt.Errorf("session %s keeps task %s: %s", late.Name, orNone(late.Task), late.StaleWhy), "mend the plan: planfence lint")
		}
		if waited > awaitMost {
			return hinted(fmt.Errorf("session %s still has task %s", late.Name, orNone(late.Task)), "planfence status shows why")
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func orNone(id string) string {
	if id == "" {
		return "none"
	}
	return id
}

// writeTask replaces the active-task file in one step, keeping its owner.
func writeTask(path, id string) error {
	wrong := func(err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return hinted(fmt.Errorf("change the active task: %w", err),
				"the operator changes it, outside the fence; inside a session the file is protected")
		}
		return fmt.Errorf("change the active task: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".active-task-*")
	if err != nil {
		return wrong(err)
	}
	defer os.Remove(f.Name())
	text := id
	if id != "" {
		text += "\n"
	}
	if _, err := f.WriteString(text); err != nil {
		f.Close()
		return wrong(err)
	}
	if err := f.Chmod(0o644); err != nil {
		f.Close()
		return wrong(err)
	}
	own(f, filepath.Dir(path))
	if err := f.Close(); err != nil {
		return wrong(err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return wrong(err)
	}
	return nil
}
