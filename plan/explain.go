package plan

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Op is what is to be done to a path, as far as scopes tell operations apart.
type Op int

// Kinds of operations.
const (
	// Write is everything that needs the path itself in scope: opening for
	// writing, creating, removing, renaming a file, changing attributes.
	Write Op = iota
	// Mkdir makes a directory: allowed as well where something below it could be
	// in scope.
	Mkdir
	// MoveDir renames a directory with its contents: all below it must be in
	// scope, too.
	MoveDir
)

// opNames has every operation that a record of the block log may name.
var opNames = map[string]Op{
	"write": Write, "open": Write, "create": Write, "truncate": Write, "unlink": Write, "rmdir": Write,
	"mknod": Write, "symlink": Write, "link": Write, "rename": Write, "chmod": Write, "chown": Write,
	"utimes": Write, "xattr": Write, "acl": Write, "chattr": Write, "remove": Write,
	"setxattr": Write, "removexattr": Write, "setacl": Write, "ioctl": Write, "receive": Write,
	"mkdir": Mkdir, "rename-dir": MoveDir,
}

// ParseOp reads the name of an operation, such as "mkdir", "rename" or
// "rename-dir".
func ParseOp(name string) (Op, error) {
	if op, ok := opNames[name]; ok {
		return op, nil
	}
	return 0, fmt.Errorf("no operation is called %s", quote(name))
}

// OpNames returns the names of operations that people use, the common ones first.
func OpNames() []string {
	return []string{"write", "create", "mkdir", "rename", "rename-dir", "unlink", "rmdir", "truncate", "link", "symlink", "mknod",
		"chmod", "chown", "utimes", "xattr", "acl", "chattr"}
}

func (o Op) String() string {
	switch o {
	case Mkdir:
		return "mkdir"
	case MoveDir:
		return "rename-dir"
	}
	return "write"
}

// Kind is what decided.
type Kind string

// Kinds of decisions. The first three allow.
const (
	ByEntry     Kind = "entry"     // an entry covers the path
	BySibling   Kind = "sibling"   // it is a sibling of the file that an entry names
	ByDirectory Kind = "directory" // a directory: something below could be covered by the entry
	ByExclusion Kind = "exclusion" // the entry excludes it
	ByContents  Kind = "contents"  // the directory is covered, not all that it may hold
	ByNone      Kind = "none"      // nothing covers it
)

// Verdict says whether a scope allows an operation, and why.
type Verdict struct {
	Allowed bool
	Kind    Kind
	// Entry is the deciding one, with its place in the plan; nil if none did.
	Entry *Entry
	// Sibling is the pattern of SiblingPatterns, for BySibling.
	Sibling string
	// Owners are the ids of the other tasks whose scope covers the path.
	Owners []string
	// Suggest is the edit of the task's scope that would allow a refused
	// operation, such as `add "src/a.js" to the scope of T1 (plan.json:4:5)`.
	Suggest string
}

// ExplainOptions say what the plan does not tell.
type ExplainOptions struct {
	NoSiblings bool // the siblings of files are not in scope
	// IsDir reports whether a path relative to the root is a directory: it then
	// has no siblings. nil means that none is, unless the entry says so.
	IsDir func(rel string) bool
}

// Explain judges an operation on a path relative to the root ("" or "." is the
// root itself) by a task of the plan, with the siblings of every file. The path
// is taken as it is: links must be resolved before.
func (p *Plan) Explain(task *Task, rel string, op Op) Verdict {
	return p.ExplainWith(task, rel, op, ExplainOptions{})
}

// ExplainWith is [Plan.Explain] with options.
func (p *Plan) ExplainWith(task *Task, rel string, op Op, o ExplainOptions) Verdict {
	rel = strings.Trim(rel, "/")
	if rel == "." {
		rel = ""
	}
	v := p.judge(task, rel, op, o)
	v.Owners = p.Owners(rel, task.ID)
	if !v.Allowed {
		v.Suggest = p.suggest(task, rel, op, o)
	}
	return v
}

func (o ExplainOptions) siblings(e Entry) bool {
	lit, ok := e.Literal()
	return ok && !o.NoSiblings && !e.Exclude && (o.IsDir == nil || !o.IsDir(lit))
}

func (p *Plan) judge(task *Task, rel string, op Op, o ExplainOptions) Verdict {
	var covers, sibling *Entry
	for i := range task.Scope {
		e := &task.Scope[i]
		switch e.Match(rel, o.siblings(*e)) {
		case Accept:
			if e.Exclude {
				// What lies below may still be covered by others: mkdir asks.
				if op == Mkdir {
					if d := liveBelow(task, rel, o); d != nil {
						return Verdict{Allowed: true, Kind: ByDirectory, Entry: d}
					}
				}
				return Verdict{Kind: ByExclusion, Entry: e}
			}
			if covers == nil {
				covers = e
			}
		case Sibling:
			if sibling == nil {
				sibling = e
			}
		}
	}
	switch {
	case op == MoveDir && covers != nil:
		if allows(task.rulesFor(o), rel, MoveDir) {
			return Verdict{Allowed: true, Kind: ByEntry, Entry: covers}
		}
		return Verdict{Kind: ByContents, Entry: covers}
	case covers != nil:
		return Verdict{Allowed: true, Kind: ByEntry, Entry: covers}
	case op == Mkdir:
		if d := liveBelow(task, rel, o); d != nil {
			return Verdict{Allowed: true, Kind: ByDirectory, Entry: d}
		}
	case op == Write && sibling != nil:
		lit, _ := sibling.Literal()
		_, file := splitName(lit)
		_, name := splitName(rel)
		pattern, _ := IsSibling(file, name)
		return Verdict{Allowed: true, Kind: BySibling, Entry: sibling, Sibling: pattern}
	}
	return Verdict{Kind: ByNone}
}

func (t *Task) rulesFor(o ExplainOptions) []Rule {
	rules := t.rules(false)
	for i := range rules {
		rules[i].Siblings = o.siblings(rules[i].Entry)
	}
	return rules
}

// allows reports whether the compiled rules allow an operation, as the kernel
// judges it. Rules that are too complex allow nothing: they are never in force.
func allows(rules []Rule, rel string, op Op) bool {
	t, err := Compile([]Group{{Rules: rules, Inherit: -1}}, Limits{})
	if err != nil {
		return false
	}
	s := t.Walk(t.Start[0], slashed(rel))
	switch op {
	case Mkdir:
		return t.End(s) == Accept || t.LiveBelow(s)
	case MoveDir:
		return t.AllBelow(s)
	}
	return t.End(s) != Dead
}

// cutExclusions divides rules.
func cutExclusions(rules []Rule) (in, out []Rule) {
	for _, r := range rules {
		if r.Entry.Exclude {
			out = append(out, r)
		} else {
			in = append(in, r)
		}
	}
	return in, out
}

// liveBelow finds the first entry of which, after exclusions, something below a
// path that is itself not covered is left.
func liveBelow(task *Task, rel string, o ExplainOptions) *Entry {
	rules := task.rulesFor(o)
	if !allows(rules, rel, Mkdir) {
		return nil
	}
	_, out := cutExclusions(rules)
	for i, r := range rules {
		if !r.Entry.Exclude && allows(append(out, r), rel, Mkdir) {
			return &task.Scope[i]
		}
	}
	return nil
}

func slashed(rel string) string {
	if rel == "" {
		return ""
	}
	return "/" + rel
}

// suggest words the smallest edit: exclusions that stand in the way go, and an
// entry comes where the others do not do.
func (p *Plan) suggest(task *Task, rel string, op Op, o ExplainOptions) string {
	if rel == "" {
		return ""
	}
	if !utf8.ValidString(rel) {
		return "rename it first: a plan is UTF-8 and cannot name it"
	}
	keep, out := cutExclusions(task.rules(false))
	var parts, remove []string
	for _, r := range out {
		if r.Entry.Match(rel, false) == Accept || !allows([]Rule{{Entry: Everything}, r}, rel, op) {
			remove = append(remove, fmt.Sprintf("%s (%s:%s)", jsonText(r.Entry.Text), p.File, r.Entry.Pos))
		} else {
			keep = append(keep, r)
		}
	}
	if len(remove) > 0 {
		parts = append(parts, fmt.Sprintf("remove %s from the scope of %s", strings.Join(remove, " and "), task.ID))
	}
	if !allows(keep, rel, op) {
		text := LiteralText(rel)
		if op != Write || o.IsDir != nil && o.IsDir(rel) {
			text += "/"
		}
		parts = append(parts, fmt.Sprintf("add %s to the scope of %s (%s:%s)", jsonText(text), task.ID, p.File, task.Pos))
	}
	return strings.Join(parts, " and ")
}

// jsonText writes valid UTF-8 as a JSON string.
func jsonText(s string) string {
	q := strconv.Quote(s)
	if !strings.ContainsAny(q, `\`) {
		return q
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c < 0x20 || c == 0x7F || !strconv.IsPrint(c):
			if c > 0xFFFF {
				c -= 0x10000
				fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+c>>10, 0xDC00+c&0x3FF)
				continue
			}
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
