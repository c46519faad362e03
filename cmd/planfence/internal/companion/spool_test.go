package companion

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/policy"
)

type sink []*blocklog.Record

func (s *sink) Write(r *blocklog.Record) error { *s = append(*s, r); return nil }
func (s *sink) Reopen() error                  { return nil }
func (s *sink) Close() error                   { return nil }

func spooling(t *testing.T) (*Companion, *sink, string) {
	t.Helper()
	dir := t.TempDir()
	log := &sink{}
	return &Companion{Config: policy.Config{TempDir: dir}, Log: log, name: "s-1", policy: &policy.Policy{TaskID: "T1"}}, log, dir
}

func TestSpool(t *testing.T) {
	c, log, dir := spooling(t)
	c.takeSpool() // nothing there yet
	for _, path := range []string{"/p/a", "/p/b"} {
		// What the session cannot know or may not say is not believed.
		err := Spool(dir, &blocklog.Record{Kind: "hook", Time: blocklog.Stamp(time.Now().Add(-time.Hour)), Session: "s-2", Task: "T9", Seq: 7,
			Op: "write", Verdict: "block", Path: path, Count: 1000, Lost: 5, Message: "refused"})
		if err != nil {
			t.Fatal(err)
		}
	}
	c.takeSpool()
	if len(*log) != 2 {
		t.Fatalf("%d records", len(*log))
	}
	for i, r := range *log {
		if want := []string{"/p/a", "/p/b"}[i]; r.Path != want || r.Kind != "hook" || r.Via != "hook" || r.Session != "s-1" || r.Task != "T1" ||
			r.Seq != 0 || r.Count != 1 || r.Lost != 0 || r.Op != "write" || r.Message != "refused" {
			t.Errorf("record %d: %+v", i, r)
		}
		if at, err := time.Parse(time.RFC3339Nano, r.Time); err != nil || time.Since(at) > time.Minute {
			t.Errorf("record %d has the time %s", i, r.Time)
		}
	}
	c.takeSpool()
	if len(*log) != 2 {
		t.Errorf("taken twice: %d records", len(*log))
	}
}

// A session may leave anything in its temporary directory.
func TestSpoolHostile(t *testing.T) {
	line := `{"kind":"hook","message":"forged"}`
	for name, make := range map[string]func(dir, spool string) error{
		"no JSON":    func(_, s string) error { return os.WriteFile(s+"/1.json", []byte("{"), 0o600) },
		"not a hook": func(_, s string) error { return os.WriteFile(s+"/1.json", []byte(`{"kind":"session-end"}`), 0o600) },
		"too long": func(_, s string) error {
			return os.WriteFile(s+"/1.json", fmt.Appendf(nil, `{"kind":"hook","message":"%s"}`, strings.Repeat("x", spoolBytes)), 0o600)
		},
		"a FIFO":      func(_, s string) error { return unix.Mkfifo(s+"/1.json", 0o600) },
		"a directory": func(_, s string) error { return os.Mkdir(s+"/1.json", 0o700) },
		"a link to a record": func(d, s string) error {
			if err := os.WriteFile(d+"/r", []byte(line), 0o600); err != nil {
				return err
			}
			return os.Symlink(d+"/r", s+"/1.json")
		},
		"a link to a directory of records": func(d, s string) error {
			other := d + "/other"
			if err := os.Mkdir(other, 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(other+"/1.json", []byte(line), 0o600); err != nil {
				return err
			}
			if err := os.Remove(s); err != nil {
				return err
			}
			return os.Symlink(other, s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, log, dir := spooling(t)
			spool := filepath.Join(dir, spoolName)
			if err := os.Mkdir(spool, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := make(dir, spool); err != nil {
				t.Fatal(err)
			}
			c.takeSpool()
			if len(*log) != 0 {
				t.Errorf("taken: %+v", (*log)[0])
			}
			if name == "a link to a directory of records" {
				if _, err := os.Stat(dir + "/other/1.json"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Run("a temporary directory that is a link", func(t *testing.T) {
		c, log, dir := spooling(t)
		if err := Spool(dir, &blocklog.Record{Kind: "hook"}); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		c.Config.TempDir = link
		c.takeSpool()
		if len(*log) != 0 {
			t.Error("followed")
		}
	})
	t.Run("too many", func(t *testing.T) {
		c, log, dir := spooling(t)
		for range spoolMost + 50 {
			if err := Spool(dir, &blocklog.Record{Kind: "hook"}); err != nil {
				t.Fatal(err)
			}
		}
		c.takeSpool()
		if n := len(*log); n != spoolMost+1 || !strings.Contains((*log)[n-1].Message, "50 records") {
			t.Errorf("%d records, the last: %s", n, (*log)[n-1].Message)
		}
	})
}
