package plan

import "planfence/plan/plantest"

// newGen makes a generator of entries that parse.
func newGen(seed uint64) plantest.Gen {
	return plantest.New(seed, func(s string) bool {
		_, err := ParseEntry(s, ParseOptions{})
		return err == nil
	})
}

// refScope judges a path by a scope as the reference does.
func refScope(scope []string, siblings bool, path string) State {
	r := plantest.Reference{Entries: scope}
	if siblings {
		for _, p := range SiblingPatterns {
			r.Siblings = append(r.Siblings, p.Pattern)
		}
	}
	return map[plantest.Verdict]State{plantest.Covered: Accept, plantest.Sibling: Sibling, plantest.Refused: Dead}[r.Judge(path)]
}
