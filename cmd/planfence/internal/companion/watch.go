package companion

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Plan and active task are looked at whenever the ring is, so that no further
// timer wakes the processor. File events would come sooner, but one watch on a
// file system makes every open on it, whoever's, some 180 instructions dearer;
// planfence task nudges instead.
const (
	settle  = 5 * time.Millisecond // a change is read when it has been over for so long
	settles = 100
	// A file may change twice within a tick of the clock that stamps it, unseen:
	// it is read again after so long, and after the second that old file systems count in.
	again     = 100 * time.Millisecond
	lastAgain = 2 * time.Second
)

// Watch follows plan and active-task file until ctx ends. Paths are looked at,
// not files: editors and git replace files, and links are swapped.
func (c *Companion) Watch(ctx context.Context) {
	nudged := c.nudges(ctx)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	changedAt, looks := time.Now(), 0
	for first := true; ; first = false { // at once: something may have changed since the first scope was read
		hurry := false
		if !first {
			select {
			case <-ctx.Done():
				return
			case <-nudged:
				hurry = true
			case <-tick.C:
			}
		}
		now := c.fingerprint()
		if now != c.seen {
			// Whoever nudges has written the active-task file already.
			if !hurry || now.plan != c.seen.plan {
				now = c.settled(ctx, now)
			}
			if now.emptied(c.seen) {
				time.Sleep(grace)
				now = c.fingerprint()
			}
			c.seen, changedAt, looks = now, time.Now(), 0
			c.changed()
			continue
		}
		since := time.Since(changedAt)
		if looks == 0 && since >= again || looks == 1 && since >= lastAgain {
			looks++
			if c.differs() {
				c.changed()
			}
		}
	}
}

// settled waits until the files have not changed for a moment.
func (c *Companion) settled(ctx context.Context, now prints) prints {
	for range settles {
		select {
		case <-ctx.Done():
			return now
		case <-time.After(settle):
		}
		next := c.fingerprint()
		if next == now {
			break
		}
		now = next
	}
	return now
}

// print changes when a file may have.
type print struct {
	errno             unix.Errno
	dev, ino          uint64
	size              int64
	mtime, ctime      int64 // ns
	mode, link, owner uint32
}

type prints struct{ plan, task print }

func printOf(path string) (p print) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		p.errno, _ = err.(unix.Errno)
		return p
	}
	return print{0, st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano(), st.Mode, uint32(st.Nlink), st.Uid}
}

func (c *Companion) fingerprint() prints {
	p := prints{plan: printOf(c.Config.Plan)}
	if c.FixedTask == "" {
		p.task = printOf(c.Config.TaskFile)
	}
	return p
}

// nudgePath is a FIFO that anybody may write to, to say that the active task
// has changed. A byte there costs two looks at files.
func nudgePath(name string) string { return filepath.Join(StateDir(name), "nudge") }

// nudges returns a channel that has a value soon after the FIFO was written to.
// Without the FIFO the channel stays empty, and the timer finds the change.
func (c *Companion) nudges(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	path := nudgePath(c.name)
	err := unix.Mkfifo(path, 0o600)
	if err == nil || err == unix.EEXIST { // EEXIST: a keeper takes over
		err = unix.Chmod(path, 0o622)
	}
	if err != nil {
		return out
	}
	// For reading and writing, so that it never ends.
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return out
	}
	context.AfterFunc(ctx, func() { f.Close() })
	go func() {
		b := make([]byte, 512)
		for {
			if _, err := f.Read(b); err != nil {
				return
			}
			select {
			case out <- struct{}{}:
			default:
			}
			time.Sleep(settle) // whoever floods it is looked at 200 times a second
		}
	}()
	return out
}

// Nudge tells a session's companion that the active task has changed.
func Nudge(name string) {
	fd, err := unix.Open(nudgePath(name), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return // it looks by itself
	}
	_, _ = unix.Write(fd, []byte{'\n'})
	unix.Close(fd)
}

// changed brings the scope in step and tells the log what is in force.
func (c *Companion) changed() {
	c.mu.Lock()
	oldPlan, oldTask := c.plan, c.policy.TaskID
	wasStale := c.staleWhy != ""
	c.mu.Unlock()
	if c.Sync() != nil {
		return
	}
	c.mu.Lock()
	newTask := c.policy.TaskID
	kind := c.policy.Kind
	planChanged := !samePlan(oldPlan, c.plan)
	c.mu.Unlock()
	if wasStale {
		c.Warn("the plan is good again: its scope is in force")
	}
	if planChanged || wasStale {
		c.write(c.note("plan", "the plan changed"))
	}
	if newTask != oldTask {
		c.write(c.note("task", fmt.Sprintf("%s -> %s", orNone(oldTask), orNone(newTask))))
	}
	if msg := c.Explain(); msg != "" && (newTask != oldTask || planChanged) && kind != "task" {
		c.Warn(msg)
	}
}

func orNone(id string) string {
	if id == "" {
		return "none"
	}
	return id
}
