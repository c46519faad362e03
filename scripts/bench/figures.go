package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

func (b *bench) figure(row string, v int64, unit string) {
	b.run.Results = append(b.run.Results, Result{row, "", "fenced", v, unit})
}

// first counts from the start of planfence run to the command's first instruction.
func (b *bench) first(how string) error {
	best := int64(-1)
	for range map[string]int{"cold": 1, "joining": 3}[how] {
		cmd := fenceCommand("dir", b.self, "first")
		cmd.Stderr = os.Stderr
		start := now()
		out, err := cmd.Output()
		if err != nil {
			return err
		}
		at, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil {
			return err
		}
		if d := at - start; best < 0 || d < best {
			best = d
		}
	}
	b.figure("start, "+how, best, "ns")
	return nil
}

func firstMain([]string) error {
	_, err := fmt.Println(now())
	return err
}

func (b *bench) figures() error {
	if err := b.first("joining"); err != nil {
		return err
	}
	if err := b.memory(); err != nil {
		return err
	}
	if err := b.sustained(); err != nil {
		return err
	}
	return b.switches()
}

type bpfObject struct {
	ID    ebpf.ProgramID `json:"id"`
	Name  string         `json:"name"`
	Type  string         `json:"type"`
	Bytes int64          `json:"bytes_memlock"`
}

// verifiedInstructions is how many instructions the verifier followed, of its
// limit of a million.
func verifiedInstructions(id ebpf.ProgramID) (int64, error) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return 0, fmt.Errorf("open program %d: %w", id, err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return 0, fmt.Errorf("ask about program %d: %w", id, err)
	}
	n, ok := info.VerifiedInstructions()
	if !ok {
		return 0, fmt.Errorf("the kernel does not tell the instructions of program %d", id)
	}
	return int64(n), nil
}

func bpftool(kind string) (out []bpfObject, err error) {
	data, err := exec.Command("bpftool", "-j", kind, "show").Output()
	if err != nil {
		return nil, fmt.Errorf("bpftool %s show: %w", kind, err)
	}
	return out, json.Unmarshal(data, &out)
}

// memory looks at the one session that is alive.
func (b *bench) memory() error {
	data, err := exec.Command(planfence, "status", "--json").Output()
	if err != nil {
		return fmt.Errorf("planfence status: %w", err)
	}
	var st struct {
		Sessions []struct {
			PID int `json:"pid"`
		} `json:"sessions"`
	}
	if err := json.Unmarshal(data, &st); err != nil {
		return err
	}
	if len(st.Sessions) != 1 {
		return fmt.Errorf("planfence status: %d sessions", len(st.Sessions))
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", st.Sessions[0].PID))
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(status), "\n") {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			if err != nil {
				return err
			}
			b.figure("companion, resident", kib<<10, "bytes")
		}
	}
	progs, err := bpftool("prog")
	if err != nil {
		return err
	}
	maps, err := bpftool("map")
	if err != nil {
		return err
	}
	var n, code, most, session, shared int64
	for _, p := range progs {
		if p.Type != "lsm" && p.Type != "tracing" {
			continue
		}
		n++
		code += p.Bytes
		verified, err := verifiedInstructions(p.ID)
		if err != nil {
			return err
		}
		most = max(most, verified)
	}
	for _, m := range maps {
		if m.Name == "scope" || m.Name == "ring" {
			session += m.Bytes
		} else {
			shared += m.Bytes
		}
	}
	b.figure("programs", n, "programs")
	b.figure("verified instructions, most of a program", most, "verified")
	b.figure("kernel memory, shared by all sessions: programs", code, "bytes")
	b.figure("kernel memory, shared by all sessions: maps", shared, "bytes")
	b.figure("kernel memory, a session", session, "bytes")
	return nil
}

// Sustained refusals: rate and time of the guest.
const (
	refuseRate    = 20000
	refuseSeconds = 5
	refuseNames   = 500
)

// refuseMain is refused opens of many names at a rate, for a while.
func refuseMain([]string) error {
	dir := dirAt("out", 7)
	var opens []func() error
	for i := range refuseNames {
		opens = append(opens, refusedOpen(fmt.Sprintf("%s/f%d", dir, i)))
	}
	start := now()
	for i := range int64(refuseRate * refuseSeconds) {
		if err := opens[i%refuseNames](); err != nil {
			return err
		}
		if i%100 == 99 {
			if ahead := start + (i+1)*1e9/refuseRate - now(); ahead > 0 {
				time.Sleep(time.Duration(ahead))
			}
		}
	}
	fmt.Println(int64(refuseRate*refuseSeconds) * 1e9 / (now() - start))
	return nil
}

func (b *bench) sustained() error {
	for i := range refuseNames {
		if err := os.WriteFile(fmt.Sprintf("%s/f%d", dirAt("out", 7), i), nil, 0o644); err != nil {
			return err
		}
	}
	log := root + "/.claude/blocked.log"
	if err := os.Remove(log); err != nil {
		return err
	}
	out, err := fenceCommand("dir", b.self, "refuse").Output()
	if err != nil {
		return fmt.Errorf("sustained refusals: %w", err)
	}
	rate, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	var told, lost int64
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var r struct {
			Kind        string
			Count, Lost int64
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return err
		}
		switch r.Kind {
		case "block":
			told += r.Count
		case "session-end":
			lost = r.Lost
		}
	}
	if told+lost != refuseRate*refuseSeconds {
		return fmt.Errorf("sustained refusals: %d told and %d lost of %d", told, lost, refuseRate*refuseSeconds)
	}
	b.figure("sustained refusals", rate, "a second")
	b.figure("sustained refusals, lost", lost, "events")
	return nil
}

// A plan of 1,000 tasks with 20 entries each.
const (
	switchTasks   = 1000
	switchEntries = 20
	switchTimes   = 9
)

func switchPlan(dir string) error {
	type task struct {
		ID    string   `json:"id"`
		Scope []string `json:"scope"`
	}
	var p struct {
		Tasks []task `json:"tasks"`
	}
	for t := range switchTasks {
		x := task{ID: fmt.Sprintf("T%d", t)}
		for e := range switchEntries {
			x.Scope = append(x.Scope, fmt.Sprintf("src/t%d/file%d.go", t, e))
		}
		p.Tasks = append(p.Tasks, x)
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(dir+"/.claude/plan.json", data, 0o644)
}

// switches counts from the change of the active-task file to the first write
// that the new task allows.
func (b *bench) switches() error {
	dir := "/root/q"
	for _, d := range []string{dir + "/.claude", dir + "/.git", dir + "/src/t1", dir + "/src/t2"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := switchPlan(dir); err != nil {
		return err
	}
	for _, how := range []string{"file", "command"} {
		if err := os.WriteFile(dir+"/.claude/active-task", []byte("T1\n"), 0o644); err != nil {
			return err
		}
		cmd := exec.Command(planfence, "run", "--root", dir, "--plan", dir+"/.claude/plan.json", "--profile", "none", "--quiet", "--",
			b.self, "probe", dir)
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		lines := newLines(out)
		if _, err := lines.next(); err != nil {
			return err
		}
		var took []int64
		for i := range switchTimes {
			time.Sleep(5*time.Second + 13*time.Millisecond) // revocation is over
			id := []string{"T2", "T1"}[i%2]
			fmt.Fprintf(in, "%s/src/t%s/file3.go\n", dir, id[1:])
			var start int64
			if how == "file" {
				if err := os.WriteFile(dir+"/.claude/new", []byte(id+"\n"), 0o644); err != nil {
					return err
				}
				start = now()
				if err := os.Rename(dir+"/.claude/new", dir+"/.claude/active-task"); err != nil {
					return err
				}
			} else {
				start = now()
				c := exec.Command(planfence, "task", "--root", dir, "--plan", dir+"/.claude/plan.json", id)
				if msg, err := c.CombinedOutput(); err != nil {
					return fmt.Errorf("planfence task: %w: %s", err, msg)
				}
			}
			line, err := lines.next()
			if err != nil {
				return err
			}
			at, err := strconv.ParseInt(line, 10, 64)
			if err != nil {
				return err
			}
			took = append(took, at-start)
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			return err
		}
		slices.Sort(took)
		name := map[string]string{"file": "task switch, 1,000 tasks: file renamed to in force, median",
			"command": "task switch, 1,000 tasks: planfence task started to in force, median"}[how]
		b.figure(name, took[len(took)/2], "ns")
	}
	return nil
}

// probeMain is given paths and says when each can first be written.
func probeMain([]string) error {
	fmt.Println("ready")
	lines := newLines(os.Stdin)
	for {
		path, err := lines.next()
		if errors.Is(err, errEnd) {
			return nil
		}
		if err != nil {
			return err
		}
		try := openClose(path, unix.O_WRONLY|unix.O_CREAT)
		for {
			err := try()
			if err == nil {
				break
			}
			if err != unix.EACCES {
				return err
			}
			time.Sleep(500 * time.Microsecond)
		}
		fmt.Println(now())
	}
}
