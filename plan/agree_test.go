package plan

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
)

// gen makes entries and paths that have a chance to meet: few bytes, few names.
type gen struct{ *rand.Rand }

func (g gen) pick(list ...string) string { return list[g.IntN(len(list))] }

func (g gen) text(most int, parts ...string) string {
	var b strings.Builder
	for range 1 + g.IntN(most) {
		b.WriteString(g.pick(parts...))
	}
	return b.String()
}

func (g gen) comp(depth int) string {
	switch g.IntN(10) {
	case 0:
		return "**"
	case 1:
		return "*"
	case 2:
		return g.text(3, "a", "b", "*", "?", "**", "é", "\xe2", "\x82", ".")
	case 3:
		return g.text(2, "?", "?", "a", `\*`, `\?`, `\{`, `\\`, "[a]", ",", `\,`)
	case 4, 5:
		if depth > 2 {
			return "a"
		}
		var alts []string
		for range 1 + g.IntN(3) {
			alts = append(alts, g.pick("", "a", "b", "*", g.entry(depth+1)))
		}
		s := "{" + strings.Join(alts, ",") + "}"
		return g.pick("", "", "a", "*") + s + g.pick("", "", "b", "?", ".")
	}
	return g.text(2, "a", "b", "a", "b", "é", ".", "ab", "sed", "4913", "1", "~", "#")
}

func (g gen) entry(depth int) string {
	s := g.comp(depth)
	for range g.IntN(4 - depth) {
		s += g.pick("/", "/", "/", "/", "//", "/./") + g.comp(depth)
	}
	if depth == 0 {
		s = g.pick("", "", "", "", "", "./", "!", "!") + s + g.pick("", "", "", "", "/", "/**", "/.")
	}
	return s
}

// scope is a list of entries that parse; it excludes from something.
func (g gen) scope(most int) []string {
	var out []string
	want := 1 + g.IntN(most)
	for len(out) < want {
		s := g.entry(0)
		if _, ok := refExpand(s, 200); !ok {
			continue
		}
		if _, err := ParseEntry(s, ParseOptions{}); err == nil {
			out = append(out, s)
		}
	}
	return out
}

func (g gen) name() string {
	switch g.IntN(8) {
	case 0:
		return g.text(3, "*", "?", "{", "\\", "[a]", ",", "a")
	case 1:
		return g.text(4, "\xc3", "\xa9", "\xe2", "\x82", "\xac", "\xff", "a", "é", "€", "\xf0\x9f", "\x98\x80", "\xed", "\xa0")
	case 2:
		return g.text(4, "a", "b", "é", ".", "#", "~", "tmp", ".tmp", ".", "1", ".sw", "x")
	case 3:
		return g.pick("4913", "sedabcdef", "sed", ".#", "#") + g.pick("", "a", "ab", "ab#", "b#")
	}
	return g.text(3, "a", "b", "a", "b", "ab", "é", ".")
}

func (g gen) path() string {
	var names []string
	for range g.IntN(5) {
		if n := g.name(); n != "." && n != ".." {
			names = append(names, n)
		}
	}
	return strings.Join(names, "/")
}

// near makes a path from a scope: an entry with its wildcards filled in.
func (g gen) near(scope []string) string {
	s := strings.TrimPrefix(scope[g.IntN(len(scope))], "!")
	all, _ := refExpand(s, 500)
	if len(all) == 0 {
		return g.path()
	}
	comps, _ := refSplit(all[g.IntN(len(all))])
	var names []string
	for i, c := range comps {
		if c == "**" {
			for range g.IntN(3) {
				names = append(names, g.name())
			}
			continue
		}
		var b strings.Builder
		for k := 0; k < len(c); k++ {
			switch c[k] {
			case '*':
				b.WriteString(g.pick("", "", g.name()))
			case '?':
				b.WriteString(g.pick("a", "é", "b", ".", "\xe2", "\x82", "\xf0\x9f\x98\x80"))
			case '\\':
				k++
				fallthrough
			default:
				b.WriteByte(c[k])
			}
		}
		n := b.String()
		if i == len(comps)-1 {
			n = g.pick("", "", "", "", ".", "#", ".#") + n + g.pick("", "", "", "", "~", ".tmp.1", ".1.tmp", "#", ".12", ".swp")
		}
		if n != "" {
			names = append(names, n)
		}
	}
	for range g.IntN(6) - 3 {
		names = append(names, g.name())
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == "." || n == ".." })
	return strings.Join(names, "/")
}

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
	g := gen{rand.New(rand.NewPCG(4, 4))}
	count := map[State]int{}
	for range scopes {
		scope := g.scope(4)
		siblings := g.IntN(3) > 0
		table := scopeOf(t, siblings, scope...)
		for i := range paths {
			path := g.path()
			if i%2 == 0 {
				path = g.near(scope)
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
	g := gen{rand.New(rand.NewPCG(5, 5))}
	matched, compared := 0, 0
	for compared < 200_000 {
		text := g.scope(1)[0]
		if !refWild(text) || text[0] == '!' {
			continue
		}
		all, ok := refExpand(text, 500)
		if !ok || strings.Contains(strings.Join(all, " "), "***") {
			continue
		}
		table := scopeOf(t, false, text)
		for range 20 {
			path := g.near([]string{text})
			if path == "" || strings.ToValidUTF8(path, "") != path || strings.ToValidUTF8(text, "") != text {
				continue // it reads characters, not bytes
			}
			want := false
			for _, s := range all {
				comps, dir := refSplit(s)
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
