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
disk, links, ambiguous wildcards.

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
	pl, err := companion.ReadPlan(p.plan, p.root)
	if err != nil {
		return err
	}
	opts := plan.LintOptions{Root: os.DirFS(p.root), Tracked: tracked(p.root), Mounts: mountsBelow(p.root)}
	if rel, ok := strings.CutPrefix(p.plan, p.root+"/"); ok {
		opts.Plan = rel
	}
	findings := pl.Lint(opts)
	count := map[plan.Severity]int{}
	shown := p.plan
	if cwd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(cwd, p.plan); err == nil && !strings.HasPrefix(rel, "..") {
			shown = rel
		}
	}
	all := []lintFinding{}
	for _, x := range findings {
		count[x.Severity]++
		all = append(all, lintFinding{shown, x.Pos.Line, x.Pos.Column, string(x.Severity), x.Code, x.Task, x.Entry, x.Other, x.Message, x.Example, x.Hint})
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
			fmt.Fprintf(e.stdout, "%s:%d:%d: %s: %s [%s]\n", shown, x.Line, x.Column, x.Severity, blocklog.Printable(x.Message), x.Code)
			if x.Hint != "" {
				fmt.Fprintf(e.stdout, "    hint: %s\n", blocklog.Printable(x.Hint))
			}
		}
		fmt.Fprintf(e.stderr, "%s: %s, %s, %s\n", shown, plural(len(pl.Tasks), "task"),
			plural(count[plan.SeverityError], "error"), plural(count[plan.SeverityWarning], "warning"))
	}
	if count[plan.SeverityError] > 0 || f.strict && count[plan.SeverityWarning] > 0 {
		return &exitError{code: 1}
	}
	return nil
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
		text += "; " + x.Hint
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
		if rel, ok := strings.CutPrefix(p, root+"/"); ok {
			out = append(out, rel)
		}
	}
	return out
}
