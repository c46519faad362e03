package coordaudit

import (
	"fmt"
	"strings"
)

// Verdicts.
const (
	OK            = "ok"
	Warn          = "warn"  // a criterion is met, in mode warn
	Block         = "block" // a criterion is met, in mode block
	Indeterminate = "indeterminate"
	Error         = "error"
)

// Modes of the audit.
const (
	ModeWarn  = "warn"
	ModeBlock = "block"
	ModeOff   = "off"
)

// Flags of a verdict.
const (
	FlagHistory   = "insufficient_history" // fewer than three turns: drift was not judged
	FlagMalformed = "malformed_lines"      // some lines cannot be read
	FlagLastBad   = "last_line_unreadable" // the last one is among them
	FlagMissing   = "ledger_missing"
	FlagEmpty     = "ledger_empty"
	FlagUnusable  = "ledger_unusable" // it cannot be read, or no line of it
	FlagNoTurns   = "no_turns"        // it has records, but no turn
	FlagOff       = "audit_off"
	FlagFromLog   = "from_log"
)

// Criterion is one that the judged turn meets.
type Criterion struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Explanation string `json:"explanation"`
}

// Result is the audit's answer.
type Result struct {
	Verdict     string      `json:"verdict"`
	Triggered   []Criterion `json:"triggered_criteria"`
	Turn        *Turn       `json:"turn_snapshot"`
	Recommended string      `json:"recommended_action"`
	WouldBlock  bool        `json:"would_block"` // mode block refuses it
	Flags       []string    `json:"flags"`
}

// history is how many turns without a task call are drift.
const history = 3

// Judge judges the last turn of a ledger.
func Judge(l *Ledger, mode string) *Result {
	r := &Result{Triggered: []Criterion{}, Flags: []string{}}
	if mode == ModeOff {
		r.Verdict, r.Flags, r.Recommended = OK, append(r.Flags, FlagOff), "none: the audit is off"
		return r
	}
	if l.Malformed > 0 {
		r.Flags = append(r.Flags, FlagMalformed)
	}
	if l.LastBad {
		r.Flags = append(r.Flags, FlagLastBad)
	}
	if len(l.Turns) == 0 {
		switch {
		case l.Malformed > 0:
			return r.unknown(FlagUnusable, "no line of the ledger is a turn that can be read")
		case l.Other > 0:
			return r.unknown(FlagNoTurns, "the ledger has records, but no turn")
		}
		return r.unknown(FlagEmpty, "the ledger is empty")
	}
	t := l.Turns[len(l.Turns)-1]
	r.Turn = &t
	meet := func(id, name, format string, args ...any) {
		r.Triggered = append(r.Triggered, Criterion{id, name, fmt.Sprintf(format, args...)})
	}
	if len(t.WriteTools) > 0 && t.TaskCalls == 0 {
		meet("wrote-without-dispatch", "Wrote without dispatch",
			"turn %s used %s and called no task: a coordinator hands writing to another agent", t.TurnID, strings.Join(t.WriteTools, ", "))
	}
	if len(l.Turns) < history {
		r.Flags = append(r.Flags, FlagHistory)
	} else if t.Mode != Direct {
		calls := 0
		for _, past := range l.Turns[len(l.Turns)-history:] {
			calls += past.TaskCalls
		}
		if calls == 0 {
			meet("dispatch-drift", "Dispatch drift", "no task call in the last %d turns, the last in mode %s", history, t.Mode)
		}
	}
	if t.Artifact != nil && t.Artifact.Value && t.Mode == Direct && len(t.WriteTools) == 0 {
		meet("inline-hallucination", "Inline hallucination",
			"turn %s declares an artifact (%s) in mode Direct, but used no write tool: nothing was written", t.TurnID, orUnnamed(t.Artifact.Description))
	}
	r.WouldBlock = len(r.Triggered) > 0
	switch {
	case !r.WouldBlock:
		r.Verdict, r.Recommended = OK, "none: go on"
	case mode == ModeBlock:
		r.Verdict = Block
	default:
		r.Verdict = Warn
	}
	if r.WouldBlock {
		r.Recommended = recommended[r.Triggered[0].ID]
	}
	return r
}

var recommended = map[string]string{
	"wrote-without-dispatch": "undo or hand over what was written: dispatch a task whose scope covers it",
	"dispatch-drift":         "dispatch the next step as a task, or declare mode Direct and say why",
	"inline-hallucination":   "write the artifact down through a dispatched task, or take the claim back",
}

// Unusable is the result where no ledger can be judged. Compliance that cannot
// be verified is no free pass.
func Unusable(flag, why string) *Result {
	return (&Result{Triggered: []Criterion{}, Flags: []string{}}).unknown(flag, why)
}

func (r *Result) unknown(flag, why string) *Result {
	r.Verdict, r.WouldBlock = Indeterminate, true
	r.Flags = append(r.Flags, flag)
	r.Recommended = "keep a ledger that can be read, or use --from-log: " + why
	return r
}

// Failed is the result of an audit that could not be made.
func Failed(err error) *Result {
	return &Result{Verdict: Error, Triggered: []Criterion{}, Flags: []string{}, WouldBlock: true, Recommended: "mend the call of the audit: " + err.Error()}
}

// Exit is the exit status: 0, 1 where mode block refuses, 2 for an error.
func (r *Result) Exit(mode string) int {
	switch {
	case r.Verdict == Error:
		return 2
	case mode == ModeBlock && r.WouldBlock:
		return 1
	}
	return 0
}

func orUnnamed(s string) string {
	if s == "" {
		return "not described"
	}
	return s
}
