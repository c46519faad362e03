package plan

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// TestLint has every code with its text, and beside it an entry that is fine.
func TestLint(t *testing.T) {
	file := &fstest.MapFile{Mode: 0o644}
	root := fstest.MapFS{
		"src/a.js": file, "src/lib/b.js": file, "docs/guide.md": file, "README.md": file, "caf\u00e9.txt": file, "data/x": file,
		"out/one/x": file, "plan.json": file,
		"link":  {Mode: fs.ModeSymlink | 0o777, Data: []byte("src")},
		"inner": {Mode: fs.ModeSymlink | 0o777, Data: []byte("README.md")},
	}
	tracked := []string{"src/a.js", "src/lib/b.js", "docs/guide.md", "README.md", "plan.json", "a-b/c", "a/b/c"}
	for _, tt := range []struct {
		name  string
		tasks string // scopes, the tasks are called A, B, …
		want  []string
	}{
		{"overlap", `["src/a.js", "src/x/"] ["src/a.*"] ["src/y/"]`, []string{
			`error B "src/a.*" overlap [src/a.js]: B overlaps A: "src/a.js" is covered by "src/a.*" here and by "src/a.js" at 1:35 | give the path to one of them, and exclude it from the other`}},
		{"overlap shortest", `["**/x/**"] ["web/**/y"] ["web/x/", "!web/x/*"]`, []string{
			`error B "web/**/y" overlap [web/x/y]`, `error C "web/x/" overlap [web/x/a/a]`, `error C "web/x/" overlap [web/x/a/y]`}},
		{"exclusions respected", `["docs/", "!docs/b/"] ["docs/b/"]`, nil},
		{"everything", `["{?,??*}/**", "{?,??*}"]`, []string{`error A "" everything: the scope of A covers every name in the root | name the directories and files that the task may write`, `warning A "{?,??*}" plan-by-pattern`, `warning A "{?,??*}" root-only`}},
		{"too complex", `["x/*a??????????????????????????????????????????????"]`, []string{`error A "" too-complex`}},
		{"emptied", `["docs/guide.md", "src/a.js", "!docs/"]`, []string{
			`error A "docs/guide.md" emptied: "docs/guide.md" covers nothing: "!docs/" at 1:64 excludes all of it | remove one of them`,
		}},
		{"shadowed", `["docs/", "docs/guide.md", "src/a.js", "!docs/x/", "!docs/x/y"]`, []string{
			`warning A "docs/guide.md" shadowed: "docs/guide.md" adds nothing: "docs/" at 1:35 covers all of it | remove it`,
			`warning A "!docs/x/y" shadowed: "!docs/x/y" excludes nothing more: "!docs/x/" at 1:73 excludes all of it | remove it`,
		}},
		{"shadowed by several", `["src/{a,b}.js/", "src/a.js", "src/a.js"]`, []string{
			`warning A "src/a.js" shadowed: "src/a.js" adds nothing: "src/{a,b}.js/" at 1:35`,
			`warning A "src/a.js" shadowed: "src/a.js" adds nothing: "src/{a,b}.js/" at 1:35`,
		}},
		{"shadowed by the rest", `["x/{a,b}", "x/a", "x/b"]`, []string{
			`warning A "x/{a,b}" shadowed: "x/{a,b}" adds nothing: the rest of the scope covers all of it | remove it`,
		}},
		{"unused exclusion", `["src/a.js", "!docs/"]`, []string{`warning A "!docs/" unused-exclusion: "!docs/" excludes nothing: no other entry covers any of it | remove it, or correct the path`}},
		{"missing", `["src/new.js", "src/a.js"]`, []string{`note A "src/new.js" missing: "src/new.js" does not exist today`}},
		{"no match", `["src/*.ts", "src/*.js", "src/**/b.*", "a/**"]`, []string{`warning A "src/*.ts" no-match: "src/*.ts" matches nothing today`}},
		{"no match untracked", `["out/**/x", "out/**/y"]`, []string{`warning A "out/**/y" no-match`}},
		{"directory", `["src/lib"]`, []string{`note A "src/lib" directory: "src/lib" is a directory: everything below it is meant | write "src/lib/" to say so`}},
		{"not directory", `["src/a.js/"]`, []string{`warning A "src/a.js/" not-directory: "src/a.js/" ends in a slash and is a file: it is covered, but the siblings for saving it are not | write "src/a.js"`}},
		{"name only", `["out/*"]`, []string{`warning A "out/*" name-only [out/one]: "out/*" matches only directories, such as "out/one", and nothing in them | end it in / or /** to reach below`}},
		{"symlink", `["link/a.js", "inner"]`, []string{
			`error A "link/a.js" symlink: "link/a.js" covers nothing: it passes through "link", a symbolic link to "src", and a path is judged by where it leads | write the path that the link leads to`,
			`warning A "inner" symlink: "inner" is a symbolic link to "README.md": the link may be replaced, what it leads to is not covered | name what the link leads to, if that is to be written`}},
		{"symlink glob", `["link/*.js"]`, []string{`error A "link/*.js" symlink`}},
		{"mount", `["data/x"]`, []string{`note A "data/x" mount: "data/x" leads into another mount at "data": it holds for what is mounted there when the session starts`}},
		{"class", `["src/[a-z].js", "src/*.[jt]s", "app/[id]/*.tsx", "app/[...slug]/p", "app/\\[0-9]"]`, []string{
			`warning A "src/[a-z].js" class: "src/[a-z].js" holds [a-z], which looks like a character class: there are none, the brackets stand for themselves | write {a,b} for alternatives, or \[ to say that brackets are meant`,
			`warning A "src/*.[jt]s" class`}},
		{"root only", `["*.md", "./*.js", "src/*.js"]`, []string{
			`warning A "*.md" root-only: "*.md" matches in the project root only | write "**/*.md" for any depth, or "./*.md" to say that the root is meant`}},
		{"case", `["readme.md", "SRC/a.js", "docs/Guide.*"]`, []string{
			`warning A "readme.md" case [README.md]: "readme.md" does not exist: "README.md" on disk differs only by case | write it as it is on disk`,
			`warning A "SRC/a.js" case [src]`}},
		{"unicode", `["cafe\u0301.txt"]`, []string{"warning A \"cafe\u0301.txt\" unicode [caf\u00e9.txt]: \"cafe\u0301.txt\" does not exist: \"caf\u00e9.txt\" on disk looks the same and is written in another Unicode form | copy the name from the disk"}},
		{"plan", `["./*.json", "!x.json"] ["plan.json"]`, []string{
			`warning A "./*.json" plan-by-pattern [plan.json]: "./*.json" covers the plan file, which stays protected: only an entry that names it opens it | name the plan in the task that may change it: "plan.json"`,
			`error B "plan.json" overlap [plan.json]`,
		}},
		{"half", `["src/", "docs/", "README.md"]`, []string{`warning A "" half: A covers 4 of 7 tracked files, more than half | split the task, or name the files that it needs`}},
		{"double star", `["src/a**b", "src/**.js", "lib/{**,x}/*"]`, []string{
			`warning A "src/a**b" double-star: "src/a**b" holds ** within a name, where it acts as * | write ** between slashes to match at any depth`, `warning A "src/**.js" double-star`}},
		{"white space", `[" src/a.js", "src/a.js ", "src/b.js\\ "]`, []string{
			`warning A " src/a.js" white-space: " src/a.js" starts with white space, which is part of the name | remove it, or put a backslash before it to say that it is meant`,
			`warning A "src/a.js " white-space: "src/a.js " ends in white space`}},
		{"backslash", `["src\\a.js", "src/\\*"]`, []string{`warning A "src\\a.js" backslash: "src\\a.js" holds a backslash before an ordinary character: it is not a separator, and does nothing | separate directories with /, and leave ordinary characters as they are`}},
		{"braces", `["src/{a}.js"]`, []string{`warning A "src/{a}.js" braces: "src/{a}.js" holds braces around a single alternative, which do nothing`}},
		{"long name", `["` + strings.Repeat("a", 256) + `", "` + strings.Repeat("b", 255) + `*/"]`, []string{`error A "` + strings.Repeat("a", 256) + `" long-name`}},
		{"read-only", `[]`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var tasks []string
			for i, s := range strings.SplitAfter(tt.tasks, "] [") {
				s = strings.TrimSuffix(s, " [")
				if i > 0 {
					s = "[" + s
				}
				tasks = append(tasks, fmt.Sprintf(`{"id": %q, "scope": %s}`, string(rune('A'+i)), s))
			}
			p := parsed(t, `{"tasks": [ `+strings.Join(tasks, ", ")+`]}`)
			findings := p.Lint(LintOptions{Root: root, Tracked: tracked, Mounts: []string{"data"}, Plan: "plan.json"})
			ignored := map[string]bool{CodeMissing: true, CodeNoMatch: true, CodeDirectory: true, CodeHalf: true}
			for _, w := range tt.want {
				for c := range ignored {
					if strings.Contains(w, "\" "+c) {
						ignored[c] = false
					}
				}
			}
			var got []string
			for _, f := range findings {
				if f.File != "plan.json" || f.Pos.Line != 1 || f.Pos.Column < 1 {
					t.Errorf("%s stands at %s:%v", f.Code, f.File, f.Pos)
				}
				if ignored[f.Code] {
					continue
				}
				s := fmt.Sprintf("%s %s %s %s", f.Severity, f.Task, jsonText(f.Entry), f.Code)
				if f.Example != "" {
					s += " [" + f.Example + "]"
				}
				s += ": " + f.Message
				if f.Hint != "" {
					s += " | " + f.Hint
				}
				got = append(got, s)
			}
			if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// difference is a path that one table covers and another does not.
func difference(x, y *Table) (string, bool) {
	type node struct {
		a, b       State
		afterSlash bool
		path       string
	}
	reps := byteReps(&Table{Class: jointClasses(x, y)})
	first := node{x.Start[0], y.Start[0], false, ""}
	seen := map[[3]State]bool{}
	todo := []node{first}
	for len(todo) > 0 {
		n := todo[0]
		todo = todo[1:]
		if !n.afterSlash && (x.End(n.a) == Accept) != (y.End(n.b) == Accept) {
			return n.path, true
		}
		for _, b := range reps {
			if b == '/' && n.afterSlash || n.path == "" && b != '/' {
				continue
			}
			next := node{x.Step(n.a, b), y.Step(n.b, b), b == '/', n.path + string([]byte{b})}
			k := [3]State{next.a, next.b, 0}
			if next.afterSlash {
				k[2] = 1
			}
			if !seen[k] {
				seen[k] = true
				todo = append(todo, next)
			}
		}
	}
	return "", false
}

func jointClasses(x, y *Table) (out [256]uint16) {
	known := map[[2]uint16]uint16{}
	for b := range 256 {
		k := [2]uint16{x.Class[b], y.Class[b]}
		if _, ok := known[k]; !ok {
			known[k] = uint16(len(known))
		}
		out[b] = known[k]
	}
	return out
}

// TestLintMakesNoDifference: what lint says to remove changes nothing, and what it
// keeps does.
func TestLintMakesNoDifference(t *testing.T) {
	g := newGen(10)
	found := 0
	for range 3000 {
		scope := g.Scope(5)
		if !slices.ContainsFunc(scope, func(s string) bool { return s[0] != '!' }) || strings.ToValidUTF8(strings.Join(scope, ""), "") != strings.Join(scope, "") {
			continue
		}
		p := planOf(t, scope)
		gone := map[int]bool{}
		emptied := map[int]bool{}
		for _, f := range p.Lint(LintOptions{}) {
			i := slices.IndexFunc(p.Tasks[0].Scope, func(e Entry) bool { return e.Pos == f.Pos })
			switch f.Code {
			case CodeEmptied:
				emptied[i] = true
			case CodeShadowed, CodeUnusedExclusion:
				gone[i] = true
			default:
				continue
			}
			found++
		}
		without := func(more int) *Table {
			var rest []string
			for i, s := range scope {
				if !gone[i] && i != more {
					rest = append(rest, s)
				}
			}
			return scopeOf(t, false, rest...)
		}
		all := scopeOf(t, false, scope...)
		if path, ok := difference(all, without(-1)); ok {
			t.Fatalf("scope %q: without %v %q is judged differently", scope, gone, path)
		}
		for i := range scope {
			if gone[i] {
				continue
			}
			if emptied[i] {
				if path, ok := difference(all, without(i)); ok {
					t.Fatalf("scope %q: without the empty %q %q is judged differently", scope, scope[i], path)
				}
				continue
			}
			if _, ok := difference(all, without(i)); !ok {
				t.Fatalf("scope %q: %q makes no difference, and is not found", scope, scope[i])
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d entries make no difference: the generator is no good", found)
	}
}

// TestLintOverlaps: an example is covered by both tasks and none is shorter; where
// there is none, no sample is.
func TestLintOverlaps(t *testing.T) {
	g := newGen(11)
	count := [2]int{}
	for range 3000 {
		a, b := g.Scope(3), g.Scope(3)
		var p pairs
		x, err := automaton([]Group{{Rules: (&Task{Scope: entries(t, a...)}).rules(false), Inherit: -1}}, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		y, err := automaton([]Group{{Rules: (&Task{Scope: entries(t, b...)}).rules(false), Inherit: -1}}, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		path, ok := p.common(newSide(&x.dfa), newSide(&y.dfa))
		both := func(path string) bool {
			return refScope(a, false, path) == Accept && refScope(b, false, path) == Accept
		}
		if ok {
			count[1]++
			if path != cleanPath(path) || !both(path) {
				t.Fatalf("%q and %q do not both cover %q", a, b, path)
			}
		} else {
			count[0]++
		}
		for range 30 {
			s := g.Near(a)
			if g.IntN(2) == 0 {
				s = g.Near(b)
			}
			if both(s) && (!ok || len(s) < len(path)) {
				t.Fatalf("%q and %q both cover %q, found %q, %v", a, b, s, path, ok)
			}
		}
	}
	if min(count[0], count[1]) < 300 {
		t.Errorf("%d pairs apart, %d overlapping: the generator is no good", count[0], count[1])
	}
}

func TestLintManyTasksFast(t *testing.T) {
	for name, scope := range map[string]func(r *rand.Rand, i int) []string{
		"apart":    func(r *rand.Rand, i int) []string { return prefixed(fmt.Sprintf("pkg%d/", i), mixedScope(r)) },
		"mixed":    func(r *rand.Rand, i int) []string { return mixedScope(r) },
		"the same": func(r *rand.Rand, i int) []string { return append(mixedScope(r)[:19], "**/*.md") },
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(12, 12))
			type task struct {
				ID    string   `json:"id"`
				Scope []string `json:"scope"`
			}
			var tasks []task
			for i := range 1000 {
				tasks = append(tasks, task{fmt.Sprintf("T%d", i), scope(r, i)})
			}
			b, err := json.Marshal(map[string]any{"tasks": tasks})
			if err != nil {
				t.Fatal(err)
			}
			p := parsed(t, string(b))
			within(t, 10*time.Second, func() {
				count := map[string]int{}
				for _, f := range p.Lint(LintOptions{}) {
					count[f.Code]++
				}
				t.Logf("%v", count)
			})
		})
	}
}

func prefixed(prefix string, list []string) []string {
	var out []string
	for _, s := range list {
		if rest, ok := strings.CutPrefix(s, "!"); ok {
			out = append(out, "!"+prefix+rest)
		} else {
			out = append(out, prefix+s)
		}
	}
	return out
}

func TestLintIsDeterministic(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 13))
	var tasks []string
	for i := range 30 {
		b, _ := json.Marshal(append(mixedScope(r), "**/*.md"))
		tasks = append(tasks, fmt.Sprintf(`{"id": "T%d", "scope": %s}`, i, b))
	}
	text := `{"tasks": [` + strings.Join(tasks, ",\n") + `]}`
	want := parsed(t, text).Lint(LintOptions{})
	for range 3 {
		if got := parsed(t, text).Lint(LintOptions{}); !reflect.DeepEqual(got, want) {
			t.Fatal("the same plan gives different findings")
		}
	}
}
