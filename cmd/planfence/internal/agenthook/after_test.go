package agenthook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"planfence/cmd/planfence/internal/blocklog"
)

func appendRecord(t *testing.T, name string, r blocklog.Record) {
	t.Helper()
	b, err := r.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
}

func TestRefusalsOfACall(t *testing.T) {
	log := filepath.Join(t.TempDir(), "blocked.log")
	now := time.Now()
	since := now.Add(-time.Second)
	block := func(at time.Time, rel string) blocklog.Record {
		return blocklog.Record{Time: blocklog.Stamp(at), Kind: "block", Verdict: "block", Session: "s-1", Path: "/p/" + rel, Rel: rel, Op: "open", Count: 1}
	}
	r := func(change func(*blocklog.Record)) blocklog.Record {
		x := block(now.Add(-time.Millisecond), "no")
		change(&x)
		return x
	}
	appendRecord(t, log, block(since.Add(-time.Minute), "long-before"))
	appendRecord(t, log, block(since.Add(-time.Millisecond), "before"))
	appendRecord(t, log, r(func(x *blocklog.Record) { x.Session = "s-2" }))
	appendRecord(t, log, r(func(x *blocklog.Record) { x.Verdict = "would-block" }))
	appendRecord(t, log, r(func(x *blocklog.Record) { x.Kind, x.Via = "hook", "hook" }))
	appendRecord(t, log, block(now.Add(-500*time.Millisecond), "one"))
	appendRecord(t, log, block(now.Add(time.Hour), "after"))
	burst := block(since.Add(-time.Millisecond), "burst")
	burst.Last, burst.Count = blocklog.Stamp(now.Add(-time.Millisecond)), 7
	appendRecord(t, log, burst)
	if err := os.WriteFile(log+".1", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	appendRecord(t, log+".1", block(now.Add(-600*time.Millisecond), "rotated"))

	got, err := refusals(log, "s-1", since, now)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range got {
		names = append(names, x.Rel)
	}
	if s := strings.Join(names, " "); s != "burst rotated one" {
		t.Errorf("refusals %q, want burst, rotated, one", s)
	}
	if got, err := refusals(filepath.Join(t.TempDir(), "none"), "s-1", since, now); err != nil || len(got) > 0 {
		t.Errorf("no log: %v, %v", got, err)
	}
}

// The companion writes a record some time after the refusal: Await waits for it.
func TestAwaitWaitsForTheCompanion(t *testing.T) {
	log := filepath.Join(t.TempDir(), "blocked.log")
	now := time.Now()
	c := &Call{Output: `{"stderr":"sh: 1: cannot create x: Permission denied"}`}
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(time.Second)
		appendRecord(t, log, blocklog.Record{Time: blocklog.Stamp(now.Add(-time.Millisecond)), Kind: "block", Verdict: "block", Session: "s-1", Rel: "late"})
	}()
	got, err := Await(c, log, "s-1", now.Add(-time.Second), now)
	<-done
	if err != nil || len(got) != 1 || got[0].Rel != "late" {
		t.Errorf("%v, %v", got, err)
	}
	now = time.Now()
	if got, err := Await(&Call{}, log, "s-1", now, now); err != nil || len(got) > 0 || time.Since(now) > atMost {
		t.Errorf("a quiet call: %v, %v, %v", got, err, time.Since(now))
	}
}

func TestLastLines(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	var want []string
	for i := range 20_000 {
		want = append(want, strings.Repeat("x", i%97)+".")
	}
	if err := os.WriteFile(name, []byte(strings.Join(want, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, _ := f.Stat()
	i := len(want)
	if err := lastLines(f, st.Size(), func(line []byte) bool {
		i--
		if string(line) != want[i] {
			t.Fatalf("line %d: %q, want %q", i, line, want[i])
		}
		return true
	}); err != nil || i != 0 {
		t.Errorf("%d lines not seen: %v", i, err)
	}
}

func TestClock(t *testing.T) {
	k := Clock{Dir: filepath.Join(t.TempDir(), "new")}
	began := time.Now().Add(-5 * time.Second)
	c := &Call{Session: "s", ID: "1", Tool: "Bash"}
	k.Begin(c, began)
	other := &Call{Session: "s", Tool: "bash", input: map[string]any{"command": "true"}}
	k.Begin(other, began.Add(time.Second))
	now := time.Now()
	if got := k.End(c, now); !got.Equal(began) {
		t.Errorf("began %v, want %v", got, began)
	}
	if got := k.End(other, now); !got.Equal(began.Add(time.Second)) {
		t.Errorf("without an id: began %v", got)
	}
	if got := k.End(c, now); now.Sub(got) != 10*time.Second {
		t.Errorf("unknown call: %v ago", now.Sub(got))
	}
	c.Took = 3 * time.Second
	if got := k.End(c, now); now.Sub(got) != 4*time.Second {
		t.Errorf("a call that took 3 s: %v ago", now.Sub(got))
	}
}

func TestTellAfterACall(t *testing.T) {
	for _, x := range []struct {
		payload, want string
		code          int
	}{
		{`{"hook_event_name":"PostToolUse","tool_name":"Bash","tool_input":{},"session_id":"a"}`,
			`{"hookSpecificOutput":{"hookEventName":"PostToolUse","additionalContext":"text"}}` + "\n", 0},
		{`{"hook_event_name":"PostToolUseFailure","tool_name":"Bash","tool_input":{},"session_id":"a"}`,
			`{"hookSpecificOutput":{"hookEventName":"PostToolUseFailure","additionalContext":"text"}}` + "\n", 0},
		{`{"hook_event_name":"PostToolUse","tool_name":"Bash","tool_input":{},"turn_id":"a"}`,
			`{"hookSpecificOutput":{"hookEventName":"PostToolUse","additionalContext":"text"}}` + "\n", 0},
		{`{"hook_event_name":"AfterTool","tool_name":"run_shell_command","tool_input":{}}`,
			`{"hookSpecificOutput":{"hookEventName":"AfterTool","additionalContext":"text"}}` + "\n", 0},
		{`{"hook_event_name":"postToolUse","tool_name":"Shell","tool_input":{},"cursor_version":"2"}`,
			`{"additional_context":"text"}` + "\n", 0},
		{`{"sessionId":"s","toolName":"bash","toolArgs":{},"toolResult":{"resultType":"success"}}`,
			`{"additionalContext":"text"}` + "\n", 0},
		{`{"sessionId":"s","toolName":"bash","toolArgs":{},"error":"exit status 1"}`, "text\n", 2},
	} {
		c, err := Parse([]byte(x.payload), Auto)
		if err != nil {
			t.Errorf("%s: %v", x.payload, err)
			continue
		}
		if a := Tell(c, "text"); a.Stdout != x.want || a.Code != x.code {
			t.Errorf("%s: %q, status %d", x.payload, a.Stdout, a.Code)
		}
	}
}
