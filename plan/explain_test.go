package plan

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"planfence/plan/plantest"
)

const explainPlan = `{"tasks": [
  {"id": "T1", "title": "one", "scope": ["src/slug.js", "gen/a/b.go", "docs/",
     "!docs/private/", "**/*.md", "lib/**", "!lib/*.key"]},
  {"id": "T2", "scope": ["docs/private/", "web/{a,b}.ts"]},
  {"id": "T3", "scope": []}
]}`

func parsed(t testing.TB, text string) *Plan {
	t.Helper()
	p, err := Parse("plan.json", []byte(text), ParseOptions{Root: "/r"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestExplain(t *testing.T) {
	p := parsed(t, explainPlan)
	for _, tt := range []struct {
		path    string
		op      Op
		allowed bool
		kind    Kind
		entry   string // text and place
		sibling string
		owners  string
		suggest string
	}{
		{"src/slug.js", Write, true, ByEntry, "src/slug.js 2:42", "", "", ""},
		{"src/slug.js~", Write, true, BySibling, "src/slug.js 2:42", "NAME~", "", ""},
		{"src/slug.js~", Mkdir, true, ByDirectory, "**/*.md 3:24", "", "", ""},
		{"src", Mkdir, true, ByDirectory, "src/slug.js 2:42", "", "", ""},
		{"src", Write, false, ByNone, "", "", "", `add "src" to the scope of T1 (plan.json:2:3)`},
		{"gen/a", Mkdir, true, ByDirectory, "gen/a/b.go 2:57", "", "", ""},
		{"docs", MoveDir, false, ByContents, "docs/ 2:71", "", "", `remove "!docs/private/" (plan.json:3:6) from the scope of T1`},
		{"docs/x", MoveDir, true, ByEntry, "docs/ 2:71", "", "", ""},
		{"docs/private/a.md", Write, false, ByExclusion, "!docs/private/ 3:6", "", "T2", `remove "!docs/private/" (plan.json:3:6) from the scope of T1`},
		{"docs/private", Mkdir, false, ByExclusion, "!docs/private/ 3:6", "", "T2", `remove "!docs/private/" (plan.json:3:6) from the scope of T1`},
		{"lib/x.key", Write, false, ByExclusion, "!lib/*.key 3:45", "", "", `remove "!lib/*.key" (plan.json:3:45) from the scope of T1`},
		{"lib/x.key", Mkdir, true, ByDirectory, "**/*.md 3:24", "", "", ""},
		{"x/y.md", MoveDir, false, ByContents, "**/*.md 3:24", "", "", `add "x/y.md/" to the scope of T1 (plan.json:2:3)`},
		{"web/a.ts", Write, false, ByNone, "", "", "T2", `add "web/a.ts" to the scope of T1 (plan.json:2:3)`},
		{`we*b/"{x}`, Write, false, ByNone, "", "", "", `add "we\\*b/\"\\{x\\}" to the scope of T1 (plan.json:2:3)`},
		{"a\xff", Write, false, ByNone, "", "", "", "rename it first: a plan is UTF-8 and cannot name it"},
		{".", Write, false, ByNone, "", "", "", ""},
	} {
		v := p.Explain(p.Task("T1"), tt.path, tt.op)
		entry := ""
		if v.Entry != nil {
			entry = v.Entry.Text + " " + v.Entry.Pos.String()
		}
		got := []any{v.Allowed, v.Kind, entry, v.Sibling, strings.Join(v.Owners, ","), v.Suggest}
		want := []any{tt.allowed, tt.kind, tt.entry, tt.sibling, tt.owners, tt.suggest}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s %s:\n got %q\nwant %q", tt.op, tt.path, got, want)
		}
	}
	dir := ExplainOptions{IsDir: func(rel string) bool { return rel == "src/slug.js" }}
	if v := p.ExplainWith(p.Task("T1"), "src/slug.js~", Write, dir); v.Allowed {
		t.Error("a directory has siblings")
	}
	if v := p.ExplainWith(p.Task("T1"), "src/slug.js~", Write, ExplainOptions{NoSiblings: true}); v.Allowed {
		t.Error("siblings are in scope though turned off")
	}
}

// TestExplainAgrees: the verdict is the table's, a deciding entry is one of the
// task's, and a suggested edit is enough.
func TestExplainAgrees(t *testing.T) {
	g := newGen(8)
	quoted := regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	kinds := map[Kind]int{}
	for range 1500 {
		scope := g.Scope(4)
		if !slices.ContainsFunc(scope, func(s string) bool { return s[0] != '!' }) {
			continue
		}
		if slices.ContainsFunc(scope, func(s string) bool { return strings.ToValidUTF8(s, "") != s }) {
			continue
		}
		p := planOf(t, scope)
		task := p.Task("T")
		table, err := p.CompileTask(task, true)
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			path := g.Near(scope)
			op := Op(g.IntN(3))
			v := p.Explain(task, path, op)
			kinds[v.Kind]++
			s := walk(table, path)
			want := map[Op]bool{
				Write: table.End(s) != Dead, MoveDir: table.AllBelow(s),
				Mkdir: table.End(s) == Accept || table.LiveBelow(s),
			}[op]
			if v.Allowed != want {
				t.Fatalf("scope %q: %s %q is allowed: %v, the table says %v", scope, op, path, v.Allowed, want)
			}
			if (v.Entry == nil) != (v.Kind == ByNone) {
				t.Fatalf("scope %q: %s %q: kind %s with entry %v", scope, op, path, v.Kind, v.Entry)
			}
			if v.Allowed || path == "" || strings.HasPrefix(v.Suggest, "rename") {
				continue
			}
			edited := slices.Clone(scope)
			removing := strings.HasPrefix(v.Suggest, "remove")
			remove, add, _ := strings.Cut(v.Suggest, "add ")
			if !removing {
				remove, add = "", v.Suggest
			}
			for _, q := range quoted.FindAllString(remove, -1) {
				edited = slices.DeleteFunc(edited, func(s string) bool { return s == unquoted(t, q) })
			}
			for _, q := range quoted.FindAllString(add, 1) {
				edited = append(edited, unquoted(t, q))
			}
			q := planOf(t, edited)
			if v := q.Explain(q.Task("T"), path, op); !v.Allowed {
				t.Fatalf("scope %q: %s %q is not allowed by %q, which should do", scope, op, path, edited)
			}
		}
	}
	for _, k := range []Kind{ByEntry, BySibling, ByDirectory, ByExclusion, ByContents, ByNone} {
		if kinds[k] < 10 {
			t.Errorf("only %d verdicts of kind %s: the generator is no good", kinds[k], k)
		}
	}
}

func unquoted(t *testing.T, q string) (s string) {
	t.Helper()
	if err := json.Unmarshal([]byte(q), &s); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return s
}

func planOf(t testing.TB, scope []string) *Plan {
	t.Helper()
	b, err := json.Marshal(scope)
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, `{"tasks": [{"id": "T", "scope": `+string(b)+`}]}`)
}

func TestOwners(t *testing.T) {
	p := parsed(t, explainPlan)
	for i := range 3 * asksUncompiled { // the way of answering changes on the way
		for path, want := range map[string]string{
			"docs/private/x": "T2", "docs/x": "T1", "web/b.ts": "T2", "web/c.ts": "", "a/b.md": "T1", "lib/a.key": "", "src/slug.js~": "",
		} {
			if got := strings.Join(p.Owners(path, "T3"), ","); got != want {
				t.Fatalf("question %d: %s belongs to %q, want %q", i, path, got, want)
			}
		}
	}
	if got := p.Owners("docs/private/x", "T2"); got != nil {
		t.Errorf("the task left out owns the path: %q", got)
	}
}

func TestMatchAgrees(t *testing.T) {
	g := newGen(9)
	for range 20_000 {
		text := g.Scope(1)[0]
		e := entries(t, text)[0]
		path := g.Near([]string{text})
		rest := strings.TrimPrefix(text, "!")
		if got, want := e.Match(path, false) == Accept, plantest.Covers(rest, path); got != want {
			t.Fatalf("entry %q covers %q: %v, the reference says %v", text, path, got, want)
		}
		if text == rest {
			if got, want := e.Match(path, true), refScope([]string{text}, true, path); got != want {
				t.Fatalf("entry %q covers %q: %v, the reference says %v", text, path, got, want)
			}
		}
	}
}

func TestLiteralText(t *testing.T) {
	for _, path := range []string{"a", "!a", "~a", "a*?{},b", `a\b`, "$HOME/$1/$", "a/~", "é"} {
		e, err := ParseEntry(LiteralText(path), ParseOptions{})
		if err != nil {
			t.Errorf("%q: %v", path, err)
		} else if got, ok := e.Literal(); !ok || got != path {
			t.Errorf("%q is written so that it reads %q, %v", path, got, ok)
		}
	}
}
