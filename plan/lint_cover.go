package plan

import (
	"encoding/binary"
	"slices"
)

// meeting is the entries of a task that match some path together, by index.
type meeting struct{ in, out []int32 }

// covers looks for entries that make no difference. The automaton is made once
// more, so that each of its states still tells which entries match there.
func (l *linter) covers(t *Task) {
	all, err := meetings(t)
	if err != nil {
		l.find(CodeTooComplex, SeverityNote, t, nil, "split the task to have them looked for", "the scope of %s is too complex to look for entries that make no difference: more than %v", t.ID, err)
		return
	}
	seen := make([][]meeting, len(t.Scope)) // by entry
	for _, m := range all {
		for _, i := range m.in {
			seen[i] = append(seen[i], m)
		}
		for _, i := range m.out {
			seen[i] = append(seen[i], m)
		}
	}
	gone := make([]bool, len(t.Scope))
	// From the last on: of two that say the same, the first stays.
	for i := len(t.Scope) - 1; i >= 0; i-- {
		e := &t.Scope[i]
		if e.Exclude {
			l.exclusion(t, e, seen[i], gone, int32(i))
			continue
		}
		if m := seen[i]; len(m) > 0 && !slices.ContainsFunc(m, func(m meeting) bool { return len(m.out) == 0 }) {
			gone[i] = true
			l.find(CodeEmptied, SeverityError, t, e, "remove one of them", "%s covers nothing: %s excludes all of it", jsonText(e.Text), l.names(t, m, func(m meeting) []int32 { return m.out }))
			continue
		}
		l.inclusion(t, e, seen[i], gone, int32(i))
	}
}

func (l *linter) inclusion(t *Task, e *Entry, met []meeting, gone []bool, i int32) {
	var left []meeting
	for _, m := range met {
		if len(m.out) > 0 {
			continue
		}
		m.in = others(m.in, gone, i)
		if len(m.in) == 0 {
			return
		}
		left = append(left, m)
	}
	gone[i] = true
	l.find(CodeShadowed, SeverityWarning, t, e, "remove it", "%s adds nothing: %s covers all of it",
		jsonText(e.Text), l.names(t, left, func(m meeting) []int32 { return m.in }))
}

func (l *linter) exclusion(t *Task, e *Entry, met []meeting, gone []bool, i int32) {
	used := false
	var left []meeting
	for _, m := range met {
		if len(m.in) == 0 {
			continue
		}
		used = true
		m.out = others(m.out, gone, i)
		if len(m.out) == 0 {
			return
		}
		left = append(left, m)
	}
	gone[i] = true
	if !used {
		l.find(CodeUnusedExclusion, SeverityWarning, t, e, "remove it, or correct the path", "%s excludes nothing: no other entry covers any of it", jsonText(e.Text))
		return
	}
	l.find(CodeShadowed, SeverityWarning, t, e, "remove it", "%s excludes nothing more: %s excludes all of it",
		jsonText(e.Text), l.names(t, left, func(m meeting) []int32 { return m.out }))
}

// others leaves out an entry and those already found to make no difference.
func others(list []int32, gone []bool, i int32) []int32 {
	var out []int32
	for _, k := range list {
		if k != i && !gone[k] {
			out = append(out, k)
		}
	}
	return out
}

// names says who is in every meeting: one entry, or several together.
func (l *linter) names(t *Task, met []meeting, of func(meeting) []int32) string {
	for _, k := range of(met[0]) {
		if !slices.ContainsFunc(met, func(m meeting) bool { return !slices.Contains(of(m), k) }) {
			return jsonText(t.Scope[k].Text) + " at " + t.Scope[k].Pos.String()
		}
	}
	return "the rest of the scope"
}

// meetings lists which entries match together at some path, each combination
// once, the one with the shortest path first.
func meetings(t *Task) ([]meeting, error) {
	n := newNFA()
	for i, r := range t.rules(false) {
		n.group()
		// Nothing is shared between entries, so that a state tells its own.
		n.current = int32(i)
		n.newAll()
		n.add(i, r, int32(i))
	}
	d := newDeterminer(n, Limits{MaxStates: 1 << 18})
	d.whole = true
	d.begin()
	for i := range t.Scope {
		d.reach(uint32(n.posTries[i]) << modeBits)
		d.reach(uint32(n.negTries[i]) << modeBits)
	}
	d.start = append(d.start, d.intern())
	if err := d.run(); err != nil {
		return nil, err
	}
	d.splitSlashes()
	var out []meeting
	known := map[string]bool{}
	d.eachEnd(func(row int32) {
		m := d.meeting(row)
		if len(m.in)+len(m.out) == 0 {
			return
		}
		var key []byte
		for _, i := range m.in {
			key = binary.AppendUvarint(key, uint64(i)*2)
		}
		for _, i := range m.out {
			key = binary.AppendUvarint(key, uint64(i)*2+1)
		}
		if !known[string(key)] {
			known[string(key)] = true
			out = append(out, m)
		}
	})
	return out, nil
}

// meeting reads off a state which entries match a path that ends there.
func (d *determiner) meeting(row int32) (m meeting) {
	for _, e := range d.set(row + firstRow) {
		q := e >> modeBits
		mark := d.n.mark[q]
		if e&(1<<modeBits-1) >= must || mark&(markInclude|markExclude) == 0 {
			continue
		}
		if mark&markExclude != 0 {
			m.out = append(m.out, d.n.rule[q])
		} else {
			m.in = append(m.in, d.n.rule[q])
		}
	}
	for _, list := range []*[]int32{&m.in, &m.out} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return m
}

// eachEnd calls f for every row at which a path can end, the nearest first.
func (d *dfa) eachEnd(f func(row int32)) {
	seen := newMarks(len(d.end))
	if d.start[0] < firstRow {
		return
	}
	seen.add(int(d.start[0]-firstRow), elsewhere)
	for i := 0; i < len(seen.todo); i++ {
		k := seen.todo[i]
		row, where := k/2, int(k%2)
		if where == elsewhere {
			f(row)
		}
		for _, x := range d.edges[d.off[row]:d.off[row+1]] {
			switch {
			case x.to < firstRow || x.lo == '/' && where == behindSlash:
			case x.lo == '/':
				seen.add(int(x.to-firstRow), behindSlash)
			default:
				seen.add(int(x.to-firstRow), elsewhere)
			}
		}
	}
}

// coversAll reports whether every name in the first directory is covered.
func (d *dfa) coversAll() bool {
	s := d.start[0]
	if s >= firstRow {
		next := int32(idDead)
		for _, x := range d.row(s) {
			if x.lo == '/' {
				next = x.to
			}
		}
		s = next
	}
	if s < firstRow {
		return s == idAll
	}
	seen := map[int32]bool{s: true}
	todo := []int32{s}
	for first := true; len(todo) > 0; first = false {
		row := todo[len(todo)-1] - firstRow
		todo = todo[:len(todo)-1]
		if names, _ := d.covers(int(row)); !names || !first && d.end[row] != Accept {
			return false
		}
		for _, x := range d.row(row + firstRow) {
			if x.lo != '/' && x.to >= firstRow && !seen[x.to] {
				seen[x.to] = true
				todo = append(todo, x.to)
			}
		}
	}
	return true
}
