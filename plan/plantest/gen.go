package plantest

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// Gen makes entries and paths that have a chance to meet: few bytes, few names.
type Gen struct {
	*rand.Rand
	// Valid reports whether an entry is one: those that are not are made again.
	Valid func(entry string) bool
}

// New makes the generator that a seed stands for.
func New(seed uint64, valid func(entry string) bool) Gen {
	return Gen{rand.New(rand.NewPCG(seed, seed)), valid}
}

func (g Gen) pick(list ...string) string { return list[g.IntN(len(list))] }

func (g Gen) text(most int, parts ...string) string {
	var b strings.Builder
	for range 1 + g.IntN(most) {
		b.WriteString(g.pick(parts...))
	}
	return b.String()
}

func (g Gen) comp(depth int) string {
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

func (g Gen) entry(depth int) string {
	s := g.comp(depth)
	for range g.IntN(4 - depth) {
		s += g.pick("/", "/", "/", "/", "//", "/./") + g.comp(depth)
	}
	if depth == 0 {
		s = g.pick("", "", "", "", "", "./", "!", "!") + s + g.pick("", "", "", "", "/", "/**", "/.")
	}
	return s
}

// Scope makes a list of up to most valid entries.
func (g Gen) Scope(most int) []string {
	var out []string
	want := 1 + g.IntN(most)
	for len(out) < want {
		s := g.entry(0)
		if _, ok := Expand(s, 200); !ok {
			continue
		}
		if g.Valid(s) {
			out = append(out, s)
		}
	}
	return out
}

// Name makes a name that no entry needs to match, often not UTF-8.
func (g Gen) Name() string {
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

// Path makes a path of up to four names.
func (g Gen) Path() string {
	var names []string
	for range g.IntN(5) {
		if n := g.Name(); n != "." && n != ".." {
			names = append(names, n)
		}
	}
	return strings.Join(names, "/")
}

// Near makes a path from a scope: an entry with its wildcards filled in.
func (g Gen) Near(scope []string) string {
	s := strings.TrimPrefix(scope[g.IntN(len(scope))], "!")
	all, _ := Expand(s, 500)
	if len(all) == 0 {
		return g.Path()
	}
	comps, _ := Split(all[g.IntN(len(all))])
	var names []string
	for i, c := range comps {
		if c == "**" {
			for range g.IntN(3) {
				names = append(names, g.Name())
			}
			continue
		}
		var b strings.Builder
		for k := 0; k < len(c); k++ {
			switch c[k] {
			case '*':
				b.WriteString(g.pick("", "", g.Name()))
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
		names = append(names, g.Name())
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == "." || n == ".." })
	return strings.Join(names, "/")
}
