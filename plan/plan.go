package plan

import "sync"

// Limits of a plan. What exceeds one is an error, nothing is cut.
const (
	MaxFile    = 16 << 20 // bytes of a plan
	MaxTasks   = 10_000   // tasks of a plan
	MaxEntries = 10_000   // entries of a task's scope
	MaxID      = 128      // bytes of a task's id
	MaxDepth   = 64       // nested lists and objects
)

// Plan is a plan that [Parse] accepted. It is not changed after that and may be
// used from several goroutines.
type Plan struct {
	File  string // the name given to Parse
	Tasks []Task // in the order of the file

	byID   map[string]int
	owners owners
	tables struct {
		sync.Mutex
		of map[tableKey]*Table
	}
}

// Task is one task of a plan.
type Task struct {
	ID    string
	Title string
	Pos   Pos     // of the task's object
	Scope []Entry // empty for a read-only task
}

// Task returns the task with an id, or nil.
func (p *Plan) Task(id string) *Task {
	if i, ok := p.byID[id]; ok {
		return &p.Tasks[i]
	}
	return nil
}

// IDs returns the ids of all tasks in the order of the file.
func (p *Plan) IDs() []string {
	ids := make([]string, len(p.Tasks))
	for i := range p.Tasks {
		ids[i] = p.Tasks[i].ID
	}
	return ids
}
