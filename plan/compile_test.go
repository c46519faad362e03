package plan

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func entries(t testing.TB, texts ...string) []Entry {
	t.Helper()
	var out []Entry
	for _, s := range texts {
		e, err := ParseEntry(s, ParseOptions{})
		if err != nil {
			t.Fatalf("parse entry: %v", err)
		}
		out = append(out, e)
	}
	return out
}

func scopeOf(t testing.TB, siblings bool, texts ...string) *Table {
	t.Helper()
	task := &Task{ID: "T", Scope: entries(t, texts...)}
	table, err := Compile([]Group{{Rules: task.rules(siblings), Inherit: -1}}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// verdict of a path: "" refused, "+" covered, "~" as a sibling; "d" if only a
// directory may be made there; "*" behind "+" if all below is covered.
func verdict(t *Table, s State, path string) string {
	s = t.Walk(s, path)
	v := ""
	switch t.End(s) {
	case Accept:
		v = "+"
		if t.AllBelow(s) {
			v = "+*"
		}
	case Sibling:
		v = "~"
	default:
		if t.LiveBelow(s) {
			v = "d"
		}
	}
	return v
}

func TestScope(t *testing.T) {
	tests := []struct {
		scope []string
		want  map[string]string
	}{
		{[]string{"src/slug.js"}, map[string]string{
			"": "d", "/src": "d", "/src/slug.js": "+*", "/src/slug.js/x": "+*", "/src/slug.jsx": "", "/src/slug.j": "", "/slug.js": "",
			"/src/slug.js~": "~", "/src/slug.js.tmp.1.2": "~", "/src/slug.js.x.tmp": "~", "/src/slug.js.tmp": "", "/src/slug.js.12": "~",
			"/src/slug.js.": "", "/src/slug.js.1a": "", "/src/.slug.js.swp": "~", "/src/.slug.js.x": "~", "/src/.slug.js": "", "/src/.#slug.js": "~",
			"/src/#slug.js#": "~", "/src/#slug.js": "", "/src/4913": "~", "/src/sedAbC123": "~", "/src/sedAbC12": "", "/src/sedAbC1234": "",
			"/src/4913/x": "", "/src/slug.js~/x": "", "/4913": "",
		}},
		{[]string{"docs/", "!docs/private/", "**/*.md"}, map[string]string{
			"/docs": "+", "/docs/a": "+*", "/docs/private": "", "/docs/private/a.md": "", "/docs/privat": "+*", "/a.md": "+", "/x/y/a.md": "+",
			"/x": "d", "/x/y.md/z": "d", "/.md": "+", "/docs/private/x": "", "/docs.md": "+", "": "d",
		}},
		{[]string{"src/*.js"}, map[string]string{
			"/src/a.js": "+", "/src/.js": "+", "/src/.a.js": "+", "/src/a/b.js": "", "/src": "d", "/src/a.js/b": "", "/src/a.js~": "",
		}},
		{[]string{"src/?.c"}, map[string]string{
			"/src/a.c": "+", "/src/é.c": "+", "/src/\u20ac.c": "+", "/src/\U0001F600.c": "+", "/src/\xff.c": "+", "/src/\xc3.c": "+", "/src/\xc3\xc3.c": "",
			"/src/\xe2\x82.c": "", "/src/\xed\xa0\x80.c": "", "/src/.c": "", "/src/ab.c": "", "/src//.c": "",
		}},
		{[]string{"x/??"}, map[string]string{
			"/x/ab": "+", "/x/é": "", "/x/éa": "+", "/x/\xe2\x82": "+", "/x/\xe2\x82\xac": "", "/x/\xe2\x82\xac\xe2": "+", "/x/\xed\xa0": "+", "/x/\xf0\x9f\x98\x80": "", "/x/\xf0\x9f": "+",
		}},
		{[]string{"src/**"}, map[string]string{"/src": "d", "/src/a": "+*", "/src/a/b": "+*", "/srcx": "", "": "d"}},
		{[]string{"a/**/b"}, map[string]string{"/a/b": "+", "/a/x/b": "+", "/a/x/y/b": "+", "/a/xb": "d", "/ab": "", "/a/b/c": "d"}},
		{[]string{"src/{a,b/{c,d}}.go"}, map[string]string{"/src/a.go": "+", "/src/b/c.go": "+", "/src/b/d.go": "+", "/src/b": "d", "/src/b/a.go": "", "/src/c.go": ""}},
		{[]string{"app/[id]/page.tsx"}, map[string]string{"/app/[id]/page.tsx": "+*", "/app/i/page.tsx": ""}},
		{[]string{`a\*b`}, map[string]string{"/a*b": "+*", "/axb": ""}},
		{[]string{"./a//b/./c"}, map[string]string{"/a/b/c": "+*"}},
		{[]string{"a*/"}, map[string]string{"/a": "+*", "/ab": "+*", "/ab/c": "+*", "/b": ""}},
		{[]string{"a/**/"}, map[string]string{"/a": "d", "/a/b": "+*"}},
		{[]string{"a/b**c/d"}, map[string]string{"/a/bxc/d": "+", "/a/b/c/d": ""}},
		{[]string{"a/{**,x}/b"}, map[string]string{"/a/b": "+", "/a/q/r/b": "+"}},
		{[]string{"a", "!a/*.log"}, map[string]string{"/a": "+", "/a/x.log": "d", "/a/x.log/y": "+*", "/a/b/x.log": "+*"}},
		{[]string{"a/**", "!a/*/"}, map[string]string{"/a": "", "/a/b": "", "": ""}},
		{[]string{"a/b.txt", "!a/b.txt~"}, map[string]string{"/a/b.txt~": "", "/a/b.txt.x.tmp": "~"}},
		{[]string{"a/b", "a/b~"}, map[string]string{"/a/b~": "+*"}},
		{nil, map[string]string{"": "", "/a": ""}},
	}
	for _, tt := range tests {
		table := scopeOf(t, true, tt.scope...)
		for path, want := range tt.want {
			if got := verdict(table, table.Start[0], path); got != want {
				t.Errorf("%q: %q is %q, want %q", tt.scope, path, got, want)
			}
		}
	}
}

func TestGroups(t *testing.T) {
	rule := func(e Entry, base string) Rule { return Rule{Entry: e, Base: base} }
	table, err := Compile([]Group{
		{Inherit: -1, Rules: []Rule{
			rule(LiteralEntry("dev/shm", true), ""),
			rule(entries(t, "**/build/*.o")[0], "/home/dev/x"),
			rule(LiteralEntry("home/dev/x/log", false), ""),
			rule(LiteralExclude("home/dev/x/src/key", false), ""),
			rule(entries(t, "!hooks/")[0], "/home/dev/x/.git"),
			rule(LiteralEntry("home/dev/x/.git", true), ""),
		}},
		{Inherit: 0, Path: "/home/dev/x", Rules: []Rule{rule(entries(t, "src")[0], "")}},
		{Inherit: -1, Rules: []Rule{rule(Everything, ""), rule(LiteralExclude("plan", false), "")}},
		{Inherit: 2, Path: "/other", Rules: []Rule{rule(entries(t, "!x")[0], "")}},
		{Inherit: -1, Rules: []Rule{rule(Everything, "")}},
		{Inherit: 4, Path: "/x"},
	}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		group      int
		path, want string
	}{
		{0, "/dev/shm/a", "+*"}, {0, "/home/dev/x/a/build/c.o", "+"}, {0, "/home/dev/x/src/a", "d"}, {0, "/home/dev/x/log", "+"},
		{0, "/home/dev/x/log/a", "d"}, {0, "/home/dev/x/.git/hooks/a", ""}, {0, "/home/dev/x/.git/HEAD", "+*"}, {0, "/home/dev/x/.git", "+"},
		{1, "/src/a", "+*"}, {1, "/src", "+"}, {1, "/src/key", "d"}, {1, "/src/key/x", "+*"}, {1, "/build/c.o", "+"}, {1, "/log", "+"}, {1, "/.git/hooks/x", ""}, {1, "/dev/shm/a", "d"},
		{2, "", "+"}, {2, "/plan", "d"}, {2, "/a", "+*"}, {3, "", "+"}, {3, "/x", ""}, {3, "/y", "+*"}, {3, "/x/y", ""},
		{4, "", "+*"}, {5, "", "+*"},
	} {
		if got := verdict(table, table.Start[tt.group], tt.path); got != tt.want {
			t.Errorf("group %d: %q is %q, want %q", tt.group, tt.path, got, tt.want)
		}
	}
	if table.Start[4] != All || table.Start[5] != All {
		t.Errorf("everything starts at %v, want All", table.Start[4:])
	}
}

func TestTableFormat(t *testing.T) {
	table := scopeOf(t, true, "src/slug.js", "docs/", "!docs/x", "**/*.md", "a?b")
	owners, withDefaults := map[uint32]bool{}, map[uint32]bool{}
	for i, c := range table.Cells {
		if uint32(c) == uint32(8*i) && c != 0 {
			withDefaults[uint32(c)] = true
		}
	}
	for i, c := range table.Cells {
		if c == 0 {
			continue
		}
		s := uint32(c)
		owners[s] = true
		if s%8 != 0 || s < 8 {
			t.Errorf("cell %d has the owner %d", i, s)
		}
		if next := State(c >> 32); next == Dead && !withDefaults[s] || next > Sibling && (next%8 != 0 || int(next) > 8*len(table.Cells)) {
			t.Errorf("cell %d leads to %d", i, next)
		}
	}
	for s := range owners {
		for b := range 256 {
			if int(s)+int(table.Class[b]) >= 8*len(table.Cells) {
				t.Fatalf("state %d reaches outside at byte %d", s, b)
			}
		}
	}
	for b := range 256 {
		if b != 0 && table.Class[b] == table.Class[0] || b != '/' && table.Class[b] == table.Class['/'] {
			t.Errorf("byte %d shares the class of the end or of the slash", b)
		}
	}
}

// Rows with defaults must mean what rows without mean: the same scope packed
// both ways, and states that only fit with defaults.
func TestDefaults(t *testing.T) {
	texts := []string{"**/*.md", "!**/x?/", "docs/*.{txt,rst}"}
	for i := range 600 {
		texts = append(texts, fmt.Sprintf("src/dir%02d/file%x.go", i%37, i*7919))
	}
	groups := []Group{{Rules: (&Task{Scope: entries(t, texts...)}).rules(true), Inherit: -1}}
	plain, err := Compile(groups, Limits{MaxCells: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	small, err := Compile(groups, Limits{MaxCells: len(plain.Cells) / 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d cells with defaults, %d without", len(small.Cells), len(plain.Cells))
	r := rand.New(rand.NewPCG(1, 2))
	paths := []string{"", "/", "/a.md", "/x1/a.md", "/src/dir05/file9ab1.go", "/docs/a.txt", "/docs/b/a.txt"}
	for range 200_000 {
		p := []byte("/" + texts[3+r.IntN(600)])
		for range r.IntN(3) {
			p[r.IntN(len(p))] = "/.axmd~#\x00\xc3\xa9"[r.IntN(11)]
		}
		paths = append(paths, string(p[:r.IntN(len(p)+1)]), string(p))
	}
	for _, p := range paths {
		a, b := plain.Walk(plain.Start[0], p), small.Walk(small.Start[0], p)
		if plain.End(a) != small.End(b) || plain.LiveBelow(a) != small.LiveBelow(b) || plain.AllBelow(a) != small.AllBelow(b) {
			t.Fatalf("%q: %v %v %v without defaults, %v %v %v with", p, plain.End(a), plain.LiveBelow(a), plain.AllBelow(a),
				small.End(b), small.LiveBelow(b), small.AllBelow(b))
		}
	}
}

func TestCompileIsDeterministic(t *testing.T) {
	var texts []string
	for i := range 50 {
		texts = append(texts, fmt.Sprintf("src/m%d/*.{js,ts}", i), fmt.Sprintf("lib/f%d.c", i*i), fmt.Sprintf("!lib/**/x%d?", i))
	}
	a := scopeOf(t, true, texts...)
	for range 5 {
		if b := scopeOf(t, true, texts...); !reflect.DeepEqual(a, b) {
			t.Fatal("the same scope compiles to different tables")
		}
	}
}

func TestRejectedEntries(t *testing.T) {
	const root = "/home/dev/x"
	for text, want := range map[string]string{
		"":     "empty",
		".":    "root",
		"./":   "root",
		"/":    "root",
		"//":   "root",
		"*":    "everything",
		"**":   "everything",
		"/**":  "everything",
		"**/":  "everything",
		"**/*": "everything",
		"*/":   "everything",
		"?*":   "everything",
		"***":  "everything",
		"****": "everything", "x/../{****}": "..", "{****}": "everything",
		"{a,*}":                             "everything",
		"{a,./**}":                          "everything",
		"!**":                               "everything",
		"!.":                                "root",
		"{.,a}":                             "root",
		"{,a}":                              "nothing",
		"..":                                "..",
		"../a":                              "..",
		"a/..":                              "..",
		"a/../b":                            "..",
		"a/{..,b}/c":                        "..",
		"a/.{.,b}/c":                        "..",
		"~":                                 "~",
		"~/a":                               "~",
		"~dev/a":                            "~",
		"{~,a}/*":                           "~",
		"$HOME/a":                           "variable",
		"a/${X}":                            "variable",
		"a/$(x)":                            "variable",
		"/etc/passwd":                       "outside",
		"/home/dev/xy":                      "outside",
		"/home/dev":                         "outside",
		"/home/dev/x":                       "root",
		"/home/dev/x/":                      "root",
		"/home/dev/x/*":                     "everything",
		"{/a,b}":                            "leading slash",
		"a{":                                "opening brace",
		"a}":                                "closing brace",
		"a{b,{c}":                           "opening brace",
		"a{}":                               "empty braces",
		"a\x00b":                            "NUL",
		"a\\":                               "backslash",
		`a\/b`:                              "escaped slash",
		"!":                                 "excludes nothing",
		"!!a":                               "twice",
		"{!a,b}":                            "exclamation",
		"a" + strings.Repeat("b", MaxEntry): "too long",
	} {
		_, err := ParseEntry(text, ParseOptions{Root: root})
		if err == nil {
			t.Errorf("%.40q is accepted", text)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want a message with %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"/home/dev/x/a": "a", "/home//dev/./x//a/b/": "a/b", "a": "a", `\!a`: "!a", `\~`: "~", `a\$HOME`: "a$HOME", "a$": "a$", "a$1": "a$1", "a,b": "a,b",
		"a~": "a~", "...": "...", "..a": "..a", `\{a\}`: "{a}", "a/.": "a", "[a-z]": "[a-z]", " a ": " a ", `\*\*`: "**",
	} {
		e, err := ParseEntry(text, ParseOptions{Root: root})
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got, ok := e.Literal(); !ok || got != want {
			t.Errorf("%q is the literal %q, %v, want %q", text, got, ok, want)
		}
	}
	if _, err := ParseEntry("/a", ParseOptions{}); err == nil || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("an absolute entry without a root: %v", err)
	}
	if e, err := ParseEntry("/etc/{a,b{c,d}}", ParseOptions{Root: "/etc"}); err != nil {
		t.Error(err)
	} else if _, ok := e.Literal(); ok {
		t.Error("an entry with braces is a literal")
	}
}
