// Package report measures a run by its block log and by what git says of the
// checkout. It is pure: records go in, a [Report] comes out, and renderers turn
// that into the formats that people and CI systems read.
package report

import (
	"encoding/json"
	"time"
)

// Verdict is what a run comes to.
type Verdict string

// Verdicts, from best to worst.
const (
	OK            Verdict = "ok"            // nothing was refused, and nothing is left to explain
	Warn          Verdict = "warn"          // nothing was refused, but somebody should look
	Block         Verdict = "block"         // something was refused, or changed outside every scope
	Indeterminate Verdict = "indeterminate" // the log does not prove what happened
)

// Exit returns the exit status of a verdict: 0, 0, 1, 3.
func (v Verdict) Exit() int {
	switch v {
	case OK, Warn:
		return 0
	case Block:
		return 1
	}
	return 3
}

func (v Verdict) rank() int {
	switch v {
	case OK:
		return 0
	case Warn:
		return 1
	case Block:
		return 2
	}
	return 3
}

// Seconds is a length of time; in JSON a number of seconds.
type Seconds time.Duration

// MarshalJSON gives seconds, to the millisecond.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(s).Round(time.Millisecond).Seconds())
}

func (s Seconds) String() string {
	d := time.Duration(s)
	switch {
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Minute).String()
}

// Report is the run measured. Names are text as records have it: bytes that are
// no UTF-8 as \xHH, with the exact bytes in base64 beside it.
type Report struct {
	Verdict  Verdict   `json:"verdict"`
	Findings []Finding `json:"findings"` // worst first; what the verdict rests on

	Version   string    `json:"version,omitempty"`
	Generated time.Time `json:"generated"`
	Log       string    `json:"log"`
	Root      string    `json:"root,omitempty"`
	Plan      string    `json:"plan,omitempty"`
	From      time.Time `json:"from"` // first and last record that count
	To        time.Time `json:"to"`

	Elapsed   Seconds  `json:"elapsed_seconds"`  // of all sessions together
	Unfenced  *Seconds `json:"unfenced_seconds"` // in which sessions ran and the fence did not hold; null: not known
	Idle      Seconds  `json:"idle_seconds"`     // with no task active
	Audited   Seconds  `json:"audited_seconds"`  // in which nothing was refused, only recorded
	Stale     Seconds  `json:"stale_seconds"`    // in which the plan could not be followed
	Blocks    uint64   `json:"blocks"`           // refusals by the kernel
	Would     uint64   `json:"would_blocks"`     // what an auditing session would have refused
	Hooked    uint64   `json:"hook_blocks"`      // refused by the agent's hook before the kernel was asked
	Lost      uint64   `json:"lost"`             // refusals that have no record
	Misses    uint64   `json:"recursion_misses"` // runs of programs that the kernel skipped
	BadLines  int      `json:"bad_lines"`        // lines of the log that are no records
	Truncated int      `json:"paths_not_listed"` // blocked paths beyond those in Paths

	Sessions []*Session `json:"sessions"`
	Tasks    []*Task    `json:"tasks"`
	Totals   []Total    `json:"totals"` // by task, operation and reason
	Paths    []*Path    `json:"paths"`  // most blocked first
	Git      *Git       `json:"git"`    // null: not asked, or no checkout
}

// Finding is one reason for the verdict.
type Finding struct {
	Verdict Verdict `json:"verdict"`
	ID      string  `json:"id"` // such as lost-records, for programs
	Text    string  `json:"text"`
}

// Session is one run.
type Session struct {
	Name      string     `json:"session"`
	Command   []string   `json:"command,omitempty"`
	User      string     `json:"user,omitempty"`
	Root      string     `json:"root,omitempty"`
	Mode      string     `json:"mode,omitempty"`
	Attach    string     `json:"attach,omitempty"`
	Kernel    string     `json:"kernel,omitempty"`
	Start     time.Time  `json:"start"`
	End       time.Time  `json:"end"`
	State     string     `json:"state"` // ended, running, vanished (no end in the log, and not running)
	Exit      *int       `json:"exit,omitempty"`
	Elapsed   Seconds    `json:"elapsed_seconds"`
	Blocks    uint64     `json:"blocks"`
	Would     uint64     `json:"would_blocks"`
	Lost      uint64     `json:"lost"`
	Stretches []*Stretch `json:"stretches"`
	Marks     []Mark     `json:"marks,omitempty"`

	begun    bool // its session-start is in the log
	closed   bool // --idle=closed
	told     *uint64
	toldLost uint64
	misses   uint64
	stale    time.Time
	bins     map[int64]uint64 // blocks by second
}

// Stretch is a time in which one task was active.
type Stretch struct {
	Task  string    `json:"task"` // "" : none
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// Mark is something that happened at one moment of a session.
type Mark struct {
	Time time.Time `json:"time"`
	Kind string    `json:"kind"` // plan, sync-error, lost, companion
	Text string    `json:"text"`
}

// Task is what happened under one task, all sessions together.
type Task struct {
	ID        string  `json:"id"` // "" : none active
	Title     string  `json:"title,omitempty"`
	Elapsed   Seconds `json:"elapsed_seconds"`
	Blocks    uint64  `json:"blocks"`
	Would     uint64  `json:"would_blocks"`
	Hooked    uint64  `json:"hook_blocks"`
	Commits   int     `json:"commits"`
	Stretches int     `json:"stretches"`

	first time.Time
}

// Total counts refusals.
type Total struct {
	Task    string `json:"task"`
	Op      string `json:"op"`
	Reason  string `json:"reason"`
	Verdict string `json:"verdict"` // block, would-block
	Count   uint64 `json:"count"`
}

// Path is a path that was refused.
type Path struct {
	Path    string    `json:"path"`
	Bytes   string    `json:"path_bytes,omitempty"`
	Rel     string    `json:"rel,omitempty"`
	Owners  []string  `json:"owners,omitempty"` // tasks in whose scope it lies
	Count   uint64    `json:"count"`
	Would   uint64    `json:"would_count,omitempty"`
	Tasks   []string  `json:"tasks"`
	Ops     []string  `json:"ops"`
	Reasons []string  `json:"reasons"`
	Comms   []string  `json:"comms"` // programs, by the kernel's short name
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// Git is what git says, beside what the log says.
type Git struct {
	Commits []Commit `json:"commits"`
	Changes []Change `json:"changes"` // what git status shows
}

// Commit was made while a session ran.
type Commit struct {
	Hash    string    `json:"hash"`
	Time    time.Time `json:"time"`
	Author  string    `json:"author"`
	Subject string    `json:"subject"`
	Task    string    `json:"task"`              // active at that time, "" if none or not known
	Files   int       `json:"files"`             // that it changes
	Outside []string  `json:"outside,omitempty"` // of them, those outside every scope
}

// Change is one line of git status.
type Change struct {
	Status string    `json:"status"` // git's two letters, ?? for untracked
	Rel    string    `json:"rel"`
	Bytes  string    `json:"rel_bytes,omitempty"`
	Owners []string  `json:"owners,omitempty"`
	Own    string    `json:"own,omitempty"`    // what of the fence's or the operator's it is: plan, log, --allow …
	When   time.Time `json:"when"`             // of the last change, as far as the disk tells; zero: not known
	Blocks uint64    `json:"blocks"`           // refusals of this path in the log
	During string    `json:"during,omitempty"` // the session that enforced a scope at that time
}

// Outside reports whether the path is in no task's scope and nobody's own.
func (c *Change) Outside() bool { return len(c.Owners) == 0 && c.Own == "" }
