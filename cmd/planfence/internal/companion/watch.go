package companion

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Followed every pollEvery where events do not come (network file systems,
// watches that ran out); settle gathers the events of one change.
const (
	pollEvery = 2 * time.Second
	settle    = 5 * time.Millisecond
)

// Watch follows plan and active-task file until ctx ends. Directories are
// watched, not files: editors and git replace files.
func (c *Companion) Watch(ctx context.Context) {
	w, err := fsnotify.NewWatcher()
	var events chan fsnotify.Event
	if err != nil {
		c.Warn(fmt.Sprintf("no file events (%v): looking every %v", err, pollEvery))
	} else {
		defer w.Close()
		events = w.Events
		c.watchDirs(w)
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	c.follow() // what was changed since the scope in force was read
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if !c.concerns(e.Name) {
				continue
			}
			c.settle(ctx, events)
		case <-tick.C:
		}
		if w != nil {
			c.watchDirs(w)
		}
		c.follow()
	}
}

// follow brings the scope in step if a watched file is not what it was. Called by
// one goroutine.
func (c *Companion) follow() {
	if now := c.fingerprint(); now != c.seen {
		c.seen = now
		c.changed()
	}
}

// settle waits until no event has come for a moment.
func (c *Companion) settle(ctx context.Context, events chan fsnotify.Event) {
	t := time.NewTimer(settle)
	defer t.Stop()
	for range 100 {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				return
			}
			t.Reset(settle)
		case <-t.C:
			return
		}
	}
}

func (c *Companion) watched() []string {
	files := []string{c.Config.Plan}
	if c.FixedTask == "" {
		files = append(files, c.Config.TaskFile)
	}
	return files
}

// watchDirs watches the directories of the files, those of what they link to,
// and their parents, so that a directory that is made again is found.
func (c *Companion) watchDirs(w *fsnotify.Watcher) {
	dirs := map[string]bool{}
	for _, f := range c.watched() {
		d := filepath.Dir(f)
		dirs[d], dirs[filepath.Dir(d)] = true, true
		for p, n := f, 0; n < 8; n++ {
			to, err := os.Readlink(p)
			if err != nil {
				break
			}
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(p), to)
			}
			p = to
			dirs[filepath.Dir(p)] = true
		}
	}
	for d := range dirs {
		_ = w.Add(d) // missing or out of watches: the poll finds the change
	}
}

func (c *Companion) concerns(name string) bool {
	for _, f := range c.watched() {
		if name == f || name == filepath.Dir(f) {
			return true
		}
		if st, err := os.Lstat(f); err != nil || st.Mode()&os.ModeSymlink != 0 {
			return true // through links: any event may be the one
		}
	}
	return false
}

// fingerprint changes when a watched file may have.
func (c *Companion) fingerprint() (s string) {
	for _, f := range c.watched() {
		st, err := os.Stat(f)
		if err != nil {
			s += fmt.Sprintf("%s: %v;", f, err)
			continue
		}
		s += fmt.Sprintf("%s: %d %v %+v;", f, st.Size(), st.ModTime().UnixNano(), identity(st))
		if st.Mode().IsRegular() && st.Size() <= maxTaskFile { // two changes within one tick of the clock have the same times
			if b, err := os.ReadFile(f); err == nil {
				s += string(b) + ";"
			}
		}
	}
	return s
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
