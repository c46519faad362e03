package agenthook

import (
	"fmt"
	"net/url"
	"strings"
)

// Kind says what a tool does, as far as a fence is concerned.
type Kind int

// Kinds of tools.
const (
	Ignored  Kind = iota // reads, searches, or is unknown: the kernel judges what it does
	Files                // writes the paths that its arguments name
	Shell                // runs a command: only the kernel can judge it
	Dispatch             // starts another agent with a prompt
)

// Target is one path that a call would write.
type Target struct {
	Path string // as the agent spells it
	Op   string // an operation of planfence check: write, unlink, rename, mkdir
}

// fileTools has the agents' tools that write files, in lower case, and the
// operation on their path.
var fileTools = map[string]string{
	// Claude Code, and what other agents took over
	"write": "write", "edit": "write", "multiedit": "write", "notebookedit": "write", "strreplace": "write",
	"str_replace_based_edit_tool": "write", "str_replace_editor": "write",
	// Codex, Copilot
	"apply_patch": "write", "create": "write", "create_file": "write", "edit_file": "write",
	// VS Code
	"editfiles": "write", "createfile": "write", "insert_edit_into_file": "write", "replace_string_in_file": "write",
	"multi_replace_string_in_file": "write", "edit_notebook_file": "write", "create_new_jupyter_notebook": "write",
	"createdirectory": "mkdir", "create_directory": "mkdir",
	// Cursor
	"search_replace": "write", "edit_notebook": "write", "tabwrite": "write", "delete": "unlink", "delete_file": "unlink", "deletefile": "unlink",
	// Gemini CLI
	"write_file": "write", "replace": "write",
}

// mcpTools are what servers of files call theirs. Other servers have tools of
// the agents' names (create, delete) that write no files.
var mcpTools = map[string]string{
	"write_file": "write", "edit_file": "write", "create_file": "write", "append_file": "write", "write_text_file": "write",
	"create_directory": "mkdir", "delete_file": "unlink", "move_file": "rename", "rename_file": "rename",
}

var shellTools = map[string]bool{
	"bash": true, "shell": true, "local_shell": true, "shell_command": true, "exec_command": true, "powershell": true,
	"run_shell_command": true, "run_in_terminal": true, "runinterminal": true, "runcommands": true,
}

var dispatchTools = map[string]bool{
	"agent": true, "task": true, "spawn_agent": true, "invoke_agent": true, "delegate_to_agent": true, "runsubagent": true,
}

// tool is the call's tool in lower case, and whether it is a server's
// (mcp__SERVER__tool, mcp_SERVER_tool, MCP:tool).
func (c *Call) tool() (name string, mcp bool) {
	name = strings.ToLower(c.Tool)
	if rest, ok := strings.CutPrefix(name, "mcp__"); ok {
		return rest[strings.LastIndex("__"+rest, "__"):], true
	}
	if rest, ok := strings.CutPrefix(name, "mcp_"); ok {
		for t := range mcpTools {
			if strings.HasSuffix(rest, "_"+t) {
				return t, true
			}
		}
		return rest, true
	}
	if rest, ok := strings.CutPrefix(name, "mcp:"); ok {
		return rest, true
	}
	return name, strings.HasSuffix(c.Name, "MCPExecution")
}

// fileOp is the operation of a tool that writes files, "" for another.
func (c *Call) fileOp() string {
	t, mcp := c.tool()
	if mcp {
		if op := mcpTools[t]; len(c.paths(c.input)) > 0 {
			return op
		}
		return ""
	}
	return fileTools[t]
}

// Kind tells the kind of the call's tool.
func (c *Call) Kind() Kind {
	t, mcp := c.tool()
	switch {
	case c.fileOp() != "":
		if cmd, _ := c.input["command"].(string); cmd == "view" {
			return Ignored // the editor tools also read
		}
		return Files
	case mcp:
		return Ignored
	case shellTools[t]:
		return Shell
	case dispatchTools[t]:
		return Dispatch
	}
	return Ignored
}

// pathKeys are the arguments that name paths to write.
var pathKeys = []string{
	"file_path", "filePath", "filepath", "path", "paths", "file", "files", "filename", "file_name", "uri",
	"notebook_path", "notebookPath", "target_file", "targetFile", "target_notebook", "absolute_path",
	"dir_path", "dirPath", "old_path", "oldPath", "new_path", "newPath", "source", "destination",
}

// listKeys are the arguments that hold lists of objects with paths.
var listKeys = []string{"files", "edits", "replacements", "changes"}

// Targets lists the paths that a call of a file tool would write, in their
// order, without duplicates. A file tool that names none is an error.
func (c *Call) Targets() ([]Target, error) {
	var out []Target
	var err error
	if t, _ := c.tool(); t == "apply_patch" {
		out, err = patchTargets(c.patch())
	}
	if err == nil && len(out) == 0 {
		op := c.fileOp()
		for _, p := range c.paths(c.input) {
			out = append(out, Target{p, op})
		}
		for _, key := range listKeys {
			list, _ := c.input[key].([]any)
			for _, item := range list {
				if m, ok := item.(map[string]any); ok {
					for _, p := range c.paths(m) {
						out = append(out, Target{p, op})
					}
				}
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the arguments of %s: %w", c.Tool, err)
	}
	seen := map[Target]bool{}
	kept := out[:0]
	for _, x := range out {
		if x.Path, err = plainPath(x.Path); err != nil {
			return nil, fmt.Errorf("read the arguments of %s: %w", c.Tool, err)
		}
		if !seen[x] {
			seen[x] = true
			kept = append(kept, x)
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("read the arguments of %s: they name no path", c.Tool)
	}
	return kept, nil
}

func (c *Call) paths(m map[string]any) []string {
	var out []string
	for _, key := range pathKeys {
		switch v := m[key].(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, item := range v {
				if s, ok := item.(string); ok {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// plainPath turns a file URI into a path and refuses what names none.
func plainPath(p string) (string, error) {
	if rest, ok := strings.CutPrefix(p, "file://"); ok {
		u, err := url.PathUnescape(rest)
		if err != nil {
			return "", fmt.Errorf("path %q: %w", p, err)
		}
		p = u
	}
	switch {
	case strings.TrimSpace(p) == "":
		return "", fmt.Errorf("a path is empty")
	case strings.ContainsRune(p, 0):
		return "", fmt.Errorf("path %q has a NUL byte", p)
	}
	return p, nil
}

// promptKeys are the arguments of dispatch tools that carry the prompt.
var promptKeys = []string{"prompt", "message", "task", "objective", "instructions", "query"}

// Prompt is what a dispatch tool tells the other agent.
func (c *Call) Prompt() string {
	var parts []string
	for _, key := range promptKeys {
		if s, ok := c.input[key].(string); ok && s != "" {
			parts = append(parts, s)
		}
	}
	if c.Raw != "" {
		parts = append(parts, c.Raw)
	}
	return strings.Join(parts, "\n")
}

// patch is the text of a patch: an argument of its own, or all arguments.
func (c *Call) patch() string {
	for _, key := range []string{"command", "input", "patch", "patchText"} {
		switch v := c.input[key].(type) {
		case string:
			return v
		case []any:
			var parts []string
			for _, item := range v {
				if s, ok := item.(string); ok {
					parts = append(parts, s)
				}
			}
			return strings.Join(parts, "\n")
		}
	}
	return c.Raw
}

// patchMarks begin the lines of a patch that name a path.
var patchMarks = []struct{ mark, op string }{
	{"*** Add File: ", "write"}, {"*** Update File: ", "write"}, {"*** Delete File: ", "unlink"}, {"*** Move to: ", "rename"},
}

// patchTargets lists every path that a patch of apply_patch names. A file that
// is moved is renamed at both ends.
func patchTargets(text string) ([]Target, error) {
	var out []Target
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		for _, m := range patchMarks {
			path, ok := strings.CutPrefix(line, m.mark)
			if !ok {
				continue
			}
			if m.op == "rename" && len(out) > 0 {
				out[len(out)-1].Op = "rename"
			}
			out = append(out, Target{strings.TrimSpace(path), m.op})
		}
	}
	if len(out) == 0 && text != "" {
		return nil, fmt.Errorf("the patch names no file")
	}
	return out, nil
}
