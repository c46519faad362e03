//go:build vm

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/companion"
)

// statusOf is one session as status --json tells it.
type statusOf struct {
	Session   string
	Task      string
	User      string
	Command   []string
	Attach    string
	Cells     int
	Orphan    bool
	Processes []int
	Blocks    uint64
	Lost      uint64
	Totals    []struct {
		Op, Reason string
		Count      uint64
	}
	SyncAge  float64 `json:"sync_age_seconds"`
	Problems []string
}

func statuses(t *testing.T) (all []statusOf, others []string, code int) {
	t.Helper()
	cmd := exec.Command(planfence, "status", "--json")
	out, err := cmd.Output()
	var x struct {
		Sessions    []statusOf
		OtherBuilds []string `json:"other_builds"`
	}
	if json.Unmarshal(out, &x) != nil {
		t.Fatalf("status --json: %v: %s", err, out)
	}
	return x.Sessions, x.OtherBuilds, cmd.ProcessState.ExitCode()
}

func statusFor(t *testing.T, name string) *statusOf {
	t.Helper()
	all, _, _ := statuses(t)
	for i := range all {
		if all[i].Session == name {
			return &all[i]
		}
	}
	return nil
}

// keeperOf finds the process number of a session's keeper.
func keeperOf(t *testing.T, name string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, f := range all {
		b, _ := os.ReadFile(f)
		if string(b) == companion.KeeperName+"\x00"+name+"\x00" {
			var pid int
			if _, err := fmt.Sscanf(f, "/proc/%d/", &pid); err == nil {
				return pid
			}
		}
	}
	t.Fatalf("session %s has no keeper", name)
	return 0
}

func kill(t *testing.T, pid int) {
	t.Helper()
	must(t, unix.Kill(pid, unix.SIGKILL))
	eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(b), ") Z ")
	})
}

// grows reports whether a file grows for a moment.
func grows(t *testing.T, path string) bool {
	t.Helper()
	was := size(path)
	for range 60 {
		if size(path) > was {
			return true
		}
		unix.Nanosleep(&unix.Timespec{Nsec: 50_000_000}, nil)
	}
	return false
}

// testKilled: kill -9 of the companion leaves the fence, and the keeper goes on
// with log and switches; what was refused in between is counted.
func testKilled(t *testing.T) {
	dir := tree(t)
	l := start(t, dir, "--quiet")
	l.want("ok", "children", dir) // writes in/stray, tries out/stray
	eventually(t, "the process that is left behind writes", func() bool { return size(dir+"/in/stray") > 0 })
	keeper := keeperOf(t, l.name)
	kill(t, l.cmd.Process.Pid)
	_ = l.in.Close()
	_ = l.cmd.Wait()
	eventually(t, "the keeper says that it took over", func() bool { return kinds(records(t, l.log()), "companion") == 1 })
	if !grows(t, dir+"/in/stray") {
		t.Error("in scope nothing can be written any more")
	}
	// It follows the plan, too.
	replace(t, dir+"/.claude/plan.json", planFor(true))
	eventually(t, "the keeper follows the plan", func() bool { return size(dir+"/out/stray") > 0 })
	replace(t, dir+"/.claude/plan.json", planFor(false))
	eventually(t, "and back", func() bool { return !grows(t, dir+"/out/stray") })
	s := statusFor(t, l.name)
	if s == nil || s.Orphan || len(s.Processes) != 1 || s.Blocks == 0 {
		t.Errorf("status: %+v", s)
	}

	// Keeper and companion gone: the fence holds, status says so and exits 1.
	kill(t, keeper)
	before := size(dir + "/out/stray")
	if !grows(t, dir+"/in/stray") || grows(t, dir+"/out/stray") {
		t.Error("without a companion the last scope does not hold")
	}
	s = statusFor(t, l.name)
	if _, _, code := statuses(t); s == nil || !s.Orphan || code != 1 || len(s.Problems) == 0 {
		t.Errorf("status does not tell of the orphan: exit status %d, %+v", code, s)
	}
	// stop leaves it alone while it has processes; --kill ends them.
	out, err := exec.Command(planfence, "stop", l.name).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "stay fenced") {
		t.Errorf("stop: %v: %s", err, out)
	}
	if !grows(t, dir+"/in/stray") {
		t.Error("stop killed without --kill")
	}
	// The next run finds it and gives it a keeper; blocks that nobody read are told.
	other := start(t, tree(t))
	if !strings.Contains(other.text.String(), "found sessions without a companion: "+l.name) {
		t.Errorf("run does not tell of the orphan: %s", other.text)
	}
	other.end()
	eventually(t, "a keeper took the orphan over", func() bool { return kinds(records(t, l.log()), "companion") == 2 })
	mustRun(t, planfence, "stop", "--kill", l.name)
	eventually(t, "the session is gone", func() bool { return statusFor(t, l.name) == nil })
	if n := size(dir + "/out/stray"); n != before {
		t.Errorf("out/stray has %d bytes, had %d", n, before)
	}
	checkTold(t, records(t, l.log()))
}

// checkTold checks that the records, and what is told as lost, come to the
// kernel's own total.
func checkTold(t *testing.T, all []*blocklog.Record) {
	t.Helper()
	var seen, lost uint64
	for _, r := range all {
		if r.Kind == "block" {
			seen += r.Count
		}
		if r.Kind == "lost" {
			lost += r.Lost
		}
	}
	if n := kinds(all, "session-end"); n != 1 {
		t.Errorf("%d ends of the session", n)
		return
	}
	end := all[slices.IndexFunc(all, func(r *blocklog.Record) bool { return r.Kind == "session-end" })]
	if seen+lost != end.Blocks || lost != end.Lost {
		t.Errorf("%d recorded and %d told as lost, the end tells %d and %d", seen, lost, end.Blocks, end.Lost)
	}
}

// testStatus: what status tells of sessions side by side.
func testStatus(t *testing.T) {
	dir := tree(t)
	one, two := start(t, dir, "--quiet", "--task", "T1"), start(t, dir, "--quiet", "--task", "T2")
	one.want(refused, "write", "b/g")
	two.want(refused, "write", "a/f")
	two.want(refused, "mkdir", "out/d")
	one.want("ok", "write", "a/f")
	two.want("ok", "write", "b/g")
	for l, want := range map[*live]string{one: "T1 open:1", two: "T2 mkdir:1 open:1"} {
		s := statusFor(t, l.name)
		if s == nil {
			t.Fatalf("session %s is not listed", l.name)
		}
		var totals []string
		for _, x := range s.Totals {
			totals = append(totals, fmt.Sprintf("%s:%d", x.Op, x.Count))
		}
		slices.Sort(totals)
		if got := s.Task + " " + strings.Join(totals, " "); got != want {
			t.Errorf("status tells %s, want %s", got, want)
		}
		if s.User != "root" || s.Attach != "lsm" || s.Cells == 0 || s.SyncAge <= 0 || len(s.Command) != 2 || s.Orphan || s.Lost != 0 {
			t.Errorf("status: %+v", s)
		}
	}
	one.end()
	two.end()
	if a, b := size(dir+"/a/f"), size(dir+"/b/g"); a != 1 || b != 1 {
		t.Errorf("a/f has %d bytes, b/g %d, want 1 each", a, b)
	}
}

// testForeign: pins of another build are named and left alone.
func testForeign(t *testing.T) {
	l := start(t, tree(t), "--quiet")
	foreign := "/sys/fs/bpf/planfence-0123456789ab-lsm"
	must(t, os.Mkdir(foreign, 0o700))
	m, err := pinned(t, "scopes").Clone() // to pin a map that is pinned is to move it
	must(t, err)
	defer m.Close()
	must(t, m.Pin(foreign+"/map_scopes"))
	_, others, _ := statuses(t)
	if !slices.Equal(others, []string{foreign}) {
		t.Errorf("status tells of %v", others)
	}
	out, _ := exec.Command(planfence, "status").CombinedOutput()
	if !strings.Contains(string(out), "pins of another build: "+foreign) {
		t.Errorf("status: %s", out)
	}
	l.want(refused, "write", "out/f")
	l.end()
	if _, err := os.Stat(foreign + "/map_scopes"); err != nil {
		t.Errorf("the other build's pins: %v", err)
	}
	must(t, os.RemoveAll(foreign))
}
