package plan

// trim redirects edges that lead nowhere to Dead and edges behind which all is
// covered to All. It looks at paths as they are, names separated by single
// slashes: what only a path with an empty name could reach does not count. So
// there are two questions to a state: behind a slash, where a name must follow,
// and elsewhere. Edges for slashes must stand alone (splitSlashes).
func (d *dfa) trim() {
	rows := len(d.end)
	rev := d.reverse()
	// live: a covered path can follow. some: one is not covered.
	live, some := newMarks(rows), newMarks(rows)
	for i := range rows {
		if d.end[i] != Dead {
			live.add(i, elsewhere)
		}
		for _, x := range d.edges[d.off[i]:d.off[i+1]] {
			if x.to != idAll {
				continue
			}
			live.add(i, elsewhere)
			if x.lo != '/' {
				live.add(i, behindSlash)
			}
		}
		if d.end[i] != Accept {
			some.add(i, elsewhere)
		}
		if names, slash := d.covers(i); !names {
			some.add(i, behindSlash)
			some.add(i, elsewhere)
		} else if !slash {
			some.add(i, elsewhere)
		}
	}
	live.spread(rev)
	some.spread(rev)

	edges, off := d.edges[:0], int32(0)
	for i := range rows {
		row := d.edges[off:d.off[i+1]]
		off = d.off[i+1]
		for _, x := range row {
			if x.to >= firstRow {
				t, where := int(x.to-firstRow), elsewhere
				if x.lo == '/' {
					where = behindSlash
				}
				switch {
				case !live.has(t, where):
					continue
				case !some.has(t, where):
					x.to = idAll
				}
			}
			edges = append(edges, x)
		}
		d.off[i+1] = int32(len(edges))
	}
	d.edges = edges
	for g, s := range d.start {
		switch {
		case s < firstRow:
		case !live.has(int(s-firstRow), elsewhere):
			d.start[g] = idDead
		case d.end[s-firstRow] == Accept && d.allBelow(s):
			d.start[g] = idAll
		}
	}
}

// allBelow reports whether a slash leads to All. A start is followed by a slash or
// by nothing.
func (d *dfa) allBelow(id int32) bool {
	for _, x := range d.row(id) {
		if x.lo == '/' {
			return x.to == idAll
		}
	}
	return false
}

const (
	elsewhere   = 0
	behindSlash = 1
)

// splitSlashes gives '/' edges of their own, so that an edge is for the slash
// alone or for bytes of names alone.
func (d *dfa) splitSlashes() {
	edges := make([]dfaEdge, 0, len(d.edges)+len(d.edges)/4)
	off := int32(0)
	for i := range d.end {
		row := d.edges[off:d.off[i+1]]
		off = d.off[i+1]
		for _, x := range row {
			if x.lo > '/' || x.hi < '/' || x.lo == x.hi {
				edges = append(edges, x)
				continue
			}
			if x.lo < '/' {
				edges = append(edges, dfaEdge{x.lo, '/' - 1, x.to})
			}
			edges = append(edges, dfaEdge{'/', '/', x.to})
			if x.hi > '/' {
				edges = append(edges, dfaEdge{'/' + 1, x.hi, x.to})
			}
		}
		d.off[i+1] = int32(len(edges))
	}
	d.edges = edges
}

// covers reports whether a row has an edge for every byte of a name, and one for
// the slash.
func (d *dfa) covers(row int) (names, slash bool) {
	n := 0
	for _, x := range d.edges[d.off[row]:d.off[row+1]] {
		n += int(x.hi-x.lo) + 1
		if x.lo == '/' {
			slash = true
			n--
		}
	}
	return n == 254, slash
}

// back is the edges by their target: who leads here by a slash, and who by a
// byte of a name.
type back struct {
	off  []int32
	from []int32 // row*2, +1 for a slash
}

func (d *dfa) reverse() back {
	b := back{off: make([]int32, len(d.end)+2)}
	for _, x := range d.edges {
		if x.to >= firstRow {
			b.off[x.to-firstRow+2]++
		}
	}
	for i := 2; i < len(b.off); i++ {
		b.off[i] += b.off[i-1]
	}
	b.from = make([]int32, b.off[len(b.off)-1])
	for i := range d.end {
		for _, x := range d.edges[d.off[i]:d.off[i+1]] {
			if x.to < firstRow {
				continue
			}
			p := &b.off[x.to-firstRow+1]
			b.from[*p] = int32(i) * 2
			if x.lo == '/' {
				b.from[*p]++
			}
			*p++
		}
	}
	return b
}

// marks is a set of (row, where) pairs, with those whose predecessors are still
// to be seen.
type marks struct {
	in   []bool
	todo []int32
}

func newMarks(rows int) *marks { return &marks{in: make([]bool, 2*rows)} }

func (m *marks) has(row, where int) bool { return m.in[2*row+where] }

func (m *marks) add(row, where int) {
	if k := 2*row + where; !m.in[k] {
		m.in[k] = true
		m.todo = append(m.todo, int32(k))
	}
}

// spread adds whatever leads to a member: a slash leads behind a slash, a byte of
// a name elsewhere; behind a slash only bytes of names count.
func (m *marks) spread(b back) {
	for len(m.todo) > 0 {
		k := m.todo[len(m.todo)-1]
		m.todo = m.todo[:len(m.todo)-1]
		row, where := k/2, k%2
		for _, f := range b.from[b.off[row]:b.off[row+1]] {
			if f%2 != where {
				continue
			}
			m.add(int(f/2), elsewhere)
			if where == elsewhere {
				m.add(int(f/2), behindSlash)
			}
		}
	}
}
