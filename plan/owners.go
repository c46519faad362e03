package plan

import "sync"

// owners has the compiled scopes of all tasks, made when first asked for.
type owners struct {
	once   sync.Once
	tables []*Table // by task; nil where the scope is too complex
}

// Owners lists the tasks whose scope covers a path relative to the root, but for
// the task with the id except. Siblings of files do not count as covered. A task
// whose scope is too complex to compile owns nothing.
func (p *Plan) Owners(rel, except string) []string {
	p.owners.once.Do(func() {
		p.owners.tables = make([]*Table, len(p.Tasks))
		for i := range p.Tasks {
			if t, err := p.CompileTask(&p.Tasks[i], false); err == nil {
				p.owners.tables[i] = t
			}
		}
	})
	var ids []string
	for i, t := range p.owners.tables {
		if t != nil && p.Tasks[i].ID != except && t.End(t.Walk(t.Start[0], "/"+rel)) == Accept {
			ids = append(ids, p.Tasks[i].ID)
		}
	}
	return ids
}
