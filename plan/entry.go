package plan

import (
	"fmt"
	"path"
	"strings"
)

// MaxEntry is the longest entry, in bytes.
const MaxEntry = 4095

// Entry is one scope entry.
type Entry struct {
	Text    string // as written
	Pos     Pos    // of the entry in its file; zero if it stands in none
	Exclude bool   // it excludes (a leading "!")

	pat *pattern
}

// pattern is what an entry matches, relative to its base.
type pattern struct {
	toks    []token // without an exclamation mark and an absolute root; nil for a literal
	literal string  // clean relative path; "" is the base itself
	prefix  string  // of an entry with wildcards: the literal components in front, "a/b/" or ""
	isLit   bool
	slash   bool // a literal with a trailing slash: it names a directory
	below   bool // of a literal: everything below it, too
}

// Everything covers the base itself and all below it. No text stands for it: a
// plan may not say it.
var Everything = Entry{Text: "(everything)", pat: &pattern{isLit: true, below: true}}

// LiteralEntry covers the relative path given byte by byte, and everything below
// it if below is set. A path of "" is the base itself.
func LiteralEntry(path string, below bool) Entry {
	return Entry{Text: path, pat: &pattern{isLit: true, literal: strings.Trim(path, "/"), below: below}}
}

// LiteralExclude is [LiteralEntry] as an exclusion.
func LiteralExclude(path string, below bool) Entry {
	e := LiteralEntry(path, below)
	e.Exclude, e.Text = true, "!"+path
	return e
}

// Literal returns the relative path, unescaped and clean (no trailing slash),
// that an entry without a wildcard names. ok is false for any other.
func (e Entry) Literal() (path string, ok bool) {
	if e.pat == nil || !e.pat.isLit {
		return "", false
	}
	return e.pat.literal, true
}

// Dir reports whether the entry is a literal with a trailing slash: it says
// itself that it names a directory.
func (e Entry) Dir() bool { return e.pat != nil && e.pat.isLit && e.pat.slash }

// ParseOptions say how paths are read.
type ParseOptions struct {
	// Root is the absolute, clean path of the project root. Absolute entries
	// inside it are made relative to it. "" refuses all absolute entries.
	Root string
}

// ParseEntry reads one scope entry. Its error is an [*Error] whose Pos is the
// place within text (line 1).
func ParseEntry(text string, o ParseOptions) (Entry, error) {
	e, p := parseEntry(text, o)
	if p != nil {
		return Entry{}, &Error{Pos: Pos{1, p.off + 1}, Msg: entryMsg(text, p), Hint: p.hint}
	}
	return e, nil
}

func entryMsg(text string, p *problem) string {
	if text == "" {
		return p.msg
	}
	return "entry " + quote(text) + " " + p.msg
}

const everythingHint = "name the directories and files that the task may write"

func parseEntry(text string, o ParseOptions) (Entry, *problem) {
	e := Entry{Text: text}
	if text == "" {
		return e, &problem{0, "an entry is empty", "name a file or directory, or remove the entry"}
	}
	if len(text) > MaxEntry {
		return e, &problem{0, fmt.Sprintf("is too long: %d bytes, at most %d", len(text), MaxEntry), "name a directory on the way"}
	}
	skip := 0
	if text[0] == '!' {
		e.Exclude, skip = true, 1
		switch {
		case len(text) == 1:
			return e, &problem{0, "excludes nothing", `name what to exclude, or write \! for a name`}
		case text[1] == '!':
			return e, &problem{1, "is excluded twice", `write \! for an exclamation mark in a name`}
		}
	}
	toks, p := lex(text[skip:])
	if p == nil {
		toks, p = relative(toks, o.Root)
	}
	var pat *pattern
	if p == nil {
		pat, p = shape(toks)
	}
	if p != nil {
		p.off += skip
		return e, p
	}
	e.pat = pat
	return e, nil
}

// relative takes the root off an absolute entry.
func relative(toks []token, root string) ([]token, *problem) {
	if toks[0].kind != tokSlash {
		return toks, nil
	}
	only := true // slashes and nothing else
	for _, t := range toks {
		only = only && t.kind == tokSlash
	}
	if only && root != "/" {
		return nil, &problem{0, "names the root: a scope is a part of the project", everythingHint}
	}
	if root == "" {
		return nil, &problem{0, "is absolute: entries are relative to the project root", "write it without the leading slash"}
	}
	rest, ok := cutRoot(toks, path.Clean(root))
	if !ok {
		if len(toks) == 3 && toks[1].kind == tokStar && toks[2].kind == tokStar {
			return nil, &problem{0, "covers everything: a scope is a part of the project", everythingHint}
		}
		return nil, &problem{0, "is absolute and outside the project root " + quote(root),
			"write a path relative to the project root; planfence run --allow opens paths outside it"}
	}
	i := 0
	for i < len(rest) && rest[i].kind == tokSlash {
		i++
	}
	// The jumps of braces are indexes: they move with the list.
	shift := int32(len(toks) - len(rest) + i)
	rest = rest[i:]
	for k := range rest {
		rest[k].close -= shift
		for j := range rest[k].alts {
			rest[k].alts[j] -= shift
		}
	}
	return rest, nil
}

// shape checks what the tokens name and turns those without a wildcard into a
// literal.
func shape(toks []token) (*pattern, *problem) {
	wild := false
	for _, t := range toks {
		wild = wild || t.kind >= tokAny
	}
	if wild {
		if p := validate(toks); p != nil {
			return nil, p
		}
		prefix, _ := literalPrefix(toks)
		return &pattern{toks: toks, prefix: prefix}, nil
	}
	if len(toks) > 0 && toks[0].b == '~' && !toks[0].escaped {
		return nil, tilde(0)
	}
	pat := &pattern{isLit: true, below: true}
	var out []byte
	for i := 0; i < len(toks); {
		j := i
		for j < len(toks) && toks[j].kind != tokSlash {
			j++
		}
		switch {
		case j == i:
		case j == i+1 && isDot(toks[i]):
		case j == i+2 && isDot(toks[i]) && isDot(toks[i+1]):
			return nil, dotdot(int(toks[i].off))
		default:
			if len(out) > 0 {
				out = append(out, '/')
			}
			for _, t := range toks[i:j] {
				out = append(out, t.b)
			}
		}
		// "a/" and "a/." say that a is a directory.
		pat.slash = j < len(toks) || j == i+1 && isDot(toks[i])
		i = j + 1
	}
	if len(out) == 0 {
		return nil, &problem{0, "names the root: a scope is a part of the project", everythingHint}
	}
	pat.literal = string(out)
	return pat, nil
}

func tilde(off int) *problem {
	return &problem{off, "starts with ~: entries are relative to the project root, not to a home directory",
		`write \~ for a name that starts with a tilde`}
}

func dotdot(off int) *problem {
	return &problem{off, "holds ..: it would leave the root, or depend on links", "write the path without .."}
}
