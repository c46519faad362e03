package companion

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/policy"
	"planfence/loader"
)

// State is what a session tells others about itself, in session.json in its
// directory: readable by everybody, written by the companion alone.
type State struct {
	Name       string        `json:"session"`
	ID         uint64        `json:"id"`
	Slot       uint32        `json:"slot"`
	PID        int           `json:"pid"` // the companion's, in the pid namespace of its mount namespace
	Task       string        `json:"task"`
	Fixed      bool          `json:"fixed,omitempty"` // the task came from --task or $ACTIVE_TASK
	Kind       policy.Kind   `json:"kind"`
	Generation uint64        `json:"generation"`
	Attach     string        `json:"attach"`
	Mode       string        `json:"mode"`
	Hardlinks  bool          `json:"hardlinks,omitempty"`
	Command    []string      `json:"command"`
	User       string        `json:"user"`
	Started    time.Time     `json:"started"`
	Synced     time.Time     `json:"synced"` // when the scope in force was put in force
	Cells      int           `json:"cells"`  // of the compiled scope
	LogMax     int64         `json:"log_max,omitempty"`
	LogTo      string        `json:"log_to,omitempty"`          // file, stdout or journald
	Unwritten  uint64        `json:"unwritten,omitempty"`       // refusals that could not be written to the log
	Mappings   []string      `json:"shared_mappings,omitempty"` // still open, out of scope: "PID PATH"
	StaleSince *time.Time    `json:"stale_since,omitempty"`
	StaleWhy   string        `json:"stale_why,omitempty"`
	Skipped    uint64        `json:"skipped_before,omitempty"`
	Build      string        `json:"build"`
	Version    string        `json:"version"`
	Config     policy.Config `json:"config"`
}

// StateDir returns where the session keeps its files.
func StateDir(name string) string { return filepath.Join(loader.StateDir, "sessions", name) }

// About is what the caller knows of the run, for State.
type About struct {
	Attach, Mode, User, Version string
	Command                     []string
}

// openState makes the session's directory and takes its lock, which says that
// a companion lives: the lock goes with the process.
func (c *Companion) openState() error {
	dir := StateDir(c.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the session's directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("make the session's lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return fmt.Errorf("lock session %s: %w", c.name, err)
	}
	c.lock = f
	return nil
}

// Alive reports whether a session's companion lives.
func Alive(name string) bool {
	f, err := os.OpenFile(filepath.Join(StateDir(name), "lock"), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return errors.Is(err, fs.ErrPermission) // not root: cannot tell, take it for alive
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}

// saveState replaces session.json in one step.
func (c *Companion) saveState() {
	c.saveMu.Lock()
	defer c.saveMu.Unlock()
	c.logMu.Lock()
	unwritten := c.unwritten
	c.logMu.Unlock()
	c.mu.Lock()
	cells := 0
	if c.policy.Table != nil {
		cells = len(c.policy.Table.Cells)
	}
	s := State{
		Name: c.name, ID: c.session.ID, Slot: c.session.Slot, PID: os.Getpid(), Task: c.policy.TaskID,
		Fixed: c.FixedTask != "", Kind: c.policy.Kind, Generation: c.generation, Attach: c.About.Attach,
		Mode: c.About.Mode, Hardlinks: c.Hardlinks, Command: c.About.Command, User: c.About.User,
		Started: c.started, Synced: c.synced, Cells: cells, LogMax: c.LogMax, LogTo: c.LogTo, Unwritten: unwritten, StaleWhy: c.staleWhy,
		Mappings: c.mappings, Skipped: c.skipped, Build: loader.Build(), Version: c.About.Version, Config: c.Config,
	}
	if c.staleWhy != "" {
		t := c.staleSince
		s.StaleSince = &t
	}
	c.mu.Unlock()
	b, err := json.Marshal(s)
	if err != nil {
		c.Warn(fmt.Sprintf("tell the session's state: %v", err))
		return
	}
	dir := StateDir(s.Name)
	tmp := filepath.Join(dir, "session.json.new")
	err = os.WriteFile(tmp, append(b, '\n'), 0o644)
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, "session.json"))
	}
	if err != nil {
		c.Warn(fmt.Sprintf("tell the session's state: %v", err))
	}
}

// ReadState reads the state of one session.
func ReadState(name string) (*State, error) {
	b, err := os.ReadFile(filepath.Join(StateDir(name), "session.json"))
	if err != nil {
		return nil, fmt.Errorf("read session %s: %w", name, err)
	}
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("read session %s: %w", name, err)
	}
	return &s, nil
}

// States reads the state of all sessions of this machine or container.
func States() ([]*State, error) {
	ents, err := os.ReadDir(filepath.Join(loader.StateDir, "sessions"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	var out []*State
	for _, e := range ents {
		if s, err := ReadState(e.Name()); err == nil {
			out = append(out, s)
		}
	}
	return out, nil
}
