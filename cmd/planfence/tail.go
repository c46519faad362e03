package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/plan"
)

type tailFlags struct {
	projectFlags
	follow, asJSON, stats bool
	lines                 int
	session, op, reason   []string
	tasks                 []string
	path, since, until    string
	pattern               *plan.Entry
	from, to              time.Time
	colour                bool
	lastTask, lastSession string
	headed                bool
}

func newTail(e *env) *cobra.Command {
	f := &tailFlags{}
	c := &cobra.Command{
		Use:   "tail [flags] [LOG]",
		Short: "Print the block stream for people, or as JSON",
		Long: `tail prints the last records of the block log (also of rotated and gzipped
ones), and with -f goes on as they come, through rotation. LOG defaults to
blocked.log beside the plan. --stats counts instead: a table that is kept up to
date until q or Ctrl-C.`,
		Example: `  planfence tail -f
  planfence tail --task T2 --path 'src/**' --since 1h
  planfence tail --stats --since 1h
  planfence tail -n 0 -f --json | jq .path`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.run(e, args) },
	}
	fl := c.Flags()
	fl.StringVar(&f.plan, "plan", "", "the plan `file` that the log lies beside")
	fl.StringVar(&f.root, "root", "", "the project's root `directory`")
	fl.BoolVarP(&f.follow, "follow", "f", false, "go on as records come")
	fl.IntVarP(&f.lines, "lines", "n", 20, "how `many` of the last records to print, -1 for all")
	fl.BoolVar(&f.stats, "stats", false, "show a live table of refusals by task, operation and path")
	fl.BoolVar(&f.asJSON, "json", false, "print the records as they are")
	fl.StringSliceVar(&f.session, "session", nil, "only these `sessions`")
	fl.StringSliceVar(&f.tasks, "task", nil, "only these `tasks`")
	fl.StringSliceVar(&f.op, "op", nil, "only these `operations`")
	fl.StringSliceVar(&f.reason, "reason", nil, "only these `reasons`")
	fl.StringVar(&f.path, "path", "", "only paths that this scope `pattern` covers, relative to the root")
	fl.StringVar(&f.since, "since", "", "only after this `time`: RFC 3339, or a duration such as 10m")
	fl.StringVar(&f.until, "until", "", "only before this `time`")
	return c
}

func parseWhen(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return time.Now().Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, hinted(fmt.Errorf("--%s %s: no time", flag, s), "--%s takes a duration such as 10m, or a time such as 2026-01-31T12:00:00Z", flag)
	}
	return t, nil
}

func (f *tailFlags) run(e *env, args []string) error {
	var log string
	if len(args) > 0 {
		log = args[0]
	} else {
		p, err := f.find()
		if err != nil {
			return err
		}
		log = p.log
	}
	var err error
	if f.from, err = parseWhen("since", f.since); err != nil {
		return err
	}
	if f.to, err = parseWhen("until", f.until); err != nil {
		return err
	}
	if f.path != "" {
		en, err := plan.ParseEntry(f.path, plan.ParseOptions{})
		if err != nil {
			return err
		}
		f.pattern = &en
	}
	out, isFile := e.stdout.(*os.File)
	f.colour = isFile && terminal(out) && e.getenv("NO_COLOR") == ""

	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if f.stats {
		return showStats(ctx, e, log, f)
	}
	if f.follow {
		var last lastRecords
		caught := false
		blocklog.Follow(ctx, log, func(r *blocklog.Record) {
			switch {
			case !f.wants(r):
			case caught:
				f.print(e, r)
			default:
				last.add(r, f.lines)
			}
		}, func(bad int) {
			caught = true
			f.printLast(e, last, log, bad)
		})
		return nil
	}
	var last lastRecords
	bad, err := blocklog.ReadAll(log, func(r *blocklog.Record) {
		if f.wants(r) {
			last.add(r, f.lines)
		}
	})
	if err != nil {
		return hinted(err, "no session has run yet, or it logged elsewhere: planfence tail FILE; journalctl -t planfence reads the journal")
	}
	f.printLast(e, last, log, bad)
	return nil
}

// lastRecords keeps the last ones; -1 for all.
type lastRecords struct{ list []*blocklog.Record }

func (l *lastRecords) add(r *blocklog.Record, lines int) {
	if lines == 0 {
		return
	}
	l.list = append(l.list, r)
	if lines > 0 && len(l.list) >= 2*lines { // not one by one: the list would be moved for each
		l.list = append(l.list[:0], l.list[len(l.list)-lines:]...)
	}
}

func (f *tailFlags) printLast(e *env, l lastRecords, log string, bad int) {
	if f.lines >= 0 && len(l.list) > f.lines {
		l.list = l.list[len(l.list)-f.lines:]
	}
	for _, r := range l.list {
		f.print(e, r)
	}
	if bad > 0 {
		fmt.Fprintf(e.stderr, "planfence: %s: %d lines are no records\n", filepath.Base(log), bad)
	}
}

func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func listed(list []string, s string) bool {
	if len(list) == 0 {
		return true
	}
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (f *tailFlags) wants(r *blocklog.Record) bool {
	if !listed(f.session, r.Session) || !listed(f.tasks, r.Task) {
		return false
	}
	blocks := len(f.op) > 0 || len(f.reason) > 0 || f.pattern != nil
	if blocks && r.Kind != "block" || !listed(f.op, r.Op) && r.Kind == "block" || !listed(f.reason, r.Reason) && r.Kind == "block" {
		return false
	}
	if f.pattern != nil && f.pattern.Match(r.Rel, false) != plan.Accept && f.pattern.Match(r.Rel2, false) != plan.Accept {
		return false
	}
	if !f.from.IsZero() || !f.to.IsZero() {
		t, err := time.Parse(time.RFC3339Nano, r.Time)
		if err != nil || !f.from.IsZero() && t.Before(f.from) || !f.to.IsZero() && t.After(f.to) {
			return false
		}
	}
	return true
}

func (f *tailFlags) paint(code, s string) string {
	if !f.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (f *tailFlags) print(e *env, r *blocklog.Record) {
	if f.asJSON {
		if b, err := r.Marshal(); err == nil {
			_, _ = e.stdout.Write(b)
		}
		return
	}
	if r.Session != f.lastSession || r.Task != f.lastTask || !f.headed {
		f.headed, f.lastSession, f.lastTask = true, r.Session, r.Task
		fmt.Fprintln(e.stdout, f.paint("1", blocklog.Printable(fmt.Sprintf("-- session %s, task %s", r.Session, orNone(r.Task)))))
	}
	clock := blocklog.Printable(r.Time)
	if t, err := time.Parse(time.RFC3339Nano, r.Time); err == nil {
		clock = t.Local().Format("15:04:05.000")
	}
	if r.Kind != "block" {
		fmt.Fprintf(e.stdout, "%s  %s\n", clock, f.paint("2", strings.TrimSpace(blocklog.Printable(r.Kind)+" "+noteText(r))))
		return
	}
	code := "31" // red
	if r.Verdict == "would-block" {
		code = "33" // yellow
	}
	path := r.Rel
	if path == "" {
		path = r.Path
	}
	text := blocklog.Printable(path)
	if r.Path2 != "" {
		to := r.Rel2
		if to == "" {
			to = r.Path2
		}
		text += " -> " + blocklog.Printable(to)
	}
	tail := fmt.Sprintf("%s[%d]", blocklog.Printable(r.Comm), r.PID)
	if len(r.Owner) > 0 {
		tail += "  owner " + blocklog.Printable(strings.Join(r.Owner, ","))
	}
	if r.Count > 1 {
		tail += fmt.Sprintf("  x%d", r.Count)
	}
	if r.Via != "" {
		tail += "  via " + blocklog.Printable(r.Via)
	}
	fmt.Fprintf(e.stdout, "%s  %s %-12s %-40s %s\n", clock, f.paint(code, fmt.Sprintf("%-11s", blocklog.Printable(r.Op))), blocklog.Printable(r.Reason), text, f.paint("2", tail))
}

// noteText says what a record that is no block tells.
func noteText(r *blocklog.Record) string {
	switch r.Kind {
	case "session-start":
		return fmt.Sprintf("%s (root %s, mode %s, attach %s, user %s)", blocklog.Printable(strings.Join(r.Command, " ")), blocklog.Printable(r.Root), blocklog.Printable(r.Mode), blocklog.Printable(r.Attach), blocklog.Printable(r.User))
	case "session-end":
		s := fmt.Sprintf("%d blocks", r.Blocks)
		if r.Exit != nil {
			s += fmt.Sprintf(", exit status %d", *r.Exit)
		}
		if r.Lost > 0 {
			s += fmt.Sprintf(", %d records lost", r.Lost)
		}
		if r.Misses > 0 {
			s += fmt.Sprintf(", %d runs of programs skipped", r.Misses)
		}
		return s
	}
	return blocklog.Printable(r.Message)
}
