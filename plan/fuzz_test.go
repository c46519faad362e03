package plan

import (
	"encoding/json"
	"errors"
	"hash/maphash"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"planfence/plan/plantest"
)

// fuzzScope reads a scope from lines, leaving out what does not parse and what
// the reference cannot expand. ok is false if nothing is left.
func fuzzScope(lines string) (scope []string, ok bool) {
	for line := range strings.SplitSeq(lines, "\n") {
		if len(line) > 60 || len(scope) == 6 {
			continue
		}
		if _, err := ParseEntry(line, ParseOptions{}); err != nil {
			continue
		}
		if _, ok := plantest.Expand(line, 300); ok {
			scope = append(scope, line)
		}
	}
	return scope, len(scope) > 0
}

// cleanPath makes a path as the kernel has them out of anything.
func cleanPath(s string) string {
	var names []string
	for n := range strings.SplitSeq(strings.ReplaceAll(s, "\x00", ""), "/") {
		if n != "" && n != "." && n != ".." {
			names = append(names, n)
		}
	}
	return strings.Join(names, "/")
}

var scopeSeeds = []struct{ scope, path string }{
	{"src/slug.js", "src/.slug.js.swp"},
	{"docs/\n!docs/private/\n**/*.md", "docs/private/a.md"},
	{"src/?.c\nsrc/??.c", "src/\xe2\x82.c"},
	{"a/**/b\n!a/b/**\na/**/", "a/x/y/b"},
	{"{a,b{c,},**}/{**/,}d*\n!*/\\*", "a/x/dd"},
	{"app/[id]/page.tsx\n*a*b*c", "app/[id]/page.tsx"},
	{"x/***/y\nx/.{.,}a\n./x//./y", "x/..a"},
	{"**/?\n!**/\\?", "\xf0\x9f\x98\x80"},
	{"{?,??}*x", "éx"},
}

func FuzzScope(f *testing.F) {
	for _, s := range scopeSeeds {
		f.Add(s.scope, s.path, true)
		f.Add(s.scope, s.path, false)
	}
	f.Fuzz(func(t *testing.T, lines, path string, siblings bool) {
		scope, ok := fuzzScope(lines)
		path = cleanPath(path)
		if !ok || len(path) > 200 {
			return
		}
		task := &Task{ID: "T", Scope: entries(t, scope...)}
		table, err := Compile([]Group{{Rules: task.rules(siblings), Inherit: -1}}, Limits{})
		if err != nil {
			var tc *TooComplexError
			if !errors.As(err, &tc) {
				t.Fatalf("scope %q: %v", scope, err)
			}
			return
		}
		if got, want := judge(table, path), refScope(scope, siblings, path); got != want {
			t.Fatalf("scope %q, siblings %v: path %q is %v, the reference says %v", scope, siblings, path, got, want)
		}
	})
}

// FuzzTable looks at what a table says about a directory: see checkInvariants.
func FuzzTable(f *testing.F) {
	for _, s := range scopeSeeds {
		f.Add(s.scope, s.path, true)
		f.Add(s.scope, s.path, false)
	}
	seed := maphash.MakeSeed()
	f.Fuzz(func(t *testing.T, lines, path string, siblings bool) {
		scope, ok := fuzzScope(lines)
		path = cleanPath(path)
		if !ok || len(path) > 100 {
			return
		}
		task := &Task{ID: "T", Scope: entries(t, scope...)}
		table, err := Compile([]Group{{Rules: task.rules(siblings), Inherit: -1}}, Limits{MaxCells: 20000})
		if err != nil {
			return
		}
		g := newGen(maphash.String(seed, lines))
		for p := path; ; {
			checkInvariants(t, scope, siblings, table, p, samples(g, scope, p))
			i := strings.LastIndexByte(p, '/')
			if i < 0 {
				break
			}
			p = p[:i]
		}
	})
}

// FuzzEntry: what is accepted is nothing that the language refuses.
func FuzzEntry(f *testing.F) {
	for _, s := range []string{"a", "!a", "*", "**/", "{.,a}", "a/../b", "~", "$HOME", "/a", "/r/a", "/r/x/{a,b}", "{a", "a\\", "{,}", "?*", "//", "./~", "{*,a}/", "/r/x//./*"} {
		f.Add(s, "/r/x")
		f.Add(s, "")
		f.Add(s, "/")
	}
	f.Fuzz(func(t *testing.T, text, root string) {
		if root != "" && root[0] != '/' || strings.ContainsAny(root, "\x00") || len(text) > 100 {
			return
		}
		e, err := ParseEntry(text, ParseOptions{Root: root})
		if err != nil {
			var pe *Error
			if !errors.As(err, &pe) || pe.Pos.Line != 1 || pe.Pos.Column < 1 || pe.Pos.Column > len(text)+1 {
				t.Fatalf("%q: the error %v has no place in the text", text, err)
			}
			return
		}
		if lit, ok := e.Literal(); ok && (lit == "" || lit != cleanPath(lit)) {
			t.Fatalf("%q is the literal %q", text, lit)
		}
		rest := strings.TrimPrefix(text, "!")
		if strings.HasPrefix(rest, "/") && root == "" || rest == "" || strings.HasPrefix(rest, "~") || strings.Contains(rest, "\x00") {
			t.Fatalf("%q is accepted with the root %q", text, root)
		}
		if strings.HasPrefix(rest, "/") {
			return
		}
		all, ok := plantest.Expand(rest, 300)
		if !ok {
			return
		}
		for _, s := range all {
			comps, _ := plantest.Split(s)
			if len(comps) == 0 || strings.HasPrefix(s, "/") {
				t.Fatalf("%q is accepted and can be %q", text, s)
			}
			for _, c := range comps {
				if plantest.Unescape(c) == ".." {
					t.Fatalf("%q is accepted and can be %q", text, s)
				}
			}
			if len(comps) > 0 && plantest.Covers(s, "q") && plantest.Covers(s, "some other") && plantest.Covers(s, "é") && plantest.Covers(s, ".x") {
				t.Fatalf("%q is accepted, and %q covers everything", text, s)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"tasks":[{"id":"T1","title":"t","scope":["src/a.js","docs/","!docs/x"]}]}`,
		`{"tasks":[{"id":"T1","scope":[]},{"id":"T1","scope":["a"]}]}`,
		`{"tasks":[{"id":"T 1","files":["a"]}]}`,
		`{"tasks":{},"tasks":[]}`, `[]`, ``, "\xEF\xBB\xBF{}", `{"tasks":[]} x`, `{"tasks":[{"id":"\ud800","scope":["\u00e9\udc00"]}]}`,
		`{"a":{"b":{"b":1,"b":2}},"tasks":[{"id":1,"scope":"a"}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("plan.json", data, ParseOptions{Root: "/r"})
		if err != nil {
			var pe *Error
			if !errors.As(err, &pe) || pe.File != "plan.json" || pe.Pos.Line < 1 || pe.Pos.Column < 1 || pe.Msg == "" {
				t.Fatalf("%v has no place", err)
			}
			return
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatal("accepted, and is not JSON in UTF-8")
		}
		// Written again, it reads the same.
		type task struct {
			ID    string   `json:"id"`
			Title string   `json:"title"`
			Scope []string `json:"scope"`
		}
		var out struct {
			Tasks []task `json:"tasks"`
		}
		out.Tasks = []task{}
		seen := map[string]bool{}
		for _, x := range p.Tasks {
			if x.ID == "" || len(x.ID) > MaxID || strings.ContainsAny(x.ID, " \t\n\r\x00") || seen[x.ID] {
				t.Fatalf("the id %q is accepted", x.ID)
			}
			seen[x.ID] = true
			if p.Task(x.ID).ID != x.ID {
				t.Fatalf("the id %q finds another task", x.ID)
			}
			y := task{x.ID, x.Title, []string{}}
			for _, e := range x.Scope {
				line := strings.Split(string(data), "\n")[e.Pos.Line-1]
				if line[e.Pos.Column-1] != '"' {
					t.Fatalf("entry %q is not at %v", e.Text, e.Pos)
				}
				y.Scope = append(y.Scope, e.Text)
			}
			out.Tasks = append(out.Tasks, y)
		}
		again, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		q, err := Parse("plan.json", again, ParseOptions{Root: "/r"})
		if err != nil {
			t.Fatalf("%s is refused: %v", again, err)
		}
		if !reflect.DeepEqual(texts(p), texts(q)) {
			t.Fatalf("%q is read again as %q", texts(p), texts(q))
		}
	})
}

func texts(p *Plan) (out [][]string) {
	for _, t := range p.Tasks {
		x := []string{t.ID, t.Title}
		for _, e := range t.Scope {
			x = append(x, e.Text)
		}
		out = append(out, x)
	}
	return out
}
