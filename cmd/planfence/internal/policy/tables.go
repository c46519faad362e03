package policy

import (
	"reflect"
	"sync"

	"planfence/plan"
)

// tables keeps the last compiled tables: sessions go back and forth between a
// few tasks, and compiling is most of what a switch costs. Tables are not
// changed once they are made.
var tables tableCache

type tableCache struct {
	mu    sync.Mutex
	known []knownTable // the one that was used last at the end
}

type knownTable struct {
	groups []plan.Group
	table  *plan.Table
}

// Bounds of what is kept.
const (
	maxTables = 16
	maxCells  = 1 << 16 // of all tables: half a megabyte
)

func (c *tableCache) compile(groups []plan.Group) (*plan.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := range c.known {
		if reflect.DeepEqual(k.groups, groups) { // what entries match included, not their text alone
			c.known = append(append(c.known[:i], c.known[i+1:]...), k)
			return k.table, nil
		}
	}
	t, err := plan.Compile(groups, plan.Limits{})
	if err != nil {
		return nil, err
	}
	c.known = append(c.known, knownTable{groups, t})
	cells := 0
	for i := len(c.known) - 1; i >= 0; i-- {
		if cells += len(c.known[i].table.Cells); cells > maxCells && i < len(c.known)-1 || len(c.known)-i > maxTables {
			c.known = append([]knownTable{}, c.known[i+1:]...)
			break
		}
	}
	return t, nil
}
