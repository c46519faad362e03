package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"planfence/cmd/planfence/internal/blocklog"
)

// Input is what a report is made of, beside the records.
type Input struct {
	Version  string
	Now      time.Time
	Log      string            // the log's path
	Missing  error             // the log could not be read
	BadLines int               // of the log
	Plan     string            // the plan's path
	Titles   map[string]string // of the plan's tasks
	Owners   func(rel string) []string
	Since    time.Time              // records before it do not count; zero: all
	Sessions []string               // only these; nil: all
	Alive    func(name string) bool // whether a session runs; nil: none does
	Git      *Git                   // nil: not asked
}

// maxPaths bounds how many blocked paths a report lists.
const maxPaths = 1000

// Builder takes records in the order of the log.
type Builder struct {
	in       Input
	r        *Report
	sessions map[string]*Session
	tasks    map[string]*Task
	totals   map[Total]uint64
	paths    map[string]*Path
}

// NewBuilder begins a report. Only Since and Sessions of in are looked at
// before Finish.
func NewBuilder(in Input) *Builder {
	return &Builder{
		in: in, r: &Report{}, sessions: map[string]*Session{}, tasks: map[string]*Task{},
		totals: map[Total]uint64{}, paths: map[string]*Path{},
	}
}

// Add takes one record.
func (b *Builder) Add(r *blocklog.Record) {
	if len(b.in.Sessions) > 0 && !slices.Contains(b.in.Sessions, r.Session) {
		return
	}
	at, err := time.Parse(time.RFC3339Nano, r.Time)
	if err != nil {
		b.r.BadLines++
		return
	}
	before := at.Before(b.in.Since)
	if r.Kind == "hook" {
		b.hook(r, at, before)
		return
	}
	s := b.session(r, at)
	switch r.Kind {
	case "session-start":
		s.begun, s.closed = true, r.Idle == "closed"
		s.Command, s.User, s.Root, s.Mode, s.Attach, s.Kernel = r.Command, r.User, r.Root, r.Mode, r.Attach, r.Kernel
		s.Start = at
		s.Stretches = []*Stretch{{Task: r.Task, Start: at, End: at}}
	case "session-end":
		s.State, s.Exit = "ended", r.Exit
		s.told, s.toldLost, s.misses = &r.Blocks, r.Lost, r.Misses
	case "task":
		s.switched(r.Task, at)
	case "lost":
		s.Lost += r.Lost
	case "block":
		if !before {
			b.block(s, r, at)
		}
	}
	if r.Kind == "sync-error" {
		if s.stale.IsZero() {
			s.stale = at
		}
	} else if (r.Kind == "plan" || r.Kind == "session-end") && !s.stale.IsZero() {
		b.r.Stale += Seconds(at.Sub(s.stale))
		s.stale = time.Time{}
	}
	switch r.Kind {
	case "plan", "sync-error", "lost", "companion":
		if !before {
			s.Marks = append(s.Marks, Mark{at, r.Kind, r.Message})
		}
	}
	if at.After(s.End) {
		s.End = at
	}
}

func (b *Builder) session(r *blocklog.Record, at time.Time) *Session {
	s := b.sessions[r.Session]
	if s == nil {
		s = &Session{Name: r.Session, Start: at, End: at, State: "vanished", bins: map[int64]uint64{}}
		s.Stretches = []*Stretch{{Task: r.Task, Start: at, End: at}}
		b.sessions[r.Session] = s
		b.r.Sessions = append(b.r.Sessions, s)
	}
	return s
}

// switched begins a stretch of another task.
func (s *Session) switched(task string, at time.Time) {
	last := s.Stretches[len(s.Stretches)-1]
	last.End = at
	if last.Task != task {
		s.Stretches = append(s.Stretches, &Stretch{Task: task, Start: at, End: at})
	}
}

func (b *Builder) task(id string) *Task {
	t := b.tasks[id]
	if t == nil {
		t = &Task{ID: id, Title: b.in.Titles[id]}
		b.tasks[id] = t
		b.r.Tasks = append(b.r.Tasks, t)
	}
	return t
}

func (b *Builder) hook(r *blocklog.Record, at time.Time, before bool) {
	if before || r.Verdict != "block" {
		return
	}
	n := max(r.Count, 1)
	b.r.Hooked += n
	b.task(r.Task).Hooked += n
}

func (b *Builder) block(s *Session, r *blocklog.Record, at time.Time) {
	n := max(r.Count, 1)
	t := b.task(r.Task)
	would := r.Verdict == "would-block"
	if would {
		b.r.Would += n
		s.Would += n
		t.Would += n
	} else {
		b.r.Blocks += n
		s.Blocks += n
		t.Blocks += n
	}
	s.bins[at.Unix()] += n
	b.totals[Total{Task: r.Task, Op: r.Op, Reason: r.Reason, Verdict: cmp.Or(r.Verdict, "block")}] += n
	path, exact, rel := judged(r)
	key := path + "\x00" + exact
	p := b.paths[key]
	if p == nil {
		p = &Path{Path: path, Bytes: exact, Rel: rel, First: at}
		b.paths[key] = p
	}
	if would {
		p.Would += n
	} else {
		p.Count += n
	}
	if at.After(p.Last) {
		p.Last = at
	}
	add(&p.Tasks, r.Task)
	add(&p.Ops, r.Op)
	add(&p.Reasons, r.Reason)
	add(&p.Comms, r.Comm)
	for _, o := range r.Owner {
		add(&p.Owners, o)
	}
}

// judged is the path of a record that a reader looks for: of two names the one
// that is inside the root, else the first.
func judged(r *blocklog.Record) (path, exact, rel string) {
	if r.Path == "" || r.Rel == "" && r.Rel2 != "" {
		if r.Path2 != "" {
			return r.Path2, r.Path2Bytes, r.Rel2
		}
	}
	if r.Path == "" { // signals, bpf(2) and the like name no file
		return "(" + r.Op + ")", "", ""
	}
	return r.Path, r.PathBytes, r.Rel
}

// maxNames bounds the lists of a path: a report is read by people.
const maxNames = 16

func add(list *[]string, s string) {
	if s != "" && len(*list) < maxNames && !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
}

// Finish returns the report.
func (b *Builder) Finish(in Input) *Report {
	since, only := b.in.Since, b.in.Sessions
	b.in = in
	b.in.Since, b.in.Sessions = since, only
	r := b.r
	r.Version, r.Generated, r.Log, r.Plan = in.Version, in.Now.UTC(), in.Log, in.Plan
	r.BadLines += in.BadLines
	kept := r.Sessions[:0]
	for _, s := range r.Sessions {
		if s.State == "vanished" && in.Alive != nil && in.Alive(s.Name) {
			s.State = "running"
			s.End = in.Now.UTC()
		}
		if s.End.Before(since) {
			continue // over before that
		}
		kept = append(kept, s)
		b.measure(s)
	}
	r.Sessions = kept
	for _, t := range r.Tasks {
		t.Title = in.Titles[t.ID]
	}
	slices.SortStableFunc(r.Tasks, func(x, y *Task) int { return x.first.Compare(y.first) })
	for k, n := range b.totals {
		k.Count = n
		r.Totals = append(r.Totals, k)
	}
	slices.SortFunc(r.Totals, func(x, y Total) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), strings.Compare(x.Task, y.Task), strings.Compare(x.Op, y.Op), strings.Compare(x.Reason, y.Reason), strings.Compare(x.Verdict, y.Verdict))
	})
	for _, p := range b.paths {
		if in.Owners != nil && p.Rel != "" && p.Bytes == "" {
			for _, o := range in.Owners(p.Rel) {
				add(&p.Owners, o)
			}
		}
		r.Paths = append(r.Paths, p)
	}
	slices.SortFunc(r.Paths, func(x, y *Path) int {
		return cmp.Or(cmp.Compare(y.Count+y.Would, x.Count+x.Would), strings.Compare(x.Path, y.Path), strings.Compare(x.Bytes, y.Bytes))
	})
	b.crossCheck(in.Git)
	if n := len(r.Paths) - maxPaths; n > 0 {
		r.Paths, r.Truncated = r.Paths[:maxPaths], n
	}
	b.judge()
	r.fill()
	return r
}

// measure adds up one session's times.
func (b *Builder) measure(s *Session) {
	r := b.r
	if s.Root != "" {
		r.Root = s.Root
	}
	last := s.Stretches[len(s.Stretches)-1]
	last.End = s.End
	start := s.Start
	if start.Before(b.in.Since) {
		start = b.in.Since
	}
	s.Elapsed = Seconds(s.End.Sub(start))
	r.Elapsed += s.Elapsed
	if r.From.IsZero() || start.Before(r.From) {
		r.From = start
	}
	if s.End.After(r.To) {
		r.To = s.End
	}
	for _, st := range s.Stretches {
		d := st.End.Sub(st.Start)
		if st.Start.Before(b.in.Since) {
			d = max(0, st.End.Sub(b.in.Since))
		}
		t := b.task(st.Task)
		if t.first.IsZero() || st.Start.Before(t.first) {
			t.first = st.Start
		}
		t.Elapsed += Seconds(d)
		t.Stretches++
		if st.Task == "" && !s.closed {
			r.Idle += Seconds(d)
		}
	}
	if s.Mode == "audit" {
		r.Audited += s.Elapsed
	}
	if !s.stale.IsZero() {
		r.Stale += Seconds(s.End.Sub(s.stale))
	}
	r.Lost += max(s.Lost, s.toldLost)
	r.Misses = max(r.Misses, s.misses) // of programs that sessions share
}

// fill makes lists of what is empty: programs that read JSON expect them.
func (r *Report) fill() {
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	if r.Sessions == nil {
		r.Sessions = []*Session{}
	}
	if r.Tasks == nil {
		r.Tasks = []*Task{}
	}
	if r.Totals == nil {
		r.Totals = []Total{}
	}
	if r.Paths == nil {
		r.Paths = []*Path{}
	}
	if r.Git != nil && r.Git.Commits == nil {
		r.Git.Commits = []Commit{}
	}
	if r.Git != nil && r.Git.Changes == nil {
		r.Git.Changes = []Change{}
	}
}

func count(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Span returns the first and last moment of the sessions so far; zero if there
// are none.
func (b *Builder) Span() (from, to time.Time) {
	for _, s := range b.r.Sessions {
		if s.End.Before(b.in.Since) {
			continue
		}
		if from.IsZero() || s.Start.Before(from) {
			from = s.Start
		}
		end := s.End
		if s.State == "vanished" && b.in.Alive != nil && b.in.Alive(s.Name) {
			end = b.in.Now
		}
		if end.After(to) {
			to = end
		}
	}
	if from.Before(b.in.Since) && !from.IsZero() {
		from = b.in.Since
	}
	return from, to
}
