package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/companion"
	"planfence/cmd/planfence/internal/coordaudit"
)

type auditFlags struct {
	projectFlags
	ledger, mode, session, log, format string
	fromLog, showLedger                bool
}

func newAudit(e *env) *cobra.Command {
	f := &auditFlags{}
	c := &cobra.Command{
		Use:   "audit",
		Short: "Judge the last turn of a coordinator by its ledger",
		Long: `audit reads a ledger of a coordinator's turns, JSON Lines, and judges the last
one that can be read:

  wrote-without-dispatch  write tools were used and no task was called
  dispatch-drift          no task call in the last three turns, and not in mode Direct
  inline-hallucination    an artifact is declared in mode Direct, but nothing was written

--from-log builds the ledger from the block log: a coordinator is a task with
the scope []. It only reads.

The exit status is 0 in mode warn; in mode block it is 1 where a criterion is
met or the ledger cannot be judged; 2 is audit's own error.`,
		Example: `  planfence audit --ledger .claude/coordinator.jsonl
  planfence audit --from-log --mode block`,
		RunE: func(*cobra.Command, []string) error { return f.run(e) },
	}
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return &exitError{code: 2, err: fmt.Errorf("unknown argument %q of audit", args[0]), hint: "the ledger's file goes behind --ledger"}
		}
		return nil
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &exitError{code: 2, err: err, hint: "planfence audit --help lists what there is"}
	})
	fl := c.Flags()
	fl.StringVar(&f.ledger, "ledger", "", "the ledger's `file`")
	fl.StringVar(&f.mode, "mode", coordaudit.ModeWarn, "`warn` reports, block also fails, off judges nothing")
	fl.StringVar(&f.session, "session", "", "the ledger's `session` to judge (default: that of the last turn)")
	fl.BoolVar(&f.fromLog, "from-log", false, "build the ledger from the block log")
	fl.StringVar(&f.log, "log", "", "the block log's `file` for --from-log (default: blocked.log beside the plan)")
	fl.BoolVar(&f.showLedger, "show-ledger", false, "with --from-log: print the ledger that is built, and judge nothing")
	fl.StringVar(&f.format, "format", "json", "`json` or text")
	fl.StringVar(&f.plan, "plan", "", "the plan `file`, for --from-log")
	fl.StringVar(&f.root, "root", "", "the project's root `directory`, for --from-log")
	return c
}

func (f *auditFlags) run(e *env) error {
	r, l, err := f.judge()
	if err != nil {
		r = coordaudit.Failed(err)
	}
	if f.showLedger && err == nil {
		for _, t := range l.Turns {
			if err := json.NewEncoder(e.stdout).Encode(t); err != nil {
				return &exitError{code: 2, err: err}
			}
		}
		return nil
	}
	if f.fromLog {
		r.Flags = append(r.Flags, coordaudit.FlagFromLog)
	}
	if werr := f.print(e, r); werr != nil {
		return &exitError{code: 2, err: fmt.Errorf("print the verdict: %w", werr)}
	}
	if err != nil {
		return &exitError{code: 2, err: err, hint: hintOf(err)}
	}
	if code := r.Exit(f.mode); code != 0 {
		return &exitError{code: code}
	}
	return nil
}

func (f *auditFlags) judge() (*coordaudit.Result, *coordaudit.Ledger, error) {
	err := errors.Join(oneOf("mode", f.mode, coordaudit.ModeWarn, coordaudit.ModeBlock, coordaudit.ModeOff), oneOf("format", f.format, "json", "text"))
	switch {
	case err != nil:
		return nil, nil, err
	case (f.ledger == "") == !f.fromLog:
		return nil, nil, hinted(errors.New("either --ledger FILE or --from-log is needed"), "planfence audit --help")
	case f.showLedger && !f.fromLog:
		return nil, nil, hinted(errors.New("--show-ledger goes with --from-log"), "planfence audit --from-log --show-ledger")
	case f.mode == coordaudit.ModeOff && !f.showLedger:
		return coordaudit.Judge(nil, f.mode), nil, nil
	}
	if f.fromLog {
		return f.judgeLog()
	}
	b, err := os.ReadFile(f.ledger)
	if errors.Is(err, fs.ErrNotExist) {
		return coordaudit.Unusable(coordaudit.FlagMissing, "there is no "+f.ledger), nil, nil
	}
	if err != nil {
		return coordaudit.Unusable(coordaudit.FlagUnusable, fmt.Sprintf("read %s: %v", f.ledger, cause(err))), nil, nil
	}
	l := coordaudit.ReadLedger(b, f.session)
	return coordaudit.Judge(l, f.mode), l, nil
}

func (f *auditFlags) judgeLog() (*coordaudit.Result, *coordaudit.Ledger, error) {
	p, err := f.find()
	if err != nil {
		return nil, nil, err
	}
	pl, err := companion.ReadPlan(p.plan, p.root)
	if err != nil {
		return nil, nil, err
	}
	log := f.log
	if log == "" {
		log = p.log
	}
	var records []*blocklog.Record
	bad, err := blocklog.ReadAll(log, func(r *blocklog.Record) { records = append(records, r) })
	if errors.Is(err, fs.ErrNotExist) {
		return coordaudit.Unusable(coordaudit.FlagMissing, "there is no "+log), &coordaudit.Ledger{}, nil
	}
	if err != nil {
		return coordaudit.Unusable(coordaudit.FlagUnusable, fmt.Sprintf("read %s: %v", log, cause(err))), &coordaudit.Ledger{}, nil
	}
	l := coordaudit.FromLog(records, func(id string) bool {
		t := pl.Task(id)
		return t != nil && len(t.Scope) == 0
	})
	l.Malformed, l.Other = bad, len(records)
	return coordaudit.Judge(l, f.mode), l, nil
}

func (f *auditFlags) print(e *env, r *coordaudit.Result) error {
	if f.format != "text" {
		enc := json.NewEncoder(e.stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	_, err := fmt.Fprintf(e.stdout, "verdict\t%s\n", r.Verdict)
	for _, c := range r.Triggered {
		if err == nil {
			_, err = fmt.Fprintf(e.stdout, "%s\t%s\n", c.ID, blocklog.Printable(c.Explanation))
		}
	}
	if err == nil {
		_, err = fmt.Fprintf(e.stdout, "action\t%s\n", blocklog.Printable(r.Recommended))
	}
	if err == nil && len(r.Flags) > 0 {
		_, err = fmt.Fprintf(e.stdout, "flags\t%s\n", strings.Join(r.Flags, " "))
	}
	return err
}
