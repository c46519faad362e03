package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hints that several problems share.
const (
	planHint  = `a plan is {"tasks": [{"id": "T1", "title": "…", "scope": ["src/"]}]}`
	scopeHint = "list the paths that it may write; [] is a read-only task"
	idHint    = "an id is 1 to 128 printing characters without white space"
	quoteHint = "write it in quotes"
	jsonHint  = "look there and just before: a comma, a quote or a bracket is often missing, or one comma too many"
)

// maxErrors are reported one by one; what is left is counted.
const maxErrors = 20

// neighbours are names that plans of other tools give to what is called scope
// here. A task that has one of them and no scope is probably meant to have it.
var neighbours = []string{
	"files", "owns", "owned", "owned_paths", "ownedpaths", "owned_files", "paths", "path", "file",
	"allowed_paths", "allowedpaths", "allowed_files", "allow", "allowed", "writes", "write",
	"write_paths", "writable", "scopes", "globs", "patterns", "file_scope", "filescope", "touches",
}

// Parse reads a plan; name is the file's name for messages. Every problem that
// can be told apart is reported: the error joins [*Error] values in the order of
// the file (errors.As finds the first). A syntax error stands alone.
func Parse(name string, data []byte, o ParseOptions) (*Plan, error) {
	r := &reader{file: name, data: data, opt: o}
	if err := r.syntax(); err != nil {
		return nil, err
	}
	r.dec = json.NewDecoder(bytes.NewReader(data))
	r.dec.UseNumber()
	p := &Plan{File: name, byID: map[string]int{}}
	r.plan(p)
	if len(r.errs) == 0 {
		return p, nil
	}
	errs := r.errs
	slices.SortStableFunc(errs, func(a, b *Error) int {
		return cmp.Or(a.Pos.Line-b.Pos.Line, a.Pos.Column-b.Pos.Column)
	})
	if n := len(errs) - maxErrors; n > 0 {
		errs = errs[:maxErrors]
		more := *r.errs[maxErrors]
		more.Msg, more.Hint = fmt.Sprintf("more problems from here on: %d", n), "mend the others first"
		errs = append(errs, &more)
	}
	return nil, join(errs)
}

// reader walks the tokens of a plan whose syntax is known to be right.
type reader struct {
	file  string
	data  []byte
	opt   ParseOptions
	dec   *json.Decoder
	lines []int // offset of each line's first byte
	errs  []*Error
}

func (r *reader) pos(off int) Pos {
	if r.lines == nil {
		r.lines = []int{0}
		for i, b := range r.data {
			if b == '\n' {
				r.lines = append(r.lines, i+1)
			}
		}
	}
	i, ok := slices.BinarySearch(r.lines, off)
	if !ok {
		i--
	}
	return Pos{Line: i + 1, Column: off - r.lines[i] + 1}
}

func (r *reader) error(off int, msg, hint string) *Error {
	return &Error{File: r.file, Pos: r.pos(off), Msg: msg, Hint: hint}
}

func (r *reader) fail(off int, hint, format string, args ...any) {
	r.errs = append(r.errs, r.error(off, fmt.Sprintf(format, args...), hint))
}

// syntax checks everything that makes a file no JSON text.
func (r *reader) syntax() error {
	d := r.data
	switch {
	case len(d) > MaxFile:
		return r.error(0, fmt.Sprintf("the plan is too large: %d bytes, at most %d", len(d), MaxFile), "divide it into several plans")
	case bytes.HasPrefix(d, []byte("\xEF\xBB\xBF")):
		return r.error(0, "the plan starts with a byte-order mark: a plan is plain UTF-8", "save it as UTF-8 without a byte-order mark")
	case len(bytes.TrimSpace(d)) == 0:
		return r.error(len(d), `the plan is empty: expected {"tasks": […]}`, planHint)
	case !utf8.Valid(d):
		off := 0
		for off < len(d) {
			c, n := utf8.DecodeRune(d[off:])
			if c == utf8.RuneError && n == 1 {
				break
			}
			off += n
		}
		return r.error(off, "the plan is not UTF-8: a byte here belongs to no character", "save it as UTF-8")
	}
	var raw json.RawMessage
	err := json.Unmarshal(d, &raw)
	var se *json.SyntaxError
	if errors.As(err, &se) {
		// Offset counts the bytes read, the offending one included; at the end
		// of the text there is none.
		off := int(se.Offset)
		if off > 0 && se.Error() != "unexpected end of JSON input" {
			off--
		}
		return r.error(off, "the plan is not valid JSON: "+se.Error(), jsonHint)
	}
	if err != nil {
		return r.error(0, "the plan is not valid JSON: "+err.Error(), jsonHint)
	}
	return nil
}

// value is one JSON value's first token.
type value struct {
	off, end int // of the token in the data
	tok      json.Token
}

func (v value) is(d json.Delim) bool { return v.tok == d }

// kind names what a value is.
func (v value) kind() string {
	switch t := v.tok.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprint(t)
	case json.Number:
		return "a number"
	case string:
		return "a string"
	case json.Delim:
		if t == '{' {
			return "an object"
		}
		return "a list"
	}
	return "nothing"
}

// token reads the next token. It cannot fail: the syntax was checked.
func (r *reader) token() value {
	off := int(r.dec.InputOffset())
	t, err := r.dec.Token()
	if err != nil {
		panic(fmt.Sprintf("plan: checked JSON does not read: %v", err))
	}
	for off < len(r.data) && strings.IndexByte(" \t\r\n,:", r.data[off]) >= 0 {
		off++
	}
	v := value{off: off, end: int(r.dec.InputOffset()), tok: t}
	if s, ok := t.(string); ok && strings.Contains(s, "\uFFFD") {
		if at := halfCharacter(r.data[v.off:v.end]); at >= 0 {
			r.fail(v.off+at, `write the character itself, or both halves as in \ud83d\ude00`, "a string holds half a character: a surrogate stands alone")
		}
	}
	return v
}

// halfCharacter finds the first \u escape in a valid JSON string that is a
// surrogate without its other half, which the decoder would replace silently.
func halfCharacter(s []byte) int {
	unit := func(i int) int {
		n := 0
		if i+6 > len(s) || s[i] != '\\' || s[i+1] != 'u' {
			return -1
		}
		fmt.Sscanf(string(s[i+2:i+6]), "%x", &n)
		return n
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		switch u := unit(i); {
		case u < 0:
			i++
		case u < 0xD800 || u > 0xDFFF:
			i += 5
		case u < 0xDC00 && unit(i+6) >= 0xDC00 && unit(i+6) <= 0xDFFF:
			i += 11
		default:
			return i
		}
	}
	return -1
}

// object calls field for every member of an object whose brace was read; field
// must consume the value.
func (r *reader) object(depth int, field func(key string, k, v value)) {
	seen := map[string]bool{}
	for {
		k := r.token()
		if k.is('}') {
			return
		}
		key := k.tok.(string)
		if seen[key] {
			r.fail(k.off, "keep one of them", "duplicate key %s", quote(key))
		}
		seen[key] = true
		v := r.token()
		if seen[key] && field != nil {
			field(key, k, v)
		} else {
			r.skip(v, depth)
		}
	}
}

// skip consumes a value, looking for duplicate keys all the same.
func (r *reader) skip(v value, depth int) {
	if depth == MaxDepth {
		r.fail(v.off, "keep what is no part of the plan in another file", "the plan is nested too deep: at most %d levels", MaxDepth)
	}
	switch {
	case v.is('{'):
		r.object(depth+1, nil)
	case v.is('['):
		for {
			x := r.token()
			if x.is(']') {
				return
			}
			r.skip(x, depth+1)
		}
	}
}

func (r *reader) plan(p *Plan) {
	v := r.token()
	if !v.is('{') {
		hint := planHint
		if v.is('[') {
			hint = `put the list into an object: {"tasks": […]}`
		}
		r.fail(v.off, hint, "expected an object with tasks, found %s", v.kind())
		return
	}
	found := false
	r.object(1, func(key string, k, v value) {
		if key != "tasks" || found {
			r.skip(v, 1)
			return
		}
		found = true
		if !v.is('[') {
			r.fail(v.off, planHint, "tasks: expected a list, found %s", v.kind())
			r.skip(v, 1)
			return
		}
		for n := 0; ; n++ {
			x := r.token()
			if x.is(']') {
				return
			}
			if n == MaxTasks {
				r.fail(x.off, "divide it into several plans", "too many tasks: at most %d", MaxTasks)
			}
			if n >= MaxTasks {
				r.skip(x, 2)
				continue
			}
			r.task(p, x)
		}
	})
	if !found {
		r.fail(v.off, planHint, "the plan has no tasks: the field tasks is missing")
	}
}

func (r *reader) task(p *Plan, v value) {
	if !v.is('{') {
		r.fail(v.off, planHint, "tasks: expected an object, found %s", v.kind())
		r.skip(v, 2)
		return
	}
	t := Task{Pos: r.pos(v.off)}
	var hasID, hasScope bool
	var near value
	idOff := v.off
	r.object(3, func(key string, k, x value) {
		switch {
		case key == "id" && !hasID:
			hasID, idOff = true, x.off
			s, ok := x.tok.(string)
			if !ok {
				r.fail(x.off, quoteHint, "id: expected a string, found %s", x.kind())
				r.skip(x, 3)
				return
			}
			t.ID = s
			if why := badID(s); why != "" {
				r.fail(x.off, idHint, "id: %s %s", quote(s), why)
			}
		case key == "title":
			if s, ok := x.tok.(string); ok {
				t.Title = s
			}
			r.skip(x, 3)
		case key == "scope" && !hasScope:
			hasScope = true
			t.Scope = r.scope(x)
		default:
			if near.end == 0 && isNeighbour(key) {
				near = k
			}
			r.skip(x, 3)
		}
	})
	name := "a task"
	if t.ID != "" {
		name = "task " + quote(t.ID)
	}
	if !hasID {
		r.fail(v.off, `give it one, such as "id": "T1"`, "a task has no id: the field id is missing")
	}
	if !hasScope {
		if near.end != 0 {
			r.fail(near.off, "rename the field to scope", "%s has no scope: found %s instead", name, quote(near.tok.(string)))
		} else {
			r.fail(v.off, scopeHint, "%s has no scope: the field scope is missing", name)
		}
	}
	if first, ok := p.byID[t.ID]; ok && t.ID != "" {
		r.fail(idOff, "give one of them another id", "id: %s is taken by the task at %s", quote(t.ID), p.Tasks[first].Pos)
	} else if t.ID != "" {
		p.byID[t.ID] = len(p.Tasks)
	}
	p.Tasks = append(p.Tasks, t)
}

func isNeighbour(key string) bool {
	k := strings.ToLower(strings.ReplaceAll(key, "-", "_"))
	return k == "scope" || slices.Contains(neighbours, k)
}

// badID says why an id is none, or "".
func badID(s string) string {
	if s == "" {
		return "is empty"
	}
	if len(s) > MaxID {
		return fmt.Sprintf("is too long: %d bytes, at most %d", len(s), MaxID)
	}
	for _, c := range s {
		switch {
		case unicode.IsSpace(c):
			return "holds white space"
		case !unicode.IsPrint(c):
			return fmt.Sprintf("holds a character that does not print: %U", c)
		}
	}
	return ""
}

func (r *reader) scope(v value) []Entry {
	if !v.is('[') {
		hint := scopeHint
		if _, ok := v.tok.(string); ok {
			hint = "put it into a list: [\"…\"]"
		}
		r.fail(v.off, hint, "scope: expected a list of paths, found %s", v.kind())
		r.skip(v, 3)
		return nil
	}
	list, failed := []Entry{}, false
	for n := 0; ; n++ {
		x := r.token()
		if x.is(']') {
			break
		}
		if n == MaxEntries {
			r.fail(x.off, "name directories instead of files", "scope: too many entries: at most %d", MaxEntries)
		}
		if n >= MaxEntries {
			r.skip(x, 4)
			failed = true
			continue
		}
		s, ok := x.tok.(string)
		if !ok {
			r.fail(x.off, quoteHint, "scope: expected a path as a string, found %s", x.kind())
			r.skip(x, 4)
			failed = true
			continue
		}
		e, p := parseEntry(s, r.opt)
		if p != nil {
			off := x.off
			if x.end-x.off == len(s)+2 { // no escapes: offsets agree
				off += 1 + p.off
			}
			r.fail(off, p.hint, "scope: %s", entryMsg(s, p))
			failed = true
			continue
		}
		e.Pos = r.pos(x.off)
		list = append(list, e)
	}
	if len(list) > 0 && !failed && !slices.ContainsFunc(list, func(e Entry) bool { return !e.Exclude }) {
		r.fail(v.off, "name what the task may write, or leave the list empty for a read-only task", "scope: only exclusions: they take away from nothing")
	}
	return list
}
