package report

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"planfence/cmd/planfence/internal/blocklog"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) string {
	return blocklog.Stamp(t0.Add(time.Duration(seconds * float64(time.Second))))
}

func begin(task string) *blocklog.Record {
	return &blocklog.Record{Time: at(0), Kind: "session-start", Session: "s-1", Task: task, Root: "/p", Mode: "enforce", Command: []string{"agent"}}
}

func end(second float64, blocks, lost uint64) *blocklog.Record {
	code := 0
	return &blocklog.Record{Time: at(second), Kind: "session-end", Session: "s-1", Blocks: blocks, Lost: lost, Exit: &code}
}

func block(second float64, task, rel string, n uint64) *blocklog.Record {
	r := &blocklog.Record{Time: at(second), Kind: "block", Session: "s-1", Task: task, Verdict: "block", Op: "open", Reason: "scope", Comm: "sh", Count: n}
	blocklog.SetPath(&r.Path, &r.PathBytes, "/p/"+rel)
	r.Rel = strings.TrimPrefix(r.Path, "/p/")
	return r
}

func note(second float64, kind, task string) *blocklog.Record {
	return &blocklog.Record{Time: at(second), Kind: kind, Session: "s-1", Task: task, Message: kind}
}

func build(in Input, records ...*blocklog.Record) *Report {
	in.Now = t0.Add(time.Hour)
	b := NewBuilder(in)
	for _, r := range records {
		b.Add(r)
	}
	return b.Finish(in)
}

func TestVerdict(t *testing.T) {
	audit := begin("T1")
	audit.Mode = "audit"
	would := block(1, "T1", "b", 1)
	would.Verdict = "would-block"
	lost := note(2, "lost", "T1")
	lost.Lost = 5
	skipped := end(9, 0, 0)
	skipped.Misses = 1
	closed := begin("")
	closed.Idle = "closed"
	change := func(second float64, c Change) Input {
		c.When = t0.Add(time.Duration(second * float64(time.Second)))
		return Input{Git: &Git{Changes: []Change{c}}}
	}
	for _, c := range []struct {
		name    string
		in      Input
		records []*blocklog.Record
		verdict Verdict
		ids     string
	}{
		{"nothing refused", Input{}, []*blocklog.Record{begin("T1"), end(9, 0, 0)}, OK, ""},
		{"refused", Input{}, []*blocklog.Record{begin("T1"), block(1, "T1", "b", 3), end(9, 3, 0)}, Block, "blocked"},
		{"audited", Input{}, []*blocklog.Record{audit, would, end(9, 0, 0)}, Warn, "would-block"},
		{"audited, nothing seen", Input{}, []*blocklog.Record{audit, end(9, 0, 0)}, Warn, "audited"},
		{"lost and refused", Input{}, []*blocklog.Record{begin("T1"), block(1, "T1", "b", 3), lost, end(9, 8, 5)}, Indeterminate, "lost-records blocked"},
		{"lost, told at the end only", Input{}, []*blocklog.Record{begin("T1"), end(9, 0, 2)}, Indeterminate, "lost-records"},
		{"totals differ", Input{}, []*blocklog.Record{begin("T1"), block(1, "T1", "b", 1), end(9, 2, 0)}, Indeterminate, "totals-differ blocked"},
		{"no log", Input{Missing: errors.New("gone")}, nil, Indeterminate, "log-missing"},
		{"empty log", Input{}, nil, Indeterminate, "no-session"},
		{"damaged log", Input{BadLines: 1}, []*blocklog.Record{begin("T1"), end(9, 0, 0)}, Indeterminate, "log-damaged"},
		{"a record without a time", Input{}, []*blocklog.Record{begin("T1"), {Kind: "block", Session: "s-1"}, end(9, 0, 0)}, Indeterminate, "log-damaged"},
		{"no beginning", Input{}, []*blocklog.Record{note(1, "task", "T1"), end(9, 0, 0)}, Indeterminate, "no-beginning"},
		{"no end", Input{}, []*blocklog.Record{begin("T1")}, Indeterminate, "no-end"},
		{"runs", Input{Alive: func(s string) bool { return s == "s-1" }}, []*blocklog.Record{begin("T1")}, OK, ""},
		{"skipped programs", Input{}, []*blocklog.Record{begin("T1"), skipped}, Indeterminate, "skipped"},
		{"bad plan", Input{}, []*blocklog.Record{begin("T1"), note(3, "sync-error", "T1"), note(5, "plan", "T1"), end(9, 0, 0)}, Warn, "stale"},
		{"idle", Input{}, []*blocklog.Record{begin(""), note(4, "task", "T1"), end(9, 0, 0)}, Warn, "idle"},
		{"idle but closed", Input{}, []*blocklog.Record{closed, end(9, 0, 0)}, OK, ""},
		{"the companion died", Input{}, []*blocklog.Record{begin("T1"), note(3, "companion", "T1"), end(9, 0, 0)}, OK, ""},
		{"changed outside, before", change(-5, Change{Rel: "x"}), []*blocklog.Record{begin("T1"), end(9, 0, 0)}, Warn, "changed-outside-else"},
		{"changed outside, during", change(5, Change{Rel: "x"}), []*blocklog.Record{begin("T1"), end(9, 0, 0)}, Block, "changed-outside"},
		{"changed outside, while idle", change(2, Change{Rel: "x"}), []*blocklog.Record{begin(""), note(4, "task", "T1"), end(9, 0, 0)}, Warn, "idle changed-outside-else"},
		{"changed in a scope", change(5, Change{Rel: "x", Owners: []string{"T1"}}), []*blocklog.Record{begin("T1"), end(9, 0, 0)}, OK, ""},
		{"the plan changed", change(5, Change{Rel: "x", Own: "plan"}), []*blocklog.Record{begin("T1"), end(9, 0, 0)}, OK, ""},
		{"committed outside", Input{Git: &Git{Commits: []Commit{{Hash: "abc", Time: t0.Add(time.Second), Outside: []string{"x"}}}}}, []*blocklog.Record{begin("T1"), end(9, 0, 0)}, Warn, "committed-outside"},
		{"other sessions do not count", Input{Sessions: []string{"s-2"}}, []*blocklog.Record{begin("T1"), end(9, 0, 1)}, Indeterminate, "no-session"},
		{"before since does not count", Input{Since: t0.Add(4 * time.Second)}, []*blocklog.Record{begin("T1"), block(1, "T1", "b", 3), end(9, 3, 0)}, OK, ""},
	} {
		r := build(c.in, c.records...)
		var ids []string
		for _, f := range r.Findings {
			ids = append(ids, f.ID)
		}
		if r.Verdict != c.verdict || strings.Join(ids, " ") != c.ids {
			t.Errorf("%s: %s %v, want %s %s", c.name, r.Verdict, ids, c.verdict, c.ids)
		}
	}
	for v, code := range map[Verdict]int{OK: 0, Warn: 0, Block: 1, Indeterminate: 3, "": 3} {
		if v.Exit() != code {
			t.Errorf("verdict %q exits %d, want %d", v, v.Exit(), code)
		}
	}
}

func TestMeasure(t *testing.T) {
	r := build(Input{
		Titles: map[string]string{"T2": "two"}, Owners: func(rel string) []string { return map[string][]string{"b": {"T2"}}[rel] },
		Git: &Git{Commits: []Commit{{Hash: "1", Time: t0.Add(25 * time.Second)}, {Hash: "2", Time: t0.Add(time.Minute)}}},
	}, begin("T1"), block(1, "T1", "b", 3), block(2, "T1", "c", 1), note(10, "task", "T2"), block(12, "T2", "c", 4),
		note(20, "task", "T1"), note(22, "task", "T2"), end(30, 8, 0))
	var got []string
	for _, x := range r.Tasks {
		got = append(got, x.ID+" "+x.Title+" "+x.Elapsed.String()+" "+count(x.Blocks, "block", "blocks")+" "+count(uint64(x.Commits), "commit", "commits"))
	}
	// The second commit was made in no session.
	want := "T1  12s 4 blocks 0 commits; T2 two 18s 4 blocks 1 commit"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("tasks: %s\nwant   %s", s, want)
	}
	if r.Elapsed != Seconds(30*time.Second) || r.Unfenced == nil || *r.Unfenced != 0 {
		t.Errorf("elapsed %v, unfenced %v", r.Elapsed, r.UnfencedText())
	}
	if len(r.Paths) != 2 || r.Paths[0].Rel != "c" || r.Paths[0].Count != 5 || !slices.Equal(r.Paths[0].Tasks, []string{"T1", "T2"}) ||
		!slices.Equal(r.Paths[1].Owners, []string{"T2"}) {
		t.Errorf("paths: %+v", r.Paths)
	}
	if len(r.Totals) != 2 || r.Totals[0].Count != 4 {
		t.Errorf("totals: %+v", r.Totals)
	}
}

// hostile are names that would do something in one of the formats.
var hostile = []string{
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "\x1b]0;title\x07\x1b[31mred", "a\u202egnp.exe", "c1\u009b31m",
	"new\nline\r\t", "::error::x", "a%0A::warning::b", "caf\xe9\xff", "]]>&amp;", "{{.Verdict}}", "| a | `b` |", "\u2028\u2029\ufeff\u200b", "javascript:alert(1)", "c:d,e",
	"\U000e0041tag", "' onmouseover='x", "\\x41", "@somebody #1",
}

func hostileReport() *Report {
	start := begin("T1")
	start.Command = slices.Clone(hostile)
	for i, c := range start.Command {
		start.Command[i] = strings.ToValidUTF8(c, "?")
	}
	start.User, start.Root = "<b>\x1b[1m", "/p"
	records := []*blocklog.Record{start}
	git := &Git{}
	for _, n := range hostile {
		b := block(1, "T1", n, 1)
		b.Comm, b.Owner = strings.ToValidUTF8(n, "?"), []string{"<i>\u202e"}
		records = append(records, b)
		c := Change{Status: "??", When: t0.Add(5 * time.Second)}
		blocklog.SetPath(&c.Rel, &c.Bytes, n)
		git.Changes = append(git.Changes, c)
		git.Commits = append(git.Commits, Commit{Hash: strings.Repeat("a", 40), Time: t0.Add(time.Second), Subject: strings.ToValidUTF8(n, "?"), Outside: []string{c.Rel}})
		m := note(2, "sync-error", "T1")
		m.Message = strings.ToValidUTF8(n, "?")
		records = append(records, m)
	}
	records = append(records, end(9, uint64(len(hostile)), 0))
	// As they come out of a log file.
	for i, r := range records {
		line, err := r.Marshal()
		if err != nil {
			panic(err)
		}
		if records[i], err = blocklog.Parse(line); err != nil {
			panic(err)
		}
	}
	return build(Input{Log: "/p/\x1b[31m.log", Version: "v1", Titles: map[string]string{"T1": "</title><script>"}, Git: git}, records...)
}

// TestHostile: no format lets a name do anything.
func TestHostile(t *testing.T) {
	r := hostileReport()
	for name, render := range map[string]func(io.Writer) error{
		"text": func(w io.Writer) error { return r.Text(w, false) }, "json": r.JSON, "junit": r.JUnit, "sarif": r.SARIF, "github": r.GitHub, "html": r.HTML, "markdown": r.Markdown,
	} {
		var b bytes.Buffer
		if err := render(&b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !utf8.Valid(b.Bytes()) {
			t.Errorf("%s is no UTF-8", name)
		}
		for _, c := range b.String() {
			if c != '\n' && (unicode.Is(unicode.C, c) || unicode.Is(unicode.Zl, c) || unicode.Is(unicode.Zp, c)) {
				t.Errorf("%s has a character U+%04X", name, c)
				break
			}
		}
		for _, bad := range map[string][]string{
			"html": {"<script", "<img", "<i>", "<b>\\", "onmouseover='"}, "markdown": {"<script", "<img", "| `b`", "@somebody"},
			"github": {"\n::error::x", "\n::warning::b"}, "junit": {"<script", "<img"},
		}[name] {
			if strings.Contains(b.String(), bad) {
				t.Errorf("%s has %q", name, bad)
			}
		}
		if name == "github" {
			for _, line := range strings.Split(strings.TrimSpace(b.String()), "\n") {
				if !strings.HasPrefix(line, "::error ") && !strings.HasPrefix(line, "::warning ") && !strings.HasPrefix(line, "::notice ") {
					t.Errorf("github has the line %q", line)
				}
			}
		}
	}
}

// TestLossless: programs get every byte of a name back.
func TestLossless(t *testing.T) {
	r := hostileReport()
	var b bytes.Buffer
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Paths []struct {
			Path  string
			Bytes string `json:"path_bytes"`
		}
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, p := range back.Paths {
		name := p.Path
		if p.Bytes != "" {
			exact, err := base64.StdEncoding.DecodeString(p.Bytes)
			if err != nil {
				t.Error(err)
			}
			name = string(exact)
		}
		got[name] = true
	}
	b.Reset()
	if err := r.SARIF(&b); err != nil {
		t.Fatal(err)
	}
	uris := map[string]bool{}
	for _, res := range sarifResults(t, b.Bytes()) {
		u, err := url.PathUnescape(res.Locations[0].PhysicalLocation.ArtifactLocation.URI)
		if err != nil {
			t.Error(err)
		}
		uris[u] = true
	}
	for _, n := range hostile {
		if !got["/p/"+n] {
			t.Errorf("json does not have %q", n)
		}
		if !uris[n] {
			t.Errorf("sarif does not have %q: %v", n, uris)
		}
	}
}

type sarifResult struct {
	RuleID    string
	RuleIndex int
	Level     string
	Message   struct{ Text string }
	Locations []struct {
		PhysicalLocation struct {
			ArtifactLocation struct{ URI, URIBaseID string }
		}
	}
}

func sarifResults(t *testing.T, b []byte) []sarifResult {
	t.Helper()
	var doc struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []sarifResult
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Version != "2.1.0" || len(doc.Runs) != 1 {
		t.Fatalf("version %s, %d runs", doc.Version, len(doc.Runs))
	}
	run := doc.Runs[0]
	for _, r := range run.Results {
		if r.RuleIndex >= len(run.Tool.Driver.Rules) || run.Tool.Driver.Rules[r.RuleIndex].ID != r.RuleID || r.Message.Text == "" || r.Level == "" {
			t.Errorf("result %+v does not fit the rules", r)
		}
		for _, l := range r.Locations {
			if _, err := url.Parse(l.PhysicalLocation.ArtifactLocation.URI); err != nil {
				t.Errorf("location: %v", err)
			}
		}
	}
	return run.Results
}

func TestJUnit(t *testing.T) {
	lost := note(2, "lost", "T1")
	lost.Lost = 5
	r := build(Input{}, begin("T1"), block(1, "T1", "b", 2), note(3, "task", "T2"), lost, end(9, 7, 5))
	var b bytes.Buffer
	if err := r.JUnit(&b); err != nil {
		t.Fatal(err)
	}
	var back junitSuites
	if err := xml.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Tests != 6 || back.Failures != 1 || back.Errors != 1 || len(back.Suites) != 2 {
		t.Errorf("%d tests, %d failures, %d errors in %d suites", back.Tests, back.Failures, back.Errors, len(back.Suites))
	}
	if c := back.Suites[0].Cases[0]; c.Failure == nil || !strings.Contains(c.Failure.Text, "open b (scope) x2") {
		t.Errorf("case %+v", c)
	}
	if c := back.Suites[0].Cases[1]; c.Failure != nil {
		t.Errorf("task T2 fails: %+v", c.Failure)
	}
}

func TestManyPaths(t *testing.T) {
	records := []*blocklog.Record{begin("T1")}
	for i := range maxPaths + 7 {
		records = append(records, block(1, "T1", "f"+strings.Repeat("x", i%50)+string(rune('a'+i%26))+at(float64(i)), 1))
	}
	r := build(Input{}, append(records, end(9, maxPaths+7, 0))...)
	if len(r.Paths) != maxPaths || r.Truncated != 7 || r.Blocks != maxPaths+7 {
		t.Errorf("%d paths, %d not listed, %d blocks", len(r.Paths), r.Truncated, r.Blocks)
	}
}
