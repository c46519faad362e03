package coordaudit

import (
	"fmt"
	"slices"

	"planfence/cmd/planfence/internal/blocklog"
)

// stretch is a time in which a coordinator's task was active in a session: what
// the fence can see of a turn.
type stretch struct {
	Turn
	task, root string
	open       bool
}

// FromLog builds a ledger from a block log, so that a coordinator need not keep
// its own. coordinator tells a coordinator's task: one with an empty scope.
//
// A turn is a stretch in which such a task was active in a session. A task call
// is a switch to another task, a session that starts on one in the same root,
// or a dispatch that the hook let pass. A write tool is a program that was
// refused a write inside the project, or a tool that the hook refused. The mode
// is Standard: a coordinator with an empty scope can do nothing directly.
func FromLog(records []*blocklog.Record, coordinator func(task string) bool) *Ledger {
	var all []*stretch
	last := map[string]*stretch{} // by session
	count := map[string]int{}
	roots := map[string]string{}
	begin := func(r *blocklog.Record) {
		count[r.Session]++
		s := &stretch{task: r.Task, root: roots[r.Session], open: true, Turn: Turn{
			TurnID: fmt.Sprintf("%s#%d", r.Session, count[r.Session]), SessionID: r.Session, Timestamp: r.Time,
			Mode: Standard, WriteTools: []string{}, Justification: "seen by the fence", RecordType: "turn",
		}}
		all = append(all, s)
		last[r.Session] = s
	}
	dispatched := func(session, root string) {
		for id, s := range last {
			if s.open && (id == session || root != "" && s.root == root) {
				s.TaskCalls++
			}
		}
	}
	worker := func(task string) bool { return task != "" && !coordinator(task) }
	for _, r := range records {
		s := last[r.Session]
		switch r.Kind {
		case "session-start", "task":
			if r.Kind == "session-start" {
				roots[r.Session] = r.Root
			}
			if worker(r.Task) {
				dispatched(r.Session, roots[r.Session])
			}
			if s != nil && s.open && s.task != r.Task {
				s.open = false
			}
			if coordinator(r.Task) && (s == nil || !s.open) {
				begin(r)
			}
		case "session-end":
			if s != nil {
				s.open = false
			}
		case "block":
			// Held for a moment, a refusal may stand behind the end of its stretch.
			if s != nil && r.Task == s.task && r.Rel != "" {
				s.wrote(r.Comm)
			}
		case "hook":
			for _, s := range last {
				if !s.open || r.Task != s.task {
					continue
				}
				switch {
				case r.Op == "dispatch" && r.Verdict != "block":
					s.TaskCalls++
				case r.Op != "dispatch" && r.Rel != "":
					s.wrote(r.Comm)
				}
			}
		}
	}
	l := &Ledger{}
	for _, s := range all {
		l.Turns = append(l.Turns, s.Turn)
	}
	return l
}

func (s *stretch) wrote(tool string) {
	if !slices.Contains(s.WriteTools, tool) {
		s.WriteTools = append(s.WriteTools, tool)
	}
}
