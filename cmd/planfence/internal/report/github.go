package report

import (
	"fmt"
	"io"
	"strings"
)

// maxAnnotations is how many annotations of one level a workflow step shows.
const maxAnnotations = 10

// GitHub renders the report as workflow commands: an annotation a finding and
// a blocked path.
func (r *Report) GitHub(w io.Writer) error {
	p := &printer{w: w}
	level := map[Verdict]string{OK: "notice", Warn: "warning", Block: "error", Indeterminate: "error"}
	left := map[string]int{"notice": maxAnnotations, "warning": maxAnnotations, "error": maxAnnotations}
	say := func(level, file, title, text string) {
		if left[level]--; left[level] < 0 {
			return
		}
		where := ""
		if file != "" {
			where = "file=" + property(file) + ","
		}
		p.line("::%s %stitle=%s::%s", level, where, property(title), data(text))
	}
	say(level[r.Verdict], "", "planfence: "+string(r.Verdict), r.Headline())
	for _, f := range r.Findings {
		if f.ID != "blocked" {
			say(level[f.Verdict], "", "planfence: "+f.ID, f.Text)
		}
	}
	for _, x := range r.Paths {
		l := "error"
		if x.Count == 0 {
			l = "warning"
		}
		say(l, x.Rel, "planfence: refused", fmt.Sprintf("%s (%s), %s, under task %s; owner %s",
			x.Text(), strings.Join(x.Reasons, ","), count(x.Count+x.Would, "time", "times"), none(strings.Join(x.Tasks, ",")), none(strings.Join(x.Owners, ","))))
	}
	for _, c := range r.changes() {
		l := "warning"
		if c.During != "" {
			l = "error"
		}
		say(l, c.Rel, "planfence: changed outside", c.Rel+" is in no task's scope")
	}
	return p.err
}

// property escapes a value between the command's name and its text.
func property(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(data(s))
}

// data escapes a command's text. Control characters are gone before.
func data(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(clean(s))
}

// Markdown renders the report for a job's summary.
func (r *Report) Markdown(w io.Writer) error {
	p := &printer{w: w}
	mark := map[Verdict]string{OK: "✅", Warn: "⚠️", Block: "⛔", Indeterminate: "❓"}[r.Verdict]
	p.line("## %s planfence: %s\n\n%s\n", mark, r.Verdict, md(r.Headline()))
	for _, f := range r.Findings {
		p.line("- **%s** %s", f.Verdict, md(f.Text))
	}
	p.line("\n| task | elapsed | refused | commits |\n|---|---:|---:|---:|")
	for _, t := range r.Tasks {
		p.line("| %s | %s | %d | %d |", md(none(t.ID)), t.Elapsed, t.Blocks+t.Would, t.Commits)
	}
	if len(r.Paths) > 0 {
		p.line("\n| refused | path | reason | owner |\n|---:|---|---|---|")
		for i, x := range r.Paths {
			if i == textPaths {
				p.line("\nand %s", count(uint64(len(r.Paths)+r.Truncated-textPaths), "path more", "paths more"))
				break
			}
			p.line("| %d | %s | %s | %s |", x.Count+x.Would, md(x.Text()), md(strings.Join(x.Reasons, ", ")), md(none(strings.Join(x.Owners, ", "))))
		}
	}
	p.line("\nElapsed %s, lost records %d, unfenced %s.", r.Elapsed, r.Lost, r.UnfencedText())
	return p.err
}

// md escapes a name for Markdown: every mark of punctuation that may mean
// something comes out as itself.
func md(s string) string {
	var b strings.Builder
	for _, c := range clean(s) {
		switch {
		case c == '<':
			b.WriteString("&lt;")
		case c == '>':
			b.WriteString("&gt;")
		case c == '&':
			b.WriteString("&amp;")
		case c == '@': // nobody is mentioned
			b.WriteString("&#64;")
		case strings.ContainsRune("\\`*_{}[]()#+!|~$:", c):
			b.WriteString(`\` + string(c))
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}
