package plan

import (
	"fmt"
	"slices"
)

// pack lays the rows into one array so that they interlock: each row is moved to
// where all its cells fall on free ones. Rows with many transitions come first;
// the small ones fill the holes.
//
// Where that needs more cells than there may be, rows in which most classes lead
// to one state get a default in their class 0 and name the exceptions only: a
// wildcard beside many literals gives each of their states a transition for
// nearly every byte. Such rows cost a second look, so tables that fit have none.
func (d *dfa) pack(l Limits) (*Table, error) {
	t, err := d.packWith(l, false)
	if err != nil {
		t, err = d.packWith(l, true)
	}
	return t, err
}

func (d *dfa) packWith(l Limits, defaults bool) (*Table, error) {
	class, classes := d.classify()
	t := &Table{Defaults: defaults}
	for b := range class {
		t.Class[b] = class[b] &^ firstOfClass * 8
	}
	columns := func(row int, out []column) []column {
		out = d.columns(row, &class, out)
		if defaults {
			out = withDefault(out, classes)
		}
		return out
	}
	rows := len(d.end)
	base := make([]int32, rows)
	order := make([]int32, rows)
	size := make([]int32, rows)
	var cols []column
	cells := classes
	for i := range order {
		order[i] = int32(i)
		cols = columns(i, cols[:0])
		size[i] = int32(len(cols))
		cells += len(cols)
	}
	p := newPacker(min(cells+cells/8, l.cells()))
	slices.SortStableFunc(order, func(a, b int32) int { return int(size[b] - size[a]) })
	for _, i := range order {
		cols = columns(int(i), cols[:0])
		base[i] = p.place(cols)
		if p.top > l.cells() {
			return nil, fmt.Errorf("%d cells", l.cells())
		}
	}
	length := 1
	for _, b := range base {
		length = max(length, int(b)+classes)
	}
	if length > l.cells() {
		return nil, fmt.Errorf("%d cells", l.cells())
	}
	t.Cells = make([]uint64, length)
	state := func(id int32) State {
		if id < firstRow {
			return State(id)
		}
		return State(base[id-firstRow]) * 8
	}
	for i := range d.end {
		s := state(int32(i) + firstRow)
		cols = columns(i, cols[:0])
		for _, c := range cols {
			next := State(c.to)
			if !c.end {
				next = state(c.to)
			}
			t.Cells[int(base[i])+int(c.class)] = uint64(next)<<32 | uint64(s)
		}
	}
	for _, s := range d.start {
		t.Start = append(t.Start, state(s))
	}
	return t, nil
}

// column is one transition of a row.
type column struct {
	class uint16
	end   bool // to is a State, the result of the end of a path
	to    int32
}

func (d *dfa) columns(row int, class *[256]uint16, out []column) []column {
	if e := d.end[row]; e != Dead {
		out = append(out, column{class[0] &^ firstOfClass, true, int32(e)})
	}
	for _, x := range d.edges[d.off[row]:d.off[row+1]] {
		for b := int(x.lo); b <= int(x.hi); b++ {
			if class[b]&firstOfClass != 0 {
				out = append(out, column{class[b] &^ firstOfClass, false, x.to})
			}
		}
	}
	return out
}

// withDefault rewrites a row with a default where that saves cells. Class 0 then
// has the target that most classes share; classes that are dead are named.
func withDefault(cols []column, classes int) []column {
	const saving = 4 // cells, from which a second look is worth it
	count := map[int32]int{}
	best, most := int32(0), 0
	for _, c := range cols {
		if c.end {
			continue
		}
		if count[c.to]++; count[c.to] > most || count[c.to] == most && c.to < best {
			best, most = c.to, count[c.to]
		}
	}
	if cost := classes - most; cost+saving > len(cols) {
		return cols
	}
	named := make([]bool, classes)
	out := []column{{0, false, best}}
	for _, c := range cols {
		named[c.class] = true
		if c.end || c.to != best {
			out = append(out, c)
		}
	}
	for k := 1; k < classes; k++ {
		if !named[k] {
			out = append(out, column{uint16(k), true, int32(Dead)})
		}
	}
	return out
}

// packer knows which cells and bases are taken.
type packer struct {
	taken []bool  // cell
	based []bool  // cell is the base of a row
	skip  []int32 // a cell -> a cell from which on to look for a free one
	top   int     // cells up to here are in use
	size  int     // of the rows placed last
	from  int     // where to start looking for rows of that size
	tries int     // left before from moves on
}

const (
	maxTries   = 400   // places looked at for one row
	triesAPart = 20000 // places looked at before the front is given up
)

// free returns the first free cell from i on.
func (p *packer) free(i int) int {
	root := i
	for root < len(p.taken) && p.taken[root] {
		root = int(p.skip[root])
	}
	for i < root { // shorten the way for the next time
		next := int(p.skip[i])
		p.skip[i] = int32(root)
		i = next
	}
	return root
}

// newPacker has room for a table of that many cells before it has to grow.
func newPacker(cells int) *packer {
	return &packer{skip: make([]int32, 0, cells), taken: make([]bool, 0, cells), based: make([]bool, 0, cells)}
}

func (p *packer) grow(n int) {
	for len(p.taken) < n {
		p.skip = append(p.skip, int32(len(p.taken)+1))
		p.taken = append(p.taken, false)
		p.based = append(p.based, false)
	}
}

func (p *packer) fits(base int, cols []column) bool {
	if base < 1 || base < len(p.based) && p.based[base] {
		return false
	}
	for _, c := range cols {
		if i := base + int(c.class); i < len(p.taken) && p.taken[i] {
			return false
		}
	}
	return true
}

// place finds a base for a row that no other row has.
func (p *packer) place(cols []column) int32 {
	first, last := int(cols[0].class), 0
	for _, c := range cols {
		first, last = min(first, int(c.class)), max(last, int(c.class))
	}
	if len(cols) != p.size { // the holes left may do for smaller rows
		p.size, p.from, p.tries = len(cols), 0, triesAPart
	}
	cell := p.free(max(p.from, first+1))
	begin := cell
	for n := 0; !p.fits(cell-first, cols); n++ {
		if n == maxTries {
			cell = max(cell, p.top+first)
			for !p.fits(cell-first, cols) {
				cell++
			}
			break
		}
		cell = p.free(cell + 1)
		p.tries--
	}
	if p.tries <= 0 {
		p.from, p.tries = (begin+cell)/2, triesAPart
	}
	base := cell - first
	p.grow(base + last + 1)
	p.based[base] = true
	for _, c := range cols {
		p.taken[base+int(c.class)] = true
	}
	p.top = max(p.top, base+last+1)
	return int32(base)
}
