package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"

	"planfence/cmd/planfence/internal/blocklog"
)

// statsEvery is how often the live table is drawn.
const statsEvery = 250 * time.Millisecond

// tally counts the records that tail would print.
type tally struct {
	mu                  sync.Mutex
	ready               bool // what was there before has been read
	bad                 int
	blocks, would, lost uint64
	tasks, ops, paths   map[string]uint64
	owners              map[string]string
	sessions            map[string]string // by name: the task that is active, "-" after the end
	last                *blocklog.Record
	perSecond           map[int64]uint64
	sessionSeen         []string
	pathsForgotten      int
}

// maxTallied bounds the paths that are counted one by one.
const maxTallied = 100_000

func newTally() *tally {
	return &tally{tasks: map[string]uint64{}, ops: map[string]uint64{}, paths: map[string]uint64{}, owners: map[string]string{}, sessions: map[string]string{}, perSecond: map[int64]uint64{}}
}

func (t *tally) add(r *blocklog.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Kind != "hook" {
		if _, ok := t.sessions[r.Session]; !ok {
			t.sessionSeen = append(t.sessionSeen, r.Session)
		}
		if r.Kind == "session-end" {
			t.sessions[r.Session] = "-"
		} else if t.sessions[r.Session] != "-" {
			t.sessions[r.Session] = orNone(r.Task)
		}
	}
	if r.Kind == "lost" {
		t.lost += r.Lost
	}
	if r.Kind != "block" {
		return
	}
	n := max(r.Count, 1)
	if r.Verdict == "would-block" {
		t.would += n
	} else {
		t.blocks += n
	}
	t.tasks[orNone(r.Task)] += n
	t.ops[r.Op+" ("+r.Reason+")"] += n
	path := cmp.Or(r.Rel, r.Path, "("+r.Op+")")
	if _, ok := t.paths[path]; ok || len(t.paths) < maxTallied {
		t.paths[path] += n
		t.owners[path] = strings.Join(r.Owner, ",")
	} else {
		t.pathsForgotten++
	}
	t.last = r
	if at, err := time.Parse(time.RFC3339Nano, r.Time); err == nil {
		t.perSecond[at.Unix()] += n
	}
}

// rate is refusals a minute, over the last minute.
func (t *tally) rate(now time.Time) (n uint64) {
	for s, c := range t.perSecond {
		if s > now.Unix()-60 {
			n += c
		} else {
			delete(t.perSecond, s)
		}
	}
	return n
}

type ranked struct {
	name string
	n    uint64
}

func rank(m map[string]uint64, most int) []ranked {
	out := make([]ranked, 0, len(m))
	for k, n := range m {
		out = append(out, ranked{k, n})
	}
	slices.SortFunc(out, func(a, b ranked) int { return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.name, b.name)) })
	return out[:max(0, min(len(out), most))]
}

type drawNow struct{}

// statsView is the live table.
type statsView struct {
	t             *tally
	log           string
	width, height int
	now           func() time.Time
}

func (v statsView) Init() tea.Cmd { return again() }

func again() tea.Cmd { return tea.Tick(statsEvery, func(time.Time) tea.Msg { return drawNow{} }) }

func (v statsView) Update(m tea.Msg) (tea.Model, tea.Cmd) {
	switch m := m.(type) {
	case tea.WindowSizeMsg:
		v.width, v.height = m.Width, m.Height
	case tea.KeyMsg:
		switch m.String() {
		case "q", "esc", "ctrl+c", "ctrl+d":
			return v, tea.Quit
		}
	case drawNow:
		return v, again()
	}
	return v, nil
}

var (
	bold = lipgloss.NewStyle().Bold(true)
	dim  = lipgloss.NewStyle().Faint(true)
	red  = lipgloss.NewStyle().Foreground(lipgloss.Color("1"))
)

// View draws the table to fit the terminal.
func (v statsView) View() string {
	v.t.mu.Lock()
	defer v.t.mu.Unlock()
	t := v.t
	if v.width == 0 {
		return ""
	}
	var lines []string
	line := func(s string) { lines = append(lines, ansi.Truncate(s, v.width, "…")) }
	line(bold.Render("planfence") + "  " + dim.Render(blocklog.Printable(v.log)))
	if !t.ready {
		line("reading the log …")
	}
	head := fmt.Sprintf("%s refused  %d in the last minute  %d lost", red.Bold(true).Render(fmt.Sprint(t.blocks)), t.rate(v.now()), t.lost)
	if t.would > 0 {
		head += fmt.Sprintf("  %d would be refused", t.would)
	}
	if t.bad > 0 {
		head += fmt.Sprintf("  %d lines are no records", t.bad)
	}
	line(head)
	var running []string
	for _, s := range t.sessionSeen {
		if task := t.sessions[s]; task != "-" {
			running = append(running, blocklog.Printable(s+" on "+task))
		}
	}
	line(dim.Render("sessions  ") + cmp.Or(strings.Join(running, ", "), "none without an end"))
	// Half of what is left is for the paths.
	room := max(3, v.height-len(lines)-8)
	tasks, ops := rank(t.tasks, room/4+1), rank(t.ops, room/4+1)
	section := func(title string, rows []ranked, note func(string) string) {
		line("")
		line(bold.Render(title))
		width := 0
		for _, r := range rows {
			width = max(width, ansi.StringWidth(blocklog.Printable(r.name)))
		}
		width = min(width, max(12, v.width-40))
		for _, r := range rows {
			name := ansi.Truncate(blocklog.Printable(r.name), width, "…")
			bar := strings.Repeat("█", max(1, int(20*r.n/max(1, rows[0].n))))
			line(fmt.Sprintf("%8d  %s%s  %s %s", r.n, name, strings.Repeat(" ", width-ansi.StringWidth(name)), red.Render(bar), dim.Render(note(r.name))))
		}
		if len(rows) == 0 {
			line(dim.Render("       –"))
		}
	}
	nothing := func(string) string { return "" }
	section("BY TASK", tasks, nothing)
	section("BY OPERATION AND REASON", ops, nothing)
	section("PATHS REFUSED MOST", rank(t.paths, max(1, v.height-len(lines)-5)), func(p string) string {
		if o := t.owners[p]; o != "" {
			return "owner " + blocklog.Printable(o)
		}
		return ""
	})
	for len(lines) < v.height-1 {
		line("")
	}
	last := "q ends"
	if t.last != nil {
		last += "  last: " + t.last.Text()
	}
	if t.pathsForgotten > 0 {
		last += fmt.Sprintf("  %d more on further paths", t.pathsForgotten)
	}
	lines = lines[:max(1, min(len(lines), v.height-1))]
	line(dim.Render(last))
	return strings.Join(lines, "\n")
}

// showStats shows the live table until q or Ctrl-C.
func showStats(ctx context.Context, e *env, log string, f *tailFlags) error {
	out, ok := e.stdout.(*os.File)
	if !ok || !terminal(out) {
		return hinted(errors.New("show statistics: stdout is no terminal"), "planfence report prints totals")
	}
	if abs, err := filepath.Abs(log); err == nil {
		log = abs
	}
	ctx, stop := context.WithCancel(ctx)
	t := newTally()
	var wg sync.WaitGroup
	wg.Go(func() {
		blocklog.Follow(ctx, log, func(r *blocklog.Record) {
			if f.wants(r) {
				t.add(r)
			}
		}, func(bad int) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.ready, t.bad = true, bad
		})
	})
	_, err := tea.NewProgram(statsView{t: t, log: log, now: time.Now}, tea.WithAltScreen(), tea.WithOutput(out), tea.WithContext(ctx)).Run()
	stop()
	wg.Wait()
	if err != nil && !errors.Is(err, tea.ErrProgramKilled) && !errors.Is(err, tea.ErrInterrupted) {
		return fmt.Errorf("show statistics: %w", err)
	}
	return nil
}
