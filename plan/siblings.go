package plan

import "strings"

// SiblingPattern is one way in which programs save a file NAME: they write this
// name beside it and rename it onto NAME, or keep the old text under it.
type SiblingPattern struct {
	// Pattern is the sibling's name. NAME stands for the file's, "*" for any run
	// of bytes but '/', "?" for one byte but '/', "[0-9]+" for one digit or more.
	Pattern string
	Who     string // a program that does it
}

// SiblingPatterns lists the siblings of a file that may be written with it. A
// sibling covers its own name alone, nothing below it.
var SiblingPatterns = []SiblingPattern{
	{"NAME.tmp.*", "coding agents: NAME.tmp.PID.TIME"},
	{"NAME.*.tmp", "editors' and libraries' atomic writes"},
	{"NAME~", "backups of vim, nano, emacs"},
	{".NAME.sw?", "vim's swap file"},
	{".NAME.*", "rsync, sponge, GTK and Qt programs"},
	{"NAME.[0-9]+", "atomic writes with a number"},
	{".#NAME", "emacs' lock"},
	{"#NAME#", "emacs' autosave"},
	{"4913", "vim's probe of the directory"},
	{"sed??????", "sed -i"},
}

const (
	siblingName   = "NAME"
	siblingDigits = "[0-9]+"
)

// siblingParts splits a pattern for one file: what comes literally, and the tail
// from its first wildcard on ("" if there is none).
func siblingParts(pattern, name string) (literal, tail string) {
	before, after, ok := strings.Cut(pattern, siblingName)
	if !ok {
		before, after, name = "", pattern, ""
	}
	i := strings.IndexAny(after, "*?[")
	if i < 0 {
		i = len(after)
	}
	return before + name + after[:i], after[i:]
}

// splitName divides a literal path into its directory with a trailing slash, ""
// for the base, and the name.
func splitName(literal string) (dir, name string) {
	i := strings.LastIndexByte(literal, '/')
	return literal[:i+1], literal[i+1:]
}

// IsSibling reports whether name is a sibling of the file called file, and by
// which pattern.
func IsSibling(file, name string) (pattern string, ok bool) {
	for _, p := range SiblingPatterns {
		literal, tail := siblingParts(p.Pattern, file)
		if rest, found := strings.CutPrefix(name, literal); found && matchTail(tail, rest) {
			return p.Pattern, true
		}
	}
	return "", false
}

func matchTail(tail, s string) bool {
	switch {
	case tail == "":
		return s == ""
	case strings.HasPrefix(tail, siblingDigits):
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
			if matchTail(tail[len(siblingDigits):], s[n:]) {
				return true
			}
		}
		return false
	case tail[0] == '*':
		for n := 0; n <= len(s); n++ {
			if matchTail(tail[1:], s[n:]) {
				return true
			}
			if n < len(s) && s[n] == '/' {
				return false
			}
		}
		return false
	case s == "" || s[0] == '/' || tail[0] != '?' && tail[0] != s[0]:
		return false
	}
	return matchTail(tail[1:], s[1:])
}
