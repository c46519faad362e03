package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// crossCheck lays what git says beside what the log says.
func (b *Builder) crossCheck(g *Git) {
	b.r.Git = g
	if g == nil {
		return
	}
	byRel := map[string]uint64{}
	for _, p := range b.r.Paths {
		if p.Rel != "" {
			byRel[p.Rel+"\x00"] += p.Count + p.Would
		}
	}
	for i := range g.Changes {
		c := &g.Changes[i]
		c.Blocks = byRel[c.Rel+"\x00"]
		if c.When.IsZero() {
			continue
		}
		for _, s := range b.r.Sessions {
			if st := s.at(c.When); st != nil && (st.Task != "" || s.closed) && s.Mode != "audit" {
				c.During = s.Name
			}
		}
	}
	for i := range g.Commits {
		c := &g.Commits[i]
		found := false
		for _, s := range b.r.Sessions {
			// git's times are whole seconds.
			if st := s.at(c.Time.Add(time.Second - 1)); st != nil {
				c.Task, found = st.Task, true
			} else if st := s.at(c.Time); st != nil && !found {
				c.Task, found = st.Task, true
			}
		}
		if found {
			b.task(c.Task).Commits++
		}
	}
}

// at returns the stretch that a moment lies in, nil if none.
func (s *Session) at(t time.Time) *Stretch {
	for _, st := range s.Stretches {
		if !t.Before(st.Start) && !t.After(st.End) {
			return st
		}
	}
	return nil
}

func (b *Builder) find(v Verdict, id, format string, args ...any) {
	b.r.Findings = append(b.r.Findings, Finding{v, id, fmt.Sprintf(format, args...)})
}

// judge finds what the verdict rests on.
func (b *Builder) judge() {
	r := b.r
	b.judgeProof()
	if r.Blocks > 0 {
		b.find(Block, "blocked", "%s refused, on %s", count(r.Blocks, "operation was", "operations were"),
			count(uint64(len(r.Paths)+r.Truncated), "path", "paths"))
	}
	if r.Would > 0 {
		b.find(Warn, "would-block", "%s would have been refused: the session only audited", count(r.Would, "operation", "operations"))
	} else if r.Audited > 0 {
		b.find(Warn, "audited", "for %s nothing was refused, only recorded (mode audit)", r.Audited)
	}
	if r.Stale > 0 {
		b.find(Warn, "stale", "for %s the plan could not be followed; the last good scope was in force", r.Stale)
	}
	if r.Idle > 0 {
		b.find(Warn, "idle", "for %s no task was active: nothing was refused but the fence's own files", r.Idle)
	}
	b.judgeGit()
	slices.SortStableFunc(r.Findings, func(x, y Finding) int { return y.Verdict.rank() - x.Verdict.rank() })
	r.Verdict = OK
	if len(r.Findings) > 0 {
		r.Verdict = r.Findings[0].Verdict
	}
}

// judgeProof finds what keeps the log from proving anything.
func (b *Builder) judgeProof() {
	r := b.r
	zero := Seconds(0)
	r.Unfenced = &zero
	unknown := func(id, format string, args ...any) {
		r.Unfenced = nil
		b.find(Indeterminate, id, format, args...)
	}
	switch {
	case b.in.Missing != nil:
		unknown("log-missing", "the log cannot be read: %v", b.in.Missing)
	case len(r.Sessions) == 0:
		unknown("no-session", "the log has no session%s: nothing shows that anything was fenced", filterText(b.in))
	}
	if r.BadLines > 0 {
		b.find(Indeterminate, "log-damaged", "%s of the log cannot be read", count(uint64(r.BadLines), "line", "lines"))
	}
	if r.Lost > 0 {
		b.find(Indeterminate, "lost-records", "%s not recorded one by one", count(r.Lost, "refusal was", "refusals were"))
	}
	if r.Misses > 0 {
		unknown("skipped", "the kernel skipped programs %s: something may have passed", count(r.Misses, "time", "times"))
	}
	for _, s := range r.Sessions {
		if !s.begun && s.Start.After(b.in.Since) {
			b.find(Indeterminate, "no-beginning", "the beginning of session %s is not in the log", s.Name)
		}
		if s.State == "vanished" {
			unknown("no-end", "session %s has no end in the log and does not run: nothing shows how long it held after %s",
				s.Name, s.End.Format(time.RFC3339))
		}
		// Totals are the kernel's own, the records are what was written of them.
		if s.told != nil && s.begun && !s.Start.Before(b.in.Since) {
			if *s.told > s.Blocks+s.Lost || *s.told < s.Blocks {
				b.find(Indeterminate, "totals-differ", "session %s: the kernel refused %d, the log has %d and %d lost", s.Name, *s.told, s.Blocks, s.Lost)
			}
		}
	}
}

func filterText(in Input) string {
	var w []string
	if len(in.Sessions) > 0 {
		w = append(w, strings.Join(in.Sessions, ", "))
	}
	if !in.Since.IsZero() {
		w = append(w, "since "+in.Since.Format(time.RFC3339))
	}
	if len(w) == 0 {
		return ""
	}
	return " " + strings.Join(w, " ")
}

// judgeGit finds changes outside every scope.
func (b *Builder) judgeGit() {
	if b.r.Git == nil {
		return
	}
	var during, others uint64
	for i := range b.r.Git.Changes {
		c := &b.r.Git.Changes[i]
		if !c.Outside() {
			continue
		}
		if c.During != "" {
			during++
		} else {
			others++
		}
	}
	if during > 0 {
		b.find(Block, "changed-outside", "git shows %s outside every scope that changed while a session enforced one, and no record of a refusal explains that: something outside the session wrote",
			count(during, "path", "paths"))
	}
	if others > 0 {
		b.find(Warn, "changed-outside-else", "git shows %s outside every scope that changed at other times", count(others, "path", "paths"))
	}
	var out uint64
	for _, c := range b.r.Git.Commits {
		if len(c.Outside) > 0 {
			out++
		}
	}
	if out > 0 {
		b.find(Warn, "committed-outside", "%s paths outside every scope", count(out, "commit touches", "commits touch"))
	}
}
