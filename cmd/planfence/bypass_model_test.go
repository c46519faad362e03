//go:build vm

package main_test

import (
	"fmt"
	"path"
	"regexp"
	"sort"
	"strings"
)

// The model of the fuzz test: a small tree of files in memory, and what the
// contract says of scopes, written down without looking at the fence. It
// answers for each operation whether it would work without the fence, and
// whether the scope allows it.

type kind byte

const (
	file kind = iota
	dir
	symlink
)

type node struct {
	kind     kind
	children map[string]*node
	parent   *node // of a directory
	name     string
	target   string // of a symlink
	links    int
	strange  bool // has names that the session did not make
}

// model is the tree below the project root.
type model struct {
	root  *node
	scope []modelEntry
	known map[question]bool // verdicts depend on nothing but the path
	names []string          // of paths; nil after a change
}

type question struct {
	what byte
	path string
}

// once answers a question about a path from memory, where it was asked before.
func (m *model) once(what byte, p string, answer func() bool) bool {
	q := question{what, p}
	a, ok := m.known[q]
	if !ok {
		a = answer()
		m.known[q] = a
	}
	return a
}

// modelEntry is a scope entry as the contract's table explains it.
type modelEntry struct {
	exclude bool
	self    *regexp.Regexp // the paths that it covers
	inside  *regexp.Regexp // directories in which something covered could live
	tree    *regexp.Regexp // directories that it covers with everything below
	sibling *regexp.Regexp // names beside the file, for saving it
}

func newModel(scope []modelEntry) *model {
	return &model{root: &node{kind: dir, children: map[string]*node{}, links: 2}, scope: scope, known: map[question]bool{}}
}

// covered: in scope, not counting siblings.
func (m *model) covered(p string) bool {
	in := false
	for _, e := range m.scope {
		if e.self.MatchString(p) {
			if e.exclude {
				return false
			}
			in = true
		}
	}
	return in
}

func (m *model) excluded(p string) bool {
	for _, e := range m.scope {
		if e.exclude && e.self.MatchString(p) {
			return true
		}
	}
	return false
}

// writable: in scope, or a sibling of a file that is.
func (m *model) writable(p string) bool {
	return m.once('w', p, func() bool { return m.writableNow(p) })
}

func (m *model) writableNow(p string) bool {
	if m.covered(p) {
		return true
	}
	for _, e := range m.scope {
		if e.sibling != nil && e.sibling.MatchString(p) && !m.excluded(p) {
			return true
		}
	}
	return false
}

// makable: a directory may be made there.
func (m *model) makable(p string) bool { return m.once('m', p, func() bool { return m.makableNow(p) }) }

func (m *model) makableNow(p string) bool {
	if m.covered(p) {
		return true
	}
	if m.excluded(p) {
		return false
	}
	for _, e := range m.scope {
		if !e.exclude && e.inside != nil && e.inside.MatchString(p) {
			return true
		}
	}
	return false
}

// whole: everything below is in scope, so that a directory may be moved.
func (m *model) whole(p string) bool { return m.once('t', p, func() bool { return m.wholeNow(p) }) }

func (m *model) wholeNow(p string) bool {
	if !m.covered(p) {
		return false
	}
	all := false
	for _, e := range m.scope {
		if e.exclude && e.inside != nil && e.inside.MatchString(p) {
			return false // something below is excluded
		}
		all = all || e.tree != nil && e.tree.MatchString(p)
	}
	return all
}

func (n *node) path() string {
	if n.parent == nil {
		return ""
	}
	return path.Join(n.parent.path(), n.name)
}

// place is a name in a directory, whether anything is there or not.
type spot struct {
	dir  *node
	name string
	node *node
}

func (s spot) path() string {
	if s.dir == nil {
		return ""
	}
	return path.Join(s.dir.path(), s.name)
}

// find resolves a path; ok is false where the kernel would say no.
func (m *model) find(p string, follow bool) (spot, bool) {
	cur, rest, hops := m.root, strings.Split(p, "/"), 0
	for {
		name := rest[0]
		rest = rest[1:]
		var s spot
		switch name {
		case ".", "":
			s = spot{node: cur, dir: cur.parent, name: cur.name}
		case "..":
			if cur.parent == nil {
				return spot{}, false // out of the tree: not made by this test
			}
			cur = cur.parent
			s = spot{node: cur, dir: cur.parent, name: cur.name}
		default:
			s = spot{cur, name, cur.children[name]}
		}
		if s.node != nil && s.node.kind == symlink && (len(rest) > 0 || follow) {
			if hops++; hops > 40 {
				return spot{}, false
			}
			to := s.node.target
			if strings.HasPrefix(to, "/") {
				cur, to = m.root, to[1:]
			}
			rest = append(strings.Split(to, "/"), rest...)
			continue
		}
		if len(rest) == 0 {
			return s, true
		}
		if s.node == nil || s.node.kind != dir {
			return spot{}, false
		}
		cur = s.node
	}
}

func (m *model) inPlace(s spot) bool {
	return m.writable(s.path()) && !(s.node.kind != dir && s.node.strange && s.node.links > 1)
}

func (s spot) add(n *node) {
	s.dir.children[s.name] = n
	if n.kind == dir {
		n.parent, n.name = s.dir, s.name
	} else {
		n.links++
	}
}

func (s spot) remove() {
	n := s.dir.children[s.name]
	delete(s.dir.children, s.name)
	if n.kind != dir {
		n.links--
	}
}

// below reports whether d is n or lies in it.
func below(d, n *node) bool {
	for ; d != nil; d = d.parent {
		if d == n {
			return true
		}
	}
	return false
}

// step is one operation.
type step struct {
	Op    string
	A, B  string
	Flags int
}

func (s step) String() string { return fmt.Sprintf("%s %s %s %#x", s.Op, s.A, s.B, s.Flags) }

// Flags of a step.
const (
	stepCreate = 1 << iota
	stepExcl
	stepTrunc
	stepNoFollow
	stepExchange
	stepNoReplace
)

// try tells whether a step works without the fence and whether the scope
// allows it, and carries it out if both are so.
func (m *model) try(s step) (works, allowed bool) {
	if works, allowed = m.judge(s); works && allowed {
		m.names = nil
	}
	return works, allowed
}

func (m *model) judge(s step) (works, allowed bool) {
	a, ok := m.find(s.A, false)
	if s.Op == "open" || s.Op == "truncate" || s.Op == "chmod" {
		a, ok = m.find(s.A, s.Flags&stepNoFollow == 0 && !(s.Flags&stepCreate != 0 && s.Flags&stepExcl != 0))
	}
	if !ok {
		return false, false
	}
	switch s.Op {
	case "open":
		if a.node == nil {
			if s.Flags&stepCreate == 0 || a.dir == nil {
				return false, false
			}
			allowed = m.writable(a.path())
			if allowed {
				a.add(&node{kind: file})
			}
			return true, allowed
		}
		if a.node.kind != file || s.Flags&stepCreate != 0 && s.Flags&stepExcl != 0 {
			return false, false
		}
		return true, m.inPlace(a)
	case "truncate":
		if a.node == nil || a.node.kind != file {
			return false, false
		}
		return true, m.inPlace(a)
	case "chmod", "utimes":
		if a.node == nil {
			return false, false
		}
		return true, m.inPlace(a)
	case "mkdir", "symlink":
		if a.node != nil || a.dir == nil {
			return false, false
		}
		n := &node{kind: dir, children: map[string]*node{}, links: 2}
		allowed = m.makable(a.path())
		if s.Op == "symlink" {
			n, allowed = &node{kind: symlink, target: s.B}, m.writable(a.path())
		}
		if allowed {
			a.add(n)
		}
		return true, allowed
	case "unlink", "rmdir":
		if a.node == nil || (a.node.kind == dir) != (s.Op == "rmdir") || a.dir == nil || len(a.node.children) > 0 {
			return false, false
		}
		if allowed = m.writable(a.path()); allowed {
			a.remove()
		}
		return true, allowed
	}
	b, ok := m.find(s.B, false)
	if !ok || a.node == nil || a.dir == nil || b.dir == nil {
		return false, false
	}
	if s.Op == "link" {
		if a.node.kind == dir || b.node != nil {
			return false, false
		}
		if allowed = m.writable(a.path()) && m.writable(b.path()); allowed {
			b.add(a.node)
		}
		return true, allowed
	}
	return m.rename(s, a, b)
}

func (m *model) rename(s step, a, b spot) (works, allowed bool) {
	exchange := s.Flags&stepExchange != 0
	if exchange && b.node == nil || s.Flags&stepNoReplace != 0 && b.node != nil ||
		below(b.dir, a.node) && a.node.kind == dir || b.node != nil && b.node.kind == dir && below(a.dir, b.node) {
		return false, false
	}
	aDir, bDir := a.node.kind == dir, b.node != nil && b.node.kind == dir
	need := m.writable
	if aDir || exchange && bDir {
		need = m.whole
	}
	allowed = need(a.path()) && need(b.path())
	if a.node == b.node {
		return true, allowed
	}
	if !exchange && b.node != nil && (aDir != bDir || len(b.node.children) > 0) {
		return false, false
	}
	if !allowed {
		return true, false
	}
	x, y := a.node, b.node
	a.remove()
	if y != nil {
		b.remove()
	}
	b.add(x)
	if exchange {
		a.add(y)
	}
	return true, true
}

// paths are all names, sorted, down to the fourth level.
func (m *model) paths() []string {
	if m.names != nil {
		return m.names
	}
	out := []string{}
	var walk func(n *node, p string, depth int)
	walk = func(n *node, p string, depth int) {
		for name, c := range n.children {
			q := path.Join(p, name)
			out = append(out, q)
			if c.kind == dir && depth < 4 {
				walk(c, q, depth+1)
			}
		}
	}
	walk(m.root, "", 1)
	sort.Strings(out)
	m.names = out
	return out
}

// list has a line a name.
func (m *model) list() string {
	var out []string
	var walk func(n *node, p string)
	walk = func(n *node, p string) {
		for name, c := range n.children {
			q := path.Join(p, name)
			switch c.kind {
			case dir:
				out = append(out, q+"/")
				walk(c, q)
			case symlink:
				out = append(out, q+" -> "+c.target)
			default:
				out = append(out, fmt.Sprintf("%s %d", q, c.links))
			}
		}
	}
	walk(m.root, "")
	sort.Strings(out)
	return strings.Join(out, "\n")
}
