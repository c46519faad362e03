package companion

import (
	"path/filepath"
	"testing"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/policy"
)

// TestAccount: a keeper learns from the log what companions before it told, of
// its own session only, rotated files included.
func TestAccount(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "b.log")
	w, err := blocklog.Open(path, -1, -1, 300)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, r := range []*blocklog.Record{
		{Kind: "session-start", Session: "s-1"}, {Kind: "block", Session: "s-1", Count: 3}, {Kind: "block", Session: "s-2", Count: 100},
		{Kind: "lost", Session: "s-1", Lost: 7}, {Kind: "lost", Session: "s-2", Lost: 50}, {Kind: "block", Session: "s-1", Verdict: "would-block", Count: 2},
		{Kind: "hook", Session: "s-1", Count: 9},
	} {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	c := &Companion{}
	c.account(&State{Name: "s-1", Unwritten: 4, Config: policy.Config{Log: path}})
	if !c.before || c.told != 12 || c.lost != 3 {
		t.Errorf("told %d, of the ring %d, want 12 and 3", c.told, c.lost)
	}
	c = &Companion{}
	if c.account(&State{Name: "s-1"}); c.before || c.told != 0 {
		t.Errorf("without a file: %+v", c.told)
	}
}
