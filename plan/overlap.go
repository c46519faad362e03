package plan

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Overlaps are decided on pairs of minimised automata: a path that both cover is
// a way through both at once.

// side is one task's automaton, made ready for being searched in pairs. State
// numbers are rows, and the number of rows for All.
type side struct {
	d     *dfa
	rows  [][]dfaEdge // by state; targets as states
	left  []int32     // by state: bytes left to the next end
	start int32       // -1 for none
}

func newSide(d *dfa) *side {
	all := int32(len(d.end))
	s := &side{d: d, start: -1, rows: make([][]dfaEdge, all+1), left: make([]int32, all+1)}
	state := func(id int32) int32 {
		if id == idAll {
			return all
		}
		return id - firstRow
	}
	if d.start[0] != idDead {
		s.start = state(d.start[0])
	}
	edges := slices.Clone(d.edges)
	for i := range edges {
		edges[i].to = state(edges[i].to)
	}
	todo := []int32{all} // states at which a covered path ends, then those before
	for i := range all {
		s.rows[i] = edges[d.off[i]:d.off[i+1]]
		if d.end[i] == Accept {
			todo = append(todo, i)
		}
	}
	s.rows[all] = []dfaEdge{{1, '/' - 1, all}, {'/', '/', all}, {'/' + 1, 255, all}}
	into := make([][]int32, all+1) // by state: those that lead there
	for i, row := range s.rows {
		for _, x := range row {
			into[x.to] = append(into[x.to], int32(i))
		}
	}
	for i := range s.left {
		s.left[i] = -1
	}
	for _, e := range todo {
		s.left[e] = 0
	}
	for i := 0; i < len(todo); i++ {
		for _, from := range into[todo[i]] {
			if s.left[from] < 0 {
				s.left[from] = s.left[todo[i]] + 1
				todo = append(todo, from)
			}
		}
	}
	return s
}

func (s *side) ended(state int32) bool {
	return int(state) == len(s.d.end) || s.d.end[state] == Accept
}

// Where a node stands within a path. Names must not be empty, "." or "..": after
// the first three neither a slash nor the end may follow.
const (
	inAnyName   = elsewhere
	atNameStart = behindSlash
	afterDot    = 2
	afterDots   = 3
)

type pairNode struct {
	a, b  int32
	from  int32 // index of the node before, -1 at the start
	where int8
	by    byte // read to come here
}

// pairs searches two automata at once. It is kept between searches for its room.
type pairs struct {
	nodes []pairNode
	keys  []uint64 // open addressing
	round []uint32 // the search in which a key was put
	now   uint32
	used  int
	spent int // nodes of all searches for one task
	most  int // of them that may look for shortest examples

	heap [][]int32 // by bytes left: nodes to be looked at
}

const (
	nodesAPair   = 300      // nodes that a pair may always have for a shortest example
	mostShortest = 30 << 20 // nodes that all searches may have together for that: each task's its part
)

// common returns a path, without its leading slash, that both automata cover: one
// of the shortest, unless so many tasks overlap at such length that looking for
// it takes too long.
func (p *pairs) common(x, y *side) (path string, ok bool) {
	if x.start < 0 || y.start < 0 {
		return "", false
	}
	path, ok, done := p.search(x, y, max(nodesAPair, p.most-p.spent))
	if !done {
		path, ok, _ = p.search(x, y, 0)
	}
	return path, ok
}

func (p *pairs) reset() {
	p.now++
	p.used = 0
	p.nodes = p.nodes[:0]
}

// search goes through both from the start. Within a limit of nodes it goes in
// breadth, and the first path that it finds is a shortest; done is false if the
// limit was met. With a limit of 0 it goes where the fewest bytes are left.
func (p *pairs) search(x, y *side, limit int) (path string, ok, done bool) {
	breadth := limit > 0
	p.reset()
	for i := range p.heap {
		p.heap[i] = p.heap[i][:0]
	}
	p.add(pairNode{a: x.start, b: y.start, from: -1})
	p.push(x, y, 0, breadth)
	for i := int32(0); ; i++ {
		if breadth {
			if int(i) == len(p.nodes) {
				return "", false, true
			}
			if p.used > limit {
				return "", false, false
			}
		} else if i = p.pop(); i < 0 {
			return "", false, true
		}
		n := p.nodes[i]
		if n.where == inAnyName && n.from >= 0 && x.ended(n.a) && y.ended(n.b) {
			return p.path(i), true, true
		}
		// Readable bytes first, so that they make the example.
		p.step(x, y, i, breadth, true)
		p.step(x, y, i, breadth, false)
	}
}

// step adds the nodes behind one, by edges that have a letter in common, or not.
func (p *pairs) step(x, y *side, i int32, breadth, letters bool) {
	n := p.nodes[i]
	ra, rb := x.rows[n.a], y.rows[n.b]
	lastA, lastB := int32(-1), int32(-1)
	for j, k := 0, 0; j < len(ra) && k < len(rb); {
		e, f := ra[j], rb[k]
		lo, hi := max(e.lo, f.lo), min(e.hi, f.hi)
		if e.hi <= f.hi {
			j++
		}
		if f.hi <= e.hi {
			k++
		}
		if lo > hi || letters != (lo <= 'z' && hi >= 'a') || e.to == lastA && f.to == lastB {
			continue
		}
		next := pairNode{a: e.to, b: f.to, by: readable(lo, hi), from: i}
		switch {
		case lo == '/':
			if n.where != inAnyName {
				continue
			}
			next.where = atNameStart
		case lo <= '.' && '.' <= hi && n.where != inAnyName && n.where != afterDots:
			// A dot may be all there is of these: it is another way.
			dot := next
			dot.by, dot.where = '.', n.where+1
			p.put(x, y, dot, breadth)
			if lo == hi {
				continue
			}
			if next.by == '.' {
				if next.by = lo; lo == '.' {
					next.by = hi
				}
			}
			p.put(x, y, next, breadth)
			continue
		default:
			lastA, lastB = e.to, f.to
		}
		p.put(x, y, next, breadth)
	}
}

func (p *pairs) put(x, y *side, n pairNode, breadth bool) {
	if p.add(n) {
		p.push(x, y, int32(len(p.nodes)-1), breadth)
	}
}

func (p *pairs) push(x, y *side, i int32, breadth bool) {
	if breadth {
		return // nodes are in order
	}
	n := p.nodes[i]
	left := int(x.left[n.a] + y.left[n.b])
	for len(p.heap) <= left {
		p.heap = append(p.heap, nil)
	}
	p.heap[left] = append(p.heap[left], i)
}

// pop returns a node with the fewest bytes left, or -1.
func (p *pairs) pop() int32 {
	for left, list := range p.heap {
		if n := len(list); n > 0 {
			p.heap[left] = list[:n-1]
			return list[n-1]
		}
	}
	return -1
}

// add puts a node unless it was met in this search.
func (p *pairs) add(n pairNode) bool {
	if 2*p.used >= len(p.keys) {
		p.grow()
	}
	key := uint64(n.a)<<32 | uint64(n.b)<<2 | uint64(n.where)
	mask := uint64(len(p.keys) - 1)
	for i := spread(key) & mask; ; i = (i + 1) & mask {
		if p.round[i] != p.now {
			p.round[i], p.keys[i] = p.now, key
			p.used++
			p.spent++
			p.nodes = append(p.nodes, n)
			return true
		}
		if p.keys[i] == key {
			return false
		}
	}
}

func spread(key uint64) uint64 {
	key *= 0x9E3779B97F4A7C15
	return key ^ key>>32
}

func (p *pairs) grow() {
	keys, round := p.keys, p.round
	p.keys, p.round = make([]uint64, max(1024, 4*len(keys))), make([]uint32, max(1024, 4*len(keys)))
	mask := uint64(len(p.keys) - 1)
	for i, key := range keys {
		if round[i] != p.now {
			continue
		}
		k := spread(key) & mask
		for p.round[k] == p.now {
			k = (k + 1) & mask
		}
		p.keys[k], p.round[k] = key, p.now
	}
}

func (p *pairs) path(i int32) string {
	var out []byte
	for ; p.nodes[i].from >= 0; i = p.nodes[i].from {
		out = append(out, p.nodes[i].by)
	}
	slices.Reverse(out)
	return string(out[1:])
}

// readable picks a byte that people can read, if there is one.
func readable(lo, hi byte) byte {
	if lo <= 'a' && 'a' <= hi {
		return 'a'
	}
	for _, r := range [...][2]byte{{'a', 'z'}, {'0', '9'}, {'A', 'Z'}, {'!', '~'}} {
		if l, h := max(lo, r[0]), min(hi, r[1]); l <= h {
			return l
		}
	}
	return lo
}

// overlaps compares every pair of tasks, several tasks at a time. What is found, and
// in which order, does not depend on how many.
func (l *linter) overlaps(languages []*dfa) {
	sides := make([]*side, len(languages))
	for i, d := range languages {
		if d != nil {
			sides[i] = newSide(d)
		}
	}
	found := make([][]Finding, len(sides)) // by the second task
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			w := overlapper{l: l, sides: sides, by: map[place]*Entry{}}
			for j := len(sides) - int(next.Add(1)); j > 0; j = len(sides) - int(next.Add(1)) {
				found[j] = w.task(j)
			}
		})
	}
	wg.Wait()
	for _, f := range found {
		l.findings = append(l.findings, f...)
	}
}

// overlapper compares one task at a time with those before it.
type overlapper struct {
	l     *linter
	sides []*side
	pairs pairs
	by    map[place]*Entry
}

type place struct {
	task int
	path string
}

// task returns the overlaps of task j with those before it.
func (w *overlapper) task(j int) (found []Finding) {
	y := w.sides[j]
	if y == nil {
		return nil
	}
	t := &w.l.p.Tasks[j]
	w.pairs.spent, w.pairs.most = 0, mostShortest/len(w.sides)
	for i, x := range w.sides[:j] {
		if x == nil {
			continue
		}
		path, ok := w.pairs.common(x, y)
		if !ok {
			continue
		}
		here, there := w.entry(j, path), w.entry(i, path)
		first := &w.l.p.Tasks[i]
		found = append(found, Finding{
			Code: CodeOverlap, Severity: SeverityError, Task: t.ID, Entry: here.Text, File: w.l.p.File, Pos: here.Pos,
			Message: t.ID + " overlaps " + first.ID + ": " + quote(path) + " is covered by " + jsonText(here.Text) +
				" here and by " + jsonText(there.Text) + " at " + there.Pos.String(),
			Hint:    "give the path to one of them, and exclude it from the other",
			Example: path, Other: first.ID, OtherPos: there.Pos,
		})
	}
	return found
}

// entry returns the first entry of a task that covers a path.
func (w *overlapper) entry(task int, path string) *Entry {
	k := place{task, path}
	e, ok := w.by[k]
	if !ok {
		t := &w.l.p.Tasks[task]
		for i := range t.Scope {
			if !t.Scope[i].Exclude && t.Scope[i].Match(path, false) == Accept {
				e = &t.Scope[i]
				break
			}
		}
		w.by[k] = e
	}
	return e
}
