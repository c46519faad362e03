package plan

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is the longest name of a file that Linux takes, in bytes.
const maxName = 255

// text judges an entry by its text alone.
func (l *linter) text(t *Task, e *Entry) {
	body := strings.TrimPrefix(e.Text, "!")
	if first, _ := utf8.DecodeRuneInString(body); unicode.IsSpace(first) {
		l.find(CodeWhiteSpace, SeverityWarning, t, e, "remove it, or put a backslash before it to say that it is meant", "%s starts with white space, which is part of the name", jsonText(e.Text))
	} else if last, _ := utf8.DecodeLastRuneInString(body); unicode.IsSpace(last) && !strings.HasSuffix(strings.TrimRightFunc(body, unicode.IsSpace), `\`) {
		l.find(CodeWhiteSpace, SeverityWarning, t, e, "remove it, or put a backslash before it to say that it is meant", "%s ends in white space, which is part of the name", jsonText(e.Text))
	}
	for i := 0; i+1 < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		i++
		if c := body[i]; strings.IndexByte(`*?{}\,!~$[] `, c) < 0 {
			l.find(CodeBackslash, SeverityWarning, t, e, "separate directories with /, and leave ordinary characters as they are",
				"%s holds a backslash before an ordinary character: it is not a separator, and does nothing", jsonText(e.Text))
			break
		}
	}
	for c := range strings.SplitSeq(body, "/") {
		if class := classIn(c); class != "" {
			l.find(CodeClass, SeverityWarning, t, e, `write {a,b} for alternatives, or \[ to say that brackets are meant`,
				"%s holds %s, which looks like a character class: there are none, the brackets stand for themselves", jsonText(e.Text), class)
			break
		}
	}
	toks := e.pat.toks
	if i := slices.IndexFunc(toks, func(x token) bool { return x.kind == tokOpen && len(x.alts) == 1 }); i >= 0 {
		l.find(CodeBraces, SeverityWarning, t, e, `write \{ and \} for braces in a name, or {a,b} for alternatives`,
			"%s holds braces around a single alternative, which do nothing", jsonText(e.Text))
	}
	if starsInName(toks) {
		l.find(CodeDoubleStar, SeverityWarning, t, e, "write ** between slashes to match at any depth", "%s holds ** within a name, where it acts as *", jsonText(e.Text))
	}
	if longName(e.pat) {
		l.find(CodeLongName, SeverityError, t, e, "shorten it", "%s holds a name of more than %d bytes, which no file has", quote(e.Text), maxName)
	}
	if e.rootOnly() && !e.Exclude {
		l.find(CodeRootOnly, SeverityWarning, t, e, "write "+jsonText("**/"+e.Text)+" for any depth, or "+jsonText("./"+e.Text)+" to say that the root is meant",
			"%s matches in the project root only", jsonText(e.Text))
	}
}

// starsInName finds "**" that is not a whole component.
func starsInName(toks []token) bool {
	name := func(i int) bool { // what stands there belongs to the same name
		return i >= 0 && i < len(toks) && (toks[i].kind == tokByte || toks[i].kind == tokAny || toks[i].kind == tokStar)
	}
	for i := range toks {
		if toks[i].kind == tokStar && name(i+1) && toks[i+1].kind == tokStar && (name(i-1) || name(i+2)) {
			return true
		}
	}
	return false
}

// longName finds a name that is too long whatever its wildcards stand for.
// Braces are not looked into.
func longName(pat *pattern) bool {
	for name := range strings.SplitSeq(pat.literal, "/") {
		if len(name) > maxName {
			return true
		}
	}
	n := 0
	for _, x := range pat.toks {
		switch x.kind {
		case tokByte, tokAny:
			n++
		case tokStar:
		default:
			n = 0
		}
		if n > maxName {
			return true
		}
	}
	return false
}

// classIn finds brackets in a component that look like a character class.
func classIn(c string) string {
	wild := false
	for i := 0; i < len(c); i++ {
		switch c[i] {
		case '\\':
			i++
		case '*', '?':
			wild = true
		}
	}
	for i := 0; i < len(c); i++ {
		switch c[i] {
		case '\\':
			i++
		case '[':
			if n := strings.IndexByte(c[i:], ']'); n > 1 && looksLikeClass(c[i+1:i+n], wild) {
				return c[i : i+n+1]
			}
		}
	}
	return ""
}

// looksLikeClass tells "[a-z]" and "*.[ch]" from the names of routes: "[id]",
// "[...slug]".
func looksLikeClass(s string, wild bool) bool {
	if s[0] == '!' || s[0] == '^' {
		return true
	}
	for i := 1; i+1 < len(s); i++ {
		if s[i] == '-' && isAlnum(s[i-1]) && isAlnum(s[i+1]) && (len(s) == 3 || i+2 == len(s) || i+3 < len(s) && s[i+3] == '-') {
			return true
		}
	}
	return wild && len(s) <= 4 && s[0] != '.'
}

func isAlnum(b byte) bool { return isLetter(b) && b != '_' || b >= '0' && b <= '9' }

// rootOnly reports whether the entry is a single component with a "*" that is
// likely to be meant at any depth, such as "*.md".
func (e *Entry) rootOnly() bool {
	star := false
	if e.Text[0] == '/' {
		return false
	}
	for _, x := range e.pat.toks {
		switch x.kind {
		case tokSlash:
			return false
		case tokStar:
			star = true
		}
	}
	return star
}
