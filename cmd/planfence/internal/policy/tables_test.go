package policy

import (
	"fmt"
	"testing"

	"planfence/plan"
)

// TestTables: a table is reused for the same rules only.
func TestTables(t *testing.T) {
	entry := func(text string) plan.Entry {
		e, err := plan.ParseEntry(text, plan.ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	one := func(r plan.Rule) []plan.Group { return []plan.Group{{Rules: []plan.Rule{r}, Inherit: -1}} }
	var c tableCache
	compile := func(g []plan.Group) *plan.Table {
		table, err := c.compile(g)
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	first := compile(one(plan.Rule{Entry: entry("a*")}))
	if compile(one(plan.Rule{Entry: entry("a*")})) != first {
		t.Error("the same rules are compiled again")
	}
	for name, g := range map[string][]plan.Group{
		"a literal of the same text":    one(plan.Rule{Entry: plan.LiteralEntry("a*", false)}),
		"a literal with what is below":  one(plan.Rule{Entry: plan.LiteralEntry("a*", true)}),
		"another base":                  one(plan.Rule{Entry: entry("a*"), Base: "/b"}),
		"siblings":                      one(plan.Rule{Entry: entry("a*"), Siblings: true}),
		"another entry":                 one(plan.Rule{Entry: entry("b*")}),
		"the same, and one more":        {{Rules: []plan.Rule{{Entry: entry("a*")}, {Entry: entry("!ab")}}, Inherit: -1}},
		"the same, in a second group":   {{Inherit: -1}, {Rules: []plan.Rule{{Entry: entry("a*")}}, Inherit: -1}},
		"the same, behind another path": {{Rules: []plan.Rule{{Entry: entry("a*")}}, Inherit: -1}, {Inherit: 0, Path: "/x"}},
	} {
		if compile(g) == first {
			t.Errorf("%s: the table of other rules", name)
		}
	}
	for i := range 3 * maxTables {
		compile(one(plan.Rule{Entry: entry(fmt.Sprintf("f%d", i))}))
	}
	if len(c.known) != maxTables {
		t.Errorf("%d tables are kept, want %d", len(c.known), maxTables)
	}
	if compile(one(plan.Rule{Entry: entry("a*")})) == first {
		t.Error("a table is kept for ever")
	}
}
