package plan

import (
	"cmp"
	"slices"
)

// minimize merges states that nothing tells apart. States start in one block for
// each kind of end and are told apart by their signature: the row with each
// target replaced by its block. When a block falls apart its largest part keeps
// the name, so a state is looked at again only if a target of it got into a part
// at most half as large: log n times for each edge.
func (d *dfa) minimize() {
	p := newPartition(d)
	preds := d.reverse()
	var fresh []int32
	for len(p.todo) > 0 {
		b := p.todo[len(p.todo)-1]
		p.todo = p.todo[:len(p.todo)-1]
		for id := p.refine(b); int(id) < len(p.first); id++ {
			// Touching moves rows within their block, this one included.
			fresh = append(fresh[:0], p.elems[p.first[id]:p.past[id]]...)
			for _, s := range fresh {
				for _, f := range preds.from[preds.off[s]:preds.off[s+1]] {
					p.touch(f / 2)
				}
			}
		}
	}
	d.merge(p)
}

// partition is the rows of an automaton, divided into blocks. The rows of a block
// whose signature may have changed come first in it.
type partition struct {
	d       *dfa
	elems   []int32 // rows, block by block
	loc     []int32 // where a row is in elems
	block   []int32 // of a row
	first   []int32 // of a block in elems
	past    []int32
	touched []int32 // number of touched rows of a block
	todo    []int32 // blocks with touched rows
	sigs    []signature
}

func newPartition(d *dfa) *partition {
	n := len(d.end)
	p := &partition{d: d, elems: make([]int32, 0, n), loc: make([]int32, n), block: make([]int32, n)}
	for _, kind := range []State{Dead, Accept, Sibling} {
		first := len(p.elems)
		for i, e := range d.end {
			if e == kind {
				p.loc[i] = int32(len(p.elems))
				p.elems = append(p.elems, int32(i))
			}
		}
		if len(p.elems) > first {
			p.addBlock(int32(first), int32(len(p.elems)))
		}
	}
	for row := range n {
		p.touch(int32(row))
	}
	return p
}

// addBlock names a part of elems.
func (p *partition) addBlock(first, past int32) {
	id := int32(len(p.first))
	p.first, p.past, p.touched = append(p.first, first), append(p.past, past), append(p.touched, 0)
	for _, e := range p.elems[first:past] {
		p.block[e] = id
	}
}

func (p *partition) touch(row int32) {
	b := p.block[row]
	to, from := p.first[b]+p.touched[b], p.loc[row]
	if from < to {
		return
	}
	if p.touched[b] == 0 {
		p.todo = append(p.todo, b)
	}
	p.swap(from, to)
	p.touched[b]++
}

func (p *partition) swap(i, j int32) {
	a, b := p.elems[i], p.elems[j]
	p.elems[i], p.elems[j], p.loc[a], p.loc[b] = b, a, j, i
}

// signature is a row of a block with a hash of what it does.
type signature struct {
	hash uint64
	row  int32
}

// refine divides a block by its rows' signatures. New blocks are numbered from
// the one returned.
func (p *partition) refine(b int32) int32 {
	fresh := int32(len(p.first))
	first, touched, past := p.first[b], p.touched[b], p.past[b]
	p.touched[b] = 0
	if past-first == 1 {
		return fresh
	}
	p.sigs = p.sigs[:0]
	for _, row := range p.elems[first : first+touched] {
		p.sigs = append(p.sigs, signature{p.hash(row), row})
	}
	// Untouched rows still agree with each other: one speaks for all.
	rest := past - first - touched
	if rest > 0 {
		row := p.elems[first+touched]
		p.sigs = append(p.sigs, signature{p.hash(row), row})
	}
	slices.SortFunc(p.sigs, func(x, y signature) int {
		if x.hash != y.hash {
			return cmp.Compare(x.hash, y.hash)
		}
		return p.compare(x.row, y.row)
	})
	// Parts go to the front; rows that agree with the untouched stay next to them.
	var parts [][]signature
	for i := 0; i < len(p.sigs); {
		j := i + 1
		for j < len(p.sigs) && p.sigs[i].hash == p.sigs[j].hash && p.compare(p.sigs[i].row, p.sigs[j].row) == 0 {
			j++
		}
		part := p.sigs[i:j]
		if !slices.ContainsFunc(part, func(s signature) bool { return p.loc[s.row] >= first+touched }) {
			parts = append(parts, part)
		}
		i = j
	}
	at := first
	bounds := []int32{first}
	for _, part := range parts {
		for _, s := range part {
			p.swap(p.loc[s.row], at)
			at++
		}
		bounds = append(bounds, at)
	}
	if rest > 0 {
		bounds = append(bounds, past)
	}
	largest := 0
	for i := range len(bounds) - 1 {
		if bounds[i+1]-bounds[i] > bounds[largest+1]-bounds[largest] {
			largest = i
		}
	}
	p.first[b], p.past[b] = bounds[largest], bounds[largest+1]
	for i := range len(bounds) - 1 {
		if i != largest {
			p.addBlock(bounds[i], bounds[i+1])
		}
	}
	return fresh
}

// target is the block of an edge's target; All is a block of its own.
func (p *partition) target(to int32) int32 {
	if to == idAll {
		return -1
	}
	return p.block[to-firstRow]
}

// next returns the edge at i as a signature has it, with the edges behind it that
// go on to the same block, and the index behind those.
func (p *partition) next(row []dfaEdge, i int) (dfaEdge, int) {
	x := row[i]
	x.to = p.target(x.to)
	for i++; i < len(row) && int(row[i].lo) == int(x.hi)+1 && p.target(row[i].to) == x.to; i++ {
		x.hi = row[i].hi
	}
	return x, i
}

func (p *partition) hash(row int32) uint64 {
	h := uint64(0)
	edges := p.d.row(row + firstRow)
	for i := 0; i < len(edges); {
		var x dfaEdge
		x, i = p.next(edges, i)
		h = mix(h ^ (uint64(x.lo)<<8 | uint64(x.hi) | uint64(uint32(x.to))<<16))
	}
	return h
}

// compare orders two rows by what they do; 0 means the same.
func (p *partition) compare(a, b int32) int {
	if a == b {
		return 0
	}
	x, y := p.d.row(a+firstRow), p.d.row(b+firstRow)
	i, j := 0, 0
	for i < len(x) && j < len(y) {
		var e, f dfaEdge
		e, i = p.next(x, i)
		f, j = p.next(y, j)
		if c := cmp.Or(int(e.lo)-int(f.lo), int(e.hi)-int(f.hi), int(e.to)-int(f.to)); c != 0 {
			return c
		}
	}
	return (len(x) - i) - (len(y) - j)
}

// merge rebuilds the automaton from blocks of its states, in the order in which
// they are reached from the starts, so that the result depends on nothing else.
func (d *dfa) merge(p *partition) {
	number := make([]int32, len(p.first)) // block -> new id, 0 for none
	var order []int32                     // new row -> an old row
	id := func(old int32) int32 {
		if old < firstRow {
			return old
		}
		b := p.block[old-firstRow]
		if number[b] == 0 {
			number[b] = int32(len(order)) + firstRow
			order = append(order, old-firstRow)
		}
		return number[b]
	}
	out := dfa{off: []int32{0}}
	for _, s := range d.start {
		out.start = append(out.start, id(s))
	}
	for i := 0; i < len(order); i++ {
		row := d.edges[d.off[order[i]]:d.off[order[i]+1]]
		begin := len(out.edges)
		for _, x := range row {
			x.to = id(x.to)
			if n := len(out.edges); n > begin && out.edges[n-1].to == x.to && int(out.edges[n-1].hi) == int(x.lo)-1 && x.lo != '/' && x.lo != '/'+1 {
				out.edges[n-1].hi = x.hi
			} else {
				out.edges = append(out.edges, x)
			}
		}
		out.off = append(out.off, int32(len(out.edges)))
		out.end = append(out.end, d.end[order[i]])
	}
	*d = out
}
