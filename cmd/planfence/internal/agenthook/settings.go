package agenthook

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
)

// Scopes of settings.
const (
	User    = "user"    // all projects of a user
	Project = "project" // one project, usually committed
)

// SettingsFile is where an agent reads its hooks from.
func SettingsFile(agent, scope, root, home string, getenv func(string) string) string {
	at := func(variable string, parts ...string) string {
		if dir := getenv(variable); scope == User && filepath.IsAbs(dir) {
			return filepath.Join(append([]string{dir}, parts[1:]...)...)
		}
		if scope == User {
			return filepath.Join(append([]string{home}, parts...)...)
		}
		return filepath.Join(append([]string{root}, parts...)...)
	}
	switch agent {
	case Codex:
		return at("CODEX_HOME", ".codex", "hooks.json")
	case Copilot:
		if scope == Project {
			return filepath.Join(root, ".github", "hooks", "planfence.json")
		}
		return at("COPILOT_HOME", ".copilot", "hooks", "planfence.json")
	case Cursor:
		return at("", ".cursor", "hooks.json")
	case Gemini:
		return at("", ".gemini", "settings.json")
	}
	return at("CLAUDE_CONFIG_DIR", ".claude", "settings.json")
}

// hookEntry is one place in the settings where the command stands.
type hookEntry struct {
	event, matcher string
}

// timeout in seconds: a judgement takes milliseconds, but an agent lets a call
// pass whose hook takes too long.
const timeout = 30

// entries are the hooks that an agent needs. Matchers keep the hook from calls
// that write nothing; it looks at the tool itself as well.
func entries(agent string) []hookEntry {
	switch agent {
	case Codex:
		return []hookEntry{{"PreToolUse", "^(Bash|apply_patch|Edit|Write|spawn_agent|mcp__.*)$"}, {"PostToolUse", "^(Bash|apply_patch|Edit|Write)$"}}
	case Copilot:
		return []hookEntry{{"preToolUse", "bash|create|edit|str_replace_editor|apply_patch|task|.*_file"},
			{"postToolUse", "bash|create|edit|str_replace_editor|apply_patch"}, {"postToolUseFailure", ""}}
	case Cursor:
		return []hookEntry{{"preToolUse", ""}, {"postToolUse", "Shell|Write|StrReplace|Edit|Delete"}, {"postToolUseFailure", "Shell|Write|StrReplace|Edit|Delete"}}
	case Gemini:
		return []hookEntry{{"BeforeTool", "write_file|replace|run_shell_command|invoke_agent|mcp_.*"}, {"AfterTool", "write_file|replace|run_shell_command"}}
	}
	const files = "Write|Edit|MultiEdit|NotebookEdit"
	return []hookEntry{{"PreToolUse", files + "|Bash|Agent|Task|mcp__.*"}, {"PostToolUse", files + "|Bash"}, {"PostToolUseFailure", files + "|Bash"}}
}

// flat reports whether an agent's entries are the commands themselves, and not
// groups of commands under a matcher.
func flat(agent string) bool { return agent == Copilot || agent == Cursor }

// item builds an entry of the agent's settings.
func (h hookEntry) item(agent, command string) *object {
	o := &object{}
	if agent == Copilot {
		o.set("type", "command")
	}
	if h.matcher != "" {
		o.set("matcher", h.matcher)
	}
	switch agent {
	case Copilot:
		o.set("bash", command)
		o.set("timeoutSec", timeout)
	case Cursor:
		o.set("command", command)
		o.set("timeout", timeout)
	case Gemini:
		o.set("hooks", []any{obj("name", "planfence", "type", "command", "command", command, "timeout", timeout*1000)})
	default:
		o.set("hooks", []any{obj("type", "command", "command", command, "timeout", timeout)})
	}
	return o
}

// ours matches commands that call this program's hook.
var ours = regexp.MustCompile(`(?:^|[\s/'"])planfence['"]?\s+hook(?:\s|$)`)

// isOurs reports whether a command of the settings is planfence's.
func isOurs(v any) bool {
	o, ok := v.(*object)
	if !ok {
		return false
	}
	for _, key := range []string{"command", "bash"} {
		if s, _ := o.get(key).(string); ours.MatchString(s) {
			return true
		}
	}
	return false
}

// Install returns an agent's settings with the hook in them; old are the
// settings there are, nil for none. Other hooks and settings stay as they are.
// The result equals old where nothing is to be done.
func Install(old []byte, agent, command string) ([]byte, error) {
	root, hooks, err := settings(old)
	if err != nil {
		return nil, err
	}
	before, err := root.text()
	if err != nil {
		return nil, err
	}
	strip(hooks, agent)
	if flat(agent) && root.get("version") == nil {
		root.members = append([]member{{"version", 1}}, root.members...)
	}
	for _, h := range entries(agent) {
		list, _ := hooks.get(h.event).([]any)
		if hooks.get(h.event) != nil && list == nil {
			return nil, fmt.Errorf("hooks.%s: a list is expected", h.event)
		}
		hooks.set(h.event, append(list, h.item(agent, command)))
	}
	root.set("hooks", hooks)
	after, err := root.text()
	if err != nil || bytes.Equal(before, after) {
		return old, err
	}
	return after, nil
}

// Uninstall returns an agent's settings without the hook, nil where nothing of
// them is left. The result equals old where the hook is not in them.
func Uninstall(old []byte, agent string) ([]byte, error) {
	root, hooks, err := settings(old)
	if err != nil {
		return nil, err
	}
	if !strip(hooks, agent) {
		return old, nil
	}
	if len(hooks.members) == 0 {
		root.remove("hooks")
	}
	if len(root.members) == 0 || flat(agent) && len(root.members) == 1 && root.get("version") != nil {
		return nil, nil
	}
	return root.text()
}

func settings(old []byte) (root, hooks *object, err error) {
	root, hooks = &object{}, &object{}
	if len(bytes.TrimSpace(old)) > 0 {
		if root, err = parseObject(old); err != nil {
			return nil, nil, err
		}
	}
	if v := root.get("hooks"); v != nil {
		var ok bool
		if hooks, ok = v.(*object); !ok {
			return nil, nil, fmt.Errorf("hooks: an object is expected")
		}
	}
	return root, hooks, nil
}

// strip takes planfence's commands out, with the groups and events that held
// nothing else, and reports whether there were any.
func strip(hooks *object, agent string) bool {
	found := false
	for _, m := range append([]member(nil), hooks.members...) {
		list, ok := m.value.([]any)
		if !ok {
			continue
		}
		kept := []any{}
		for _, item := range list {
			if isOurs(item) {
				found = true
				continue
			}
			group, ok := item.(*object)
			if inner, isList := groupHooks(group, ok); isList {
				left := []any{}
				for _, c := range inner {
					if !isOurs(c) {
						left = append(left, c)
					}
				}
				if len(left) < len(inner) {
					found = true
					if len(left) == 0 {
						continue
					}
					group.set("hooks", left)
				}
			}
			kept = append(kept, item)
		}
		if len(kept) == 0 && len(list) > 0 {
			hooks.remove(m.name)
		} else {
			hooks.set(m.name, kept)
		}
	}
	return found
}

func groupHooks(group *object, ok bool) ([]any, bool) {
	if !ok {
		return nil, false
	}
	inner, isList := group.get("hooks").([]any)
	return inner, isList
}
