// Package companion is the userspace half of a session: it keeps the fence in
// step with the plan and the active task, and turns the fence's events into
// the block log.
package companion

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/metrics"
	"planfence/cmd/planfence/internal/policy"
	"planfence/loader"
	"planfence/plan"
)

// Companion of one session. Fill the exported fields, then call Begin.
type Companion struct {
	Config    policy.Config
	FixedTask string // --task or $ACTIVE_TASK: the file is not looked at
	Audit     bool
	Hardlinks bool
	LogMax    int64 // told to the keeper
	Stdio     []*os.File
	Log       blocklog.Sink          // where records go
	LogTo     string                 // what Log is, for a keeper: file, stdout or journald
	OnRecord  func(*blocklog.Record) // called for each record written, may be nil
	Warn      func(string)           // for the operator, one line
	About     About

	fence   *loader.Fence
	session *loader.Session
	reader  *loader.Reader
	name    string
	lock    *os.File
	started time.Time
	skipped uint64 // runs of programs that the kernel had skipped before this session

	mu           sync.Mutex
	plan         *plan.Plan
	policy       *policy.Policy
	generation   uint64
	synced       time.Time
	seen         prints   // of the watched files when they were read
	last         read     // what they said then
	planSum      [32]byte // of the plan's copy in the session's directory
	byGeneration map[uint64]scopeInForce
	mappings     []string // shared mappings of files that are out of scope now
	pending      chan struct{}
	switching    atomic.Bool // between the attaching for a revocation and the change of scope
	staleSince   time.Time
	staleWhy     string

	fold folder
	lost uint64

	logMu     sync.Mutex // one record after the other, with what is told before it
	logFailed error      // why the log cannot be written, nil if it can
	untold    uint64     // refusals since then that have no record
	unwritten uint64     // all of them
	saved     uint64     // of them, those that the session's state tells
	recorded  map[metrics.Key]uint64
	told      uint64 // refusals that the log tells of, one by one or as lost
	before    bool   // told includes what companions before this one wrote
	missing   uint64 // refusals that such a one took along
	saveMu    sync.Mutex
}

type scopeInForce struct {
	plan      *plan.Plan
	policy    *policy.Policy
	protected func(path string) bool
}

func (c *Companion) inForce(p *plan.Plan, pol *policy.Policy) scopeInForce {
	return scopeInForce{p, pol, c.Config.Guard(p, pol.TaskID)}
}

// Name returns how people call the session: s-XXXXXXXX.
func Name(id uint64) string { return fmt.Sprintf("s-%08x", uint32(id>>32)^uint32(id)) }

// Begin puts the first scope, of the plan as it is now and the task id, in force in a
// new session of the fence. The caller holds [loader.Lock].
func (c *Companion) Begin(f *loader.Fence, id string) error {
	c.seen = c.fingerprint() // before it is read: a change from here on is found
	p, text, err := readPlan(c.Config.Plan, c.Config.Root)
	if err != nil {
		return err
	}
	c.last = read{text: text, plan: p, id: id}
	s, err := f.NewSession()
	if err != nil {
		return err
	}
	c.fence, c.session, c.reader, c.name = f, s, s.NewReader(), Name(s.ID)
	c.byGeneration = map[uint64]scopeInForce{}
	c.pending = make(chan struct{}, 1)
	c.started = time.Now()
	c.About.Attach = string(f.Mode)
	c.skipped, err = f.RecursionMisses()
	if err == nil {
		err = f.Guard(os.Getpid())
	}
	if err == nil {
		err = c.openState()
	}
	if err == nil {
		err = c.apply(p, text, id)
	}
	if err != nil {
		return errors.Join(err, c.remove())
	}
	return nil
}

// remove takes the session away if it has no processes.
func (c *Companion) remove() error {
	err := c.session.End()
	if errors.Is(err, loader.ErrBusy) {
		return err
	}
	if c.lock != nil {
		c.lock.Close()
		c.lock = nil
	}
	return errors.Join(err, os.RemoveAll(StateDir(c.name)))
}

// SessionName returns the session's name.
func (c *Companion) SessionName() string { return c.name }

// Session returns the session.
func (c *Companion) Session() *loader.Session { return c.session }

// Task returns the active id, "" for none.
func (c *Companion) Task() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policy.TaskID
}

// Kind returns what the scope in force rests on.
func (c *Companion) Kind() policy.Kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policy.Kind
}

// Plan returns the plan in force.
func (c *Companion) Plan() *plan.Plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plan
}

// Discard reads and drops the events so far and returns how many there were:
// those of the canary.
func (c *Companion) Discard() (n int) {
	for {
		if _, err := c.reader.Read(0); err != nil {
			return n
		}
		n++
	}
}

// Start tells the log that the session begins.
func (c *Companion) Start() {
	var u unix.Utsname
	_ = unix.Uname(&u)
	r := c.note("session-start", "")
	r.Root, r.Plan, r.Command, r.Attach, r.Mode = c.Config.Root, c.Config.Plan, c.About.Command, c.About.Attach, c.About.Mode
	r.Host, r.PIDNS, r.Profiles = unix.ByteSliceToString(u.Nodename[:]), loader.PIDNamespace(), c.Config.Profiles
	r.Kernel, r.Version, r.User = unix.ByteSliceToString(u.Release[:]), c.About.Version, c.About.User
	r.Profiles, r.Allow = c.Config.Profiles, c.Config.Allow
	if c.Config.Idle == "closed" {
		r.Idle = c.Config.Idle
	}
	c.write(r)
}

// poll is how often the ring is looked at; the programs do not wake anybody.
const poll = 50 * time.Millisecond

// Run reads events until ctx ends, then drains what is left.
func (c *Companion) Run(ctx context.Context) {
	var looked time.Time
	for ctx.Err() == nil {
		c.drain(poll)
		c.flush(false)
		if now := time.Now(); now.Sub(looked) >= spoolEvery {
			looked = now
			c.takeSpool()
		}
	}
	for n := 0; n < lastReads && !c.drain(0); n++ { // what is left behind may go on for ever
		c.flush(false)
	}
	c.flush(true)
	c.takeSpool()
	c.tellLost()
}

// longest is how long events are read before records are written: in a flood the
// ring is never empty.
const longest = 200 * time.Millisecond

// lastReads is how often the ring is read at the end, while it does not become
// empty.
const lastReads = 50

// drain reads until the ring is empty, waiting once for at most wait, and reports
// whether it is.
func (c *Companion) drain(wait time.Duration) bool {
	batch := c.newBatch()
	for until := time.Now().Add(wait + longest); time.Now().Before(until); {
		e, err := c.reader.Read(wait)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
			return true
		}
		if err != nil {
			c.Warn(fmt.Sprintf("an event could not be read: %v", err))
			return true
		}
		c.event(batch, e)
		wait = 0
	}
	return false
}

// batch holds what is looked up once for a run of events.
type batch struct {
	offset time.Duration // wall clock minus CLOCK_BOOTTIME
	mounts []mount
}

func (c *Companion) newBatch() *batch {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return &batch{offset: time.Duration(time.Now().UnixNano()) - time.Duration(ts.Nano())}
}

func (b *batch) path(p loader.Path) (path, fs string) {
	if !p.Known() {
		return "", ""
	}
	if p.Anchor != "" {
		return p.String(), ""
	}
	if b.mounts == nil {
		b.mounts, _ = mounts()
	}
	return locate(b.mounts, p)
}

func (c *Companion) event(b *batch, e *loader.Event) {
	c.mu.Lock()
	in, ok := c.byGeneration[e.Generation]
	if !ok {
		in = c.inForce(c.plan, c.policy)
	}
	c.mu.Unlock()
	uid := e.UID
	r := &blocklog.Record{
		Time: blocklog.Stamp(time.Unix(0, int64(b.offset+e.Boot))), Kind: "block", Seq: e.Seq,
		Session: c.name, Task: in.policy.TaskID, Generation: e.Generation, Verdict: "block",
		Op: e.Op, Reason: e.Reason, Errno: "EACCES", PID: e.PID, TID: e.TID, NSPID: e.NSPID,
		PPID: e.PPID, UID: &uid, Comm: strings.ToValidUTF8(e.Comm, "?"), Exe: strings.ToValidUTF8(e.Exe, "?"), Count: 1,
	}
	if r.Exe == "" { // told to a companion before this one: as long as the process lives it can be asked
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", e.PID)); err == nil {
			r.Exe = strings.ToValidUTF8(strings.TrimSuffix(exe, " (deleted)"), "?")
		}
	}
	if e.Would {
		r.Verdict, r.Errno = "would-block", ""
	}
	path, fs := b.path(e.Path)
	path2, fs2 := b.path(e.Path2)
	r.FS, r.FS2 = fs, fs2
	blocklog.SetPath(&r.Path, &r.PathBytes, path)
	blocklog.SetPath(&r.Path2, &r.Path2Bytes, path2)
	if fs == "" {
		r.Rel = c.rel(r.Path)
	}
	if fs2 == "" {
		r.Rel2 = c.rel(r.Path2)
	}
	judged, elsewhere := path, fs
	if e.Second {
		judged, elsewhere = path2, fs2
	}
	if r.Reason == "scope" && elsewhere == "" {
		if in.protected(judged) {
			r.Reason = "protected"
		}
	}
	if elsewhere == "" {
		r.Owner = c.owners(in, judged)
	}
	c.fold.add(e, r, time.Now())
}

func (c *Companion) rel(path string) string {
	if path == c.Config.Root {
		return "."
	}
	if rel, ok := strings.CutPrefix(path, strings.TrimSuffix(c.Config.Root, "/")+"/"); ok {
		return rel
	}
	return ""
}

// owners returns the other tasks in whose scope a path lies.
func (c *Companion) owners(in scopeInForce, path string) []string {
	rel := c.rel(path)
	if rel == "" || rel == "." {
		return nil
	}
	return in.plan.Owners(rel, in.policy.TaskID)
}

func (c *Companion) flush(force bool) {
	for _, r := range c.fold.ripe(time.Now(), force) {
		c.write(r)
	}
	c.saveUnwritten()
	if n, err := c.session.Counts(); err == nil && n.Lost > c.lost {
		c.tellLost()
	}
}

// tellLost writes down how many events found no room.
func (c *Companion) tellLost() {
	n, err := c.session.Counts()
	if err != nil || n.Lost <= c.lost {
		return
	}
	r := c.note("lost", fmt.Sprintf("%d refusals were made but not recorded one by one: the ring was full", n.Lost-c.lost))
	r.Lost = n.Lost - c.lost
	c.lost = n.Lost
	c.write(r)
}

func (c *Companion) note(kind, message string) *blocklog.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &blocklog.Record{Time: blocklog.Stamp(time.Now()), Kind: kind, Session: c.name, Generation: c.generation, Message: message}
	if c.policy != nil {
		r.Task = c.policy.TaskID
	}
	return r
}

// write writes a record. Where the log cannot be written the session goes on,
// and how many refusals have no record is told as soon as it can be again.
func (c *Companion) write(r *blocklog.Record) {
	c.logMu.Lock()
	err := c.tellUntold()
	if err == nil {
		err = c.Log.Write(r)
	}
	failed, back := err != nil && c.logFailed == nil, err == nil && c.logFailed != nil
	c.logFailed = err
	if err != nil && r.Kind == "block" {
		c.untold += r.Count
		c.unwritten += r.Count
	}
	if err == nil && r.Kind == "block" {
		c.told += r.Count
	} else if err == nil {
		c.told += r.Lost
	}
	if r.Kind == "block" {
		if c.recorded == nil {
			c.recorded = map[metrics.Key]uint64{}
		}
		c.recorded[metrics.Key{Task: r.Task, Op: r.Op, Reason: r.Reason, Verdict: r.Verdict}] += r.Count
	}
	c.logMu.Unlock()
	if failed {
		c.Warn(fmt.Sprintf("%v; the fence holds, but blocks are not recorded", err))
	} else if back {
		c.Warn("the log can be written again")
	}
	if c.OnRecord != nil {
		c.OnRecord(r)
	}
}

// tellUntold writes down how many refusals could not be. With logMu held.
func (c *Companion) tellUntold() error {
	if c.untold == 0 {
		return nil
	}
	r := c.note("lost", fmt.Sprintf("%d refusals were made but not recorded one by one: %v", c.untold, c.logFailed))
	r.Lost = c.untold
	if err := c.Log.Write(r); err != nil {
		return err
	}
	c.told += c.untold
	c.untold = 0
	return nil
}

// saveUnwritten brings the session's state in step with what could not be
// written; it is called every now and then.
func (c *Companion) saveUnwritten() {
	c.logMu.Lock()
	changed := c.unwritten != c.saved
	c.saved = c.unwritten
	c.logMu.Unlock()
	if changed {
		c.saveState()
	}
}

// Measure returns the session's counters as they are now.
func (c *Companion) Measure() metrics.Snapshot {
	s := metrics.Snapshot{
		Session: c.name, Version: c.About.Version, Attach: c.About.Attach, Mode: c.About.Mode,
		Kernel: map[metrics.Key]uint64{},
	}
	if n, err := c.session.Counts(); err == nil {
		s.Lost = n.Lost
		for k, v := range n.Refused {
			s.Kernel[metrics.Key{Op: k.Op, Reason: k.Reason, Verdict: "block"}] = v
		}
		for k, v := range n.Audited {
			s.Kernel[metrics.Key{Op: k.Op, Reason: k.Reason, Verdict: "would-block"}] = v
		}
	}
	if n, err := c.fence.RecursionMisses(); err == nil {
		s.Misses = n
	}
	if all, err := States(); err == nil {
		s.Sessions = len(all)
	}
	c.logMu.Lock()
	s.Blocks = maps.Clone(c.recorded)
	s.Lost += c.unwritten
	c.logMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	s.SyncAge, s.Generation = time.Since(c.synced), c.generation
	if c.staleWhy != "" {
		s.Stale = time.Since(c.staleSince)
	}
	return s
}

// Reopen opens the log again, after it was moved away.
func (c *Companion) Reopen() {
	if err := c.Log.Reopen(); err != nil {
		c.Warn(fmt.Sprintf("%v; the fence holds, but blocks are not recorded", err))
	}
}

// stale notes that plan and scope are out of step, once.
func (c *Companion) stale(err error) {
	c.mu.Lock()
	first := c.staleWhy != err.Error()
	if c.staleWhy == "" {
		c.staleSince = time.Now()
	}
	c.staleWhy = err.Error()
	c.mu.Unlock()
	if first {
		c.saveState()
		c.write(c.note("sync-error", err.Error()))
		c.Warn(fmt.Sprintf("the last good scope stays in force: %v", err))
	}
}

// Skipped returns how often the kernel has skipped a run of a program since the
// session began: any number but 0 means that something may have passed.
func (c *Companion) Skipped() uint64 {
	n, err := c.fence.RecursionMisses()
	if err != nil || n < c.skipped {
		return 0
	}
	return n - c.skipped
}

// End tells the log that the session ended and takes it away if no process is
// left; [loader.ErrBusy] otherwise. The caller holds [loader.Lock].
//
// exit is the command's exit status, nil if it is not known.
func (c *Companion) End(exit *int) error {
	r := c.note("session-end", "")
	r.Exit = exit
	r.Misses = c.Skipped()
	n, err := c.session.Counts()
	if err == nil {
		for _, v := range n.Refused {
			r.Blocks += v
		}
		c.logMu.Lock()
		r.Lost = n.Lost + c.unwritten + c.missing
		c.logMu.Unlock()
	}
	if all, err := c.fence.Members(); err != nil || len(all[c.session.ID]) > 0 {
		return errors.Join(err, loader.ErrBusy)
	}
	c.write(r)
	return c.remove()
}
