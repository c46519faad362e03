//go:build !vm

package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
)

// attackNames are the names of the bypass suite's attacks, from its sources:
// this test is to run where the suite is not compiled.
func attackNames(t *testing.T) (attacks, tests map[string]bool) {
	t.Helper()
	attacks, tests = map[string]bool{}, map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`(&attack)?(?:\{name: |\b(?:same|opens|call|socket)\()"([a-z0-9-]+)"`)
	ring := regexp.MustCompile(`\{"([a-z]+)", func\(u \*uring`)
	fn := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fn.FindAllStringSubmatch(string(b), -1) {
			tests[m[1]] = true
		}
		if !strings.HasPrefix(f, "bypass_") {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(string(b), -1) {
			if m[1] == "" && !strings.HasSuffix(m[2], "-") { // neither a site of its own nor a prefix
				attacks[m[2]] = true
			}
		}
		for _, m := range ring.FindAllStringSubmatch(string(b), -1) {
			attacks["uring-"+m[1]] = true
		}
	}
	return attacks, tests
}

// TestBypassTable: every row of SECURITY.md names tests that exist, and every
// test of the bypass suite has a row.
func TestBypassTable(t *testing.T) {
	b, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	attacks, tests := attackNames(t)
	if len(attacks) < 100 || len(tests) < 10 {
		t.Fatalf("%d attacks and %d tests were found: the sources have changed their form", len(attacks), len(tests))
	}
	named := map[string]bool{}
	ref := regexp.MustCompile("`(Test\\w+)(?:/([a-z0-9-]+)\\*?)?`")
	rows := 0
	for _, line := range strings.Split(string(b), "\n") {
		refs := ref.FindAllStringSubmatch(line, -1)
		for _, m := range refs {
			if !tests[m[1]] {
				t.Errorf("there is no %s: %s", m[1], line)
			}
			if m[2] != "" && !attacks[m[2]] {
				t.Errorf("there is no attack %s: %s", m[2], line)
			}
			named[m[1]], named[m[2]] = true, true
		}
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(line, "|---") || strings.HasPrefix(cells[1], " **") || strings.HasPrefix(line, "| operation") {
			continue
		}
		if rows++; len(refs) == 0 {
			t.Errorf("a row without a test: %s", line)
		}
	}
	if rows < 30 {
		t.Errorf("%d rows were found", rows)
	}
	var missing []string
	for a := range attacks {
		if !named[a] {
			missing = append(missing, a)
		}
	}
	for f := range tests {
		if strings.HasPrefix(f, "TestBypass") && f != "TestBypassTable" && !named[f] {
			missing = append(missing, f)
		}
	}
	sort.Strings(missing)
	if len(missing) > 0 {
		t.Errorf("not in the table: %s", strings.Join(missing, ", "))
	}
}
