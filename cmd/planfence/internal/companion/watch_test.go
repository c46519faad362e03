package companion

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"planfence/cmd/planfence/internal/policy"
)

// Every way in which a plan or an active task changes shows in their prints, or in
// what they say where the prints cannot tell.
func TestChangesAreSeen(t *testing.T) {
	dir := t.TempDir()
	plan, task := filepath.Join(dir, "plan.json"), filepath.Join(dir, "active-task")
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put(plan, `{"tasks":[{"id":"A","scope":["a"]},{"id":"B","scope":["b"]}]}`)
	c := &Companion{Config: policy.Config{Root: dir, Plan: plan, TaskFile: task}}
	read := func() {
		c.seen = c.fingerprint()
		if _, _, _, err := c.current(); err != nil {
			t.Fatal(err)
		}
	}
	for _, change := range []struct {
		name string
		do   func()
	}{
		{"made", func() { put(task, "A\n") }},
		{"written", func() { put(task, "B \n") }},
		{"renamed onto", func() { put(task+".new", "A\n"); do(os.Rename(task+".new", task)) }},
		{"made a link", func() {
			put(filepath.Join(dir, "one"), "A\n")
			put(filepath.Join(dir, "two"), "B\n")
			do(os.Remove(task))
			do(os.Symlink("one", task))
		}},
		{"link swapped", func() {
			do(os.Symlink("two", task+".new"))
			do(os.Rename(task+".new", task))
		}},
		{"what the link names written", func() { put(filepath.Join(dir, "two"), "A  \n") }},
		{"plan", func() { put(plan, `{"tasks":[{"id":"A","scope":["a","c"]}]}`) }},
		{"removed", func() { do(os.Remove(task)) }},
	} {
		read()
		if c.fingerprint() != c.seen || c.differs() {
			t.Errorf("%s: a change before it", change.name)
		}
		change.do()
		if c.fingerprint() == c.seen {
			t.Errorf("%s: not seen", change.name)
		}
	}
	// The same size and times, other contents: as two changes within a tick of the clock.
	put(task, "A\n")
	now := time.Now()
	do(os.Chtimes(task, now, now))
	read()
	put(task, "B\n")
	do(os.Chtimes(task, now, now))
	if !c.differs() {
		t.Error("other contents under the same times: not seen by reading")
	}
	same := c.last.plan
	if _, _, id, err := c.current(); err != nil || id != "B" || c.last.plan != same {
		t.Errorf("read again: task %q, parsed again %v, %v", id, c.last.plan != same, err)
	}
}

// A nudge comes through the FIFO, and a session without one does no harm.
func TestNudgeWithoutSession(t *testing.T) {
	Nudge("s-no-such-session")
}
