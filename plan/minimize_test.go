package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestMinimal refines the result once more, the slow way: no two states may be
// alike.
func TestMinimal(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 5 {
		task := Task{Scope: entries(t, append(mixedScope(r), literalEntries(r, 30)...)...)}
		n := newNFA()
		n.group()
		for i, rule := range task.rules(true) {
			n.add(0, rule, int32(i))
		}
		d, err := determine(n, []Group{{Inherit: -1}}, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		d.splitSlashes()
		d.trim()
		d.minimize()
		rows := len(d.end)
		block := make([]int, rows)
		for blocks := 0; ; {
			names := map[string]int{}
			next := make([]int, rows)
			for i := range rows {
				var to [256]int
				for _, x := range d.row(int32(i) + firstRow) {
					for b := int(x.lo); b <= int(x.hi); b++ {
						to[b] = -1
						if x.to != idAll {
							to[b] = block[x.to-firstRow] + 1
						}
					}
				}
				key := fmt.Sprint(d.end[i], to)
				if _, ok := names[key]; !ok {
					names[key] = len(names)
				}
				next[i] = names[key]
			}
			block = next
			if len(names) == blocks {
				break
			}
			blocks = len(names)
		}
		seen := map[int]bool{}
		for i, b := range block {
			if seen[b] {
				t.Fatalf("state %d of %d is like another", i, rows)
			}
			seen[b] = true
		}
	}
}
