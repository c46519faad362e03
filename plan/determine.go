package plan

import (
	"fmt"
	"slices"
)

// A deterministic state is a set of elements: a state of the nfa with a mode
// (see char.go) in the low bits.

// Ids of deterministic states: 0 and 1 stand for Dead and All, rows follow.
const (
	idDead   = 0
	idAll    = 1
	firstRow = 2
)

type move struct {
	lo, hi byte
	elem   uint32
}

type dfaEdge struct {
	lo, hi byte
	to     int32
}

// dfa is a deterministic automaton with sparse rows. Row i belongs to state
// i+firstRow.
type dfa struct {
	off   []int32 // row -> first edge; one more at the end
	edges []dfaEdge
	end   []State // row -> what a path that ends there is
	start []int32
}

func (d *dfa) row(id int32) []dfaEdge { return d.edges[d.off[id-firstRow]:d.off[id-firstRow+1]] }

type determiner struct {
	n      *nfa
	limits Limits
	work   int  // elements and edges handled so far
	whole  bool // keep the sets whole, so that they tell which rules match

	dfa
	sets   []uint32 // elements of all states, end to end
	setOff []int32
	single []int32 // nfa state -> deterministic state of just that, 0 for none
	hash   []int32 // open addressing: deterministic state, 0 for none

	moves   []move
	targets []uint32
	stack   []uint32
	seen    [1 << modeBits][]int32 // element -> the round in which it was met
	round   int32
}

func newDeterminer(n *nfa, l Limits) *determiner {
	return &determiner{
		n: n, limits: l, single: make([]int32, len(n.head)), hash: make([]int32, 1024), setOff: []int32{0},
	}
}

// determine makes the deterministic automaton of all groups.
func determine(n *nfa, groups []Group, l Limits) (*determiner, error) {
	d := newDeterminer(n, l)
	for g := range groups {
		var inherited []uint32
		if in := groups[g].Inherit; in >= 0 {
			inherited = d.after(d.start[in], groups[g].Path)
		}
		d.begin()
		d.reach(uint32(n.posTries[g]) << modeBits)
		d.reach(uint32(n.negTries[g]) << modeBits)
		for _, e := range inherited {
			d.reach(e)
		}
		d.start = append(d.start, d.intern())
	}
	return d, d.run()
}

// run makes the row of every state that is reached.
func (d *determiner) run() error {
	d.off = append(d.off, 0)
	for row := 0; row < len(d.end); row++ {
		d.expand(row)
		if d.work > d.limits.work() {
			return fmt.Errorf("%d steps of work", d.limits.work())
		}
		if len(d.end) > d.limits.states() {
			return fmt.Errorf("%d states", d.limits.states())
		}
	}
	return nil
}

// set returns the elements of a state. Those of All are left out: a group that
// inherits All adds the state that includes everything.
func (d *determiner) set(id int32) []uint32 {
	switch id {
	case idDead:
		return nil
	case idAll:
		return []uint32{uint32(d.n.all[0]) << modeBits}
	}
	return d.sets[d.setOff[id-firstRow]:d.setOff[id-firstRow+1]]
}

// after returns what is left of a state's elements behind a path. The states on
// the way are not kept.
func (d *determiner) after(id int32, path string) []uint32 {
	return d.afterSet(d.set(id), path)
}

func (d *determiner) afterSet(set []uint32, path string) []uint32 {
	cur := slices.Clone(set)
	for i := 0; i < len(path); i++ {
		d.gather(cur)
		d.begin()
		for _, m := range d.moves {
			if m.lo <= path[i] && path[i] <= m.hi {
				d.reach(m.elem)
			}
		}
		cur = append(cur[:0], d.targets...)
	}
	return cur
}

// begin starts a new set.
func (d *determiner) begin() {
	d.targets = d.targets[:0]
	d.round++
}

// reach adds an element and what it leads to without reading.
func (d *determiner) reach(elem uint32) {
	d.stack = append(d.stack[:0], elem)
	for len(d.stack) > 0 {
		e := d.stack[len(d.stack)-1]
		d.stack = d.stack[:len(d.stack)-1]
		q, mode := e>>modeBits, e&(1<<modeBits-1)
		if d.seen[mode] == nil {
			d.seen[mode] = make([]int32, len(d.n.head))
		}
		if d.seen[mode][q] == d.round {
			continue
		}
		d.seen[mode][q] = d.round
		d.targets = append(d.targets, e)
		d.work++
		if mode >= must {
			continue
		}
		for i := d.n.head[q]; i >= 0; i = d.n.edges[i].next {
			if x := &d.n.edges[i]; x.kind == edgeFree {
				d.stack = append(d.stack, uint32(x.to)<<modeBits|mode)
			}
		}
	}
}

// reduce drops what does not matter for whether a path is covered. Sets that
// cannot include anything are idDead, others that include all idAll; of those
// that do but for exclusions only the exclusions are kept. It returns firstRow
// for all that need a row.
func (d *determiner) reduce() int32 {
	all, positive, negative := false, false, false
	for _, e := range d.targets {
		m := d.n.mark[e>>modeBits]
		if m&markNegative != 0 {
			if m&markAll != 0 {
				return idDead
			}
			negative = true
			continue
		}
		positive = true
		all = all || m&markAll != 0
	}
	if !positive {
		return idDead
	}
	if all {
		if !negative {
			return idAll
		}
		d.targets = slices.DeleteFunc(d.targets, func(e uint32) bool {
			m := d.n.mark[e>>modeBits]
			return m&markNegative == 0 && e != uint32(d.n.all[0])<<modeBits
		})
	}
	return firstRow
}

// intern turns the targets into a state.
func (d *determiner) intern() int32 {
	if !d.whole {
		if id := d.reduce(); id != firstRow {
			return id
		}
	} else if len(d.targets) == 0 {
		return idDead
	}
	if len(d.targets) == 1 && d.targets[0]&(1<<modeBits-1) == 0 {
		q := d.targets[0] >> modeBits
		if d.single[q] == 0 {
			d.single[q] = d.newState()
		}
		return d.single[q]
	}
	slices.Sort(d.targets)
	mask := uint64(len(d.hash) - 1)
	for i := hashSet(d.targets) & mask; ; i = (i + 1) & mask {
		switch id := d.hash[i]; {
		case id == 0:
			d.hash[i] = d.newState()
			id = d.hash[i]
			if len(d.end)*2 > len(d.hash) {
				d.rehash()
			}
			return id
		case slices.Equal(d.set(id), d.targets):
			return id
		}
	}
}

func hashSet(set []uint32) uint64 {
	h := uint64(len(set))
	for _, e := range set {
		h = (h ^ uint64(e)) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	return h
}

func (d *determiner) rehash() {
	d.hash = make([]int32, 4*len(d.hash))
	mask := uint64(len(d.hash) - 1)
	for id := int32(firstRow); int(id) < len(d.end)+firstRow; id++ {
		set := d.set(id)
		if len(set) == 1 && set[0]&(1<<modeBits-1) == 0 {
			continue
		}
		i := hashSet(set) & mask
		for d.hash[i] != 0 {
			i = (i + 1) & mask
		}
		d.hash[i] = id
	}
}

func (d *determiner) newState() int32 {
	var m uint8
	for _, e := range d.targets {
		if e&(1<<modeBits-1) < must {
			m |= d.n.mark[e>>modeBits]
		}
	}
	end := Dead
	switch {
	case m&markExclude != 0:
	case m&markInclude != 0:
		end = Accept
	case m&markSibling != 0:
		end = Sibling
	}
	d.end = append(d.end, end)
	d.sets = append(d.sets, d.targets...)
	d.setOff = append(d.setOff, int32(len(d.sets)))
	return int32(len(d.end)-1) + firstRow
}

// gather collects the moves of a set.
func (d *determiner) gather(set []uint32) {
	d.moves = d.moves[:0]
	for _, e := range set {
		q, mode := e>>modeBits, e&(1<<modeBits-1)
		if mode >= must {
			r := rests[mode-must]
			to := q << modeBits
			if r.next != 0 {
				to |= must + uint32(r.next)
			}
			d.moves = append(d.moves, move{r.lo, r.hi, to})
			continue
		}
		first := len(d.moves)
		for i := d.n.head[q]; i >= 0; i = d.n.edges[i].next {
			x := &d.n.edges[i]
			to := uint32(x.to) << modeBits
			switch x.kind {
			case edgeBytes:
				d.moves = append(d.moves, move{x.lo, x.hi, to})
			case edgeChar:
				for _, s := range singles {
					d.moves = append(d.moves, move{s.lo, s.hi, to})
				}
				for _, l := range leads {
					d.moves = append(d.moves, move{l.lo, l.hi, to | mustNot + uint32(l.next)},
						move{l.lo, l.hi, to | must + uint32(l.next)})
				}
			}
		}
		if mode != 0 {
			d.restrict(first, rests[mode])
		}
	}
	d.work += len(d.moves)
}

// restrict applies a mustNot to the moves from an index on: the bytes that go on
// with the encoding keep it pending, or are no moves if they complete it.
func (d *determiner) restrict(first int, r rest) {
	moves := slices.Clone(d.moves[first:])
	d.moves = d.moves[:first]
	for _, m := range moves {
		if m.lo < r.lo {
			d.moves = append(d.moves, move{m.lo, min(m.hi, r.lo-1), m.elem})
		}
		if m.hi > r.hi {
			d.moves = append(d.moves, move{max(m.lo, r.hi+1), m.hi, m.elem})
		}
		if lo, hi := max(m.lo, r.lo), min(m.hi, r.hi); lo <= hi && r.next != 0 {
			d.moves = append(d.moves, move{lo, hi, m.elem | mustNot + uint32(r.next)})
		}
	}
}

// expand makes a row: it splits the bytes where a move begins or ends.
func (d *determiner) expand(row int) {
	d.gather(d.set(int32(row) + firstRow))
	moves := d.moves
	slices.SortFunc(moves, func(a, b move) int {
		if a.lo != b.lo {
			return int(a.lo) - int(b.lo)
		}
		return int(a.hi) - int(b.hi)
	})
	var cut [5]uint64 // bit p: an interval begins at p
	for _, m := range moves {
		cut[m.lo>>6] |= 1 << (m.lo & 63)
		p := int(m.hi) + 1
		cut[p>>6] |= 1 << (p & 63)
	}
	active := 0
	rowStart := len(d.edges)
	for p := nextBit(&cut, 0); p < 256; {
		q := nextBit(&cut, p+1)
		for active < len(moves) && int(moves[active].hi) < p {
			active++
		}
		d.begin()
		for _, m := range moves[active:] {
			if int(m.lo) > p {
				break
			}
			if int(m.hi) >= p {
				d.reach(m.elem)
			}
			d.work++
		}
		if to := d.intern(); to != idDead {
			last := len(d.edges) - 1
			if last >= rowStart && d.edges[last].to == to && int(d.edges[last].hi) == p-1 {
				d.edges[last].hi = byte(q - 1)
			} else {
				d.edges = append(d.edges, dfaEdge{byte(p), byte(q - 1), to})
			}
		}
		p = q
	}
	d.off = append(d.off, int32(len(d.edges)))
}

func nextBit(set *[5]uint64, from int) int {
	for p := from; p < 257; p++ {
		if set[p>>6]>>(p&63) == 0 { // none left in this word
			p |= 63
			continue
		}
		if set[p>>6]>>(p&63)&1 != 0 {
			return p
		}
	}
	return 257
}
