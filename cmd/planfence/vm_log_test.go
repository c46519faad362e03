//go:build vm

package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"planfence/cmd/planfence/internal/blocklog"
)

// blockLog is a session's log, read after its end.
type blockLog struct {
	start, end *blocklog.Record
	blocks     []*blockRecord
	others     []*blocklog.Record // task, plan, sync-error, lost
}

// blockRecord is a refusal; taken is set when an act has accounted for it.
type blockRecord struct {
	*blocklog.Record
	taken bool
}

func readLog(t *testing.T, path string) *blockLog {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	l := &blockLog{}
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if !utf8.Valid(sc.Bytes()) {
			t.Errorf("a record is no UTF-8: %q", sc.Bytes())
		}
		var r blocklog.Record
		d := json.NewDecoder(bytes.NewReader(sc.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&r); err != nil {
			t.Errorf("record %q: %v", sc.Text(), err)
			continue
		}
		switch r.Kind {
		case "block":
			l.blocks = append(l.blocks, &blockRecord{Record: &r})
		case "session-start":
			l.start = &r
		case "session-end":
			l.end = &r
		default:
			l.others = append(l.others, &r)
		}
	}
	must(t, sc.Err())
	if l.start == nil || l.end == nil {
		t.Fatalf("log %s: no beginning or no end", path)
	}
	return l
}

// checkTotals compares what the session says of itself at its end with its records.
func (l *blockLog) checkTotals(t *testing.T, verdict string) {
	t.Helper()
	var n, last uint64
	for _, r := range l.blocks {
		n += r.Count
		if r.Seq <= last {
			t.Errorf("record %d after %d", r.Seq, last)
		}
		last = r.Seq
	}
	if verdict != "block" {
		n = 0
	}
	if l.end.Blocks != n {
		t.Errorf("session-end tells %d blocks, the records %d", l.end.Blocks, n)
	}
	if l.end.Lost != 0 || l.end.Misses != 0 {
		t.Errorf("session-end tells %d lost records, %d skipped programs", l.end.Lost, l.end.Misses)
	}
	for _, r := range l.others {
		t.Errorf("a record of kind %s: %s", r.Kind, r.Message)
	}
}

// checkCold checks that the acts with cold caches met none that were warm: there
// the fence tells a refusal first and takes it back later, which leaves gaps in
// the numbering: one for cold-creat and cold-link each, two for the others but
// cold-new.
func (l *blockLog) checkCold() error {
	if n := len(l.blocks); n == 0 || l.blocks[n-1].Seq < uint64(n)+6 {
		return fmt.Errorf("%d records, fewer than 6 gaps in their numbering", n)
	}
	return nil
}

// expectation is what every record of one session has in common.
type expectation struct {
	root, verdict string
	uid           uint32
	from, to      time.Time
	driver        string // path of the driver's executable
}

// matchAll takes the records that an act must have left.
func (l *blockLog) matchAll(e *expectation, a *act, p place, r actResult, audit bool) error {
	list := a.want
	if audit && a.audit != nil {
		list = a.audit
	}
	for _, w := range list {
		if err := l.match(e, a, p, w, r); err != nil {
			return err
		}
	}
	return nil
}

// match finds the record that w asks for, checks every field, and takes it.
func (l *blockLog) match(e *expectation, a *act, p place, w want, r actResult) error {
	path, path2 := p.fill(w.path, a), p.fill(w.path2, a)
	reason := w.reason
	if reason == "" {
		reason = "scope"
	}
	var rec *blockRecord
	for _, c := range l.blocks {
		if !c.taken && c.Op == w.op && same(exact(c.Path, c.PathBytes), path) && exact(c.Path2, c.Path2Bytes) == path2 && c.PID == r.PID {
			rec = c
			break
		}
	}
	if rec == nil {
		return fmt.Errorf("no record %s %q %q of process %d; there are: %s", w.op, path, path2, r.PID, l.near(path, path2))
	}
	rec.taken = true
	var wrong []string
	check := func(name string, got, want any) {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			wrong = append(wrong, fmt.Sprintf("%s is %v, want %v", name, got, want))
		}
	}
	check("reason", rec.Reason, reason)
	check("count", rec.Count, 1)
	check("verdict", rec.Verdict, e.verdict)
	check("errno", rec.Errno, map[string]string{"block": "EACCES"}[e.verdict])
	check("task", rec.Task, "T1")
	check("generation", rec.Generation, 1)
	check("session", rec.Session, l.start.Session)
	check("uid", *rec.UID, e.uid)
	check("ppid", rec.PPID, r.PPID)
	check("nspid", rec.NSPID, r.PID)
	exe := e.driver
	if argv := append(slices.Clip(a.argv), a.batch...); len(argv) > 0 {
		exe = resolved(argv[0])
	}
	check("exe", rec.Exe, exe)
	if a.batch == nil { // an interpreter names its threads as it likes
		check("comm", rec.Comm, comm(a, e))
	}
	for _, x := range []struct{ name, path, got, gotBytes, rel string }{
		{"path", exact(rec.Path, rec.PathBytes), rec.Path, rec.PathBytes, rec.Rel}, {"path2", path2, rec.Path2, rec.Path2Bytes, rec.Rel2},
	} {
		var text, bytes string
		blocklog.SetPath(&text, &bytes, x.path)
		check(x.name, x.got, text)
		check(x.name+"_bytes", x.gotBytes, bytes)
		check("rel of "+x.name, x.rel, strings.TrimPrefix(text, e.root+"/"))
	}
	judged := path
	if !strings.HasPrefix(path, e.root+"/out/") && path2 != "" {
		judged = path2
	}
	owner := a.owner
	if owner == nil && strings.HasPrefix(judged, e.root+"/out/") {
		owner = []string{"T2", "T3"} // see planText
	}
	check("owner", rec.Owner, owner)
	at, err := time.Parse(time.RFC3339Nano, rec.Time)
	if err != nil || at.Before(e.from) || at.After(e.to) {
		wrong = append(wrong, fmt.Sprintf("time is %s, want one from %v to %v", rec.Time, e.from, e.to))
	}
	if wrong != nil {
		return fmt.Errorf("record %s %q: %s", w.op, path, strings.Join(wrong, "; "))
	}
	return nil
}

func same(got, want string) bool {
	if begin, ok := strings.CutSuffix(want, "*"); ok {
		return strings.HasPrefix(got, begin)
	}
	return got == want
}

// exact undoes the log's escape of names that are no UTF-8.
func exact(text, bytes string) string {
	if bytes == "" {
		return text
	}
	b, err := base64.StdEncoding.DecodeString(bytes)
	if err != nil {
		return fmt.Sprintf("(not base64: %s)", bytes)
	}
	return string(b)
}

// near lists the records that may have been meant: those of the same directory.
func (l *blockLog) near(paths ...string) string {
	var out []string
	for _, r := range l.blocks {
		for _, p := range paths {
			if d := filepath.Dir(p); p != "" && !r.taken && (filepath.Dir(r.Path) == d || filepath.Dir(r.Path2) == d) {
				out = append(out, r.show())
				break
			}
		}
	}
	return strings.Join(out, ", ")
}

func (r *blockRecord) show() string {
	return fmt.Sprintf("[seq %d %s %q %q %s x%d by %s %d]", r.Seq, r.Op, r.Path, r.Path2, r.Reason, r.Count, r.Comm, r.PID)
}

func comm(a *act, e *expectation) string {
	name := filepath.Base(e.driver)
	if a.argv != nil {
		name = a.argv[0]
	}
	return name[:min(len(name), 15)] // TASK_COMM_LEN less the final NUL
}

func resolved(name string) string {
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return err.Error()
	}
	return path
}
