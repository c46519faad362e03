package plan

import (
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"

	"planfence/plan/plantest"
)

// judge gives the table's answer for a path without a leading slash.
func judge(t *Table, path string) State { return t.End(walk(t, path)) }

func walk(t *Table, path string) State {
	if path != "" {
		path = "/" + path
	}
	return t.Walk(t.Start[0], path)
}

// TestAgreesWithReference compares the table and the reference on a million pairs
// of a scope and a path.
func TestAgreesWithReference(t *testing.T) {
	const scopes, paths = 10_000, 100
	g := newGen(4)
	count := map[State]int{}
	for range scopes {
		scope := g.Scope(4)
		siblings := g.IntN(3) > 0
		table := scopeOf(t, siblings, scope...)
		for i := range paths {
			path := g.Path()
			if i%2 == 0 {
				path = g.Near(scope)
			}
			want := refScope(scope, siblings, path)
			if got := judge(table, path); got != want {
				t.Fatalf("scope %q, siblings %v: path %q is %v, the reference says %v", scope, siblings, path, got, want)
			}
			count[want]++
		}
	}
	t.Logf("%d covered, %d siblings, %d not", count[Accept], count[Sibling], count[Dead])
	for s, n := range map[State]int{Accept: scopes * paths / 10, Sibling: scopes * paths / 1000, Dead: scopes * paths / 10} {
		if count[s] < n {
			t.Errorf("only %d pairs are %v: the generator is no good", count[s], s)
		}
	}
}

// TestAgreesWithDoublestar compares single entries with another implementation,
// where both mean the same: it has character classes, "a/**"
// covers a, and "a***" is not "a*".
func TestAgreesWithDoublestar(t *testing.T) {
	g := newGen(5)
	matched, compared := 0, 0
	for compared < 200_000 {
		text := g.Scope(1)[0]
		if !plantest.Wild(text) || text[0] == '!' {
			continue
		}
		all, ok := plantest.Expand(text, 500)
		if !ok || strings.Contains(strings.Join(all, " "), "***") {
			continue
		}
		table := scopeOf(t, false, text)
		for range 20 {
			path := g.Near([]string{text})
			if path == "" || strings.ToValidUTF8(path, "") != path || strings.ToValidUTF8(text, "") != text {
				continue // it reads characters, not bytes
			}
			want := false
			for _, s := range all {
				comps, dir := plantest.Split(s)
				s = strings.Join(comps, "/")
				s = strings.NewReplacer("[", `\[`, "]", `\]`).Replace(s)
				if comps[len(comps)-1] == "**" {
					s += "/*"
				}
				below := s + "/**"
				ok, err := doublestar.Match(s, path)
				if err != nil {
					t.Fatalf("%q: %v", s, err)
				}
				want = want || ok
				if dir {
					ok, _ = doublestar.Match(below, path)
					want = want || ok
				}
			}
			compared++
			if want {
				matched++
			}
			if got := judge(table, path) == Accept; got != want {
				t.Fatalf("entry %q covers %q: %v, doublestar says %v", text, path, got, want)
			}
		}
	}
	if matched < compared/10 || matched > compared*9/10 {
		t.Errorf("%d of %d match: the generator is no good", matched, compared)
	}
}
