package agenthook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"planfence/cmd/planfence/internal/blocklog"
)

// Clock keeps when calls began, one small file a call in a directory that the
// agent may write (the session's temporary one). An agent that forges it only
// misleads itself.
type Clock struct{ Dir string }

func (k Clock) file(c *Call) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00", c.Session, c.ID, c.Tool)
	if c.ID == "" {
		cmd, _ := c.input["command"].(string)
		fmt.Fprint(h, cmd)
	}
	return filepath.Join(k.Dir, "hook-"+strconv.FormatUint(h.Sum64(), 16))
}

// Begin notes that a call begins now. Failures are not told: End then falls
// back to what the agent says.
func (k Clock) Begin(c *Call, now time.Time) {
	if os.MkdirAll(k.Dir, 0o700) == nil {
		_ = os.WriteFile(k.file(c), []byte(blocklog.Stamp(now)), 0o600)
	}
}

// End tells when a call began that ends now, and forgets it: as noted by Begin,
// else by how long it took as the agent says, else ten seconds ago.
func (k Clock) End(c *Call, now time.Time) time.Time {
	name := k.file(c)
	b, err := os.ReadFile(name)
	if err == nil {
		_ = os.Remove(name)
		if t, err := time.Parse(time.RFC3339Nano, string(b)); err == nil && t.Before(now) {
			return t
		}
	}
	if c.Took > 0 {
		return now.Add(-c.Took - time.Second)
	}
	return now.Add(-10 * time.Second)
}

// Records are in the log a moment after the refusal: the companion looks every
// 50 ms and holds each for 250 ms to fold bursts. These bounds are measured
// from the end of the call.
const (
	usual   = 450 * time.Millisecond // by then they are there
	atMost  = 3 * time.Second        // wait so long where the call's output speaks of a refusal
	between = 25 * time.Millisecond
)

// A refused program says so, mostly.
var refusedText = regexp.MustCompile(`(?i)permission denied|EACCES|operation not permitted|not permitted|cannot (?:create|open|write|remove)`)

// Await returns the refusals of a planfence session that happened from since
// to now, once the companion had the time to write them down.
func Await(c *Call, log, session string, since, now time.Time) ([]*blocklog.Record, error) {
	told := refusedText.MatchString(c.Output)
	for {
		found, err := refusals(log, session, since, now)
		waited := time.Since(now)
		if err != nil || waited >= atMost || waited >= usual && (len(found) > 0 || !told) {
			return found, err
		}
		time.Sleep(between)
	}
}

// refusals reads the log, and what was rotated away from it while the call ran.
func refusals(log, session string, since, until time.Time) ([]*blocklog.Record, error) {
	var out []*blocklog.Record
	for _, name := range []string{log + ".1", log} {
		st, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && st.ModTime().Before(since.Add(-time.Second)) {
			continue
		}
		var f *os.File
		if err == nil {
			f, err = os.Open(name)
		}
		if err != nil {
			return nil, fmt.Errorf("read the log: %w", err)
		}
		err = lastLines(f, st.Size(), func(line []byte) bool {
			var r blocklog.Record
			if json.Unmarshal(line, &r) != nil {
				return true
			}
			at, err := time.Parse(time.RFC3339Nano, r.Time)
			if err != nil {
				return true
			}
			if r.Last != "" {
				if last, err := time.Parse(time.RFC3339Nano, r.Last); err == nil {
					at = last
				}
			}
			if r.Session == session && r.Kind == "block" && r.Verdict == "block" && r.Via == "" && !at.Before(since) && !at.After(until) {
				out = append(out, &r)
			}
			// Records come nearly in order: a second apart at most.
			return at.After(since.Add(-2 * time.Second))
		})
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read the log: %w", err)
		}
	}
	slices.SortStableFunc(out, func(a, b *blocklog.Record) int { return strings.Compare(a.Time, b.Time) })
	return out, nil
}

// lastLines calls f with the lines of a file from the last one up, until f
// returns false.
func lastLines(r io.ReaderAt, size int64, f func([]byte) bool) error {
	const chunk = 64 << 10
	var tail []byte
	for size > 0 {
		n := min(chunk, size)
		size -= n
		b := make([]byte, n, int(n)+len(tail))
		if _, err := r.ReadAt(b, size); err != nil && err != io.EOF {
			return err
		}
		b = append(b, tail...)
		for {
			i := bytes.LastIndexByte(b, '\n')
			if i < 0 {
				break
			}
			if line := b[i+1:]; len(line) > 0 && !f(line) {
				return nil
			}
			b = b[:i]
		}
		tail = b
	}
	if len(tail) > 0 {
		f(tail)
	}
	return nil
}

// mostNamed is how many paths a paragraph names.
const mostNamed = 10

// Paragraph tells the agent what the kernel refused of its command.
func Paragraph(rs []*blocklog.Record, task string, allowed []string) string {
	var names []string
	total := uint64(0)
	for _, r := range rs {
		total += max(r.Count, 1)
		for _, p := range [][2]string{{r.Rel, r.Path}, {r.Rel2, r.Path2}} {
			name := or(p[0], p[1])
			if name == "" {
				continue
			}
			name = blocklog.Printable(name)
			if p[1] == r.Path && len(r.Owner) > 0 {
				name += " (in the scope of " + strings.Join(r.Owner, ", ") + ")"
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	more := ""
	if len(names) > mostNamed {
		more = fmt.Sprintf(" and %d more", len(names)-mostNamed)
		names = names[:mostNamed]
	}
	plural := "s"
	if total == 1 {
		plural = ""
	}
	on := "with no active task"
	if task != "" {
		on = "on task " + task
	}
	return fmt.Sprintf("planfence: the kernel refused %d operation%s of this command: %s%s. You are %s, which may write %s. "+
		"The command may have done the rest of its work. Do not look for another way to write there: "+
		"list what you could not do under open items and go on with what is in scope.",
		total, plural, strings.Join(names, ", "), more, on, Allowed(allowed))
}

// Allowed words a scope in a sentence.
func Allowed(entries []string) string {
	if len(entries) == 0 {
		return "nothing"
	}
	const most = 20
	var shown []string
	for _, e := range entries[:min(len(entries), most)] {
		shown = append(shown, blocklog.Printable(e))
	}
	s := strings.Join(shown, ", ")
	if n := len(entries) - most; n > 0 {
		s += fmt.Sprintf(" and %d more entries (planfence check lists them)", n)
	}
	return s
}
