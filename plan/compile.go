package plan

import (
	"fmt"
	"slices"
)

// Rule is one entry of a compiled scope.
type Rule struct {
	Entry Entry
	// Base is the directory that the entry is relative to: "" for the group's
	// own, or an absolute path below that, taken byte for byte.
	Base string
	// Siblings lets the siblings of the file be written (see SiblingPatterns).
	// It is for entries that name a file, and ignored where the entry has a
	// wildcard, excludes, or ends in a slash.
	Siblings bool
}

// Group is the rules that hold from one directory down. Inclusions are united;
// what an exclusion matches is taken away from all of them.
type Group struct {
	Rules []Rule
	// Inherit is the index of an earlier group, or -1. What that group has left
	// behind Path, which is relative to it, holds here as well.
	Inherit int
	Path    string // "" or like "/home/dev/project"
}

// Limits bound a table and the work for it. Zero means the default.
type Limits struct {
	MaxCells  int // cells of 8 bytes; default 524288 (4 MiB)
	MaxStates int // states before minimising; default 1048576
}

func (l Limits) cells() int {
	if l.MaxCells > 0 {
		return l.MaxCells
	}
	return 524288
}

func (l Limits) states() int {
	if l.MaxStates > 0 {
		return l.MaxStates
	}
	return 1 << 20
}

// work bounds the time: steps of some 20 ns.
func (l Limits) work() int { return 24 << 20 }

// Compile builds the table of some groups; Start[i] of the table belongs to
// groups[i]. The same groups give the same bytes. It fails with a
// [*TooComplexError] where the limits are exceeded, within about a second.
func Compile(groups []Group, l Limits) (*Table, error) {
	d, err := automaton(groups, l)
	if err != nil {
		return nil, err
	}
	t, err := d.pack(l)
	if err != nil {
		return nil, tooComplex(groups, d.blame(), err.Error())
	}
	return t, nil
}

// automaton is the minimised automaton of some groups.
func automaton(groups []Group, l Limits) (*determiner, error) {
	n := newNFA()
	total := int32(0)
	for i, g := range groups {
		if g.Inherit >= i {
			return nil, fmt.Errorf("compile the scope: group %d inherits from group %d, which is not before it", i, g.Inherit)
		}
		n.group()
		for _, r := range g.Rules {
			if r.Entry.pat == nil {
				return nil, fmt.Errorf("compile the scope: group %d has an entry that was not parsed", i)
			}
			n.add(i, r, total)
			total++
			if len(n.head) > 4*l.states() {
				return nil, tooComplex(groups, n.rule, fmt.Sprintf("%d states", l.states()))
			}
		}
	}
	d, err := determine(n, groups, l)
	if err != nil {
		return nil, tooComplex(groups, d.blame(), err.Error())
	}
	d.splitSlashes()
	d.trim()
	d.minimize()
	return d, nil
}

// blame lists the rule of every element of every state, -1 for shared ones.
func (d *determiner) blame() []int32 {
	out := make([]int32, len(d.sets))
	for i, e := range d.sets {
		out[i] = d.n.rule[e>>modeBits]
	}
	return out
}

// tooComplex names the rules that cost most: up to five, none that costs less
// than a tenth of the costliest.
func tooComplex(groups []Group, blame []int32, what string) error {
	var all []Entry
	for _, g := range groups {
		for _, r := range g.Rules {
			all = append(all, r.Entry)
		}
	}
	count := make([]int, len(all))
	for _, r := range blame {
		if r >= 0 {
			count[r]++
		}
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return count[b] - count[a] })
	e := &TooComplexError{What: what}
	for _, i := range order {
		if len(e.Entries) == 5 || count[i] == 0 || count[i] < count[order[0]]/10 {
			break
		}
		e.Entries = append(e.Entries, all[i])
	}
	return e
}

type tableKey struct {
	task     *Task
	siblings bool
}

// CompileTask compiles one task's scope alone, from the project root. siblings
// adds the siblings of every entry that may name a file: on the disk it may turn
// out to be a directory, which [Compile] leaves to its caller.
func (p *Plan) CompileTask(t *Task, siblings bool) (*Table, error) {
	p.tables.Lock()
	defer p.tables.Unlock()
	k := tableKey{t, siblings}
	if table := p.tables.of[k]; table != nil {
		return table, nil
	}
	table, err := Compile([]Group{{Rules: t.rules(siblings), Inherit: -1}}, Limits{})
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", t.ID, err)
	}
	if p.tables.of == nil {
		p.tables.of = map[tableKey]*Table{}
	}
	p.tables.of[k] = table
	return table, nil
}

func (t *Task) rules(siblings bool) []Rule {
	rules := make([]Rule, len(t.Scope))
	for i, e := range t.Scope {
		rules[i] = Rule{Entry: e, Siblings: siblings && !e.Exclude}
	}
	return rules
}
