package agenthook

import (
	"bytes"
	"encoding/json"
	"testing"
)

// Whatever comes, a file tool's call has paths or is an error, and the answer is
// one JSON object with a reason and status 2.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"hook_event_name":"PreToolUse","tool_name":"Write","tool_input":{"file_path":"/a"}}`,
		`{"hook_event_name":"PreToolUse","tool_name":"apply_patch","tool_input":{"command":"*** Begin Patch\n*** Update File: a\n*** Move to: b\n"}}`,
		`{"toolName":"create","toolArgs":"{\"path\":\"a\"}"}`,
		`{"tool_name":"editFiles","tool_input":{"files":["a",{"path":"b"},3]}}`,
		`{"hook_event_name":"beforeMCPExecution","tool_name":"write_file","tool_input":"{\"path\":\"a\"}"}`,
		`{"tool_name":"mcp__a__","tool_input":null}`, `{"tool_name":"mcp__","toolArgs":[]}`, `{}`, `[]`, ``, "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, agent := range append([]string{Auto}, Agents...) {
			c, err := Parse(data, agent)
			if (c == nil) == (err == nil) {
				t.Fatalf("%s: %v and %v", agent, c, err)
			}
			if c != nil && c.Event != Other && c.Kind() == Files {
				ts, err := c.Targets()
				if (len(ts) == 0) == (err == nil) {
					t.Fatalf("%s: targets %v and %v", agent, ts, err)
				}
			}
			a := Refuse(c, agent, "why\nso")
			var o map[string]any
			if a.Code != 2 || a.Stderr == "" || json.Unmarshal([]byte(a.Stdout), &o) != nil || len(o) == 0 {
				t.Fatalf("%s: answer %+v", agent, a)
			}
		}
	})
}

// Installing is idempotent, and taking out what was put in gives back the same
// settings, as far as they had anything of their own.
func FuzzSettings(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"hooks":{}}`, `{"a":1,"hooks":{"PreToolUse":[{"matcher":"x","hooks":[{"command":"y"}]}]},"b":[]}`,
		`{"version":1,"hooks":{"preToolUse":[{"command":"/usr/bin/planfence hook --agent cursor"},{"command":"z"}]}}`,
		`{"hooks":{"PreToolUse":[{"hooks":[{"command":"planfence hook"},{"command":"y"}]}]}}`, `{"hooks":3}`, `{"hooks":{"PreToolUse":{}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, old []byte) {
		for _, agent := range Agents {
			once, err := Install(old, agent, "planfence hook --agent "+agent)
			if err != nil {
				continue
			}
			twice, err := Install(once, agent, "planfence hook --agent "+agent)
			if err != nil || !bytes.Equal(once, twice) {
				t.Fatalf("%s: installed twice: %v\n%s\n%s", agent, err, once, twice)
			}
			gone, err := Uninstall(once, agent)
			if err != nil {
				t.Fatalf("%s: uninstall: %v", agent, err)
			}
			if bytes.Contains(gone, []byte("planfence hook")) && !bytes.Contains(old, []byte("planfence hook")) {
				t.Fatalf("%s: left behind: %s", agent, gone)
			}
			clean, err := Uninstall(old, agent)
			if err != nil || bytes.Contains(old, []byte("planfence")) {
				continue
			}
			var a, b any
			_ = json.Unmarshal(clean, &a)
			_ = json.Unmarshal(gone, &b)
			if x, y := empty(a), empty(b); x != y {
				t.Fatalf("%s: was %s, is %s", agent, clean, gone)
			}
		}
	})
}

// empty writes a value without what install may leave of an empty file.
func empty(v any) string {
	m, _ := v.(map[string]any)
	if h, ok := m["hooks"].(map[string]any); ok {
		for k, list := range h {
			if l, ok := list.([]any); ok && len(l) == 0 {
				delete(h, k)
			}
		}
		if len(h) == 0 {
			delete(m, "hooks")
		}
	}
	delete(m, "version")
	if len(m) == 0 {
		return "{}"
	}
	b, _ := json.Marshal(m)
	return string(b)
}
