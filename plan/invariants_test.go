package plan

import (
	"strings"
	"testing"

	"planfence/plan/plantest"
)

// byteReps has one byte for each class, readable ones where there are any.
func byteReps(t *Table) []byte {
	seen := map[uint16]bool{}
	var out []byte
	for _, b := range []byte("ab/" + string(allBytes())) {
		if b != 0 && !seen[t.Class[b]] {
			seen[t.Class[b]] = true
			out = append(out, b)
		}
	}
	return out
}

func allBytes() []byte {
	out := make([]byte, 256)
	for i := range out {
		out[i] = byte(255 - i)
	}
	return out
}

// witness finds a way on from a state, "" or names behind slashes, at whose end
// good holds. below leaves "" out.
func witness(t *Table, reps []byte, s State, below bool, good func(State) bool) (string, bool) {
	type node struct {
		s          State
		afterSlash bool
	}
	if !below && good(t.End(s)) {
		return "", true
	}
	from := map[node]node{}
	by := map[node]byte{}
	first := node{t.Step(s, '/'), true}
	todo := []node{first}
	path := func(n node) string {
		var out []byte
		for n != first {
			out = append(out, by[n])
			n = from[n]
		}
		for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
		return "/" + string(out)
	}
	seen := map[node]bool{first: true}
	for len(todo) > 0 {
		n := todo[0]
		todo = todo[1:]
		if !n.afterSlash && good(t.End(n.s)) {
			return path(n), true
		}
		for _, b := range reps {
			if b == '/' && n.afterSlash {
				continue
			}
			next := node{t.Step(n.s, b), b == '/'}
			if !seen[next] {
				seen[next] = true
				from[next], by[next] = n, b
				todo = append(todo, next)
			}
		}
	}
	return "", false
}

// checkInvariants compares what a table says of a path's state with what the
// reference says of the paths that go on from there: where the table says that
// there is one, it is looked for and shown to the reference; where it says that
// there is none, samples are tried.
func checkInvariants(t *testing.T, scope []string, siblings bool, table *Table, path string, samples []string) {
	t.Helper()
	reps := byteReps(table)
	s := walk(table, path)
	ref := func(rest string) State {
		return refScope(scope, siblings, strings.TrimPrefix(path+rest, "/"))
	}
	fail := func(what, rest string) {
		t.Helper()
		t.Fatalf("scope %q, siblings %v: at %q (state %d) %s, but %q is %v for the reference", scope, siblings, path, s, what, rest, ref(rest))
	}
	covered := func(e State) bool { return e != Dead }
	notAccepted := func(e State) bool { return e != Accept }
	if table.LiveBelow(s) {
		rest, ok := witness(table, reps, s, true, covered)
		if !ok || ref(rest) == Dead {
			fail("something below is covered", rest)
		}
	} else {
		for _, x := range samples {
			if ref("/"+x) != Dead {
				fail("nothing below is covered", "/"+x)
			}
		}
	}
	if table.AllBelow(s) {
		for _, x := range samples {
			if ref("/"+x) != Accept {
				fail("all below is covered", "/"+x)
			}
		}
		if ref("") != Accept {
			fail("it is covered", "")
		}
	} else {
		rest, ok := witness(table, reps, s, false, notAccepted)
		if !ok || ref(rest) == Accept {
			fail("not all below is covered", rest)
		}
	}
	// States in the middle of a name.
	if path == "" {
		return
	}
	for i := range len(path) {
		s := walk(table, path[:i])
		if path[max(i-1, 0)] == '/' || i == 0 {
			continue
		}
		if s == Dead && refScope(scope, siblings, path) != Dead {
			t.Fatalf("scope %q: dead at %q, but %q is covered", scope, path[:i], path)
		}
		if s == All && refScope(scope, siblings, path) != Accept {
			t.Fatalf("scope %q: all is covered from %q on, but %q is not", scope, path[:i], path)
		}
	}
}

func samples(g plantest.Gen, scope []string, path string) []string {
	var out []string
	for range 6 {
		if p := g.Path(); p != "" {
			out = append(out, p)
		}
		if rest, ok := strings.CutPrefix(g.Near(scope), path+"/"); ok && rest != "" {
			out = append(out, rest)
		}
	}
	return out
}

func TestTableInvariants(t *testing.T) {
	g := newGen(6)
	for range 3000 {
		scope, siblings := g.Scope(4), g.IntN(3) > 0
		table := scopeOf(t, siblings, scope...)
		for range 8 {
			path := g.Near(scope)
			if i := strings.LastIndexByte(path, '/'); i >= 0 && g.IntN(2) == 0 {
				path = path[:i]
			}
			checkInvariants(t, scope, siblings, table, path, samples(g, scope, path))
		}
	}
}
