package companion

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/blocklog"
)

// The block log is closed to everything in the session, the agent's hook included.
// The hook leaves its records in a directory in the session's temporary directory,
// a file each, and the companion takes them over. Whatever runs in the session can
// leave files there: they are read as claims, marked via hook, never counted as
// blocks, and bounded.
const (
	spoolName   = ".planfence-hook"
	spoolSuffix = ".json"
	spoolEvery  = time.Second
	spoolMost   = 200 // files a look
	spoolBytes  = 64 << 10
)

// Spool leaves a record of the hook for the session's companion.
func Spool(tempDir string, r *blocklog.Record) error {
	b, err := r.Marshal()
	if err != nil {
		return err
	}
	dir := filepath.Join(tempDir, spoolName)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("leave the record: %w", err)
	}
	f, err := os.CreateTemp(dir, fmt.Sprintf("%020d-*", time.Now().UnixNano()))
	if err != nil {
		return fmt.Errorf("leave the record: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), f.Name()+spoolSuffix)
	}
	if err != nil {
		return fmt.Errorf("leave the record: %w", err)
	}
	return nil
}

// takeSpool writes what the hook has left to the log. No link is followed: the
// directory belongs to the fenced user.
func (c *Companion) takeSpool() {
	if c.Config.TempDir == "" {
		return
	}
	temp, err := unix.Open(c.Config.TempDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(temp)
	fd, err := unix.Openat(temp, spoolName, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return // nothing was left yet
	}
	dir := os.NewFile(uintptr(fd), spoolName)
	defer dir.Close()
	names, _ := dir.Readdirnames(4 * spoolMost)
	slices.Sort(names) // in order of time
	taken, dropped := 0, 0
	for _, name := range names {
		if !strings.HasSuffix(name, spoolSuffix) {
			continue
		}
		r := readSpooled(fd, name)
		if unix.Unlinkat(fd, name, 0) != nil {
			_ = unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
		}
		if r == nil {
			continue
		}
		if taken++; taken > spoolMost {
			dropped++
			continue
		}
		c.write(c.claim(r))
	}
	if dropped > 0 {
		r := c.note("hook", fmt.Sprintf("%d records of the hook were dropped: more than %d in %v", dropped, spoolMost, spoolEvery))
		r.Via = "hook"
		c.write(r)
	}
}

func readSpooled(dir int, name string) *blocklog.Record {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() > spoolBytes {
		return nil
	}
	b := make([]byte, st.Size())
	n, _ := f.ReadAt(b, 0)
	r := &blocklog.Record{}
	if json.Unmarshal(b[:n], r) != nil || r.Kind != "hook" {
		return nil
	}
	return r
}

// claim is a record with what the session says and nothing that it cannot know.
func (c *Companion) claim(r *blocklog.Record) *blocklog.Record {
	out := c.note("hook", r.Message)
	out.Via, out.Op, out.Verdict, out.Reason, out.Owner = "hook", r.Op, r.Verdict, r.Reason, r.Owner
	out.Path, out.PathBytes, out.Rel, out.Comm, out.Count = r.Path, r.PathBytes, r.Rel, r.Comm, 1
	out.UID, out.NSPID = r.UID, r.PID // its own namespace's number
	now := time.Now()
	if t, err := time.Parse(time.RFC3339Nano, r.Time); err == nil && t.Before(now) && now.Sub(t) < time.Minute {
		out.Time = blocklog.Stamp(t)
	}
	return out
}
