package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/companion"
	"planfence/loader"
)

// sessionStatus is one session as status shows it.
type sessionStatus struct {
	*companion.State
	Orphan    bool     `json:"orphan"`              // neither companion nor keeper lives
	Processes []int    `json:"processes,omitempty"` // needs root
	Totals    []total  `json:"totals,omitempty"`    // needs root
	Blocks    uint64   `json:"blocks"`
	Events    uint64   `json:"events"`
	Lost      uint64   `json:"lost"`
	Misses    *uint64  `json:"recursion_misses,omitempty"`
	SyncAge   float64  `json:"sync_age_seconds"`
	Problems  []string `json:"problems,omitempty"`
}

type total struct {
	Op, Reason string
	Verdict    string
	Count      uint64
}

func newStatus(e *env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the sessions and what they have refused",
		Long: `status lists the fenced sessions of this machine: command, user, task, scope,
totals. Processes and totals need root. The exit status is 1 if a session is
stale or has lost its companion.`,
		Example: "  sudo planfence status\n  planfence status --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, others, err := collect()
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(e.stdout)
				enc.SetIndent("", "  ")
				if err := enc.Encode(map[string]any{"sessions": all, "other_builds": others}); err != nil {
					return err
				}
			} else {
				showStatus(e, all, others)
			}
			for _, s := range all {
				if len(s.Problems) > 0 {
					return &exitError{code: 1}
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// collect reads the sessions' state and, as root, what the maps tell.
func collect() (all []*sessionStatus, others []string, err error) {
	byID := map[uint64]loader.Info{}
	var misses *uint64
	if os.Geteuid() == 0 {
		unlock, err := loader.Lock()
		if err != nil {
			return nil, nil, err
		}
		defer unlock() // held until the states are read: a new session has its row first
		others = loader.Others()
		f, err := loader.OpenExisting()
		if err == nil {
			defer f.Close()
			infos, err := f.List()
			if err != nil {
				return nil, nil, err
			}
			for _, i := range infos {
				byID[i.ID] = i
			}
			if n, err := f.RecursionMisses(); err == nil {
				misses = &n
			}
		} else if !errors.Is(err, os.ErrNotExist) {
			return nil, nil, err
		}
	}
	states, err := companion.States()
	if err != nil {
		return nil, nil, err
	}
	for _, st := range states {
		s := &sessionStatus{State: st, Orphan: !companion.Alive(st.Name), SyncAge: time.Since(st.Synced).Seconds(), Misses: misses}
		if i, ok := byID[st.ID]; ok {
			s.addInfo(i)
			delete(byID, st.ID)
		} else if os.Geteuid() == 0 {
			continue // being taken away at this moment
		}
		if s.Orphan {
			s.Problems = append(s.Problems, "its companion is gone: the last scope holds, nothing is logged; planfence stop "+st.Name+" ends it")
		}
		if st.StaleWhy != "" {
			s.Problems = append(s.Problems, fmt.Sprintf("stale since %s: %s", st.StaleSince.Format(time.RFC3339), st.StaleWhy))
		}
		if misses != nil && *misses > 0 {
			s.Problems = append(s.Problems, fmt.Sprintf("the kernel skipped programs %d times: the fence may have had gaps", *misses))
		}
		all = append(all, s)
	}
	for id, i := range byID {
		s := &sessionStatus{State: &companion.State{Name: companion.Name(id), ID: id}, Orphan: true,
			Problems: []string{"its state is gone; planfence stop " + companion.Name(id) + " ends it"}}
		s.addInfo(i)
		all = append(all, s)
	}
	return all, others, nil
}

func (s *sessionStatus) addInfo(i loader.Info) {
	seen := map[int]bool{}
	for _, m := range i.Members {
		if !seen[m.PID] {
			seen[m.PID] = true
			s.Processes = append(s.Processes, m.PID)
		}
	}
	sort.Ints(s.Processes)
	for k, n := range i.Counts.Refused {
		s.Totals = append(s.Totals, total{k.Op, k.Reason, "block", n})
		s.Blocks += n
	}
	for k, n := range i.Counts.Audited {
		s.Totals = append(s.Totals, total{k.Op, k.Reason, "would-block", n})
	}
	sort.Slice(s.Totals, func(a, b int) bool {
		x, y := s.Totals[a], s.Totals[b]
		if x.Count != y.Count {
			return x.Count > y.Count
		}
		return x.Op+x.Reason < y.Op+y.Reason
	})
	s.Events, s.Lost = i.Counts.Events, i.Counts.Lost
}

func showStatus(e *env, all []*sessionStatus, others []string) {
	if len(all) == 0 {
		fmt.Fprintln(e.stderr, "no session is fenced")
	}
	w := tabwriter.NewWriter(e.stdout, 0, 8, 2, ' ', 0)
	for i, s := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		row := func(k, format string, args ...any) { fmt.Fprintf(w, "  %s\t%s\n", k, fmt.Sprintf(format, args...)) }
		fmt.Fprintf(w, "%s\n", s.Name)
		row("command", "%s", blocklog.Printable(strings.Join(s.Command, " ")))
		row("user", "%s", s.User)
		row("root", "%s", blocklog.Printable(s.Config.Root))
		row("task", "%s (generation %d, %s)", orNone(s.Task), s.Generation, s.Kind)
		row("scope", "%d cells", s.Cells)
		row("attach", "%s, mode %s", s.Attach, s.Mode)
		row("in force", "for %s", (time.Duration(s.SyncAge * float64(time.Second))).Round(time.Second))
		if os.Geteuid() == 0 {
			row("processes", "%d", len(s.Processes))
			row("blocks", "%d, lost records %d", s.Blocks, s.Lost)
			for _, t := range s.Totals {
				row("", "%s %s (%s): %d", t.Verdict, t.Op, t.Reason, t.Count)
			}
		}
		if s.Unwritten > 0 {
			row("log", "%d refusals could not be written to it", s.Unwritten)
		}
		for _, m := range s.Mappings {
			row("mapping", "%s: shared, writable, mapped before the switch", blocklog.Printable(m))
		}
		for _, p := range s.Problems {
			row("problem", "%s", p)
		}
	}
	w.Flush()
	for _, o := range others {
		fmt.Fprintf(e.stderr, "planfence: pins of another build: %s: left alone\n", o)
	}
}

func newStop(e *env) *cobra.Command {
	var kill bool
	c := &cobra.Command{
		Use:   "stop SESSION",
		Short: "End a session that has lost its companion, or whose processes are gone",
		Long: `stop takes a session away once it has no processes. With --kill its processes
are killed first. Without, a session that still has processes is left as it is:
they stay fenced.`,
		Example: "  sudo planfence stop s-1a2b3c4d\n  sudo planfence stop --kill s-1a2b3c4d",
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return stop(e, args[0], kill) },
	}
	c.Flags().BoolVar(&kill, "kill", false, "kill the session's processes")
	return c
}

func stop(e *env, name string, kill bool) error {
	if os.Geteuid() != 0 {
		return hinted(fmt.Errorf("stop %s: %w", name, os.ErrPermission), "run it as root: sudo planfence stop %s", name)
	}
	unlock, err := loader.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	f, err := loader.OpenExisting()
	if errors.Is(err, os.ErrNotExist) {
		return hinted(fmt.Errorf("no session %s: none is fenced", name), "planfence status lists sessions")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for range 100 {
		infos, err := f.List()
		if err != nil {
			return err
		}
		var found *loader.Info
		for i := range infos {
			if companion.Name(infos[i].ID) == name {
				found = &infos[i]
			}
		}
		if found == nil {
			return hinted(fmt.Errorf("no session %s", name), "planfence status lists sessions")
		}
		if len(found.Members) == 0 {
			if companion.Alive(name) {
				return nil // its companion takes it away
			}
			if err := f.DropLast(found.ID); err != nil {
				return err
			}
			return os.RemoveAll(companion.StateDir(name))
		}
		if !kill {
			return hinted(fmt.Errorf("stop %s: %d threads are left and stay fenced", name, len(found.Members)),
				"end them, or planfence stop --kill %s", name)
		}
		for _, m := range found.Members {
			_ = unix.Kill(m.PID, unix.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond) // between looks: killed processes take a moment
	}
	return fmt.Errorf("stop %s: its processes do not end", name)
}
