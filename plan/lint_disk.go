package plan

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// disk answers questions about the project's directory, and remembers.
type disk struct {
	o     LintOptions
	names map[string][]fs.DirEntry
	left  int // directories that may still be read
	tree  *node
}

// comeHint is for names that are not there.
const comeHint = "correct it, unless it is still to come"

// mostDirs bounds the directories read for one lint. Beyond, what would need
// more is not reported.
const mostDirs = 50_000

func newDisk(o LintOptions) *disk {
	return &disk{o: o, names: map[string][]fs.DirEntry{}, left: mostDirs}
}

// lstat tells what a path is. known is false where the disk does not say.
func (d *disk) lstat(rel string) (mode fs.FileMode, exists, known bool) {
	if !fs.ValidPath(rel) {
		return 0, false, false
	}
	st, err := fs.Lstat(d.o.Root, rel)
	switch {
	case err == nil:
		return st.Mode(), true, true
	case errors.Is(err, fs.ErrNotExist):
		return 0, false, true
	}
	return 0, false, false
}

func (d *disk) readDir(rel string) []fs.DirEntry {
	if list, ok := d.names[rel]; ok {
		return list
	}
	if d.left == 0 {
		return nil
	}
	d.left--
	list, _ := fs.ReadDir(d.o.Root, rel) // what cannot be read has no names
	d.names[rel] = list
	return list
}

// onDisk compares a task's entries with what is there.
func (l *linter) onDisk(t *Task) {
	for i := range t.Scope {
		e := &t.Scope[i]
		lit, ok := e.Literal()
		if !ok {
			if l.onTheWay(t, e, strings.TrimSuffix(e.pat.prefix, "/"), false) {
				l.matches(t, e)
			}
			continue
		}
		if !l.onTheWay(t, e, lit, true) {
			continue
		}
		mode, exists, known := l.disk.lstat(lit)
		switch {
		case !known:
		case !exists:
			l.find(CodeMissing, SeverityNote, t, e, comeHint, "%s does not exist today", jsonText(e.Text))
		case mode.IsDir() && !e.Dir():
			l.find(CodeDirectory, SeverityNote, t, e, "write "+jsonText(e.Text+"/")+" to say so",
				"%s is a directory: everything below it is meant", jsonText(e.Text))
		case e.Dir() && !mode.IsDir() && mode&fs.ModeSymlink == 0:
			l.find(CodeNotDirectory, SeverityWarning, t, e, "write "+jsonText(strings.TrimRight(e.Text, "/.")),
				"%s ends in a slash and is a file: it is covered, but the siblings for saving it are not", jsonText(e.Text))
		}
	}
}

// onTheWay looks at each directory of a literal path. It reports whether the
// path can lead where it seems to.
func (l *linter) onTheWay(t *Task, e *Entry, path string, whole bool) bool {
	for i := 0; path != "" && i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		part, last := path[:i], i == len(path) && whole
		mode, exists, known := l.disk.lstat(part)
		if !known {
			return false
		}
		if !exists {
			return !l.otherSpelling(t, e, part)
		}
		if mode&fs.ModeSymlink != 0 {
			l.symlink(t, e, part, last)
			return false
		}
		if slices.Contains(l.o.Mounts, part) {
			l.find(CodeMount, SeverityNote, t, e, "start sessions when everything is mounted", "%s leads into another mount at %s: it holds for what is mounted there when the session starts", jsonText(e.Text), quote(part))
		}
	}
	return true
}

func (l *linter) symlink(t *Task, e *Entry, part string, last bool) {
	target, err := fs.ReadLink(l.o.Root, part)
	if err != nil {
		target = "somewhere else"
	} else {
		target = quote(target)
	}
	if last {
		l.find(CodeSymlink, SeverityWarning, t, e, "name what the link leads to, if that is to be written",
			"%s is a symbolic link to %s: the link may be replaced, what it leads to is not covered", jsonText(e.Text), target)
		return
	}
	l.find(CodeSymlink, SeverityError, t, e, "write the path that the link leads to",
		"%s covers nothing: it passes through %s, a symbolic link to %s, and a path is judged by where it leads", jsonText(e.Text), quote(part), target)
}

// otherSpelling looks beside a missing path for a name that a person would take
// for the same.
func (l *linter) otherSpelling(t *Task, e *Entry, part string) bool {
	dir, name := splitName(part)
	for _, x := range l.disk.readDir(fsName(dir)) {
		other := x.Name()
		switch {
		case other == name:
			return false
		case norm.NFC.String(other) == norm.NFC.String(name):
			l.find(CodeUnicode, SeverityWarning, t, e, "copy the name from the disk", "%s does not exist: %s on disk looks the same and is written in another Unicode form",
				jsonText(e.Text), jsonText(dir+other)).Example = dir + other
			return true
		case strings.EqualFold(norm.NFC.String(other), norm.NFC.String(name)):
			l.find(CodeCase, SeverityWarning, t, e, "write it as it is on disk", "%s does not exist: %s on disk differs only by case",
				jsonText(e.Text), jsonText(dir+other)).Example = dir + other
			return true
		}
	}
	return false
}

// fsName is the name that an fs.FS has for a directory with a trailing slash.
func fsName(dir string) string {
	if dir == "" {
		return "."
	}
	return strings.TrimSuffix(dir, "/")
}

// matches looks for what an entry with wildcards matches today: among the
// tracked files, then on disk.
func (l *linter) matches(t *Task, e *Entry) {
	one := *e
	one.Exclude = false
	table, err := Compile([]Group{{Rules: []Rule{{Entry: one}}, Inherit: -1}}, Limits{})
	if err != nil {
		return // the whole task is too complex, which is said elsewhere
	}
	var w matchWalk
	w.table = table
	if l.o.Tracked != nil {
		if l.disk.tree == nil {
			l.disk.tree = newTree(l.o.Tracked)
		}
		w.tracked(l.disk.tree, table.Start[0], "")
	}
	if !w.file && !w.below {
		w.onDisk(l.disk, table.Start[0], ".")
	}
	switch {
	case w.file || w.below || w.unsure:
	case w.dir != "":
		f := l.find(CodeNameOnly, SeverityWarning, t, e, "end it in / or /** to reach below", "%s matches only directories, such as %s, and nothing in them", jsonText(e.Text), quote(w.dir))
		f.Example = w.dir
	case e.Exclude:
		l.find(CodeNoMatch, SeverityNote, t, e, comeHint, "%s matches nothing today", jsonText(e.Text))
	default:
		l.find(CodeNoMatch, SeverityWarning, t, e, comeHint, "%s matches nothing today", jsonText(e.Text))
	}
}

// matchWalk is what was found.
type matchWalk struct {
	table  *Table
	file   bool   // a file
	below  bool   // a directory and all below it
	dir    string // a directory alone
	unsure bool   // too much to read
}

// at notes a name that was met. It reports whether to look below.
func (w *matchWalk) at(s State, path string, dir bool) bool {
	switch {
	case s == Dead:
		return false
	case w.table.End(s) != Accept:
	case !dir:
		w.file = true
	case w.table.AllBelow(s):
		w.below = true
	case w.dir == "":
		w.dir = path
	}
	return dir && !w.file && !w.below && w.table.LiveBelow(s)
}

func (w *matchWalk) tracked(n *node, s State, path string) {
	for _, c := range n.children {
		p := joinPath(path, c.name)
		if next := w.table.Walk(s, "/"+c.name); w.at(next, p, len(c.children) > 0) {
			w.tracked(c, next, p)
		}
		if w.file || w.below {
			return
		}
	}
}

func (w *matchWalk) onDisk(d *disk, s State, path string) {
	for _, x := range d.readDir(path) {
		if path == "." && x.Name() == ".git" {
			continue
		}
		p := x.Name()
		if path != "." {
			p = path + "/" + p
		}
		if next := w.table.Walk(s, "/"+x.Name()); w.at(next, p, x.IsDir()) {
			w.onDisk(d, next, p)
		}
		if w.file || w.below {
			return
		}
	}
	w.unsure = w.unsure || d.left == 0
}

func joinPath(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
