package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/companion"
	"planfence/plan"
)

type lintFlags struct {
	projectFlags
	strict, asJSON bool
	format         string
}

func newLint(e *env) *cobra.Command {
	f := &lintFlags{}
	c := &cobra.Command{
		Use:   "lint [PLAN]",
		Short: "Find overlaps between tasks and entries that may not mean what they say",
		Long: `lint looks at a plan: every pair of tasks that cover a common path (with an
example), entries that are shadowed, emptied by exclusions or match nothing on
disk, links, ambiguous wildcards. What makes the file no plan is found as well.

The exit status is 1 if there are errors; with --strict also for warnings.`,
		Example: "  planfence lint\n  planfence lint --strict --format github plan.json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				f.plan = args[0]
			}
			return f.run(e)
		},
	}
	c.Flags().StringVar(&f.plan, "plan", "", "the plan `file`")
	c.Flags().StringVar(&f.root, "root", "", "the project's root `directory`")
	c.Flags().BoolVar(&f.strict, "strict", false, "fail on warnings, too")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON, the same as --format json")
	c.Flags().StringVar(&f.format, "format", "text", "`text`, json or github (annotations of a workflow)")
	return c
}

// lintFinding is a finding as lint prints it in JSON.
type lintFinding struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Severity string `json:"severity"`
	Code     string `json:"code"`
	Task     string `json:"task,omitempty"`
	Entry    string `json:"entry,omitempty"`
	Other    string `json:"other,omitempty"`
	Message  string `json:"message"`
	Example  string `json:"example,omitempty"`
	Hint     string `json:"hint,omitempty"`
}

func (f *lintFlags) run(e *env) error {
	if f.asJSON {
		f.format = "json"
	}
	if err := oneOf("format", f.format, "text", "json", "github"); err != nil {
		return err
	}
	p, err := f.find()
	if err != nil {
		return err
	}
	shown := shortPath(p.plan)
	if dir := e.getenv("GITHUB_WORKSPACE"); dir != "" && f.format == "github" {
		shown = pathFrom(dir, p.plan) // annotations name files from there
	}
	all := []lintFinding{}
	count := map[string]int{}
	about := ""
	pl, err := companion.ReadPlan(p.plan, p.root)
	if problems := plan.Errors(err); problems != nil {
		for _, x := range problems {
			all = append(all, lintFinding{File: shown, Line: x.Pos.Line, Column: x.Pos.Column, Severity: string(plan.SeverityError),
				Code: codeInvalid, Message: x.Msg, Hint: x.Hint})
		}
		about = "not a plan, "
	} else if err != nil {
		return err
	} else {
		opts := plan.LintOptions{Root: os.DirFS(p.root), Tracked: tracked(p.root), Mounts: mountsBelow(p.root)}
		if rel, ok := strings.CutPrefix(p.plan, strings.TrimSuffix(p.root, "/")+"/"); ok {
			opts.Plan = rel
		}
		for _, x := range pl.Lint(opts) {
			all = append(all, lintFinding{shown, x.Pos.Line, x.Pos.Column, string(x.Severity), x.Code, x.Task, x.Entry, x.Other, x.Message, x.Example, x.Hint})
		}
		about = plural(len(pl.Tasks), "task") + ", "
	}
	for _, x := range all {
		count[x.Severity]++
	}
	switch f.format {
	case "json":
		enc := json.NewEncoder(e.stdout)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		if err := enc.Encode(all); err != nil {
			return err
		}
	case "github":
		for _, x := range all {
			fmt.Fprintln(e.stdout, x.annotation())
		}
	default:
		for _, x := range all {
			fmt.Fprintf(e.stdout, "%s:%d:%d: %s: %s [%s]\n", blocklog.Printable(shown), x.Line, x.Column, x.Severity, blocklog.Printable(x.Message), x.Code)
			if x.Hint != "" {
				fmt.Fprintf(e.stdout, "    hint: %s\n", blocklog.Printable(x.Hint))
			}
		}
		notes := ""
		if n := count[string(plan.SeverityNote)]; n > 0 {
			notes = ", " + plural(n, "note")
		}
		fmt.Fprintf(e.stderr, "%s: %s%s, %s%s\n", blocklog.Printable(shown), about,
			plural(count[string(plan.SeverityError)], "error"), plural(count[string(plan.SeverityWarning)], "warning"), notes)
	}
	if count[string(plan.SeverityError)] > 0 || f.strict && count[string(plan.SeverityWarning)] > 0 {
		return &exitError{code: 1}
	}
	return nil
}

// codeInvalid is the code of what makes a file no plan.
const codeInvalid = "invalid"

// shortPath is an absolute path as seen from the working directory, where that
// lies above it.
func shortPath(path string) string {
	cwd, err := os.Getwd()
	if err != nil {
		return path
	}
	return pathFrom(cwd, path)
}

// pathFrom is a resolved path relative to a directory, where that lies above it.
func pathFrom(dir, path string) string {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return path
	}
	if rel, err := filepath.Rel(dir, path); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
		return rel
	}
	return path
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// annotation renders a finding as a workflow command of GitHub Actions.
func (x *lintFinding) annotation() string {
	level := map[string]string{"error": "error", "warning": "warning"}[x.Severity]
	if level == "" {
		level = "notice"
	}
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	prop := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	text := x.Message
	if x.Hint != "" {
		text += "\nhint: " + x.Hint
	}
	return fmt.Sprintf("::%s file=%s,line=%d,col=%d,title=%s::%s", level, prop.Replace(x.File), x.Line, x.Column, prop.Replace("planfence "+x.Code), data.Replace(text))
}

// tracked lists the files under version control; nil if git does not tell.
// git runs as the owner of the root: as root it would refuse another's checkout.
func tracked(root string) []string {
	cmd := exec.Command("git", "-C", root, "ls-files", "-z")
	if os.Geteuid() == 0 {
		if st, err := os.Stat(root); err == nil {
			if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Uid != 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: sys.Uid, Gid: sys.Gid}}
			}
		}
	}
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	files := []string{}
	for _, f := range strings.Split(string(out), "\x00") {
		if f != "" {
			files = append(files, f)
		}
	}
	return files
}

// mountsBelow lists the mount points below the root, relative to it.
func mountsBelow(root string) []string {
	points, err := companion.MountPoints()
	if err != nil {
		return nil
	}
	var out []string
	for _, p := range points {
		if rel, ok := strings.CutPrefix(p, strings.TrimSuffix(root, "/")+"/"); ok && rel != "" {
			out = append(out, rel)
		}
	}
	return out
}
