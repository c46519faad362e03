package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"planfence/cmd/planfence/internal/blocklog"
)

// Text renders the report for people. colour paints the verdict.
func (r *Report) Text(w io.Writer, colour bool) error {
	p := &printer{w: w}
	verdict := strings.ToUpper(string(r.Verdict))
	if colour {
		verdict = "\x1b[1;" + map[Verdict]string{OK: "32", Warn: "33", Block: "31", Indeterminate: "35"}[r.Verdict] + "m" + verdict + "\x1b[0m"
	}
	p.line("%s  %s", verdict, r.Headline())
	for _, f := range r.Findings {
		p.line("  %-13s  %s", f.Verdict, clean(f.Text))
	}
	p.line("")
	p.table(2, func(row func(...any)) {
		row("log", clean(r.Log))
		if !r.From.IsZero() {
			row("time", fmt.Sprintf("%s to %s, %s in %s", clock(r.From), clock(r.To), r.Elapsed, count(uint64(len(r.Sessions)), "session", "sessions")))
		}
		row("unfenced", r.UnfencedText())
		row("refused", fmt.Sprintf("%d, lost records %d", r.Blocks, r.Lost))
		if r.Would > 0 {
			row("would refuse", r.Would)
		}
		if r.Hooked > 0 {
			row("by the hook", fmt.Sprintf("%d, before the kernel was asked", r.Hooked))
		}
	})
	if len(r.Tasks) > 0 {
		p.line("\nTASKS")
		p.table(2, func(row func(...any)) {
			row("task", "elapsed", "refused", "would", "commits", "title")
			for _, t := range r.Tasks {
				row(none(t.ID), t.Elapsed, t.Blocks, t.Would, t.Commits, clean(t.Title))
			}
		})
	}
	if len(r.Totals) > 0 {
		p.line("\nREFUSALS")
		p.table(2, func(row func(...any)) {
			row("task", "op", "reason", "verdict", "count")
			for _, t := range r.Totals {
				row(none(t.Task), clean(t.Op), clean(t.Reason), clean(t.Verdict), t.Count)
			}
		})
		p.line("\nPATHS REFUSED MOST")
		p.table(2, func(row func(...any)) {
			row("count", "owner", "path", "reason", "by")
			for i, x := range r.Paths {
				if i == textPaths {
					break
				}
				row(x.Count+x.Would, none(strings.Join(x.Owners, ",")), x.Text(), strings.Join(cleanAll(x.Reasons), ","), strings.Join(cleanAll(x.Comms), ","))
			}
		})
		if n := len(r.Paths) + r.Truncated - textPaths; n > 0 {
			p.line("  and %s", count(uint64(n), "path more", "paths more"))
		}
	}
	r.textGit(p)
	if len(r.Sessions) > 0 {
		p.line("\nSESSIONS")
		p.table(2, func(row func(...any)) {
			row("session", "state", "start", "elapsed", "refused", "lost", "command")
			for _, s := range r.Sessions {
				row(clean(s.Name), s.StateText(), clock(s.Start), s.Elapsed, s.Blocks+s.Would, s.Lost, clean(strings.Join(s.Command, " ")))
			}
		})
	}
	return p.err
}

// textPaths is how many paths the text shows.
const textPaths = 20

func (r *Report) textGit(p *printer) {
	if r.Git == nil {
		return
	}
	if len(r.Git.Commits) > 0 {
		p.line("\nCOMMITS")
		p.table(2, func(row func(...any)) {
			row("commit", "task", "files", "outside", "subject")
			for _, c := range r.Git.Commits {
				row(c.Short(), none(c.Task), c.Files, len(c.Outside), clean(c.Subject))
			}
		})
	}
	var out []*Change
	for i := range r.Git.Changes {
		if c := &r.Git.Changes[i]; c.Outside() {
			out = append(out, c)
		}
	}
	if len(r.Git.Changes) > 0 {
		p.line("\nGIT STATUS: %s, %d of them outside every scope", count(uint64(len(r.Git.Changes)), "path", "paths"), len(out))
	}
	if len(out) > 0 {
		p.table(2, func(row func(...any)) {
			row("status", "changed", "while", "refusals", "path")
			for _, c := range out {
				when := "not known"
				if !c.When.IsZero() {
					when = clock(c.When)
				}
				row(clean(c.Status), when, none(c.During), c.Blocks, clean(c.Rel))
			}
		})
	}
}

// Headline is the verdict in one sentence.
func (r *Report) Headline() string {
	switch r.Verdict {
	case OK:
		return "nothing was refused, nothing was lost, the fence held throughout"
	case Warn:
		return "nothing was refused, but there is something to look at"
	case Block:
		if r.Blocks == 0 {
			return "something changed outside every scope"
		}
		return fmt.Sprintf("%s refused", count(r.Blocks, "operation was", "operations were"))
	}
	return "the log does not prove what happened"
}

// UnfencedText is the time without a fence, for people.
func (r *Report) UnfencedText() string {
	if r.Unfenced == nil {
		return "not known"
	}
	return r.Unfenced.String()
}

// StateText is a session's state, for people.
func (s *Session) StateText() string {
	if s.State == "ended" && s.Exit != nil {
		return fmt.Sprintf("exit %d", *s.Exit)
	}
	return s.State
}

// Text is the path for people: relative to the root where it lies inside.
func (p *Path) Text() string {
	if p.Rel != "" {
		return clean(p.Rel)
	}
	return clean(p.Path)
}

// Short is the first digits of a commit's name.
func (c *Commit) Short() string { return clean(c.Hash[:min(len(c.Hash), 10)]) }

// JSON renders the report for programs.
func (r *Report) JSON(w io.Writer) error { return writeJSON(w, r) }

func writeJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	_, err = w.Write(append(blocklog.EscapeJSON(b), '\n'))
	return err
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// table prints aligned rows.
func (p *printer) table(indent int, f func(row func(cells ...any))) {
	t := tabwriter.NewWriter(p.w, 0, 8, 2, ' ', 0)
	f(func(cells ...any) {
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = fmt.Sprint(c)
		}
		fmt.Fprintf(t, "%s%s\n", strings.Repeat(" ", indent), strings.TrimRight(strings.Join(texts, "\t"), "\t "))
	})
	if err := t.Flush(); p.err == nil {
		p.err = err
	}
}

// clean makes a name safe for a terminal and for a line.
func clean(s string) string { return blocklog.Printable(s) }

func cleanAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = clean(s)
	}
	return out
}

func none(s string) string {
	if s == "" {
		return "none"
	}
	return clean(s)
}

func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }
