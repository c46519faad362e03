package plan

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestParseErrors has every complaint with its place; several in one file are all
// reported, in order.
func TestParseErrors(t *testing.T) {
	task := func(fields string) string { return `{"tasks": [{` + fields + `}]}` }
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	for _, tt := range []struct{ text, want string }{
		{"", `1:1: the plan is empty: expected {"tasks": […]}`},
		{" \n ", `2:2: the plan is empty: expected {"tasks": […]}`},
		{"\xEF\xBB\xBF{}", "1:1: the plan starts with a byte-order mark: a plan is plain UTF-8"},
		{"{\n\"a\xff\":1}", "2:3: the plan is not UTF-8: a byte here belongs to no character"},
		{"{\"tasks\": [\n  {]}", "2:4: the plan is not valid JSON: invalid character ']' looking for beginning of object key string"},
		{`{"tasks": [`, "1:12: the plan is not valid JSON: unexpected end of JSON input"},
		{`{"tasks": []} x`, "1:15: the plan is not valid JSON: invalid character 'x' after top-level value"},
		{`{"tasks": []}{}`, "1:14: the plan is not valid JSON: invalid character '{' after top-level value"},
		{`[]`, "1:1: expected an object with tasks, found a list"},
		{`true`, "1:1: expected an object with tasks, found true"},
		{`{}`, "1:1: the plan has no tasks: the field tasks is missing"},
		{`{"tasks": {}}`, "1:11: tasks: expected a list, found an object"},
		{`{"tasks": [1, null]}`, "1:12: tasks: expected an object, found a number\n1:15: tasks: expected an object, found null"},
		{`{"tasks": [], "tasks": []}`, `1:15: duplicate key "tasks"`},
		{`{"x": {"y": 1, "y": 2}, "tasks": []}`, `1:16: duplicate key "y"`},
		{`{"x": ` + deep + `, "tasks": []}`, "1:70: the plan is nested too deep: at most 64 levels"},
		{task(`"scope": []`), "1:12: a task has no id: the field id is missing"},
		{task(`"id": 1, "scope": []`), "1:19: id: expected a string, found a number"},
		{task(`"id": "", "scope": []`), `1:19: id: "" is empty`},
		{task(`"id": "a b", "scope": []`), `1:19: id: "a b" holds white space`},
		{task(`"id": "a\u202e", "scope": []`), `1:19: id: "a\u202e" holds a character that does not print: U+202E`},
		{task(`"id": "` + strings.Repeat("x", 129) + `", "scope": []`), `1:19: id: "` + strings.Repeat("x", 129) + `" is too long: 129 bytes, at most 128`},
		{"{\"tasks\": [{\"id\": \"A\", \"scope\": []},\n{\"id\": \"A\", \"scope\": []}]}", `2:8: id: "A" is taken by the task at 1:12`},
		{task(`"id": "A"`), `1:12: task "A" has no scope: the field scope is missing`},
		{task(`"id": "A", "owned_paths": ["a"]`), `1:24: task "A" has no scope: found "owned_paths" instead`},
		{task(`"id": "A", "Scope": ["a"]`), `1:24: task "A" has no scope: found "Scope" instead`},
		{task(`"id": "A", "scope": "a"`), "1:33: scope: expected a list of paths, found a string"},
		{task(`"id": "A", "scope": null`), "1:33: scope: expected a list of paths, found null"},
		{task(`"id": "A", "scope": ["a", 1, ["b"]]`), "1:39: scope: expected a path as a string, found a number\n1:42: scope: expected a path as a string, found a list"},
		{task(`"id": "A", "scope": ["!a"]`), "1:33: scope: only exclusions: they take away from nothing"},
		{task(`"id": "A", "scope": ["", "src/{a", "b/../c"]`), "1:35: scope: an entry is empty\n1:43: scope: entry \"src/{a\" holds an opening brace without a closing one\n" +
			"1:51: scope: entry \"b/../c\" holds ..: it would leave the root, or depend on links"},
		{task(`"id": "A", "scope": ["\u0061/.."]`), `1:34: scope: entry "a/.." holds ..: it would leave the root, or depend on links`},
		{task(`"id": "A", "scope": ["a\u0000"]`), `1:34: scope: entry "a\x00" holds a NUL byte: no path can`},
		{task(`"id": "A", "scope": ["a\ud800b"]`), "1:36: a string holds half a character: a surrogate stands alone"},
		{task(`"id": "A", "scope": ["/etc/x"]`), `1:35: scope: entry "/etc/x" is absolute and outside the project root "/r"`},
	} {
		_, err := Parse("plan.json", []byte(tt.text), ParseOptions{Root: "/r"})
		if err == nil {
			t.Errorf("%.80s is accepted", tt.text)
			continue
		}
		want := "plan.json:" + strings.ReplaceAll(tt.want, "\n", "\nplan.json:")
		if got := err.Error(); got != want {
			t.Errorf("%.80s\n got %s\nwant %s", tt.text, got, want)
		}
		var pe *Error
		if !errors.As(err, &pe) {
			t.Errorf("%.80s: %T is no *Error", tt.text, err)
		}
	}
}

func TestParseLimits(t *testing.T) {
	tasks := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"id": "T%d", "scope": []}`, i)
		}
		return `{"tasks": [` + b.String()[1:] + `]}`
	}
	scope := func(n int) string {
		return `{"tasks": [{"id": "T", "scope": [` + strings.Repeat(`"a",`, n-1) + `"a"]}]}`
	}
	entry := func(n int) string {
		return `{"tasks": [{"id": "T", "scope": ["` + strings.Repeat("a", n) + `"]}]}`
	}
	size := func(n int) string {
		return `{"tasks": []` + strings.Repeat(" ", n-13) + `}`
	}
	for _, tt := range []struct {
		make func(int) string
		most int
		want string
	}{
		{tasks, MaxTasks, "too many tasks: at most 10000"},
		{scope, MaxEntries, "too many entries: at most 10000"},
		{entry, MaxEntry, "too long: 4096 bytes, at most 4095"},
		{size, MaxFile, "the plan is too large: 16777217 bytes, at most 16777216"},
	} {
		if _, err := Parse("p", []byte(tt.make(tt.most)), ParseOptions{}); err != nil {
			t.Errorf("the limit itself is refused: %v", err)
		}
		if _, err := Parse("p", []byte(tt.make(tt.most+1)), ParseOptions{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}

func TestParseMany(t *testing.T) {
	text := `{"tasks": [{"id": "A", "scope": [` + strings.Repeat(`"..", `, 29) + `".."]}]}`
	_, err := Parse("p", []byte(text), ParseOptions{})
	if err == nil || strings.Count(err.Error(), "\n") != maxErrors || !strings.HasSuffix(err.Error(), "p:1:155: more problems from here on: 10") {
		t.Errorf("30 errors read %v", err)
	}
}

func TestParse(t *testing.T) {
	p := parsed(t, `{"version": 2, "tasks": [
  {"id": "T1", "title": "one \u00e9", "scope": ["src/a.js", "\u0064ocs/", "/r/x"], "notes": {"scope": 1}},
  {"id": "T2", "title": null, "files": ["y"], "scope": []}
]}`)
	if got := fmt.Sprint(p.IDs()); got != "[T1 T2]" {
		t.Errorf("ids are %s", got)
	}
	a := p.Task("T1")
	if a.Title != "one é" || a.Pos != (Pos{2, 3}) || len(a.Scope) != 3 || a.Scope[1].Text != "docs/" || a.Scope[1].Pos != (Pos{2, 61}) {
		t.Errorf("task T1 is %+v", a)
	}
	if lit, ok := a.Scope[2].Literal(); lit != "x" || !ok {
		t.Errorf("an absolute entry is %q", lit)
	}
	if b := p.Task("T2"); b == nil || b.Scope == nil || len(b.Scope) != 0 {
		t.Errorf("a read-only task is %+v", b)
	}
	if p.Task("T3") != nil || p.Task("") != nil {
		t.Error("a task is found that there is not")
	}
}

// TestSiblingPatterns: the table's patterns and the siblings they mean.
func TestSiblingPatterns(t *testing.T) {
	for name, want := range map[string]string{
		"f.c.tmp.1.2": "NAME.tmp.*", "f.c.x.tmp": "NAME.*.tmp", "f.c~": "NAME~", ".f.c.swp": ".NAME.sw?", ".f.c.Ab12": ".NAME.*",
		"f.c.20": "NAME.[0-9]+", "f.c.1928374650": "NAME.[0-9]+", ".#f.c": ".#NAME", "#f.c#": "#NAME#", "4913": "4913", "sedAb12Cd": "sed??????",
		"f.c": "", "f.c.": "", "f.c.1a": "", "xf.c~": "", "f.c~x": "", "sedAb12C": "", "sedAb12Cde": "", ".f.c": "", "f.c.a/b.tmp": "",
	} {
		if got, ok := IsSibling("f.c", name); got != want || ok != (want != "") {
			t.Errorf("%s is a sibling of f.c by %q, want %q", name, got, want)
		}
	}
}
