package plan

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
)

// Severity of a finding.
type Severity string

// Severities. An error means that the plan cannot mean what it says, or that two
// tasks may write the same path.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityNote    Severity = "note"
)

// Codes of findings.
const (
	CodeOverlap         = "overlap"          // two tasks cover a path
	CodeEverything      = "everything"       // a scope covers the whole project
	CodeTooComplex      = "too-complex"      // a scope cannot be compiled, or looked at
	CodeEmptied         = "emptied"          // exclusions leave nothing of an entry
	CodeShadowed        = "shadowed"         // other entries cover all that an entry covers
	CodeUnusedExclusion = "unused-exclusion" // an exclusion takes nothing away
	CodeMissing         = "missing"          // a literal names nothing on disk
	CodeNoMatch         = "no-match"         // wildcards match nothing on disk
	CodeDirectory       = "directory"        // a literal without a slash names a directory
	CodeNotDirectory    = "not-directory"    // an entry with a slash names a file
	CodeNameOnly        = "name-only"        // wildcards match a directory but not what is in it
	CodeSymlink         = "symlink"          // a literal leads through a symbolic link
	CodeMount           = "mount"            // a literal leads into another mount
	CodeClass           = "class"            // brackets that look like a character class
	CodeRootOnly        = "root-only"        // "*.md" where "**/*.md" may be meant
	CodeCase            = "case"             // a name differs from one on disk by case alone
	CodeUnicode         = "unicode"          // or by Unicode form
	CodePlan            = "plan-by-pattern"  // the plan file is covered, but not by name
	CodeHalf            = "half"             // a task covers more than half of the tracked files
	CodeDoubleStar      = "double-star"      // "**" within a name acts as "*"
	CodeWhiteSpace      = "white-space"      // white space at an end
	CodeBackslash       = "backslash"        // a backslash before an ordinary byte
	CodeBraces          = "braces"           // braces around one alternative
	CodeLongName        = "long-name"        // a name that no file system takes
)

// Finding is one thing that lint has to say.
type Finding struct {
	Code     string
	Severity Severity
	Task     string // id
	Entry    string // text, "" where the whole task is meant
	File     string
	Pos      Pos
	Message  string
	Hint     string // the way out, or ""
	Example  string // a path relative to the root that shows it, or ""
	Other    string // id of the other task of an overlap
	OtherPos Pos    // and the place of its entry
}

// LintOptions are the facts beside the plan.
type LintOptions struct {
	// Root is the project root, to look names up on disk. Links are seen where
	// it is an [fs.ReadLinkFS]. nil leaves out all that the disk decides.
	Root fs.FS
	// Tracked lists the files under version control, relative to the root. nil
	// means that they are not known.
	Tracked []string
	// Mounts lists the mount points below the root, relative to it.
	Mounts []string
	// Plan is the plan file relative to the root, "" if it is outside.
	Plan string
}

// linter is one run of lint.
type linter struct {
	p        *Plan
	o        LintOptions
	disk     *disk
	findings []Finding
}

// Lint looks for scopes that may not mean what their author thinks. Findings come
// in the order of the file; those of one place in the order of their codes.
func (p *Plan) Lint(o LintOptions) []Finding {
	l := &linter{p: p, o: o}
	if o.Root != nil {
		l.disk = newDisk(o)
	}
	languages := make([]*dfa, len(p.Tasks))
	for i := range p.Tasks {
		t := &p.Tasks[i]
		for k := range t.Scope {
			l.text(t, &t.Scope[k])
		}
		if languages[i] = l.language(t); languages[i] != nil {
			l.covers(t)
		}
		if l.disk != nil {
			l.onDisk(t)
		}
		l.planFile(t)
	}
	if o.Tracked != nil {
		l.half(languages)
	}
	l.overlaps(languages)
	slices.SortStableFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(a.Pos.Line-b.Pos.Line, a.Pos.Column-b.Pos.Column, cmp.Compare(a.Code, b.Code))
	})
	return l.findings
}

func (l *linter) find(code string, s Severity, t *Task, e *Entry, hint, format string, args ...any) *Finding {
	f := Finding{Code: code, Severity: s, Task: t.ID, File: l.p.File, Pos: t.Pos, Hint: hint, Message: fmt.Sprintf(format, args...)}
	if e != nil {
		f.Entry, f.Pos = e.Text, e.Pos
	}
	l.findings = append(l.findings, f)
	return &l.findings[len(l.findings)-1]
}

// language is what a task covers, siblings left out; nil if that cannot be
// compiled or is nothing.
func (l *linter) language(t *Task) *dfa {
	if len(t.Scope) == 0 {
		return nil
	}
	d, err := automaton([]Group{{Rules: t.rules(false), Inherit: -1}}, Limits{})
	if err != nil {
		l.tooComplex(t, err)
		return nil
	}
	a := d.dfa
	if a.coversAll() {
		l.find(CodeEverything, SeverityError, t, nil, everythingHint, "the scope of %s covers every name in the root", t.ID)
	}
	return &a
}

func (l *linter) tooComplex(t *Task, err error) {
	hint := ""
	if tc, ok := err.(*TooComplexError); ok {
		hint = tc.Hint()
	}
	l.find(CodeTooComplex, SeverityError, t, nil, hint, "%v", err)
}

// planFile warns of a task that seems to open the plan, and does not.
func (l *linter) planFile(t *Task) {
	if l.o.Plan == "" || t.match(l.o.Plan) != Accept {
		return
	}
	var by *Entry
	for i := range t.Scope {
		e := &t.Scope[i]
		if e.Exclude {
			continue
		}
		if lit, ok := e.Literal(); ok && lit == l.o.Plan {
			return
		}
		if by == nil && e.Match(l.o.Plan, false) == Accept {
			by = e
		}
	}
	f := l.find(CodePlan, SeverityWarning, t, by, "name the plan in the task that may change it: "+jsonText(LiteralText(l.o.Plan)),
		"%s covers the plan file, which stays protected: only an entry that names it opens it", jsonText(by.Text))
	f.Example = l.o.Plan
}
