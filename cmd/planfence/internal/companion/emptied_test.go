package companion

import (
	"os"
	"path/filepath"
	"testing"

	"planfence/cmd/planfence/internal/policy"
)

// TestEmptied: a file that has just become empty or missing is waited for, one
// that was so before is not.
func TestEmptied(t *testing.T) {
	dir := t.TempDir()
	plan, task := filepath.Join(dir, "plan.json"), filepath.Join(dir, "active-task")
	write := func(f, text string) {
		t.Helper()
		if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(plan, "{}")
	c := &Companion{Config: policy.Config{Plan: plan, TaskFile: task}}
	before := c.fingerprint()
	for i, step := range []struct {
		do   func()
		want bool
	}{
		{func() {}, false}, // no active-task file, and there was none
		{func() { write(task, "T1") }, false},
		{func() { write(task, "") }, true},
		{func() {}, false},
		{func() { write(task, "T2") }, false},
		{func() { _ = os.Remove(task) }, true},
		{func() { _ = os.Remove(plan) }, true},
		{func() { write(plan, "{}") }, false},
		{func() { write(plan, "") }, true},
	} {
		step.do()
		now := c.fingerprint()
		if got := now.emptied(before); got != step.want {
			t.Errorf("step %d: %t, want %t", i, got, step.want)
		}
		before = now
	}
}
