package main

import (
	"bytes"
	"strings"
	"testing"
)

func sample(fenced int64) *Run {
	return &Run{Kernel: "6.12", Date: "2026-01-01", Results: []Result{
		{"open for writing, depth 7", "dir", "off", 1000, "instructions"},
		{"open for writing, depth 7", "dir", "landlock", 3000, "instructions"},
		{"open for writing, depth 7", "dir", "fenced", fenced, "instructions"},
		{"refused open, depth 7", "dir", "fenced", 1600, "instructions"},
		{"companion, resident", "", "fenced", 20 << 20, "bytes"},
	}}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		now  int64
		want string
	}{{1500, ""}, {1400, ""}, {1545, ""}, {1546, "worse: open for writing, depth 7, dir, fenced: 1500 -> 1546 (+3.1 %)"}} {
		bad, seen := compare(sample(1500), sample(c.now))
		if got := strings.Join(bad, "\n"); got != c.want || seen != 2 {
			t.Errorf("%d: %q of %d rows, want %q of 2", c.now, got, seen, c.want)
		}
	}
	fresh := sample(1500)
	fresh.Results = fresh.Results[:2]
	if bad, _ := compare(sample(1500), fresh); len(bad) != 2 || !strings.HasPrefix(bad[0], "missing: ") {
		t.Errorf("missing rows: %q", bad)
	}
}

func TestReport(t *testing.T) {
	var text, svg bytes.Buffer
	writeText(&text, sample(1500))
	for _, want := range []string{"1000", "+500", "+2000", "0.25", "+600", "20.0 MiB"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	writeSVG(&svg, sample(1500))
	if n := strings.Count(svg.String(), "fill=\"#1f6feb\""); n != 3 { // legend and two rows
		t.Errorf("%d bars of the fence", n)
	}
}
