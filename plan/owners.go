package plan

import "sync"

// owners has the compiled scopes of all tasks, made once they are worth it.
type owners struct {
	sync.Mutex
	asked  int
	tables []*Table // by task; nil where the scope is too complex
}

// asksUncompiled is after how many questions compiling pays: one question by
// entries costs about a hundredth of compiling.
const asksUncompiled = 16

// Owners lists the tasks whose scope covers a path relative to the root, but for
// the task with the id except. Siblings of files do not count as covered.
func (p *Plan) Owners(rel, except string) []string {
	o := &p.owners
	o.Lock()
	defer o.Unlock()
	if o.asked++; o.asked == asksUncompiled {
		o.tables = make([]*Table, len(p.Tasks))
		for i := range p.Tasks {
			if t, err := p.CompileTask(&p.Tasks[i], false); err == nil {
				o.tables[i] = t
			}
		}
	}
	var ids []string
	for i := range p.Tasks {
		task := &p.Tasks[i]
		if task.ID == except {
			continue
		}
		covered := false
		if o.tables != nil && o.tables[i] != nil {
			t := o.tables[i]
			covered = t.End(t.Walk(t.Start[0], "/"+rel)) == Accept
		} else {
			covered = task.match(rel) == Accept
		}
		if covered {
			ids = append(ids, task.ID)
		}
	}
	return ids
}

// match judges a path by the entries, without siblings.
func (t *Task) match(rel string) State {
	state := Dead
	for _, e := range t.Scope {
		if state == Accept && !e.Exclude || e.Match(rel, false) != Accept {
			continue
		}
		if e.Exclude {
			return Dead
		}
		state = Accept
	}
	return state
}
