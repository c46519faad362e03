package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/companion"
	"planfence/cmd/planfence/internal/report"
	"planfence/plan"
)

type reportFlags struct {
	projectFlags
	log, since, format, output string
	sessions                   []string
	git                        bool
}

// formats of a report.
var formats = []string{"text", "json", "junit", "sarif", "github", "html"}

func newReport(e *env) *cobra.Command {
	f := &reportFlags{}
	c := &cobra.Command{
		Use:   "report [flags]",
		Short: "Measure a run: time, refusals, commits, and what git shows beside the log",
		Long: `report reads the block log, the plan and git, and says what the run came to:
time and refusals per task, the paths that were refused most and whose they
are, commits, lost records, time without a fence, and changes outside every
scope that git shows.

The verdict is also the exit status:

  ok             0  nothing was refused, lost or changed outside every scope
  warn           0  nothing was refused, but there is something to look at
  block          1  something was refused, or changed outside every scope
  indeterminate  3  the log does not prove what happened: records are lost, the
                    log is missing, the fence may not have held throughout

2 is report's own error. All sessions of the log count; --session last takes the
last one. The format github prints annotations, and adds a summary to the file
that $GITHUB_STEP_SUMMARY names.`,
		Example: `  planfence report
  planfence report --session last --format html --output report.html
  planfence report --since 8h --format sarif > planfence.sarif`,
		RunE: func(*cobra.Command, []string) error {
			err := f.run(e)
			var ee *exitError
			if err != nil && !errors.As(err, &ee) {
				err = &exitError{code: 2, err: err, hint: hintOf(err)}
			}
			return err
		},
	}
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return &exitError{code: 2, err: fmt.Errorf("unknown argument %q of report", args[0]), hint: "the log's file goes behind --log"}
		}
		return nil
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &exitError{code: 2, err: err, hint: "planfence report --help lists what there is"}
	})
	fl := c.Flags()
	fl.StringVar(&f.plan, "plan", "", "the plan `file`")
	fl.StringVar(&f.root, "root", "", "the project's root `directory`")
	fl.StringVar(&f.log, "log", "", "the block log's `file` (default: blocked.log beside the plan)")
	fl.StringSliceVar(&f.sessions, "session", nil, "only these `sessions`; last is the last one")
	fl.StringVar(&f.since, "since", "", "only what was after this `time`: RFC 3339, or a duration such as 8h")
	fl.StringVar(&f.format, "format", "text", "`text`, json, junit, sarif, github or html")
	fl.StringVarP(&f.output, "output", "o", "", "write to this `file`, not to stdout")
	fl.BoolVar(&f.git, "git", true, "ask git for commits and changes")
	return c
}

func (f *reportFlags) run(e *env) error {
	if err := oneOf("format", f.format, formats...); err != nil {
		return err
	}
	since, err := parseWhen("since", f.since)
	if err != nil {
		return err
	}
	r, err := f.build(since)
	if err != nil {
		return err
	}
	if err := f.write(e, r); err != nil {
		return err
	}
	if code := r.Verdict.Exit(); code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// build reads log, plan and git. A plan or a checkout that is not there makes a
// poorer report, a log that is not there an indeterminate one.
func (f *reportFlags) build(since time.Time) (*report.Report, error) {
	in := report.Input{Version: version, Now: time.Now(), Since: since, Sessions: f.sessions, Log: f.log, Alive: companion.Alive}
	p, err := f.find()
	if err != nil && (f.log == "" || f.plan != "") {
		return nil, err
	}
	var pl *plan.Plan
	if p != nil {
		if in.Log == "" {
			in.Log = p.log
		}
		if p.log, err = filepath.Abs(in.Log); err != nil {
			return nil, fmt.Errorf("find the log: %w", err)
		}
		in.Plan = p.plan
		if pl, err = companion.ReadPlan(p.plan, p.root); err != nil {
			return nil, err
		}
		in.Owners = func(rel string) []string { return pl.Owners(rel, "") }
		in.Titles = map[string]string{}
		for _, t := range pl.Tasks {
			in.Titles[t.ID] = t.Title
		}
	}
	if len(f.sessions) == 1 && f.sessions[0] == "last" {
		last := ""
		_, err := blocklog.ReadAll(in.Log, func(r *blocklog.Record) {
			if r.Kind == "session-start" || last == "" && r.Kind != "hook" {
				last = r.Session
			}
		})
		if err == nil && last != "" {
			in.Sessions = []string{last}
		}
	}
	b := report.NewBuilder(in)
	var allowed []string
	in.BadLines, in.Missing = blocklog.ReadAll(in.Log, func(r *blocklog.Record) {
		if r.Kind == "session-start" {
			allowed = append(allowed, r.Allow...)
		}
		b.Add(r)
	})
	if errors.Is(in.Missing, fs.ErrNotExist) {
		in.Missing = fs.ErrNotExist
	}
	if p != nil && f.git {
		from, to := b.Span()
		if in.Git, err = askGit(p, pl, allowed, from, to); err != nil {
			return nil, err
		}
	}
	return b.Finish(in), nil
}

func (f *reportFlags) write(e *env, r *report.Report) (err error) {
	var w io.Writer = e.stdout
	colour := false
	if f.output != "" {
		out, err := os.OpenFile(f.output, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o644)
		if err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		defer func() { err = errors.Join(err, out.Close()) }()
		w = out
	} else if out, ok := e.stdout.(*os.File); ok {
		colour = terminal(out) && e.getenv("NO_COLOR") == ""
	}
	switch f.format {
	case "json":
		return r.JSON(w)
	case "junit":
		return r.JUnit(w)
	case "sarif":
		return r.SARIF(w)
	case "html":
		return r.HTML(w)
	case "github":
		if err := r.GitHub(w); err != nil {
			return err
		}
		return summary(r, e.getenv("GITHUB_STEP_SUMMARY"))
	}
	var b strings.Builder
	if err := r.Text(&b, colour); err != nil {
		return err
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// summary appends the report to a job's summary, where there is one.
func summary(r *report.Report, path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return fmt.Errorf("add to the job's summary: %w", err)
	}
	return errors.Join(r.Markdown(f), f.Close())
}
