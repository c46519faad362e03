package coordaudit

import (
	"slices"
	"testing"
)

// A ledger that cannot be judged is never ok, and every turn that was read has
// what the criteria need.
func FuzzLedger(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", "[1]", "\n\n", "{\"record_type\":\"verdict\"}",
		`{"turn_id":1,"session_id":"a","mode":"Direct","task_calls_since_last_turn":0,"write_tools_used":true,"domain_artifact_declared":{"value":"x"}}`,
		`{"mode":"Full","task_calls_since_last_turn":["a"],"write_tools_used":["b"]}` + "\n{",
		`{"mode":"Full","task_calls_since_last_turn":1e99,"write_tools_used":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l := ReadLedger(b, "")
		for _, turn := range l.Turns {
			if !slices.Contains(modes, turn.Mode) || turn.TaskCalls < 0 || turn.WriteTools == nil {
				t.Fatalf("turn %+v", turn)
			}
		}
		for _, mode := range []string{ModeWarn, ModeBlock} {
			r := Judge(l, mode)
			switch {
			case len(l.Turns) == 0 && (r.Verdict != Indeterminate || !r.WouldBlock):
				t.Fatalf("no turn, and verdict %s", r.Verdict)
			case r.WouldBlock == (r.Verdict == OK):
				t.Fatalf("verdict %s, would block %v", r.Verdict, r.WouldBlock)
			case mode == ModeBlock && (r.Exit(mode) == 1) != r.WouldBlock, mode == ModeWarn && r.Exit(mode) != 0:
				t.Fatalf("verdict %s, exit status %d", r.Verdict, r.Exit(mode))
			}
		}
	})
}
