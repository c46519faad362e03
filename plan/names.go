package plan

// Name is what a table says of a whole name: from the state of a directory,
// over '/' and the name, to the state of what has it.
type Name struct {
	From State // at the directory
	Text string
	To   State // at the name
	// AllBelow: whatever lies below the name is covered.
	AllBelow bool
}

// Names lists names of at most length bytes that the table knows one by one,
// those nearest to start first, and at most limit of them: what literal entries
// and their directories are called. What a wildcard covers is not among them.
func (t *Table) Names(start State, length, limit int) []Name {
	bytes := t.representatives()
	var out []Name
	seen := map[State]bool{start: true}
	for dirs := []State{start}; len(dirs) > 0 && len(out) < limit; {
		from := dirs[0]
		dirs = dirs[1:]
		if from <= All {
			continue
		}
		for _, n := range t.namesIn(from, bytes, length, limit-len(out)) {
			out = append(out, n)
			if !seen[n.To] {
				seen[n.To] = true
				dirs = append(dirs, n.To)
			}
		}
	}
	return out
}

// wild is how many bytes a state goes on with before it counts as a wildcard.
const wild = 16

// representative is a byte of a class; alone: the only one.
type representative struct {
	b     byte
	alone bool
}

// representatives returns a byte of each class but those of '/' and of the end.
func (t *Table) representatives() (out []representative) {
	count := map[uint16]int{}
	for b := 1; b < 256; b++ {
		count[t.Class[b]]++
	}
	seen := map[uint16]bool{}
	for b := 1; b < 256; b++ {
		c := t.Class[b]
		if b == '/' || seen[c] {
			continue
		}
		seen[c] = true
		out = append(out, representative{byte(b), count[c] == 1})
	}
	return out
}

func (t *Table) namesIn(from State, bytes []representative, length, limit int) (out []Name) {
	type partial struct {
		s    State
		text string
	}
	todo := []partial{{t.Step(from, '/'), ""}}
	for len(todo) > 0 && len(out) < limit {
		p := todo[0]
		todo = todo[1:]
		if p.s <= All {
			continue
		}
		if p.text != "" && (t.End(p.s) == Accept || t.LiveBelow(p.s)) {
			out = append(out, Name{from, p.text, p.s, t.Step(p.s, '/') == All})
		}
		if len(p.text) == length {
			continue
		}
		first := len(todo)
		for _, r := range bytes {
			to := t.Step(p.s, r.b)
			if to == Dead {
				continue
			}
			if !r.alone || len(todo)-first == wild {
				todo = todo[:first] // a wildcard: no end of names
				break
			}
			todo = append(todo, partial{to, p.text + string([]byte{r.b})})
		}
	}
	return out
}

// Skips returns the states behind a '/' to which every name and another '/' lead
// back, as below a `**`: on a path, only the last name after one has to be read.
func (t *Table) Skips() map[State]bool {
	bytes := t.representatives()
	skips := map[State]bool{}
	for i, c := range t.Cells {
		from, to := State(uint32(c)), State(c>>32)
		if from <= All || to <= All || uint32(i)*8-uint32(from) != uint32(t.Class['/']) {
			continue
		}
		if _, known := skips[to]; !known {
			skips[to] = t.skips(to, bytes)
		}
	}
	return skips
}

func (t *Table) skips(at State, bytes []representative) bool {
	seen := map[State]bool{}
	for todo := []State{at}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, r := range bytes {
			to := t.Step(s, r.b)
			if seen[to] {
				continue
			}
			if t.Step(to, '/') != at { // Dead and All go nowhere else
				return false
			}
			seen[to] = true
			todo = append(todo, to)
		}
	}
	return true
}
