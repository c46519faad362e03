package plan

// State of a compiled table. [Dead] and [All] stand for themselves; any other is
// the byte offset (a multiple of 8, at least 8) of the state's base in
// [Table.Cells].
type State uint32

// States that have no row. Accept and Sibling occur only as the result of the
// end-of-path class.
const (
	Dead    State = 0 // no path that goes on from here is covered
	All     State = 1 // this path and whatever follows is covered
	Accept  State = 2 // the path that ends here is covered
	Sibling State = 3 // it is covered as the sibling of a file, for saving that
)

// Table is a compiled scope. The kernel program reads it as it is.
type Table struct {
	// Class maps a byte to its class number times 8 (8 to 2048). Byte 0 stands
	// for the end of a path; it and '/' have classes of their own. Class 0 is the
	// default of a row.
	Class [256]uint16
	// Cells holds the transitions, packed: the cell at byte offset s+Class[b]
	// belongs to state s if its low 32 bits are s; its high 32 bits are then the
	// next state. Otherwise the cell at s itself decides in the same way, the
	// row's default; and otherwise the next state is Dead. Every s+Class[b] is
	// inside.
	Cells []uint64
	// Defaults tells whether rows have defaults at all.
	Defaults bool
	// Start has the state at each group's directory.
	Start []State
}

// Step is the state after one more byte of a path. A byte of 0 asks for the end
// ([Table.End] is for that).
func (t *Table) Step(s State, b byte) State {
	if s <= All {
		return s
	}
	c := t.Cells[(uint32(s)+uint32(t.Class[b]))/8]
	if State(uint32(c)) != s {
		if c = t.Cells[s/8]; State(uint32(c)) != s {
			return Dead
		}
	}
	return State(c >> 32)
}

// Walk goes on from s through a path, "" or like "/a/b", from s's directory.
func (t *Table) Walk(s State, path string) State {
	for i := 0; i < len(path) && s > All; i++ {
		s = t.Step(s, path[i])
	}
	return s
}

// End says what a path that ends at s is: [Dead], [Accept] or [Sibling].
func (t *Table) End(s State) State {
	if s == All {
		return Accept
	}
	return t.Step(s, 0)
}

// LiveBelow reports whether something below the directory at s can be covered:
// where that is so, the directory may be made.
func (t *Table) LiveBelow(s State) bool { return t.Step(s, '/') != Dead }

// AllBelow reports whether the path at s and everything below it is covered:
// where that is so, a directory may be renamed with its contents.
func (t *Table) AllBelow(s State) bool {
	return s == All || t.End(s) == Accept && t.Step(s, '/') == All
}
