// Package agenthook speaks the hook protocols of AI coding agents: it reads a
// tool call from the JSON that an agent gives its hooks, says which paths the
// call would write, and words the answer as that agent expects it. It judges
// nothing by itself: the verdict on a path is the caller's.
//
// The shapes are those that the agents document: Claude Code, Codex, GitHub
// Copilot (both of its formats, which VS Code shares), Cursor, Gemini CLI.
package agenthook
