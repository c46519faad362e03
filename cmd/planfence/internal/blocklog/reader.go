package blocklog

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
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

// ReadAll calls f for each record of a log, oldest first: the rotated files
// PATH.5 … PATH.1 (gzipped or not), then PATH. bad counts lines that are no
// records. A missing PATH is an error only if no rotated file is there either.
func ReadAll(path string, f func(*Record)) (bad int, err error) {
	found := false
	for i := keep; i >= 0; i-- {
		name := path
		if i > 0 {
			name = fmt.Sprintf("%s.%d", path, i)
		}
		for _, n := range []string{name + ".gz", name} {
			b, err := readFile(n, f)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return bad, err
			}
			found = true
			bad += b
		}
	}
	if !found {
		return 0, fmt.Errorf("read log %s: %w", path, fs.ErrNotExist)
	}
	return bad, nil
}

func readFile(path string, f func(*Record)) (bad int, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("read log: %w", err)
	}
	defer file.Close()
	var r io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(file)
		if err != nil {
			return 0, fmt.Errorf("read log %s: %w", path, err)
		}
		defer z.Close()
		r = z
	}
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadBytes('\n')
		if len(line) > 1 {
			if rec, perr := Parse(line); perr == nil {
				f(rec)
			} else {
				bad++
			}
		}
		if errors.Is(err, io.EOF) {
			return bad, nil
		}
		if err != nil {
			return bad, fmt.Errorf("read log %s: %w", path, err)
		}
	}
}

// followEvery is how often [Follow] looks for new lines.
const followEvery = 100 * time.Millisecond

// Follow calls f for each record that is appended to the log after it was
// called, until ctx ends. It survives rotation by rename (the old file is read
// to its end first) and by truncation, and waits for a log that is not there.
func Follow(ctx context.Context, path string, f func(*Record)) error {
	var file *os.File
	var rest []byte
	defer func() {
		if file != nil {
			file.Close()
		}
	}()
	open := func(atEnd bool) {
		n, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return
		}
		if atEnd {
			_, _ = n.Seek(0, io.SeekEnd)
		}
		file, rest = n, nil
	}
	open(true)
	buf := make([]byte, 64<<10)
	drain := func() {
		for {
			n, err := file.Read(buf)
			rest = append(rest, buf[:n]...)
			for {
				i := strings.IndexByte(string(rest), '\n')
				if i < 0 {
					break
				}
				if rec, err := Parse(rest[:i]); err == nil {
					f(rec)
				}
				rest = rest[i+1:]
			}
			if n == 0 || err != nil {
				return
			}
		}
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if file != nil {
			drain()
			open2, err := os.Stat(path)
			cur, cerr := file.Stat()
			switch {
			case err != nil || cerr != nil || !os.SameFile(open2, cur):
				if err == nil { // renamed, and a new one is there: what came in between first
					drain()
					file.Close()
					file = nil
					open(false)
				}
			default:
				if at, err := file.Seek(0, io.SeekCurrent); err == nil && at > cur.Size() {
					_, _ = file.Seek(0, io.SeekStart)
					rest = nil
				}
			}
		} else {
			open(false)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
