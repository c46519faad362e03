//go:build vm

package main_test

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

//go:embed testdata/agent.js
var agentJS string

// installedPlanfence is the program under test; PATH has the scripts' first.
const installedPlanfence = "/usr/local/bin/planfence"

// agentProject is a project of the user dev, with two tasks and the hook in the
// agent's settings.
type agentProject struct {
	dir, agent string
}

func newAgentProject(t *testing.T) *agentProject {
	t.Helper()
	dir, err := os.MkdirTemp("/home/dev", "agent-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := &agentProject{dir: filepath.Join(dir, "p"), agent: filepath.Join(dir, "agent.js")}
	for name, text := range map[string]string{
		"agent.js":                  agentJS,
		"p/src/slug.js":             "slug\n",
		"p/src/other.js":            "other\n",
		"p/lib/keep":                "",
		"p/.git/HEAD":               "ref: refs/heads/main\n",
		"p/.claude/plan.json":       `{"tasks": [{"id": "T1", "scope": ["src/slug.js"]}, {"id": "T2", "scope": ["src/other.js"]}]}`,
		"p/.claude/settings.json":   "{}\n",
		"p/.claude/dispatch/readme": "",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	agentRun(t, "/", nil, "chown", "-R", "dev:dev", dir)
	agentRun(t, a.dir, nil, "su", "dev", "-c", "planfence hook install --agent claude")
	return a
}

// agentRun runs a command that must succeed and returns its output.
func agentRun(t *testing.T, dir string, stdin []byte, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(argv, " "), err, out.String(), errs.String())
	}
	return out.String()
}

func (a *agentProject) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (a *agentProject) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(a.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// agentCall is a tool call, agentAnswer what came of it.
type agentCall struct {
	Tool  string            `json:"tool"`
	Input map[string]string `json:"input"`
}

type agentAnswer struct {
	Refused                bool
	Reason, Error, Context string
}

func (a *agentProject) play(t *testing.T, calls []agentCall, argv ...string) []agentAnswer {
	t.Helper()
	var in bytes.Buffer
	for _, c := range calls {
		if err := json.NewEncoder(&in).Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	var out []agentAnswer
	for line := range strings.Lines(agentRun(t, a.dir, in.Bytes(), argv...)) {
		var x agentAnswer
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, x)
	}
	if len(out) != len(calls) {
		t.Fatalf("%d answers to %d calls", len(out), len(calls))
	}
	return out
}

func (a *agentProject) calls() []agentCall {
	write := func(name string) agentCall {
		return agentCall{"Write", map[string]string{"file_path": filepath.Join(a.dir, name), "content": "mine\n"}}
	}
	bash := func(command string) agentCall { return agentCall{"Bash", map[string]string{"command": command}} }
	return []agentCall{
		write("src/slug.js"),
		write("src/other.js"),
		bash("echo mine >> src/other.js"),
		bash("(echo mine > src/other.js) 2>/dev/null; true"),
		bash("echo more >> src/slug.js"),
	}
}

// blocks returns the kernel's records of the log, as "comm rel", and the hook's.
func (a *agentProject) blocks(t *testing.T) (out, hook []string) {
	t.Helper()
	for line := range strings.Lines(a.read(t, ".claude/blocked.log")) {
		var r struct{ Kind, Comm, Rel, Via string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if r.Kind == "block" && r.Via == "" {
			out = append(out, r.Comm+" "+r.Rel)
		}
		if r.Via == "hook" {
			hook = append(hook, r.Comm+" "+r.Rel)
		}
	}
	return out, hook
}

// TestAgent plays an agent in a session: the hook refuses its Write tool, the
// kernel its shell, and the agent is told why.
func TestAgent(t *testing.T) {
	a := newAgentProject(t)

	t.Run("control", func(t *testing.T) { // with no task, and no fence, everything works
		for i, x := range a.play(t, a.calls(), "su", "dev", "-c", "node "+a.agent) {
			if x.Refused || x.Error != "" || x.Context != "" {
				t.Errorf("call %d: %+v", i, x)
			}
		}
		if s := a.read(t, "src/other.js"); s != "mine\n" {
			t.Errorf("src/other.js is %q", s)
		}
	})

	a.write(t, "src/slug.js", "slug\n")
	a.write(t, "src/other.js", "other\n")
	a.write(t, ".claude/active-task", "T1\n")
	got := a.play(t, a.calls(), installedPlanfence, "run", "--quiet", "--user", "dev", "--", "node", a.agent)
	for i, want := range []struct {
		refused bool
		reason  []string
		error   string
		context []string
	}{
		{},
		{refused: true, reason: []string{"task T1 may not write src/other.js", "belongs to T2", "Allowed for T1: src/slug.js", "open items"}},
		{error: "Permission denied", context: []string{"the kernel refused 1 operation", "src/other.js (in the scope of T2)", "on task T1", "open items"}},
		{context: []string{"the kernel refused 1 operation", "src/other.js"}},
		{},
	} {
		x := got[i]
		if x.Refused != want.refused || !strings.Contains(x.Error, want.error) || want.error == "" && x.Error != "" {
			t.Errorf("call %d: %+v", i, x)
		}
		for _, part := range want.reason {
			if !strings.Contains(x.Reason, part) {
				t.Errorf("call %d: the reason lacks %q: %s", i, part, x.Reason)
			}
		}
		if (x.Context == "") != (want.context == nil) {
			t.Errorf("call %d: told %q", i, x.Context)
		}
		for _, part := range want.context {
			if !strings.Contains(x.Context, part) {
				t.Errorf("call %d: %q lacks %q", i, x.Context, part)
			}
		}
	}
	if s := a.read(t, "src/other.js"); s != "other\n" {
		t.Errorf("src/other.js is %q", s)
	}
	if s := a.read(t, "src/slug.js"); s != "mine\nmore\n" {
		t.Errorf("src/slug.js is %q", s)
	}
	// The Write tool never reached the kernel, and the hook itself ran into nothing. What
	// it refused is in the log, as its own.
	blocks, hook := a.blocks(t)
	if s := fmt.Sprint(blocks); s != "[sh src/other.js sh src/other.js]" {
		t.Errorf("blocks %s", s)
	}
	if s := fmt.Sprint(hook); s != "[claude src/other.js]" {
		t.Errorf("records of the hook: %s", s)
	}
}

// TestAgentInAudit: an auditing session refuses nothing, and neither does the hook.
func TestAgentInAudit(t *testing.T) {
	a := newAgentProject(t)
	a.write(t, ".claude/active-task", "T1\n")
	for i, x := range a.play(t, a.calls()[1:3], installedPlanfence, "run", "--quiet", "--mode", "audit", "--user", "dev", "--", "node", a.agent) {
		if x.Refused || x.Error != "" || x.Context != "" {
			t.Errorf("call %d: %+v", i, x)
		}
	}
	if s := a.read(t, "src/other.js"); s != "mine\nmine\n" {
		t.Errorf("src/other.js is %q", s)
	}
}

// TestAgentDispatchEnforced: a worker that is a process of its own is held to
// the scope that a dispatch declares.
func TestAgentDispatchEnforced(t *testing.T) {
	a := newAgentProject(t)
	dispatch := func(dir string) {
		t.Helper()
		b, err := json.Marshal(map[string]any{"session_id": "a", "cwd": a.dir, "hook_event_name": "PreToolUse", "tool_name": "Agent",
			"tool_input": map[string]string{"prompt": "ALLOWED-SCOPE: " + filepath.Join(a.dir, dir) + "\nIMPLICIT DENY"}})
		if err != nil {
			t.Fatal(err)
		}
		agentRun(t, a.dir, b, "su", "dev", "-c", "planfence hook --agent claude --enforce")
	}
	dispatch("src")
	if log := a.read(t, ".claude/blocked.log"); !strings.Contains(log, "not enforced: no session follows") {
		t.Errorf("the record of a dispatch without a worker: %s", log)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	worker := exec.CommandContext(ctx, installedPlanfence, "run", "--quiet", "--user", "dev", "--root", ".", "--plan", ".claude/dispatch/plan.json", "--",
		"sh", "-c", `echo ready; while read -r d; do echo x > $d/new && echo "wrote $d" || echo "refused $d"; done 2>/dev/null`)
	worker.Dir, worker.Stderr = a.dir, os.Stderr
	in, err := worker.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := worker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	said := func(want string) {
		t.Helper()
		var line strings.Builder
		for b := make([]byte, 1); ; {
			n, err := out.Read(b)
			if n == 1 && b[0] != '\n' {
				line.WriteByte(b[0])
			}
			if err != nil || n == 1 && b[0] == '\n' {
				break
			}
		}
		if line.String() != want {
			t.Errorf("the worker says %q, want %q", line.String(), want)
		}
	}
	try := func(dir, want string) {
		t.Helper()
		if _, err := fmt.Fprintln(in, dir); err != nil {
			t.Fatal(err)
		}
		said(want)
	}
	said("ready")
	try("src", "wrote src")
	try("lib", "refused lib")
	dispatch("lib")
	try("lib", "wrote lib")
	try("src", "refused src")
	in.Close()
	if err := worker.Wait(); err != nil {
		t.Errorf("the worker: %v", err)
	}
	if log := a.read(t, ".claude/blocked.log"); !strings.Contains(log, "enforced as task D-") {
		t.Errorf("the record of an enforced dispatch: %s", log)
	}
}
