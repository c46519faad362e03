package plan

import (
	"slices"
	"strings"
)

// node is a name in the tree of tracked files.
type node struct {
	name     string
	children []*node // by name; none for a file
	files    int     // at or below it
}

func newTree(files []string) *node {
	files = slices.Clone(files)
	slices.SortFunc(files, byNames)
	root := &node{}
	for _, f := range slices.Compact(files) {
		at := root
		at.files++
		for name := range strings.SplitSeq(f, "/") {
			last := len(at.children) - 1
			if last < 0 || at.children[last].name != name {
				at.children = append(at.children, &node{name: name})
				last++
			}
			at = at.children[last]
			at.files++
		}
	}
	return root
}

// byNames orders paths name by name, so that a directory's files stand together.
func byNames(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			switch {
			case a[i] == '/':
				return -1
			case b[i] == '/':
				return 1
			}
			return int(a[i]) - int(b[i])
		}
	}
	return len(a) - len(b)
}

// half warns of tasks that cover most of the project.
func (l *linter) half(languages []*dfa) {
	tree := newTree(l.o.Tracked)
	for i, d := range languages {
		if d == nil {
			continue
		}
		n := d.count(tree, d.start[0])
		if 2*n > tree.files && tree.files >= 4 {
			t := &l.p.Tasks[i]
			l.find(CodeHalf, SeverityWarning, t, nil, "split the task, or name the files that it needs", "%s covers %d of %d tracked files, more than half", t.ID, n, tree.files)
		}
	}
}

// count is how many files of a tree are covered from a state on.
func (d *dfa) count(n *node, id int32) int {
	switch {
	case id == idDead:
		return 0
	case id == idAll:
		return n.files
	case n.name != "" && len(n.children) == 0:
		if d.end[id-firstRow] == Accept {
			return 1
		}
		return 0
	}
	sum := 0
	slash := d.step(id, '/')
	for _, c := range n.children {
		s := slash
		for k := 0; k < len(c.name) && s > idAll; k++ {
			s = d.step(s, c.name[k])
		}
		sum += d.count(c, s)
	}
	return sum
}

func (d *dfa) step(id int32, b byte) int32 {
	if id < firstRow {
		return id
	}
	for _, x := range d.row(id) {
		if x.lo <= b && b <= x.hi {
			return x.to
		}
	}
	return idDead
}
