package plan

import (
	"errors"
	"fmt"
	"strings"
)

// Pos is a place in a file.
type Pos struct {
	Line   int // from 1; 0 when there is no place
	Column int // from 1, in bytes
}

func (p Pos) String() string { return fmt.Sprintf("%d:%d", p.Line, p.Column) }

// Error is one problem of a plan or of an entry.
type Error struct {
	File string // "" for an entry that stands in no file
	Pos  Pos
	Msg  string // what is wrong and why
	Hint string // the way out, or ""
}

// Error gives "file:line:col: msg", or the message alone without a file.
func (e *Error) Error() string {
	if e.File == "" {
		return e.Msg
	}
	return fmt.Sprintf("%s:%s: %s", e.File, e.Pos, e.Msg)
}

// Errors returns the problems that an error of [Parse] joins, in the order of
// the file; nil for any other error.
func Errors(err error) []*Error {
	if one, ok := err.(*Error); ok {
		return []*Error{one}
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var out []*Error
	for _, e := range joined.Unwrap() {
		if one, ok := e.(*Error); ok {
			out = append(out, one)
		}
	}
	return out
}

func join(list []*Error) error {
	errs := make([]error, len(list))
	for i, e := range list {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// TooComplexError says that a scope cannot be compiled within its limits.
type TooComplexError struct {
	What    string  // the limit that was met, such as "524288 cells"
	Entries []Entry // the entries that cost most, the costliest first
}

func (e *TooComplexError) Error() string {
	var names []string
	for _, x := range e.Entries {
		names = append(names, quote(x.Text))
	}
	if len(names) == 0 {
		return fmt.Sprintf("compile the scope: too complex: more than %s", e.What)
	}
	return fmt.Sprintf("compile the scope: too complex: more than %s, mostly for %s", e.What, strings.Join(names, ", "))
}

// Hint is the way out.
func (e *TooComplexError) Hint() string {
	return "use fewer wildcards in one entry, name directories instead of files, or split the task"
}

// quote shows text of a plan in a message: quoted where it holds anything but
// plain characters, shortened when long.
func quote(s string) string {
	const most = 200
	if len(s) > most {
		return fmt.Sprintf("%q… (%d bytes)", strings.ToValidUTF8(s[:most], "\uFFFD"), len(s))
	}
	return fmt.Sprintf("%q", s)
}
