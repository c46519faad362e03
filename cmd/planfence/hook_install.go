package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"planfence/cmd/planfence/internal/agenthook"
)

type hookSettings struct {
	agents   []string
	scope    string
	root     string
	dispatch bool
}

func (h *hookSettings) flags(c *cobra.Command) {
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return &exitError{code: hookFailure, err: fmt.Errorf("unknown argument %q", args[0]), hint: c.CommandPath() + " --help"}
		}
		return nil
	}
	c.Flags().StringSliceVar(&h.agents, "agent", []string{agenthook.Auto}, "the `agents`: "+strings.Join(agenthook.Agents, ", ")+"; auto takes those found here")
	c.Flags().StringVar(&h.scope, "scope", agenthook.Project, "`project` or user: whose settings")
	c.Flags().StringVar(&h.root, "root", "", "the project's root `directory` (default: the checkout of the working directory)")
}

func newHookInstall(e *env) *cobra.Command {
	h := &hookSettings{}
	c := &cobra.Command{
		Use:   "install",
		Short: "Write the hook into an agent's settings",
		Long: `install merges the hook into an agent's settings file. Other settings stay as
they are; a file that changes is kept beside it with the ending
.planfence-backup. Doing it again changes nothing.`,
		Example: "  planfence hook install --agent claude\n  planfence hook install --agent claude,codex --scope user --dispatch",
		RunE:    func(*cobra.Command, []string) error { return hookError(h.install(e)) },
	}
	h.flags(c)
	c.Flags().BoolVar(&h.dispatch, "dispatch", false, "gate the dispatch of other agents as well")
	return c
}

func newHookUninstall(e *env) *cobra.Command {
	h := &hookSettings{}
	c := &cobra.Command{
		Use:     "uninstall",
		Short:   "Take the hook out of an agent's settings",
		Example: "  planfence hook uninstall --agent claude",
		RunE:    func(*cobra.Command, []string) error { return hookError(h.uninstall(e)) },
	}
	h.flags(c)
	return c
}

// hookError gives an error the exit status of hook.
func hookError(err error) error {
	var ee *exitError
	if err == nil || errors.As(err, &ee) {
		return err
	}
	return &exitError{code: hookFailure, err: err, hint: hintOf(err)}
}

// resolve finds the agents and the root.
func (h *hookSettings) resolve(e *env) error {
	if err := oneOf("scope", h.scope, agenthook.Project, agenthook.User); err != nil {
		return err
	}
	if h.root == "" {
		root, err := checkoutRoot()
		if err != nil {
			return err
		}
		h.root = root
	}
	if h.scope == agenthook.User && !filepath.IsAbs(e.getenv("HOME")) {
		return hinted(errors.New("find the user's settings: HOME is not set"), "set HOME, or use --scope project")
	}
	if len(h.agents) == 1 && h.agents[0] == agenthook.Auto {
		if h.agents = foundAgents(e, h.root); len(h.agents) == 0 {
			return hinted(errors.New("no agent was found here"), "--agent takes %s", strings.Join(agenthook.Agents, ", "))
		}
		return nil
	}
	for _, a := range h.agents {
		if err := oneOf("agent", a, agenthook.Agents...); err != nil {
			return err
		}
	}
	return nil
}

// checkoutRoot is the root of the checkout that the working directory lies in,
// or that directory.
func checkoutRoot() (string, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	for d := cwd; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(filepath.Join(d, ".git")); err == nil {
			return d, nil
		}
		if d == "/" {
			return cwd, nil
		}
	}
}

// foundAgents lists the agents of which a program, or a settings directory of
// the project or the user, is there.
func foundAgents(e *env, root string) []string {
	signs := map[string][]string{
		agenthook.Claude:  {"claude", ".claude/settings.json", ".claude/settings.local.json", "CLAUDE.md", "~/.claude"},
		agenthook.Codex:   {"codex", ".codex", "~/.codex"},
		agenthook.Copilot: {"copilot", ".github/copilot", ".github/copilot-instructions.md", "~/.copilot"},
		agenthook.Cursor:  {"cursor-agent", ".cursor", "~/.cursor"},
		agenthook.Gemini:  {"gemini", ".gemini", "GEMINI.md", "~/.gemini"},
	}
	var out []string
	for _, a := range agenthook.Agents {
		_, err := lookPath(e, signs[a][0])
		found := err == nil
		for _, sign := range signs[a][1:] {
			path := filepath.Join(root, sign)
			if rest, ok := strings.CutPrefix(sign, "~/"); ok {
				path = filepath.Join(e.getenv("HOME"), rest)
			}
			if _, err := os.Lstat(path); err == nil {
				found = true
			}
		}
		if found {
			out = append(out, a)
		}
	}
	return out
}

func lookPath(e *env, name string) (string, error) {
	for _, dir := range filepath.SplitList(e.getenv("PATH")) {
		if p := filepath.Join(dir, name); filepath.IsAbs(p) && executable(p) == nil {
			return p, nil
		}
	}
	return "", exec.ErrNotFound
}

// command is what the settings call. A project's are shared, so that they name
// the program by its name.
func (h *hookSettings) command(agent string) string {
	name := "planfence"
	if h.scope == agenthook.User {
		if self, err := os.Executable(); err == nil && filepath.Base(self) == name && !strings.ContainsAny(self, " '\"\\$") {
			name = self
		}
	}
	s := name + " hook --agent " + agent
	if !h.dispatch {
		s += " --dispatch=off"
	}
	return s
}

func (h *hookSettings) install(e *env) error {
	if err := h.resolve(e); err != nil {
		return err
	}
	for _, a := range h.agents {
		name := agenthook.SettingsFile(a, h.scope, h.root, e.getenv("HOME"), e.getenv)
		old, err := readSettings(name)
		if err != nil {
			return err
		}
		b, err := agenthook.Install(old, a, h.command(a))
		if err != nil {
			return hinted(fmt.Errorf("read the settings %s: %w", name, err), "mend the file, then install again; nothing was changed")
		}
		if old != nil && string(b) == string(old) {
			fmt.Fprintf(e.stdout, "%s\t%s\tas it was\n", a, name)
			continue
		}
		if err := writeSettings(name, old, b); err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "%s\t%s\tinstalled\n", a, name)
		if a == agenthook.Codex {
			fmt.Fprintln(e.stderr, "planfence: Codex runs a new hook only after it is trusted: /hooks in Codex")
		}
	}
	return nil
}

func (h *hookSettings) uninstall(e *env) error {
	if err := h.resolve(e); err != nil {
		return err
	}
	for _, a := range h.agents {
		name := agenthook.SettingsFile(a, h.scope, h.root, e.getenv("HOME"), e.getenv)
		old, err := readSettings(name)
		if err != nil {
			return err
		}
		b, err := agenthook.Uninstall(old, a)
		if err != nil {
			return hinted(fmt.Errorf("read the settings %s: %w", name, err), "mend the file first; nothing was changed")
		}
		switch {
		case old == nil || string(b) == string(old):
			fmt.Fprintf(e.stdout, "%s\t%s\tnot installed\n", a, name)
			continue
		case b == nil:
			if err := os.Remove(name); err != nil {
				return fmt.Errorf("remove the settings: %w", err)
			}
		default:
			if err := writeSettings(name, old, b); err != nil {
				return err
			}
		}
		fmt.Fprintf(e.stdout, "%s\t%s\tuninstalled\n", a, name)
	}
	return nil
}

// readSettings reads a settings file; nil where there is none.
func readSettings(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", err)
	}
	if b == nil {
		b = []byte{}
	}
	return b, nil
}

// writeSettings keeps the old file, if there is one, under a name that is free,
// and writes the new one.
func writeSettings(name string, old, b []byte) error {
	wrong := func(err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return hinted(fmt.Errorf("write the settings %s: %w", name, cause(err)), "settings that name hooks cannot be written inside a fence: run it outside")
		}
		return fmt.Errorf("write the settings %s: %w", name, err)
	}
	if err := makeDirs(filepath.Dir(name)); err != nil {
		return wrong(err)
	}
	mode := fs.FileMode(0o644)
	if old != nil {
		if st, err := os.Stat(name); err == nil {
			mode = st.Mode().Perm()
		}
		if err := backUp(name, old, mode); err != nil {
			return wrong(err)
		}
	}
	if err := replaceFile(name, b, mode); err != nil {
		return wrong(err)
	}
	return nil
}

func backUp(name string, old []byte, mode fs.FileMode) error {
	for i := range 1000 {
		to := name + ".planfence-backup"
		if i > 0 {
			to = fmt.Sprintf("%s.%d", to, i)
		}
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		own(f, filepath.Dir(name))
		_, err = f.Write(old)
		return errors.Join(err, f.Close())
	}
	return fmt.Errorf("%s.planfence-backup: too many backups", name)
}

// makeDirs makes a directory and those above it, with the owner of the first
// that is there: init under sudo leaves nothing that the user cannot change.
func makeDirs(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := makeDirs(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	own(f, filepath.Dir(dir))
	return f.Close()
}
