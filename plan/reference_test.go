package plan

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// The reference matcher: what the scope language says, as plainly as it can be
// put and with no regard for time. It works on the text of entries and shares no
// code with the package but the list of sibling patterns.

// refExpand replaces braces by their alternatives, the first pair first. Over
// most results it gives up.
func refExpand(s string, most int) (out []string, ok bool) {
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
				more, ok := refExpand(s[:open]+s[from:cut]+s[i+1:], most)
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

// refSplit cuts at slashes (a slash cannot be escaped).
func refSplit(s string) (comps []string, dir bool) {
	for _, c := range strings.Split(s, "/") {
		dir = c == "" || c == "." || c == `\.`
		if !dir {
			comps = append(comps, c)
		}
	}
	return comps, dir
}

func refUnescape(s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		out = append(out, s[i])
	}
	return string(out)
}

// refWild reports whether an entry holds a wildcard.
func refWild(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		} else if strings.IndexByte("*?{", s[i]) >= 0 {
			return true
		}
	}
	return false
}

// refName matches one component.
func refName(pat, name string) bool {
	if pat == "" {
		return name == ""
	}
	switch pat[0] {
	case '*':
		for i := 0; i <= len(name); i++ {
			if refName(strings.TrimLeft(pat, "*"), name[i:]) {
				return true
			}
		}
		return false
	case '?':
		_, n := utf8.DecodeRuneInString(name)
		return n > 0 && refName(pat[1:], name[n:])
	case '\\':
		pat = pat[1:]
	}
	return name != "" && name[0] == pat[0] && refName(pat[1:], name[1:])
}

// refComps matches whole components.
func refComps(pat, path []string) bool {
	if len(pat) == 0 {
		return len(path) == 0
	}
	if pat[0] != "**" {
		return len(path) > 0 && refName(pat[0], path[0]) && refComps(pat[1:], path[1:])
	}
	if len(pat) == 1 { // everything below
		return len(path) > 0
	}
	for i := 0; i <= len(path); i++ { // any depth, zero levels included
		if refComps(pat[1:], path[i:]) {
			return true
		}
	}
	return false
}

// refEntry reports whether an entry without its exclamation mark covers a path
// such as "a/b"; "" is the root.
func refEntry(text, path string) bool {
	names := []string{}
	if path != "" {
		names = strings.Split(path, "/")
	}
	if !refWild(text) {
		comps, _ := refSplit(text)
		lit := refUnescape(strings.Join(comps, "/"))
		return path == lit || strings.HasPrefix(path, lit+"/")
	}
	all, ok := refExpand(text, 5000)
	if !ok {
		panic("too many alternatives for the reference: " + text)
	}
	for _, s := range all {
		comps, dir := refSplit(s)
		if refComps(comps, names) {
			return true
		}
		if dir && comps[len(comps)-1] != "**" {
			for n := range names {
				if refComps(comps, names[:n]) {
					return true
				}
			}
		}
	}
	return false
}

// refSiblings has each sibling pattern as a regular expression over bytes, each
// byte written as the character of that number.
func refSibling(file, name string) bool {
	latin := func(s string) string {
		var out []rune
		for i := range len(s) {
			out = append(out, rune(s[i]))
		}
		return string(out)
	}
	for _, p := range SiblingPatterns {
		re := regexp.QuoteMeta(p.Pattern)
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

// refScope judges a path by a scope.
func refScope(scope []string, siblings bool, path string) State {
	state := Dead
	for _, text := range scope {
		if rest, ok := strings.CutPrefix(text, "!"); ok {
			if refEntry(rest, path) {
				return Dead
			}
			continue
		}
		if refEntry(text, path) {
			state = Accept
		}
		if state == Accept || !siblings || refWild(text) {
			continue
		}
		comps, dir := refSplit(text)
		if dir {
			continue
		}
		want := strings.Split(refUnescape(strings.Join(comps, "/")), "/")
		have := strings.Split(path, "/")
		n := len(want) - 1
		if len(have) == len(want) && strings.Join(have[:n], "/") == strings.Join(want[:n], "/") && refSibling(want[n], have[n]) {
			state = Sibling
		}
	}
	return state
}
