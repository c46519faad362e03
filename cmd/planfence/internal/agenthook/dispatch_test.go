package agenthook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const head = "ALLOWED-SCOPE: /etc\nIMPLICIT DENY\n"

func TestReviewIsAskedFor(t *testing.T) {
	for prompt, want := range map[string]bool{
		// asked
		"Look at it.\nVERDICT: PASS or FAIL":                         true,
		"Verdict: PASS | FAIL, with a reason":                        true,
		"**VERDICT:** one word":                                      true,
		"Give a verdict.":                                            true,
		"Read the diff. Then return a verdict on each file.":         true,
		"1. Read\n2. Report a single verdict at the end":             true,
		"Please end with a verdict: ship it or not.":                 true,
		"State your verdict first.":                                  true,
		"What is your final verdict?":                                true,
		"REVIEW-APERTURE: the whole change":                          true,
		"- REVIEW-APERTURE: the whole change":                        true,
		"FINAL VERDICT: <accept or reject>, and why in one sentence": true,
		// not asked
		"Rework the preview of reviewers, then review nothing.":   false,
		"Add the review page, fix the reviews table.":             false,
		"Implement the verdict field of records.":                 false,
		"Make judge() return a verdict struct.":                   false,
		"Return a verdict from the hook, as the spec has it.":     false,
		"The kernel gives a verdict for each path.":               false,
		`Write {"verdict": "block"} to the log.`:                  false,
		"  verdict: block\n  op: open":                            false,
		"  Verdict: \"block\",":                                   false,
		"Mention REVIEW-APERTURE: in the docs, in passing.":       false,
		"PREREVIEW-APERTURE: no":                                  false,
		"Rename verdicts.go; the verdict is printed by report.":   false,
		"Report a verdict column in the table.":                   false,
		"We will give a verdict later, this is only about typing": false,
	} {
		if got := (&Gate{}).Judge(head + prompt).Review; got != want {
			t.Errorf("review %v, want %v: %q", got, want, prompt)
		}
	}
}

func TestDirectives(t *testing.T) {
	for prompt, want := range map[string]int{
		"REVIEW-APERTURE: the change as a whole":                                                0,
		"REVIEW-APERTURE:\n- names\n- tests":                                                    2,
		"REVIEW-APERTURE:\n1. names\n2. tests\n3) docs":                                         3,
		"REVIEW-APERTURE:\n\na) names\nb) tests\n\n(c) docs":                                    3,
		"REVIEW-APERTURE: look at\n* names\n  - of functions\n  - of files\n* tests":            2,
		"REVIEW-APERTURE: 1. names 2. tests 3. docs":                                            3,
		"REVIEW-APERTURE: (a) names (b) tests":                                                  2,
		"REVIEW-APERTURE:\n- names\n  that are\n  long\n- tests\n\nAnd now the rest:\n- x\n- y": 2,
		"REVIEW-APERTURE:\n- names\nOUTPUT:\n- one\n- two\n- three":                             1,
		"REVIEW-APERTURE:\n- names\n## Output\n- one\n- two\n- three":                           1,
		"REVIEW-APERTURE: the change\r\n1. names\r\n2. tests\r\n3. docs\r\n":                    3,
		"REVIEW-APERTURE: version 1.2 of it, e.g. the parser":                                   0,
	} {
		o := (&Gate{}).Judge(head + prompt)
		tooMany := strings.Contains(strings.Join(o.Missing, "\n"), "check directives")
		if tooMany != (want > 2) {
			t.Errorf("%d directives, missing %q: %q", want, o.Missing, prompt)
		}
		m := apertureLine.FindStringSubmatchIndex(strings.ReplaceAll(prompt, "\r\n", "\n"))
		if p := strings.ReplaceAll(prompt, "\r\n", "\n"); directives(p[m[2]:m[3]], strings.TrimPrefix(p[m[1]:], "\n")) != want {
			t.Errorf("not %d directives: %q", want, prompt)
		}
	}
}

func TestScopeOfDispatch(t *testing.T) {
	tmp, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, root := filepath.Join(tmp, "home/ann"), filepath.Join(tmp, "work/project")
	for _, dir := range []string{home, filepath.Join(root, "src"), filepath.Join(root, "with space")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(home, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "a.js"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	g := &Gate{Project: root, Homes: []string{home}}
	for line, want := range map[string]string{ // "" passes, else a part of what is missing
		"ALLOWED-SCOPE: @r/src":                   "",
		"ALLOWED-SCOPE: @r/src/":                  "",
		"ALLOWED-SCOPE: @r/src/**":                "",
		"**ALLOWED-SCOPE:** `@r/src`":             "",
		"- ALLOWED-SCOPE: @r/src, @r/a.js":        "",
		"ALLOWED-SCOPE: @r/with space":            "",
		"ALLOWED-SCOPE: @r":                       "", // the whole project may be meant
		"ALLOWED-SCOPE: @t/work":                  "holds the whole project",
		"ALLOWED-SCOPE: @t":                       "home directory",
		"ALLOWED-SCOPE: @t/home/ann":              "home directory",
		"ALLOWED-SCOPE: @t/home":                  "home directory",
		"ALLOWED-SCOPE: @r/link":                  "home directory",
		"ALLOWED-SCOPE: @r/src/../..":             "holds the whole project",
		"ALLOWED-SCOPE: /":                        "root of the file system",
		"ALLOWED-SCOPE: /**":                      "root of the file system",
		"ALLOWED-SCOPE: //":                       "root of the file system",
		"ALLOWED-SCOPE: src":                      "not absolute",
		"ALLOWED-SCOPE: ~/src":                    "not absolute",
		"ALLOWED-SCOPE: @r/nowhere":               "does not exist",
		"ALLOWED-SCOPE: @r/src, /":                "root of the file system",
		"ALLOWED-SCOPE:":                          "an absolute path on the line",
		"the line ALLOWED-SCOPE: @r/src":          "a line ALLOWED-SCOPE:",
		"allowed-scope: @r/src":                   "a line ALLOWED-SCOPE:",
		"ALLOWED-SCOPE: @r/src\nALLOWED-SCOPE: /": "root of the file system",
	} {
		text := strings.NewReplacer("@r", root, "@t", tmp).Replace(line)
		o := g.Judge("do it\n" + text + "\nIMPLICIT DENY: all else")
		switch missing := strings.Join(o.Missing, "\n"); {
		case want == "" && missing != "":
			t.Errorf("%q: %s", line, missing)
		case want != "" && !strings.Contains(missing, want):
			t.Errorf("%q: missing %q, want %q", line, missing, want)
		}
	}
	for _, text := range []string{"implicit deny", "IMPLICIT-DENY", "IMPLICIT\nDENY"} {
		if o := g.Judge("ALLOWED-SCOPE: " + root + "\n" + text); len(o.Missing) != 1 {
			t.Errorf("%q passes for IMPLICIT DENY: %q", text, o.Missing)
		}
	}
	for _, review := range []bool{false, true} {
		if o := g.Judge(g.Template(review)); len(o.Missing) > 0 || o.Review != review {
			t.Errorf("the template does not pass: %q, review %v", o.Missing, o.Review)
		}
	}
}
