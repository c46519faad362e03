package plan

import "slices"

// partition is a set of numbers divided into blocks, refined by marking members
// of blocks and splitting.
type partition struct {
	elems  []int32 // members, block by block
	loc    []int32 // where a member is in elems
	block  []int32 // of a member
	first  []int32 // of a block in elems
	past   []int32
	marked []int32 // number of marked members; they come first in the block
	hit    []int32 // blocks with marks
}

func newPartition(n int) *partition {
	p := &partition{elems: make([]int32, n), loc: make([]int32, n), block: make([]int32, n)}
	for i := range n {
		p.elems[i], p.loc[i] = int32(i), int32(i)
	}
	if n > 0 {
		p.addBlock(0, int32(n))
	}
	return p
}

func (p *partition) addBlock(first, past int32) {
	p.first, p.past, p.marked = append(p.first, first), append(p.past, past), append(p.marked, 0)
}

func (p *partition) mark(e int32) {
	b := p.block[e]
	to := p.first[b] + p.marked[b]
	if p.loc[e] < to {
		return // is marked
	}
	from := p.loc[e]
	other := p.elems[to]
	p.elems[from], p.loc[other] = other, from
	p.elems[to], p.loc[e] = e, to
	if p.marked[b] == 0 {
		p.hit = append(p.hit, b)
	}
	p.marked[b]++
}

// split divides every block with marks into marked and unmarked; the smaller part
// becomes a new block.
func (p *partition) split() {
	for _, b := range p.hit {
		first, mid, past := p.first[b], p.first[b]+p.marked[b], p.past[b]
		p.marked[b] = 0
		if mid == past {
			continue
		}
		id := int32(len(p.first))
		if mid-first <= past-mid {
			p.addBlock(first, mid)
			p.first[b] = mid
		} else {
			p.addBlock(mid, past)
			p.past[b] = mid
		}
		for _, e := range p.elems[p.first[id]:p.past[id]] {
			p.block[e] = id
		}
	}
	p.hit = p.hit[:0]
}

// minimize merges states that nothing tells apart, by refining states and
// transitions in turn: transitions are told apart by their class and the block
// they lead to, states by the transitions they have. Time is m log m for m
// transitions (a row has one for each class that it does not send to Dead).
func (d *dfa) minimize(class *[256]uint16, classes int) {
	rows := len(d.end)
	// One more state stands for All.
	states := newPartition(rows + 1)
	for _, kind := range []State{Accept, Sibling} {
		for i, e := range d.end {
			if e == kind {
				states.mark(int32(i))
			}
		}
		states.split()
	}
	states.mark(int32(rows))
	states.split()

	var tail, head []int32
	var label []uint16
	var last uint16
	for i := range rows {
		for _, x := range d.edges[d.off[i]:d.off[i+1]] {
			to := x.to - firstRow
			if x.to == idAll {
				to = int32(rows)
			}
			last = 0xFFFF
			for b := int(x.lo); b <= int(x.hi); b++ {
				// Bytes of a class need not be neighbours: its first stands for it.
				if c := class[b]; c&firstOfClass != 0 && c != last {
					tail, head, label = append(tail, int32(i)), append(head, to), append(label, c&^firstOfClass)
					last = c
				}
			}
		}
	}
	cords := sortedByLabel(label, classes)
	in := inbound(head, rows+1)
	for c, b := 0, 1; c < len(cords.first); c++ {
		for _, e := range cords.elems[cords.first[c]:cords.past[c]] {
			states.mark(tail[e])
		}
		states.split()
		for ; b < len(states.first); b++ {
			for _, s := range states.elems[states.first[b]:states.past[b]] {
				for _, e := range in.edges[in.off[s]:in.off[s+1]] {
					cords.mark(e)
				}
			}
			cords.split()
		}
	}
	d.merge(states)
}

// firstOfClass flags the first byte of a class in the table of classes.
const firstOfClass = 0x8000

func sortedByLabel(label []uint16, classes int) *partition {
	p := &partition{elems: make([]int32, len(label)), loc: make([]int32, len(label)), block: make([]int32, len(label))}
	count := make([]int32, classes+1)
	for _, l := range label {
		count[l+1]++
	}
	for i := 1; i <= classes; i++ {
		count[i] += count[i-1]
	}
	blockOf := make([]int32, classes)
	for l := range classes {
		if count[l] < count[l+1] {
			blockOf[l] = int32(len(p.first))
			p.addBlock(count[l], count[l+1])
		}
	}
	at := slices.Clone(count)
	for i, l := range label {
		p.elems[at[l]], p.loc[i], p.block[i] = int32(i), at[l], blockOf[l]
		at[l]++
	}
	return p
}

type inEdges struct{ off, edges []int32 }

func inbound(head []int32, states int) inEdges {
	in := inEdges{make([]int32, states+2), make([]int32, len(head))}
	for _, h := range head {
		in.off[h+2]++
	}
	for i := 2; i < len(in.off); i++ {
		in.off[i] += in.off[i-1]
	}
	for e, h := range head {
		in.edges[in.off[h+1]] = int32(e)
		in.off[h+1]++
	}
	return in
}

// merge rebuilds the automaton from blocks of its states, in the order in which
// they are reached from the starts, so that the result depends on nothing else.
func (d *dfa) merge(states *partition) {
	number := make([]int32, len(states.first)) // block -> new id, 0 for none
	number[states.block[len(d.end)]] = idAll
	var order []int32 // new row -> an old row
	id := func(old int32) int32 {
		if old < firstRow {
			return old
		}
		b := states.block[old-firstRow]
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

// classify puts bytes that all states treat alike into one class; '/' and the
// end of a path (byte 0) have their own. It returns class numbers, with
// firstOfClass on the first byte of each, and their number.
func (d *dfa) classify() (class [256]uint16, n int) {
	// A byte's column is summed up as a number of 128 bits: each edge adds its
	// own to the bytes it covers. An equal sum of different columns would be a
	// collision of a 128-bit hash.
	var sum [257][2]uint64
	for i := range d.end {
		for _, x := range d.edges[d.off[i]:d.off[i+1]] {
			a := mix(uint64(i)<<32 | uint64(uint32(x.to)))
			b := mix(a ^ 0x9E3779B97F4A7C15)
			sum[x.lo][0] += a
			sum[x.lo][1] += b
			sum[int(x.hi)+1][0] -= a
			sum[int(x.hi)+1][1] -= b
		}
	}
	known := map[[2]uint64]uint16{}
	var run [2]uint64
	for b := range 256 {
		run[0] += sum[b][0]
		run[1] += sum[b][1]
		c, ok := known[run]
		if own := b == 0 || b == '/'; own || !ok {
			c = uint16(n)
			n++
			class[b] = c | firstOfClass
			if !own {
				known[run] = c
			}
			continue
		}
		class[b] = c
	}
	return class, n
}

// mix spreads a number over 64 bits, one to one.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
