package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"planfence/cmd/planfence/internal/agenthook"
)

// starterPlan is what init writes. Its first task may write the plan itself.
const starterPlan = `{ "tasks": [
  {"id": "PM", "title": "write the plan", "scope": [".claude/plan.json"]},
  {"id": "T1", "title": "an example: rename and rescope it", "scope": ["src/", "!src/vendor/"]} ] }
`

// ignored is what git need not know.
var ignored = []string{".claude/active-task", ".claude/blocked.log*", ".claude/dispatch/"}

func newInit(e *env) *cobra.Command {
	var agents []string
	var noHooks bool
	c := &cobra.Command{
		Use:   "init",
		Short: "Write a first plan, the active-task file, .gitignore lines and hook settings",
		Long: `init prepares a project, the checkout of the working directory: a starter plan
in .claude/plan.json, an empty active-task file beside it, lines in .gitignore,
and the hook in the settings of the agents that it finds. What is there stays as
it is.`,
		Example: "  planfence init\n  planfence init --agent claude,codex",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			root, err := checkoutRoot()
			if err != nil {
				return err
			}
			return initProject(e, root, agents, noHooks)
		},
	}
	c.Flags().StringSliceVar(&agents, "agent", nil, "the `agents` to write hook settings for: "+strings.Join(agenthook.Agents, ", ")+" (default: those found here)")
	c.Flags().BoolVar(&noHooks, "no-hooks", false, "write no hook settings")
	return c
}

func initProject(e *env, root string, agents []string, noHooks bool) error {
	for _, a := range agents {
		if err := oneOf("agent", a, agenthook.Agents...); err != nil {
			return err
		}
	}
	if len(agents) == 0 {
		agents = foundAgents(e, root) // before .claude is made
	}
	planFile := filepath.Join(root, planNames[0])
	for _, n := range planNames {
		if _, err := os.Lstat(filepath.Join(root, n)); err == nil {
			planFile = filepath.Join(root, n)
			break
		}
	}
	if err := writeNew(e, planFile, starterPlan); err != nil {
		return err
	}
	if err := writeNew(e, filepath.Join(filepath.Dir(planFile), "active-task"), ""); err != nil {
		return err
	}
	if err := ignore(e, root, filepath.Dir(planFile)); err != nil {
		return err
	}
	if len(agents) > 0 && !noHooks {
		h := &hookSettings{agents: agents, scope: agenthook.Project, root: root}
		if err := h.install(e); err != nil {
			return err
		}
	} else if !noHooks {
		fmt.Fprintln(e.stderr, "planfence: no agent was found: planfence hook install --agent NAME adds the hook later")
	}
	command := "COMMAND"
	if len(agents) > 0 {
		command = map[string]string{agenthook.Cursor: "cursor-agent"}[agents[0]]
		if command == "" {
			command = agents[0]
		}
	}
	_, err := fmt.Fprintf(e.stdout, "next:\n  planfence lint\n  planfence task PM\n  sudo planfence run -- %s\n", command)
	return err
}

// writeNew writes a file that is not there yet, with the owner of its directory.
func writeNew(e *env, name, text string) error {
	if err := makeDirs(filepath.Dir(name)); err != nil {
		return fmt.Errorf("make %s: %w", filepath.Dir(name), cause(err))
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		fmt.Fprintf(e.stdout, "kept   %s\n", name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, cause(err))
	}
	own(f, filepath.Dir(name))
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	fmt.Fprintf(e.stdout, "wrote  %s\n", name)
	return nil
}

// ignore appends the lines that .gitignore lacks.
func ignore(e *env, root, dir string) error {
	name := filepath.Join(root, ".gitignore")
	old, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", name, cause(err))
	}
	has := map[string]bool{}
	for line := range strings.SplitSeq(string(old), "\n") {
		has[strings.TrimPrefix(strings.TrimSpace(line), "/")] = true
	}
	var add bytes.Buffer
	if len(old) > 0 && old[len(old)-1] != '\n' {
		add.WriteByte('\n')
	}
	missing := 0
	for _, line := range ignored {
		if dir == root {
			line = "/" + filepath.Base(line)
		}
		if !has[strings.TrimPrefix(line, "/")] {
			missing++
			add.WriteString(line + "\n")
		}
	}
	if missing == 0 {
		fmt.Fprintf(e.stdout, "kept   %s\n", name)
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, cause(err))
	}
	if old == nil {
		own(f, root)
	}
	_, err = f.Write(add.Bytes())
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	fmt.Fprintf(e.stdout, "added  %d lines to %s\n", missing, name)
	return nil
}
