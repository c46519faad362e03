package blocklog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Parse reads one line. A line that is no record is an error.
func Parse(line []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, fmt.Errorf("parse record: %w", err)
	}
	if r.Kind == "" {
		return nil, errors.New("parse record: it has no kind")
	}
	return &r, nil
}

// Bounds of what is read.
const (
	maxRotated = 9        // PATH.1 to PATH.9
	maxLine    = 16 << 20 // bytes; a longer line is no record
)

// torn is how long the end of a log may be a line that is still being written.
const torn = 300 * time.Millisecond

// ReadAll calls f for each record of a log, oldest first: the rotated files
// PATH.9 … PATH.1 (gzipped or not), then PATH, which may be gzipped as well. bad
// counts lines that are no records, and gzipped files that end too early. A
// missing PATH is an error only if no rotated file is there either.
func ReadAll(path string, f func(*Record)) (bad int, err error) {
	t := tailer{path: path, f: f}
	defer t.close()
	if !t.begin() {
		return 0, fmt.Errorf("read log %s: %w", path, t.err)
	}
	if t.cur != nil {
		for until := time.Now().Add(torn); len(t.cur.rest) > 0 && time.Now().Before(until); {
			time.Sleep(torn / 10) // a writer may be in the middle of a line
			t.cur.drain(t.line)
		}
		t.cur.end(t.line)
	}
	return t.bad, nil
}

// followEvery is how often [Follow] looks for new lines.
const followEvery = 100 * time.Millisecond

// Follow calls f for each record of a log as [ReadAll] does, then caughtUp with
// the number of bad lines, and goes on with what is appended until ctx ends. It
// survives rotation by renaming (every file between is read) and by truncation,
// and waits for a log that is not there.
func Follow(ctx context.Context, path string, f func(*Record), caughtUp func(bad int)) {
	t := tailer{path: path, f: f}
	defer t.close()
	t.begin()
	caughtUp(t.bad)
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t.look()
	}
}

// tailer reads a log through its rotations.
type tailer struct {
	path string
	f    func(*Record)
	bad  int
	err  error         // why PATH could not be opened
	cur  *source       // PATH
	old  *source       // what was PATH before, for a writer that has not noticed yet
	drop time.Time     // when old is let go
	done []os.FileInfo // of files that were read and closed, as they were then
}

func (t *tailer) line(b []byte) {
	if len(bytes.TrimSpace(b)) == 0 {
		return
	}
	if r, err := Parse(b); err == nil {
		t.f(r)
	} else {
		t.bad++
	}
}

func (t *tailer) close() {
	for _, s := range []*source{t.cur, t.old} {
		if s != nil {
			s.file.Close()
		}
	}
	t.cur, t.old = nil, nil
}

// begin reads what is there; false if nothing is.
func (t *tailer) begin() bool {
	// Opened from the newest on: a rotation in between shows a file twice, never not at all.
	cur, err := open(t.path)
	t.err = cause(err)
	all := t.rotated(cur)
	if cur == nil && len(all) == 0 {
		return false
	}
	t.read(all)
	if cur != nil {
		t.cur = cur
		cur.drain(t.line)
	}
	return true
}

func cause(err error) error {
	var pe *fs.PathError
	if errors.Is(err, fs.ErrNotExist) {
		return fs.ErrNotExist
	}
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// rotated opens the rotated files, newest first, but for those that are cur.
func (t *tailer) rotated(cur *source) (all []*source) {
	seen := func(s *source) bool {
		return cur != nil && os.SameFile(s.info, cur.info) || slices.ContainsFunc(all, func(x *source) bool { return os.SameFile(s.info, x.info) })
	}
	for i := 1; i <= maxRotated; i++ {
		name := fmt.Sprintf("%s.%d", t.path, i)
		s, err := open(name)
		if err != nil { // where both are there, the gzipped one is being made
			if s, err = open(name + ".gz"); err != nil {
				continue
			}
		}
		if seen(s) {
			s.file.Close()
			continue
		}
		all = append(all, s)
	}
	return all
}

// read reads files to their end, the last one first, and closes them.
func (t *tailer) read(newestFirst []*source) {
	for _, s := range slices.Backward(newestFirst) {
		s.drain(t.line)
		s.end(t.line)
		t.finish(s)
	}
}

// finish closes a file that has been read.
func (t *tailer) finish(s *source) {
	if st, err := s.file.Stat(); err == nil {
		t.done = append(t.done, st)
		t.done = t.done[max(0, len(t.done)-2*maxRotated):]
	}
	s.file.Close()
}

// wasRead reports whether a file has been read as it is now: its number may have
// gone to another file since, but not with the same times.
func (t *tailer) wasRead(s *source) bool {
	return slices.ContainsFunc(t.done, func(d os.FileInfo) bool {
		return os.SameFile(d, s.info) && d.Size() == s.info.Size() && d.ModTime().Equal(s.info.ModTime())
	})
}

// look reads what has come since the last look.
func (t *tailer) look() {
	if t.old != nil {
		t.old.drain(t.line)
		if time.Now().After(t.drop) {
			t.finish(t.old)
			t.old = nil
		}
	}
	if t.cur == nil {
		if t.cur, _ = open(t.path); t.cur == nil {
			return
		}
	}
	t.cur.drain(t.line)
	byName, err := os.Stat(t.path)
	if err != nil {
		return // renamed, and no new one yet
	}
	if os.SameFile(byName, t.cur.info) {
		if at, err := t.cur.file.Seek(0, io.SeekCurrent); err == nil && at > byName.Size() { // truncated
			_, _ = t.cur.file.Seek(0, io.SeekStart)
			t.cur.rest = nil
			t.cur.drain(t.line)
		}
		return
	}
	next, err := open(t.path)
	if err != nil {
		return
	}
	t.cur.drain(t.line)
	var between []*source
	found := false
	for _, s := range t.rotated(next) {
		if os.SameFile(s.info, t.cur.info) {
			found = true
		}
		if found || t.wasRead(s) || t.old != nil && os.SameFile(s.info, t.old.info) {
			s.file.Close()
		} else {
			between = append(between, s)
		}
	}
	if found {
		t.read(between)
	} else { // the one that was read last is gone or compressed: which came after cannot be told
		for _, s := range between {
			s.file.Close()
		}
	}
	if t.old != nil {
		t.old.drain(t.line)
		t.finish(t.old)
	}
	t.old, t.drop, t.cur = t.cur, time.Now().Add(20*followEvery), next
	t.cur.drain(t.line)
}

// source is one file, cut into lines.
type source struct {
	file *os.File
	info os.FileInfo
	r    io.Reader
	rest []byte // of a line whose end has not been read
	skip bool   // until the end of a line that is too long
	zErr bool   // the gzipped file cannot be read to its end
	buf  []byte
}

// open opens a log for reading. Without waiting, should it be a FIFO.
func open(path string) (*source, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = unix.EISDIR
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	s := &source{file: f, info: st, r: f, buf: make([]byte, 64<<10)}
	var magic [2]byte
	if n, _ := f.ReadAt(magic[:], 0); n == 2 && magic == [2]byte{0x1f, 0x8b} { // RFC 1952
		if z, err := gzip.NewReader(bufio.NewReader(f)); err == nil {
			s.r = z
		} else {
			s.zErr = true
		}
	}
	return s, nil
}

// drain hands over the lines that are there.
func (s *source) drain(line func([]byte)) {
	for {
		n, err := s.r.Read(s.buf)
		for b := s.buf[:n]; len(b) > 0; {
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				if !s.skip {
					s.rest = append(s.rest, b...)
				}
				if len(s.rest) > maxLine {
					s.rest, s.skip = nil, true
				}
				break
			}
			switch {
			case s.skip:
				s.skip = false
				line([]byte("too long"))
			case len(s.rest) > 0:
				line(append(s.rest, b[:i]...))
				s.rest = s.rest[:0]
			default:
				line(b[:i])
			}
			b = b[i+1:]
		}
		if err != nil {
			s.zErr = s.zErr || !errors.Is(err, io.EOF)
		}
		if n == 0 || err != nil {
			return
		}
	}
}

// end hands over what is left without the end of a line.
func (s *source) end(line func([]byte)) {
	if len(s.rest) > 0 || s.skip {
		line(s.rest)
	}
	if s.skip || s.zErr {
		line([]byte("cut short"))
	}
	s.rest, s.skip, s.zErr = nil, false, false
}
