package companion

import (
	"fmt"
	"reflect"
	"strings"

	"planfence/cmd/planfence/internal/policy"
	"planfence/plan"
)

// Explain says what is special about the scope in force, "" if a task is active.
func (c *Companion) Explain() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.policy.Kind {
	case policy.Idle:
		return "no task is active: only the fence's own files are protected"
	case policy.Closed:
		return "no task is active: everything is refused (--idle=closed)"
	case policy.Unknown:
		return UnknownTask(c.plan, c.policy.TaskID) + ": everything is refused"
	}
	return ""
}

// UnknownTask is the error for an id that the plan does not have.
func UnknownTask(p *plan.Plan, id string) string {
	return fmt.Sprintf("the plan has no task %q, it has %s", id, strings.Join(p.IDs(), ", "))
}

// samePlan reports whether two plans have the same tasks and scopes.
func samePlan(a, b *plan.Plan) bool {
	if len(a.Tasks) != len(b.Tasks) {
		return false
	}
	for i := range a.Tasks {
		x, y := a.Tasks[i], b.Tasks[i]
		if x.ID != y.ID || x.Title != y.Title || !reflect.DeepEqual(texts(x.Scope), texts(y.Scope)) {
			return false
		}
	}
	return true
}

func texts(es []plan.Entry) []string {
	var out []string
	for _, e := range es {
		out = append(out, e.Text)
	}
	return out
}
