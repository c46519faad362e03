package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"`
	Timestamp string      `xml:"timestamp,attr"`
	Hostname  string      `xml:"hostname,attr"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitProblem `xml:"failure"`
	Error   *junitProblem `xml:"error"`
}

type junitProblem struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// JUnit renders the report as JUnit XML: a case a task, which fails if something
// was refused under it, and a case for each thing that the log has to prove.
func (r *Report) JUnit(w io.Writer) error {
	tasks := r.suite("planfence.task")
	for _, t := range r.Tasks {
		c := junitCase{Name: "task " + none(t.ID) + " stays in its scope", Class: "planfence.task", Time: xmlSeconds(t.Elapsed)}
		if t.Blocks > 0 {
			c.Failure = &junitProblem{Message: count(t.Blocks, "operation was refused", "operations were refused"), Type: "block", Text: r.pathsOf(t.ID)}
		}
		tasks.Cases = append(tasks.Cases, c)
	}
	proof := r.suite("planfence.run")
	problems := map[string]*Finding{}
	for i := range r.Findings {
		problems[r.Findings[i].ID] = &r.Findings[i]
	}
	for _, p := range []struct {
		name string
		ids  []string
	}{
		{"the log is complete", []string{"log-missing", "log-damaged", "no-session", "no-beginning", "totals-differ"}},
		{"no record is lost", []string{"lost-records"}},
		{"the fence held throughout", []string{"skipped", "no-end"}},
		{"git shows nothing changed outside every scope", []string{"changed-outside"}},
	} {
		c := junitCase{Name: p.name, Class: "planfence.run", Time: "0"}
		for _, id := range p.ids {
			f := problems[id]
			if f == nil {
				continue
			}
			x := &junitProblem{Message: clean(f.Text), Type: f.ID}
			if id == "changed-outside" {
				x.Text = r.changesText()
			}
			if f.Verdict == Indeterminate {
				c.Error = x
			} else {
				c.Failure = x
			}
		}
		proof.Cases = append(proof.Cases, c)
	}
	all := junitSuites{Name: "planfence", Time: xmlSeconds(r.Elapsed), Suites: []junitSuite{tasks, proof}}
	for i := range all.Suites {
		s := &all.Suites[i]
		for _, c := range s.Cases {
			s.Tests++
			if c.Failure != nil {
				s.Failures++
			}
			if c.Error != nil {
				s.Errors++
			}
		}
		all.Tests, all.Failures, all.Errors = all.Tests+s.Tests, all.Failures+s.Failures, all.Errors+s.Errors
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (r *Report) suite(name string) junitSuite {
	at := r.From
	if at.IsZero() {
		at = r.Generated
	}
	return junitSuite{Name: name, Time: xmlSeconds(r.Elapsed), Timestamp: at.UTC().Format("2006-01-02T15:04:05"), Hostname: "localhost"}
}

// pathsOf lists the paths that were refused under a task.
func (r *Report) pathsOf(task string) string {
	var b strings.Builder
	for _, p := range r.Paths {
		for _, t := range p.Tasks {
			if t == task || task == "" && t == "" {
				fmt.Fprintf(&b, "%s %s (%s) x%d, owner %s\n", strings.Join(cleanAll(p.Ops), ","), p.Text(), strings.Join(cleanAll(p.Reasons), ","), p.Count+p.Would, none(strings.Join(p.Owners, ",")))
			}
		}
	}
	return b.String()
}

func (r *Report) changesText() string {
	var b strings.Builder
	for i := range r.Git.Changes {
		if c := &r.Git.Changes[i]; c.Outside() && c.During != "" {
			fmt.Fprintf(&b, "%s %s\n", clean(c.Status), clean(c.Rel))
		}
	}
	return b.String()
}

func xmlSeconds(s Seconds) string {
	return fmt.Sprintf("%.3f", max(0, time.Duration(s).Seconds()))
}
