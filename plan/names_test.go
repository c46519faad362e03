package plan

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func namesTable(t *testing.T, entries ...string) *Table {
	t.Helper()
	var rules []Rule
	for _, e := range entries {
		x, err := ParseEntry(e, ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, Rule{Entry: x, Siblings: !x.Exclude})
	}
	table, err := Compile([]Group{{Rules: rules, Inherit: -1}}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestNames(t *testing.T) {
	table := namesTable(t, "src/", "lib/a/slug.js", "docs/*.md", "a-name-of-more-than-16-bytes/x")
	start := table.Start[0]
	names := table.Names(start, 16, 1000)
	paths := map[State]string{start: ""}
	got := map[string]bool{} // path -> AllBelow
	for _, n := range names {
		dir, ok := paths[n.From]
		if !ok {
			t.Fatalf("%q begins at a state that no name before it leads to", n.Text)
		}
		if want := table.Walk(n.From, "/"+n.Text); n.To != want {
			t.Errorf("%s/%s: state %d, the cells say %d", dir, n.Text, n.To, want)
		}
		if want := table.Step(n.To, '/') == All; n.AllBelow != want {
			t.Errorf("%s/%s: all below: %v", dir, n.Text, n.AllBelow)
		}
		if _, ok := paths[n.To]; !ok {
			paths[n.To] = dir + "/" + n.Text
		}
		got[dir+"/"+n.Text] = n.AllBelow
	}
	for path, below := range map[string]bool{"/src": true, "/lib": false, "/lib/a": false, "/docs": false} {
		if b, ok := got[path]; !ok || b != below {
			t.Errorf("%s: listed %v, all below %v, want %v", path, ok, b, below)
		}
	}
	for path := range got {
		if strings.Contains(path, "more-than-16") || strings.HasPrefix(path, "/docs/") {
			t.Errorf("%s is listed: too long, or a wildcard's", path)
		}
	}
	if n := table.Names(start, 16, 2); len(n) != 2 {
		t.Errorf("%d names, at most 2 wanted", len(n))
	}
}

// A state that skips names gives the same answer for any path, whether its
// directories are read or not.
func TestSkips(t *testing.T) {
	for _, c := range []struct {
		entries string
		dir     string // whose '/' leads to a state that skips
		want    bool
	}{
		{"**/*.md", "", true},
		{"src/**/*.go", "/src", true},
		{"src/**/*.go", "", false},
		{"**/*.md **/test/*.go", "", false}, // a directory's name matters
		{"**/*.md !**/private/**", "", false},
		{"src/a.js", "", false},
		{"*/x", "", false},
	} {
		table := namesTable(t, strings.Fields(c.entries)...)
		at := table.Step(table.Walk(table.Start[0], c.dir), '/')
		skips := table.Skips()
		if skips[at] != c.want {
			t.Errorf("%s: below %q: skips %v", c.entries, c.dir, skips[at])
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		const letters = "abx.mdgo-\xff"
		for s, ok := range skips {
			if !ok {
				continue
			}
			for range 2000 {
				cur := s
				for range 1 + rnd.IntN(3) {
					for range 1 + rnd.IntN(12) {
						cur = table.Step(cur, letters[rnd.IntN(len(letters))])
					}
					if cur = table.Step(cur, '/'); cur != s {
						t.Fatalf("%s: a name leads from %d to %d", c.entries, s, cur)
					}
				}
			}
		}
	}
}
