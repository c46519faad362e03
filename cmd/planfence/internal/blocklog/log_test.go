package blocklog

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// dir is a directory whose path has no links.
func dir(t *testing.T) string {
	t.Helper()
	d, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	return d
}

func rec(n int) *Record {
	return &Record{Kind: "block", Session: "s-1", Seq: uint64(n), Path: "/p/" + strings.Repeat("x", n%50)}
}

func lines(from, to int) (b []byte) {
	for i := from; i <= to; i++ {
		line, _ := rec(i).Marshal()
		b = append(b, line...)
	}
	return b
}

func zipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b)
	_ = z.Close()
	return out.Bytes()
}

func readAll(t *testing.T, path string) (seqs []uint64, bad int) {
	t.Helper()
	bad, err := ReadAll(path, func(r *Record) { seqs = append(seqs, r.Seq) })
	must(t, err)
	return seqs, bad
}

func upTo(n uint64) (out []uint64) {
	for i := uint64(1); i <= n; i++ {
		out = append(out, i)
	}
	return out
}

func TestReadRotated(t *testing.T) {
	p := filepath.Join(dir(t), "b.log")
	must(t, os.WriteFile(p+".9.gz", zipped(lines(1, 3)), 0o600))
	must(t, os.WriteFile(p+".2.gz", zipped(lines(4, 6)), 0o600))
	must(t, os.WriteFile(p+".1", lines(7, 8), 0o600))
	must(t, os.WriteFile(p+".1.gz", zipped(lines(7, 8))[:30], 0o600)) // being made
	must(t, os.WriteFile(p, lines(9, 10), 0o600))
	if seqs, bad := readAll(t, p); bad != 0 || !slices.Equal(seqs, upTo(10)) {
		t.Errorf("%v, %d bad", seqs, bad)
	}
	must(t, os.Remove(p))
	if seqs, bad := readAll(t, p); bad != 0 || !slices.Equal(seqs, upTo(8)) {
		t.Errorf("without the newest: %v, %d bad", seqs, bad)
	}
	if seqs, _ := readAll(t, p+".9.gz"); !slices.Equal(seqs, upTo(3)) {
		t.Errorf("a gzipped file by its name: %v", seqs)
	}
	if _, err := ReadAll(p+"x", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

func TestReadDamaged(t *testing.T) {
	p := filepath.Join(dir(t), "b.log")
	for name, c := range map[string]struct {
		data []byte
		good int
		bad  int
	}{
		"no JSON":          {append(lines(1, 2), []byte("what\n{\"kind\":\"\"}\n\n")...), 2, 2},
		"torn end":         {lines(1, 2)[:len(lines(1, 2))-9], 1, 1},
		"no newline":       {bytes.TrimSuffix(lines(1, 2), []byte("\n")), 2, 0},
		"gzip cut short":   {zipped(lines(1, 2000))[:2000], -1, -1},
		"too long a line":  {append(append(lines(1, 1), append(bytes.Repeat([]byte("a"), maxLine+2), '\n')...), lines(2, 2)...), 2, 1},
		"nothing":          {nil, 0, 0},
		"gzip of nothing":  {[]byte{0x1f, 0x8b}, 0, 1},
		"NUL after a hole": {append(make([]byte, 100), lines(1, 1)...), 0, 1},
	} {
		must(t, os.WriteFile(p, c.data, 0o600))
		seqs, bad := readAll(t, p)
		if c.good < 0 {
			if len(seqs) == 0 || bad == 0 {
				t.Errorf("%s: %d records, %d bad", name, len(seqs), bad)
			}
			continue
		}
		if len(seqs) != c.good || bad != c.bad {
			t.Errorf("%s: %d records, %d bad, want %d, %d", name, len(seqs), bad, c.good, c.bad)
		}
	}
}

// TestFollow: while a log is written to, rotated in each way and read, no record
// is missed and none is read twice.
func TestFollow(t *testing.T) {
	p := filepath.Join(dir(t), "b.log")
	must(t, os.WriteFile(p+".1", lines(1, 5), 0o600))
	w, err := Open(p, os.Getuid(), os.Getgid(), 0)
	must(t, err)
	defer w.Close()
	next := 6
	write := func(n int) {
		t.Helper()
		for range n {
			must(t, w.Write(rec(next)))
			next++
		}
	}
	write(5)
	var mu sync.Mutex
	var got []uint64
	var caught int
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Follow(ctx, p, func(r *Record) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, r.Seq)
		}, func(int) {
			mu.Lock()
			defer mu.Unlock()
			caught = len(got)
		})
	}()
	seen := func() {
		t.Helper()
		for range 1000 {
			mu.Lock()
			n := len(got)
			mu.Unlock()
			if n == next-1 {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Fatalf("%d records are seen, want %d", len(got), next-1)
	}
	seen()
	write(5)
	seen()
	// By renaming, as logrotate does; the writer finds out by itself.
	must(t, os.Rename(p+".1", p+".2"))
	must(t, os.Rename(p, p+".1"))
	write(5)
	seen()
	// By renaming and a signal.
	must(t, os.Rename(p, p+".3"))
	must(t, w.Reopen())
	write(5)
	seen()
	// Three times between two looks.
	for range 3 {
		for i := 5; i >= 1; i-- {
			_ = os.Rename(fmt.Sprintf("%s.%d", p, i), fmt.Sprintf("%s.%d", p, i+1))
		}
		must(t, os.Rename(p, p+".1"))
		write(3)
	}
	seen()
	stop()
	<-done
	if slices.Sort(got); !slices.Equal(got, upTo(uint64(next-1))) {
		t.Errorf("%v", got)
	}
	if caught != 10 {
		t.Errorf("%d records were there before, want 10", caught)
	}
}

func TestFollowTruncated(t *testing.T) {
	p := filepath.Join(dir(t), "b.log")
	w, err := Open(p, os.Getuid(), os.Getgid(), 0)
	must(t, err)
	defer w.Close()
	for i := range 20 {
		must(t, w.Write(rec(i+1)))
	}
	got := make(chan uint64, 100)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go Follow(ctx, p, func(r *Record) { got <- r.Seq }, func(int) {})
	for i := range 20 {
		if n := <-got; n != uint64(i+1) {
			t.Fatalf("record %d, want %d", n, i+1)
		}
	}
	must(t, os.Truncate(p, 0))
	must(t, w.Write(rec(21)))
	select {
	case n := <-got:
		if n != 21 {
			t.Errorf("record %d after the truncation, want 21", n)
		}
	case <-time.After(10 * time.Second):
		t.Error("nothing is seen after the truncation")
	}
}

// TestLogMax: the size is capped, the order kept, and two sessions that share a
// log do not rotate it twice.
func TestLogMax(t *testing.T) {
	p := filepath.Join(dir(t), "b.log")
	const size = 2000
	a, err := Open(p, os.Getuid(), os.Getgid(), size)
	must(t, err)
	defer a.Close()
	b, err := Open(p, os.Getuid(), os.Getgid(), size)
	must(t, err)
	defer b.Close()
	const n = 60
	for i := 1; i <= n; i++ {
		w := a
		if i%2 == 0 {
			w = b
		}
		must(t, w.Write(rec(i)))
	}
	seqs, bad := readAll(t, p)
	if bad != 0 || !slices.Equal(seqs, upTo(n)) {
		t.Errorf("%v, %d bad", seqs, bad)
	}
	all, err := filepath.Glob(p + "*")
	must(t, err)
	for _, f := range all {
		st, err := os.Stat(f)
		must(t, err)
		if st.Size() > size+200 {
			t.Errorf("%s has %d bytes", f, st.Size())
		}
		if f != p && st.Size() < size {
			t.Errorf("%s was rotated at %d bytes", f, st.Size())
		}
	}
	if len(all) < 3 {
		t.Errorf("rotated files: %v", all)
	}
	for i := n + 1; i < 500; i++ {
		must(t, a.Write(rec(i)))
	}
	if all, _ = filepath.Glob(p + "*"); len(all) != keep+1 {
		t.Errorf("%d files are kept, want %d", len(all), keep+1)
	}
}

// TestOpen: the log is opened through no link and as nothing but a file.
func TestOpen(t *testing.T) {
	d := dir(t)
	victim := filepath.Join(d, "victim")
	must(t, os.WriteFile(victim, []byte("mine\n"), 0o600))
	must(t, os.Symlink(victim, d+"/link"))
	must(t, os.Symlink(d+"/nothing", d+"/dangling"))
	must(t, unix.Mkfifo(d+"/fifo", 0o600))
	must(t, os.Mkdir(d+"/dir", 0o700))
	must(t, os.WriteFile(d+"/two", nil, 0o600))
	must(t, os.Link(d+"/two", d+"/names"))
	must(t, os.Symlink(d, d+"/way"))
	for name, want := range map[string]string{
		"link": "it is a symbolic link", "dangling": "it is a symbolic link", "fifo": "fifo", "dir": "is a directory",
		"two": "it has 2 hard links", "way/b.log": "there is a symbolic link on the way", "missing/b.log": "no such file",
	} {
		w, err := Open(filepath.Join(d, name), os.Getuid(), os.Getgid(), 0)
		if err == nil {
			w.Close()
			t.Errorf("%s is opened", name)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	// A link that is put there while the log is open.
	p := d + "/b.log"
	w, err := Open(p, os.Getuid(), os.Getgid(), 0)
	must(t, err)
	defer w.Close()
	must(t, w.Write(rec(1)))
	must(t, os.Remove(p))
	must(t, os.Symlink(victim, p))
	if err := w.Write(rec(2)); err == nil {
		t.Error("written through a link")
	}
	if b, _ := os.ReadFile(victim); string(b) != "mine\n" {
		t.Errorf("the file behind the link has %q", b)
	}
	must(t, os.Remove(p))
	must(t, w.Write(rec(3)))
	if seqs, _ := readAll(t, p); !slices.Equal(seqs, []uint64{3}) {
		t.Errorf("after the link was gone: %v", seqs)
	}
}

// TestMarshal: a line is valid JSON, safe on a terminal, and says what it was told.
func TestMarshal(t *testing.T) {
	for _, name := range []string{"/a", "/\x1b[31m\x7f\u009b\u202e\u2028\ufeff\U000e0041", "/caf\xe9", "/<&>\"\\\n"} {
		r := &Record{Kind: "block"}
		SetPath(&r.Path, &r.PathBytes, name)
		b, err := r.Marshal()
		must(t, err)
		for _, c := range string(b[:len(b)-1]) {
			if hidden(c) {
				t.Errorf("%q has U+%04X", b, c)
			}
		}
		back, err := Parse(b)
		must(t, err)
		if back.Path != r.Path || back.PathBytes != r.PathBytes {
			t.Errorf("%q became %q", r.Path, back.Path)
		}
	}
	if b := EscapeJSON([]byte("\"\U000e0041é\"")); string(b) != `"\udb40\udc41é"` || !json.Valid(b) {
		t.Errorf("%s", b)
	}
}

func TestJournalFields(t *testing.T) {
	uid := uint32(0)
	r := &Record{Kind: "block", Session: "s-1", Task: "T1", Op: "open", Path: "/a\nb", UID: &uid, Owner: []string{"T2", "T3"}, Count: 2, Seq: 1 << 60}
	vars, err := r.fields()
	must(t, err)
	for k, want := range map[string]string{
		"SYSLOG_IDENTIFIER": "planfence", "PLANFENCE_KIND": "block", "PLANFENCE_PATH": "/a\nb", "PLANFENCE_UID": "0",
		"PLANFENCE_OWNER": "T2 T3", "PLANFENCE_COUNT": "2", "PLANFENCE_SEQ": fmt.Sprint(uint64(1) << 60),
	} {
		if vars[k] != want {
			t.Errorf("%s is %q, want %q", k, vars[k], want)
		}
	}
	for k := range vars {
		if strings.ToUpper(k) != k || strings.HasPrefix(k, "_") || len(k) > 64 {
			t.Errorf("the journal does not take the name %s", k)
		}
	}
}
