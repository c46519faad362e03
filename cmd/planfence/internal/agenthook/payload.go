package agenthook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Agents that the hook speaks to.
const (
	Claude  = "claude"
	Codex   = "codex"
	Copilot = "copilot"
	Cursor  = "cursor"
	Gemini  = "gemini"
	Auto    = "auto"
)

// Agents lists the agents, without Auto.
var Agents = []string{Claude, Codex, Copilot, Cursor, Gemini}

// Event is when the agent calls its hook.
type Event int

// Events.
const (
	Other       Event = iota // no tool call: a session starts, a prompt is sent
	Before                   // the tool is about to run
	After                    // it ran
	AfterFailed              // it ran and failed
	Late                     // a file was edited already, and nobody asks
)

// Call is one tool call as an agent tells it.
type Call struct {
	Agent   string
	Event   Event
	Name    string // the event's name, as the agent has it; "" where it gives none
	Tool    string // as the agent has it
	Session string // the agent's session, not planfence's
	ID      string // of the call; "" where the agent gives none
	CWD     string // "" where the agent gives none
	Roots   []string
	Took    time.Duration // how long the call took; 0 where the agent does not say
	Raw     string        // arguments that are text and no JSON
	Output  string        // what the tool answered, as text or JSON

	input map[string]any
}

// MaxPayload bounds what is read from an agent, in bytes: a Write carries the
// whole file.
const MaxPayload = 64 << 20

// wire has the fields of all agents; absent ones stay empty.
type wire struct {
	HookEventName  string          `json:"hook_event_name"`
	HookEventName2 string          `json:"hookEventName"`
	SessionID      string          `json:"session_id"`
	SessionID2     string          `json:"sessionId"`
	CWD            string          `json:"cwd"`
	ToolName       string          `json:"tool_name"`
	ToolName2      string          `json:"toolName"`
	ToolInput      json.RawMessage `json:"tool_input"`
	ToolArgs       json.RawMessage `json:"toolArgs"`
	ToolUseID      string          `json:"tool_use_id"`
	TurnID         string          `json:"turn_id"`
	DurationMS     float64         `json:"duration_ms"`
	Duration       float64         `json:"duration"`

	ToolResponse json.RawMessage `json:"tool_response"`
	ToolResult   json.RawMessage `json:"toolResult"`
	ToolResult2  json.RawMessage `json:"tool_result"`
	ToolOutput   json.RawMessage `json:"tool_output"`
	Error        json.RawMessage `json:"error"`

	// Cursor
	ConversationID string   `json:"conversation_id"`
	GenerationID   string   `json:"generation_id"`
	CursorVersion  string   `json:"cursor_version"`
	WorkspaceRoots []string `json:"workspace_roots"`
	Command        string   `json:"command"`
	FilePath       string   `json:"file_path"`
	Task           string   `json:"task"`
	SubagentType   string   `json:"subagent_type"`
}

// Parse reads a payload. agent is one of the agents or Auto, which recognises
// the payload. An error says what cannot be read.
func Parse(data []byte, agent string) (*Call, error) {
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0:
		return nil, errors.New("read the tool call: nothing came")
	case !utf8.Valid(data):
		return nil, errors.New("read the tool call: it is not UTF-8")
	case data[0] != '{':
		return nil, errors.New("read the tool call: it is no JSON object")
	}
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, fmt.Errorf("read the tool call: %w", err)
	}
	c := &Call{
		Agent: agent, Name: or(w.HookEventName, w.HookEventName2), Tool: or(w.ToolName, w.ToolName2),
		Session: or(w.SessionID, w.SessionID2, w.ConversationID), ID: w.ToolUseID, CWD: w.CWD, Roots: w.WorkspaceRoots,
		Took:   time.Duration(max(w.DurationMS, w.Duration) * float64(time.Millisecond)),
		Output: string(firstRaw(w.ToolResponse, w.ToolResult, w.ToolResult2, w.ToolOutput, w.Error)),
	}
	if agent == Auto || agent == "" {
		c.Agent = recognise(&w)
	}
	c.Event = c.event(&w)
	if c.Event == Other {
		return c, nil
	}
	args := firstRaw(w.ToolInput, w.ToolArgs)
	switch {
	case c.Name == "beforeShellExecution" || c.Name == "afterShellExecution":
		c.Tool, c.input = "Shell", map[string]any{"command": w.Command}
		return c, nil
	case c.Name == "afterFileEdit":
		c.Tool, c.input = "Write", map[string]any{"file_path": w.FilePath}
		return c, nil
	case c.Name == "subagentStart":
		c.Tool, c.input = "Task", map[string]any{"prompt": w.Task}
		return c, nil
	}
	if c.Tool == "" {
		return nil, errors.New("read the tool call: it names no tool")
	}
	if err := c.arguments(args); err != nil {
		return nil, err
	}
	return c, nil
}

// arguments reads a tool's arguments: an object, or a string that holds one or
// is plain text (a patch).
func (c *Call) arguments(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return fmt.Errorf("read the arguments of %s: %w", c.Tool, err)
		}
		inner := strings.TrimSpace(text)
		if !strings.HasPrefix(inner, "{") {
			c.Raw = text
			return nil
		}
		raw = json.RawMessage(inner)
	}
	if raw[0] != '{' {
		return fmt.Errorf("read the arguments of %s: an object is expected", c.Tool)
	}
	if err := json.Unmarshal(raw, &c.input); err != nil {
		return fmt.Errorf("read the arguments of %s: %w", c.Tool, err)
	}
	return nil
}

func (c *Call) event(w *wire) Event {
	switch c.Name {
	case "PreToolUse", "preToolUse", "BeforeTool", "beforeShellExecution", "beforeMCPExecution":
		return Before
	case "PostToolUse", "postToolUse", "AfterTool", "afterShellExecution", "afterMCPExecution":
		return After
	case "PostToolUseFailure", "postToolUseFailure":
		return AfterFailed
	case "afterFileEdit":
		return Late
	case "subagentStart": // Cursor's can refuse; Copilot's, which has no name in its payload, cannot
		if c.Agent == Cursor {
			return Before
		}
		return Other
	case "":
		// Copilot's own format names no event: what it carries tells.
		switch {
		case w.ToolName2 == "" && w.ToolName == "":
			return unnamed(w)
		case len(w.ToolResult) > 0:
			return After
		case len(w.Error) > 0:
			return AfterFailed
		}
		return Before
	}
	return Other
}

// unnamed is a payload with neither event nor tool: another of Copilot's
// events where it has a session and a time, else a tool call that cannot be
// read.
func unnamed(w *wire) Event {
	if w.SessionID2 != "" && len(w.ToolArgs) == 0 && len(w.ToolInput) == 0 {
		return Other
	}
	return Before
}

func recognise(w *wire) string {
	switch {
	case w.CursorVersion != "" || len(w.WorkspaceRoots) > 0 || w.GenerationID != "":
		return Cursor
	case strings.HasPrefix(w.HookEventName, "BeforeTool") || strings.HasPrefix(w.HookEventName, "AfterTool"):
		return Gemini
	case w.ToolName2 != "" || len(w.ToolArgs) > 0 || len(w.ToolResult) > 0 || len(w.ToolResult2) > 0 || w.SessionID2 != "":
		return Copilot
	case w.TurnID != "" || w.ToolName == "apply_patch":
		return Codex
	}
	return Claude
}

func or(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func firstRaw(values ...json.RawMessage) json.RawMessage {
	for _, v := range values {
		if len(v) > 0 {
			return v
		}
	}
	return nil
}
