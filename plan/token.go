package plan

import (
	"strings"
)

type tokenKind uint8

const (
	tokByte  tokenKind = iota // an ordinary byte
	tokSlash                  // one '/'
	tokAny                    // ?
	tokStar                   // *
	tokOpen                   // {
	tokComma                  // , between alternatives
	tokClose                  // }
)

// token is one element of an entry. Braces carry where the others of the same
// pair are, so that the list is a program: from an open brace to each
// alternative, from a comma or a closing brace on behind the pair.
type token struct {
	kind    tokenKind
	b       byte    // of tokByte
	escaped bool    // of tokByte: a backslash stood before it
	off     int32   // offset in the text
	close   int32   // of tokComma: index of the closing brace
	alts    []int32 // of tokOpen: index of each alternative's first token
}

// problem is an error at an offset of an entry's text.
type problem struct {
	off       int
	msg, hint string
}

// lex splits an entry (without its leading '!') into tokens.
func lex(text string) ([]token, *problem) {
	toks := make([]token, 0, len(text))
	var open []int32 // indexes of open braces
	for i := 0; i < len(text); i++ {
		t := token{off: int32(i), kind: tokByte, b: text[i]}
		switch text[i] {
		case 0:
			return nil, &problem{i, "holds a NUL byte: no path can", "remove it"}
		case '\\':
			i++
			if i == len(text) {
				return nil, &problem{i - 1, "ends in a backslash: it makes the next byte ordinary, and there is none", `write \\ for a backslash`}
			}
			switch text[i] {
			case '/':
				return nil, &problem{i - 1, "holds an escaped slash: no name holds one", "write / alone"}
			case 0:
				return nil, &problem{i, "holds a NUL byte: no path can", "remove it"}
			}
			t.b, t.escaped = text[i], true
		case '/':
			t.kind = tokSlash
		case '?':
			t.kind = tokAny
		case '*':
			t.kind = tokStar
		case '{':
			t.kind = tokOpen
			t.alts = []int32{int32(len(toks) + 1)}
			open = append(open, int32(len(toks)))
		case ',':
			if len(open) == 0 {
				break
			}
			t.kind = tokComma
			o := &toks[open[len(open)-1]]
			o.alts = append(o.alts, int32(len(toks)+1))
		case '}':
			if len(open) == 0 {
				return nil, &problem{i, "holds a closing brace without an opening one", `write \} for a brace in a name`}
			}
			t.kind = tokClose
			o := open[len(open)-1]
			open = open[:len(open)-1]
			if int(o) == len(toks)-1 {
				return nil, &problem{int(toks[o].off), "holds empty braces: they stand for nothing", `write \{\} for braces in a name`}
			}
			for _, a := range toks[o].alts[1:] {
				toks[a-1].close = int32(len(toks))
			}
		case '$':
			if i+1 < len(text) && (isLetter(text[i+1]) || text[i+1] == '{' || text[i+1] == '(') {
				return nil, &problem{i, "holds a variable: a plan is read by no shell, nothing would be put in its place",
					`write the path itself, or \$ for a dollar sign in a name`}
			}
		}
		toks = append(toks, t)
	}
	if len(open) > 0 {
		return nil, &problem{int(toks[open[len(open)-1]].off), "holds an opening brace without a closing one", `write \{ for a brace in a name`}
	}
	return toks, nil
}

func isLetter(b byte) bool {
	return b == '_' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// cutRoot removes an absolute root from the front of absolute tokens. ok is
// false when they do not lie inside it.
func cutRoot(toks []token, root string) (rest []token, ok bool) {
	for comp := range strings.SplitSeq(strings.Trim(root, "/"), "/") {
		if comp == "" { // the root is "/"
			continue
		}
		i := 0
		for { // slashes and "." between components
			for i < len(toks) && toks[i].kind == tokSlash {
				i++
			}
			if i+1 < len(toks) && isDot(toks[i]) && toks[i+1].kind == tokSlash {
				i++
				continue
			}
			break
		}
		for _, b := range []byte(comp) {
			if i == len(toks) || toks[i].kind != tokByte || toks[i].b != b {
				return nil, false
			}
			i++
		}
		if i < len(toks) && toks[i].kind != tokSlash {
			return nil, false
		}
		toks = toks[i:]
	}
	return toks, true
}

func isDot(t token) bool { return t.kind == tokByte && t.b == '.' }

// literalPrefix returns the whole literal components in front, clean and each
// with its slash, and the number of tokens that they take.
func literalPrefix(toks []token) (prefix string, skip int) {
	var out []byte
	for i, t := range toks {
		if t.kind == tokByte {
			continue
		}
		if t.kind != tokSlash {
			break
		}
		if n := i - skip; n > 1 || n == 1 && !isDot(toks[skip]) {
			for _, t := range toks[skip:i] {
				out = append(out, t.b)
			}
			out = append(out, '/')
		}
		skip = i + 1
	}
	return string(out), skip
}
