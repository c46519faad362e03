package agenthook

import "encoding/json"

// Answer is what the hook gives back to the agent.
type Answer struct {
	Stdout string // one JSON value, or "" for nothing
	Stderr string
	Code   int // 0 or 2, never 1: several agents take that for "go on"
}

// output has the keys that agents know. Codex's parser refuses unknown keys and
// then lets the call pass, so that each agent gets its own and no other.
type output struct {
	Specific   *specific `json:"hookSpecificOutput,omitempty"`
	Decision   string    `json:"decision,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Permission string    `json:"permission,omitempty"`
	ForUser    string    `json:"user_message,omitempty"`
	ForAgent   string    `json:"agent_message,omitempty"`
	Context    string    `json:"additional_context,omitempty"`

	PermissionDecision       string `json:"permissionDecision,omitempty"`
	PermissionDecisionReason string `json:"permissionDecisionReason,omitempty"`
	AdditionalContext        string `json:"additionalContext,omitempty"`
}

type specific struct {
	HookEventName            string `json:"hookEventName"`
	PermissionDecision       string `json:"permissionDecision,omitempty"`
	PermissionDecisionReason string `json:"permissionDecisionReason,omitempty"`
	AdditionalContext        string `json:"additionalContext,omitempty"`
}

func (o output) json() string {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings alone
	}
	return string(b) + "\n"
}

// Refuse answers that the call must not run. c may be nil, where the payload
// could not be read: agent then says whose answer it is. Exit status 2 with the
// reason on stderr refuses in all agents; stdout says it in the agent's own
// terms.
func Refuse(c *Call, agent, reason string) Answer {
	event := "PreToolUse"
	named := false // the payload has the event's name, as Claude's has
	if c != nil {
		agent = c.Agent
		if c.Name != "" {
			event, named = c.Name, true
		}
	}
	var o output
	switch agent {
	case Cursor:
		o = output{Permission: "deny", ForUser: firstLine(reason), ForAgent: reason}
	case Gemini:
		o = output{Decision: "deny", Reason: reason}
	case Copilot:
		o = output{PermissionDecision: "deny", PermissionDecisionReason: reason}
		if named { // the format that VS Code shares
			o.Specific = &specific{HookEventName: event, PermissionDecision: "deny", PermissionDecisionReason: reason}
		}
	default:
		o = output{Specific: &specific{HookEventName: "PreToolUse", PermissionDecision: "deny", PermissionDecisionReason: reason}}
	}
	return Answer{Stdout: o.json(), Stderr: reason + "\n", Code: 2}
}

// Tell adds a paragraph to the result of a call that ran.
func Tell(c *Call, text string) Answer {
	switch c.Agent {
	case Cursor:
		return Answer{Stdout: output{Context: text}.json()}
	case Copilot:
		if c.Event == AfterFailed && (c.Name == "" || c.Name == "postToolUseFailure") {
			// there, status 2 makes what stdout says part of the failure
			return Answer{Stdout: text + "\n", Code: 2}
		}
		o := output{AdditionalContext: text}
		if c.Name != "" {
			o.Specific = &specific{HookEventName: c.Name, AdditionalContext: text}
		}
		return Answer{Stdout: o.json()}
	}
	return Answer{Stdout: output{Specific: &specific{HookEventName: c.Name, AdditionalContext: text}}.json()}
}

func firstLine(s string) string {
	for i := range len(s) {
		if s[i] == '\n' {
			return s[:i]
		}
	}
	return s
}
