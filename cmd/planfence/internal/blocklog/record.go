// Package blocklog writes and reads the block log: JSON Lines, one record a
// refused operation, with records in between that tell the rest of the run.
package blocklog

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Record is one line of the log. Fields that do not apply are left out.
type Record struct {
	Time       string   `json:"time"` // RFC 3339 with nanoseconds, wall clock, UTC
	Kind       string   `json:"kind"` // block, session-start, task, plan, sync-error, lost, session-end
	Seq        uint64   `json:"seq,omitempty"`
	Session    string   `json:"session"`
	Task       string   `json:"task"` // "" : none active
	Generation uint64   `json:"generation,omitempty"`
	Verdict    string   `json:"verdict,omitempty"` // block, would-block
	Op         string   `json:"op,omitempty"`
	Path       string   `json:"path,omitempty"` // absolute; bytes that are no UTF-8 as \xHH
	PathBytes  string   `json:"path_bytes,omitempty"`
	Rel        string   `json:"rel,omitempty"` // relative to the root, where inside it
	Path2      string   `json:"path2,omitempty"`
	Path2Bytes string   `json:"path2_bytes,omitempty"`
	Rel2       string   `json:"rel2,omitempty"`
	FS         string   `json:"fs,omitempty"` // path is from the root of this file system, MAJOR:MINOR, which is mounted nowhere here
	FS2        string   `json:"fs2,omitempty"`
	Reason     string   `json:"reason,omitempty"`
	Errno      string   `json:"errno,omitempty"` // EACCES
	PID        int      `json:"pid,omitempty"`   // host
	TID        int      `json:"tid,omitempty"`
	NSPID      int      `json:"nspid,omitempty"`
	PPID       int      `json:"ppid,omitempty"`
	UID        *uint32  `json:"uid,omitempty"`
	Comm       string   `json:"comm,omitempty"`
	Exe        string   `json:"exe,omitempty"`
	Owner      []string `json:"owner,omitempty"` // other tasks in whose scope the path lies
	Count      uint64   `json:"count,omitempty"`
	Last       string   `json:"last,omitempty"` // time of the last one, where count is more than 1

	Message  string   `json:"message,omitempty"` // what a record that is no block says
	Root     string   `json:"root,omitempty"`
	Plan     string   `json:"plan,omitempty"`
	Command  []string `json:"command,omitempty"`
	Attach   string   `json:"attach,omitempty"`
	Mode     string   `json:"mode,omitempty"`
	Kernel   string   `json:"kernel,omitempty"`
	Host     string   `json:"host,omitempty"`  // the name of host or container
	PIDNS    uint64   `json:"pidns,omitempty"` // the pid namespace's number, where it is not the host's
	Version  string   `json:"version,omitempty"`
	User     string   `json:"user,omitempty"`
	Profiles []string `json:"profiles,omitempty"`
	Allow    []string `json:"allow,omitempty"` // as given with --allow
	Idle     string   `json:"idle,omitempty"`  // closed: with no task everything is refused
	Exit     *int     `json:"exit,omitempty"`
	Lost     uint64   `json:"lost,omitempty"`
	Blocks   uint64   `json:"blocks,omitempty"`
	Misses   uint64   `json:"recursion_misses,omitempty"`
	Via      string   `json:"via,omitempty"` // hook: the agent's hook refused, not the kernel
}

// Stamp formats a time as records have it.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// SetPath sets a path field and, where the name is no UTF-8, its exact bytes in base64.
func SetPath(text, exact *string, path string) {
	*text, *exact = path, ""
	if !utf8.ValidString(path) {
		*text = escapeInvalid(path)
		*exact = base64.StdEncoding.EncodeToString([]byte(path))
	}
}

func escapeInvalid(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// Marshal returns the record's line, newline included. A line is always valid
// JSON: names reach it as UTF-8.
func (r *Record) Marshal() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return EscapeJSON(b.Bytes()), nil
}

// Printable makes text safe for a terminal: control, format and bidirectional
// characters and invalid bytes come out escaped.
func Printable(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case hidden(r):
			if r > 0xffff {
				fmt.Fprintf(&b, `\U%08x`, r)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// Text renders a block for people, one line without a newline:
//
//	blocked open src/other.js (task T1: scope; owner T2) by node[4711]
func (r *Record) Text() string {
	var b strings.Builder
	verb := "blocked"
	if r.Verdict == "would-block" {
		verb = "would block"
	}
	fmt.Fprintf(&b, "%s %s", verb, r.Op)
	show := func(rel, path, fs string) {
		if rel != "" {
			path = rel
		}
		if fs != "" {
			path = fs + ":" + path
		}
		if path != "" {
			b.WriteString(" " + Printable(path))
		}
	}
	show(r.Rel, r.Path, r.FS)
	if r.Path2 != "" {
		b.WriteString(" ->")
		show(r.Rel2, r.Path2, r.FS2)
	}
	task := r.Task
	if task == "" {
		task = "none"
	}
	fmt.Fprintf(&b, " (task %s: %s", task, r.Reason)
	if len(r.Owner) > 0 {
		fmt.Fprintf(&b, "; owner %s", strings.Join(r.Owner, ", "))
	}
	fmt.Fprintf(&b, ") by %s[%d]", Printable(r.Comm), r.PID)
	if r.Count > 1 {
		fmt.Fprintf(&b, " x%d", r.Count)
	}
	return b.String()
}

// hidden reports whether a character is nothing that one sees: control, format,
// bidirectional, line and paragraph separators.
func hidden(r rune) bool {
	return unicode.Is(unicode.C, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
}

// EscapeJSON makes JSON safe for a terminal without changing what it says:
// inside strings, where alone they can be, hidden characters become \u escapes.
func EscapeJSON(b []byte) []byte {
	plain := true
	for _, c := range b {
		if c >= 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return b
	}
	out := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r < 0x7f || !hidden(r) && (r != utf8.RuneError || n > 1):
			out = append(out, b[:n]...)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		b = b[n:]
	}
	return out
}
