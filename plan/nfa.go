package plan

import "strings"

// The rules of all groups become one nondeterministic automaton over the bytes
// of a path. Literal prefixes share a trie, so that thousands of names cost no
// more than their bytes.

type edgeKind uint8

const (
	edgeBytes edgeKind = iota // any byte from lo to hi
	edgeChar                  // one character: what "?" matches
	edgeFree                  // nothing is read
)

type nfaEdge struct {
	kind   edgeKind
	lo, hi byte
	to     int32
	next   int32 // next edge of the same state, -1 at the end
}

// Marks of a state.
const (
	markInclude  = 1 << iota // a path that ends here is included
	markExclude              // excluded
	markSibling              // included as a sibling
	markAll                  // with markInclude or markExclude: so is whatever follows
	markNegative             // belongs to an exclusion
)

type nfa struct {
	head  []int32 // first edge of a state, -1 for none
	mark  []uint8
	rule  []int32 // the rule that made the state, for blame; -1 for shared ones
	edges []nfaEdge

	current  int32            // rule under construction
	all      [2]int32         // shared states with markAll: included, excluded
	tails    map[string]int32 // shared tails of sibling patterns
	posTries []int32          // root of each group's trie of inclusions
	negTries []int32          // and of exclusions
}

func newNFA() *nfa {
	n := &nfa{current: -1, tails: map[string]int32{}, edges: make([]nfaEdge, 0, 1024)}
	n.newAll()
	return n
}

// newAll makes the states behind which everything is included, or excluded.
func (n *nfa) newAll() {
	for i, m := range []uint8{markInclude | markAll, markExclude | markAll | markNegative} {
		n.all[i] = n.state(m)
		n.bytes(n.all[i], 1, 255, n.all[i])
	}
}

// group starts a group's tries.
func (n *nfa) group() {
	n.current = -1
	n.posTries = append(n.posTries, n.state(0))
	n.negTries = append(n.negTries, n.state(markNegative))
}

func (n *nfa) state(mark uint8) int32 {
	n.head = append(n.head, -1)
	n.mark = append(n.mark, mark)
	n.rule = append(n.rule, n.current)
	return int32(len(n.head) - 1)
}

func (n *nfa) edge(from int32, e nfaEdge) {
	e.next = n.head[from]
	n.head[from] = int32(len(n.edges))
	n.edges = append(n.edges, e)
}

func (n *nfa) bytes(from int32, lo, hi byte, to int32) {
	n.edge(from, nfaEdge{kind: edgeBytes, lo: lo, hi: hi, to: to})
}

func (n *nfa) free(from, to int32) { n.edge(from, nfaEdge{kind: edgeFree, to: to}) }

func (n *nfa) name(from, to int32) { // any byte of a name
	n.bytes(from, 1, '/'-1, to)
	n.bytes(from, '/'+1, 255, to)
}

// child returns the state that the trie has behind one byte, making it if need be.
func (n *nfa) child(from int32, b byte, negative uint8) int32 {
	for i := n.head[from]; i >= 0; i = n.edges[i].next {
		if e := &n.edges[i]; e.kind == edgeBytes && e.lo == b && e.hi == b {
			return e.to
		}
	}
	to := n.state(negative)
	n.bytes(from, b, b, to)
	return to
}

func (n *nfa) path(from int32, text string, negative uint8) int32 {
	for i := 0; i < len(text); i++ {
		from = n.child(from, text[i], negative)
	}
	return from
}

// add puts a rule into a group's tries.
func (n *nfa) add(group int, r Rule, index int32) {
	n.current = index
	root, neg, allOf := n.posTries[group], uint8(0), 0
	if r.Entry.Exclude {
		root, neg, allOf = n.negTries[group], markNegative, 1
	}
	end := uint8(markInclude)
	if neg != 0 {
		end = markExclude
	}
	if base := strings.Trim(r.Base, "/"); base != "" {
		root = n.path(root, "/"+base, neg)
	}
	pat := r.Entry.pat
	if !pat.isLit {
		g := glob{nfa: n, toks: pat.toks, neg: neg, end: end, all: n.all[allOf]}
		g.build(root)
		return
	}
	at := root
	if pat.literal != "" {
		at = n.path(n.path(root, "/", neg), pat.literal, neg)
	}
	n.mark[at] |= end
	if pat.below {
		n.below(at, n.all[allOf])
	}
	if r.Siblings && neg == 0 && !pat.slash && pat.literal != "" {
		dir, name := splitName(pat.literal)
		from := n.path(n.path(root, "/", 0), dir, 0)
		for _, s := range SiblingPatterns {
			literal, tail := siblingParts(s.Pattern, name)
			n.sibling(n.path(from, literal, 0), tail)
		}
	}
}

// below leads from a path to everything under it.
func (n *nfa) below(at, all int32) {
	for i := n.head[at]; i >= 0; i = n.edges[i].next {
		if e := &n.edges[i]; e.to == all {
			return
		}
	}
	n.bytes(at, '/', '/', all)
}

// sibling adds the tail of a sibling pattern behind its literal part. Tails are
// shared: what follows the first wildcard is the same for all files.
func (n *nfa) sibling(at int32, tail string) {
	if tail == "" {
		n.mark[at] |= markSibling
		return
	}
	to := n.tail(tail)
	for i := n.head[at]; i >= 0; i = n.edges[i].next {
		if e := &n.edges[i]; e.kind == edgeFree && e.to == to {
			return
		}
	}
	n.free(at, to)
}

func (n *nfa) tail(tail string) int32 {
	if s, ok := n.tails[tail]; ok {
		return s
	}
	current := n.current
	n.current = -1
	start := n.state(0)
	at := start
	for rest := tail; rest != ""; {
		to := n.state(0)
		switch {
		case strings.HasPrefix(rest, siblingDigits):
			n.bytes(at, '0', '9', to)
			n.bytes(to, '0', '9', to)
			rest = rest[len(siblingDigits):]
		case rest[0] == '*':
			n.free(at, to)
			n.name(to, to)
			rest = rest[1:]
		case rest[0] == '?':
			n.name(at, to)
			rest = rest[1:]
		default:
			n.bytes(at, rest[0], rest[0], to)
			rest = rest[1:]
		}
		at = to
	}
	n.mark[at] |= markSibling
	n.tails[tail] = start
	n.current = current
	return start
}

// glob builds the states of one entry with wildcards: one for each pair of a
// token's place and a [pathState] that is reached.
type glob struct {
	*nfa
	toks []token
	neg  uint8
	end  uint8 // mark of a path that ends the entry
	all  int32
	at   []int32 // state of a pair, -1 for none yet
	todo []int32 // pairs
}

func (g *glob) build(root int32) {
	prefix, skip := literalPrefix(g.toks)
	if prefix != "" {
		root = g.path(root, "/"+prefix[:len(prefix)-1], g.neg)
	}
	g.at = make([]int32, (len(g.toks)+1)*int(allStates))
	for i := range g.at {
		g.at[i] = -1
	}
	first := g.pair(int32(skip), atComp)
	g.free(root, first)
	for len(g.todo) > 0 {
		k := g.todo[len(g.todo)-1]
		g.todo = g.todo[:len(g.todo)-1]
		g.expand(k/int32(allStates), pathState(k%int32(allStates)), g.at[k])
	}
}

// pair returns the state of a pair, making it if need be.
func (g *glob) pair(at int32, s pathState) int32 {
	if s == oneAny || s == anyName { // of interest to validate alone
		s = inName
	}
	k := at*int32(allStates) + int32(s)
	if g.at[k] < 0 {
		g.at[k] = g.state(g.neg)
		g.todo = append(g.todo, k)
	}
	return g.at[k]
}

// expand adds what leads on from a pair whose state is q.
func (g *glob) expand(at int32, s pathState, q int32) {
	base, globs := s.split()
	if int(at) == len(g.toks) {
		g.finish(base, globs, q)
		return
	}
	t := g.toks[at]
	switch t.kind {
	case tokOpen:
		for _, a := range t.alts {
			g.free(q, g.pair(a, s))
		}
		return
	case tokComma:
		g.free(q, g.pair(t.close+1, s))
		return
	case tokClose:
		g.free(q, g.pair(at+1, s))
		return
	}
	next := s.next(t)
	to := g.pair(at+1, next)
	if next < inName || next >= afterGlobs { // a component starts, or is held back
		if t.kind == tokSlash && (base == star1 || base == star3) {
			q = g.anyName(g.enter(q, globs))
		}
		g.free(q, to)
		return
	}
	// Within a name: first what was held back.
	switch base {
	case atStart, atComp:
		q = g.enter(q, globs)
	case dot1, dot2:
		q = g.enter(q, globs)
		for range base - dot1 + 1 {
			d := g.state(g.neg)
			g.bytes(q, '.', '.', d)
			q = d
		}
	case star1, star2, star3:
		q = g.enter(q, globs)
		g.name(q, q)
	}
	switch t.kind {
	case tokStar:
		g.free(q, to)
		g.name(to, to)
	case tokAny:
		g.edge(q, nfaEdge{kind: edgeChar, to: to})
	default:
		g.bytes(q, t.b, t.b, to)
	}
}

// enter reads the slash before a component, after any number of components if a
// "**" was held back. The state returned is new.
func (g *glob) enter(q int32, globs bool) int32 {
	if globs {
		deep, again := g.state(g.neg), g.state(g.neg)
		g.free(q, again)
		g.bytes(q, '/', '/', deep)
		g.bytes(deep, 1, 255, deep)
		g.free(deep, again)
		q = again
	}
	c := g.state(g.neg)
	g.bytes(q, '/', '/', c)
	return c
}

// anyName reads one whole name.
func (g *glob) anyName(q int32) int32 {
	e := g.state(g.neg)
	g.name(q, e)
	g.name(e, e)
	return e
}

// finish ends an expansion.
func (g *glob) finish(base pathState, globs bool, q int32) {
	switch base {
	case star2: // "a/**": everything below
		g.below(q, g.all)
		return
	case star1, star3:
		q = g.anyName(g.enter(q, globs))
	case atComp, dot1: // "a*/": what matches, and everything below
		if !globs {
			g.mark[q] |= g.end
		}
		g.below(q, g.all)
		return
	}
	g.mark[q] |= g.end
}
