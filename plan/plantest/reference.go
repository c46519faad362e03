package plantest

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// The reference matcher: what the scope language says, as plainly as it can be
// put and with no regard for time. It works on the text of entries.

// Expand replaces braces by their alternatives, the first pair first. Over
// most results it gives up: ok is false.
func Expand(s string, most int) (out []string, ok bool) {
	open := -1
	depth := 0
	var cuts []int
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case s[i] == '{':
			if depth == 0 {
				open = i
			}
			depth++
		case s[i] == ',' && depth == 1:
			cuts = append(cuts, i)
		case s[i] == '}':
			if depth--; depth > 0 {
				continue
			}
			from := open + 1
			for _, cut := range append(cuts, i) {
				more, ok := Expand(s[:open]+s[from:cut]+s[i+1:], most)
				if out = append(out, more...); !ok || len(out) > most {
					return nil, false
				}
				from = cut + 1
			}
			return out, true
		}
	}
	return []string{s}, true
}

// Split cuts an entry without braces at its slashes (none can be escaped). dir
// reports whether it ends in one.
func Split(s string) (comps []string, dir bool) {
	for _, c := range strings.Split(s, "/") {
		dir = c == "" || c == "." || c == `\.`
		if !dir {
			comps = append(comps, c)
		}
	}
	return comps, dir
}

// Unescape removes backslashes.
func Unescape(s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		out = append(out, s[i])
	}
	return string(out)
}

// Wild reports whether an entry holds a wildcard.
func Wild(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		} else if strings.IndexByte("*?{", s[i]) >= 0 {
			return true
		}
	}
	return false
}

// matchName matches one component.
func matchName(pat, name string) bool {
	if pat == "" {
		return name == ""
	}
	switch pat[0] {
	case '*':
		for i := 0; i <= len(name); i++ {
			if matchName(strings.TrimLeft(pat, "*"), name[i:]) {
				return true
			}
		}
		return false
	case '?':
		_, n := utf8.DecodeRuneInString(name)
		return n > 0 && matchName(pat[1:], name[n:])
	case '\\':
		pat = pat[1:]
	}
	return name != "" && name[0] == pat[0] && matchName(pat[1:], name[1:])
}

// matchNames matches whole components.
func matchNames(pat, path []string) bool {
	if len(pat) == 0 {
		return len(path) == 0
	}
	if pat[0] != "**" {
		return len(path) > 0 && matchName(pat[0], path[0]) && matchNames(pat[1:], path[1:])
	}
	if len(pat) == 1 { // everything below
		return len(path) > 0
	}
	for i := 0; i <= len(path); i++ { // any depth, zero levels included
		if matchNames(pat[1:], path[i:]) {
			return true
		}
	}
	return false
}

// Covers reports whether an entry without its exclamation mark covers a path
// such as "a/b"; "" is the root.
func Covers(text, path string) bool {
	names := []string{}
	if path != "" {
		names = strings.Split(path, "/")
	}
	if !Wild(text) {
		comps, _ := Split(text)
		lit := Unescape(strings.Join(comps, "/"))
		return path == lit || strings.HasPrefix(path, lit+"/")
	}
	all, ok := Expand(text, 5000)
	if !ok {
		panic("too many alternatives for the reference: " + text)
	}
	for _, s := range all {
		comps, dir := Split(s)
		if matchNames(comps, names) {
			return true
		}
		if dir && comps[len(comps)-1] != "**" {
			for n := range names {
				if matchNames(comps, names[:n]) {
					return true
				}
			}
		}
	}
	return false
}

// Verdict is what a scope says of a path.
type Verdict int

// Verdicts.
const (
	Refused Verdict = iota
	Sibling         // of a file that the scope names
	Covered
)

// Reference is a scope to judge by.
type Reference struct {
	Entries []string // valid ones, as written
	// Siblings are the patterns of a file's siblings; nil for none.
	Siblings []string
	// IsDir reports whether a path is a directory, which has no siblings. nil
	// means that none is.
	IsDir func(path string) bool
}

// isSibling has each pattern as a regular expression over bytes, each byte
// written as the character of that number.
func (r *Reference) isSibling(file, name string) bool {
	latin := func(s string) string {
		var out []rune
		for i := range len(s) {
			out = append(out, rune(s[i]))
		}
		return string(out)
	}
	for _, p := range r.Siblings {
		re := regexp.QuoteMeta(p)
		re = strings.ReplaceAll(re, regexp.QuoteMeta("[0-9]+"), "[0-9]+")
		re = strings.ReplaceAll(re, regexp.QuoteMeta("*"), "[^/]*")
		re = strings.ReplaceAll(re, regexp.QuoteMeta("?"), "[^/]")
		re = strings.ReplaceAll(re, "NAME", regexp.QuoteMeta(latin(file)))
		if regexp.MustCompile(`(?s)\A` + re + `\z`).MatchString(latin(name)) {
			return true
		}
	}
	return false
}

// Judge judges a path such as "a/b"; "" is the root.
func (r *Reference) Judge(path string) Verdict {
	v := Refused
	for _, text := range r.Entries {
		if rest, ok := strings.CutPrefix(text, "!"); ok {
			if Covers(rest, path) {
				return Refused
			}
			continue
		}
		if Covers(text, path) {
			v = Covered
		}
		if v == Covered || r.Siblings == nil || Wild(text) {
			continue
		}
		comps, dir := Split(text)
		lit := Unescape(strings.Join(comps, "/"))
		if dir || r.IsDir != nil && r.IsDir(lit) {
			continue
		}
		want, have := strings.Split(lit, "/"), strings.Split(path, "/")
		n := len(want) - 1
		if len(have) == len(want) && strings.Join(have[:n], "/") == strings.Join(want[:n], "/") && r.isSibling(want[n], have[n]) {
			v = Sibling
		}
	}
	return v
}
