//go:build vm

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestWhereAttach checks which attach mode is taken, or refused, on a kernel
// that was booted in one way or another: make test-attach boots it in each.
func TestWhereAttach(t *testing.T) {
	boot, err := os.ReadFile("/proc/cmdline")
	must(t, err)
	preempt, err := os.ReadFile("/sys/kernel/debug/sched/preempt")
	if err != nil && runtime.GOARCH != "arm64" { // where it is not chosen at boot
		t.Fatal(err)
	}
	modules, err := os.ReadFile("/sys/kernel/security/lsm")
	must(t, err)
	lsm := strings.Contains(string(modules), "bpf")
	skips := strings.Contains(string(preempt), "(full)") || strings.Contains(string(preempt), "(lazy)")
	release, err := kernelRelease()
	must(t, err)
	if skips && release[0] == 6 && release[1] < 2 {
		lsm = false // no mode holds there
	}
	want := "fmod_ret"
	if lsm {
		want = "lsm"
	} else if skips {
		want = ""
	}
	lockdown, _ := os.ReadFile("/sys/kernel/security/lockdown")
	if strings.Contains(string(lockdown), "[confidentiality]") {
		testLockedDown(t)
		return
	}
	t.Logf("booted with %s, preemption %s, modules %s: want %q", boot, preempt, modules, want)
	dir := t.TempDir()
	for _, d := range []string{"in", "out", ".claude"} {
		must(t, os.Mkdir(dir+"/"+d, 0o755))
	}
	must(t, os.WriteFile(dir+"/.claude/plan.json", []byte(planText), 0o644))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	run := func(args ...string) (out string, code int) {
		cmd := exec.CommandContext(ctx, planfence, args...)
		var text bytes.Buffer
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &text, &text
		_ = cmd.Run()
		return text.String(), cmd.ProcessState.ExitCode()
	}
	write := []string{"--task", "T1", "--", "sh", "-c", "echo x > in/f && ! echo x > out/f"}

	out, code := run(append([]string{"run"}, write...)...)
	if want != "" {
		count(t, "run takes the mode", contains(out, code, 0, "attach "+want+","))
		count(t, "inside is written", exists(dir+"/in/f"))
		log := readLog(t, dir+"/.claude/blocked.log")
		if len(log.blocks) != 1 || log.start.Attach != want || log.end.Misses != 0 {
			t.Errorf("the log has %d blocks, mode %s, %d programs skipped", len(log.blocks), log.start.Attach, log.end.Misses)
		}
	} else {
		count(t, "run refuses", contains(out, code, 125, "hint: boot with ", "preempt=voluntary"))
		if release[0] > 6 || release[1] >= 2 {
			count(t, "run names the list", contains(out, code, 125, strings.Replace(strings.TrimSpace(string(modules)), "capability,", "", 1)+",bpf", string(bootPreemption(preempt))))
		}
		if exists(dir+"/in/f") == nil {
			t.Error("the command was started")
		}
	}
	if exists(dir+"/out/f") == nil {
		t.Error("outside was written")
	}
	if !lsm {
		out, code = run(append([]string{"run", "--attach", "lsm"}, write...)...)
		count(t, "--attach lsm is refused", contains(out, code, 125, "hint: boot with "))
	} else if skips {
		out, code = run(append([]string{"run", "--attach", "fmod_ret"}, write...)...)
		count(t, "--attach fmod_ret is refused", contains(out, code, 125, "skipped under load", "preempt=voluntary"))
	}

	out, code = run("doctor", "--json")
	var rows []struct{ Name, Outcome, Detail, Remedy string }
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatalf("doctor --json: %v: %s", err, out)
	}
	holds := 1
	if want != "" {
		holds = 0
	}
	count(t, "doctor agrees", contains(out, code, holds, `"attach mode"`))
	for _, r := range rows {
		switch {
		case r.Name == "attach mode" && want != "" && r.Detail != want:
			t.Errorf("doctor says attach mode %q, want %s", r.Detail, want)
		case r.Outcome == "no" && r.Remedy == "" && r.Name != "canary":
			t.Errorf("doctor has no remedy for %s: %s", r.Name, r.Detail)
		}
	}
	if left, _ := os.ReadDir("/run/planfence/sessions"); len(left) != 0 {
		t.Errorf("sessions are left: %v", left)
	}
}

// testLockedDown: in this mode the kernel lets no program read its memory.
func testLockedDown(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/plan.json", []byte(planText), 0o644))
	for _, c := range []struct {
		args []string
		code int
	}{{[]string{"run", "--task", "T1", "--", "touch", "started"}, 125}, {[]string{"doctor"}, 1}} {
		cmd := exec.Command(planfence, c.args...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		count(t, c.args[0]+" under lockdown", contains(string(out), cmd.ProcessState.ExitCode(), c.code, "confidentiality", "boot with lockdown=integrity"))
	}
	if exists(dir+"/started") == nil {
		t.Error("the command was started")
	}
}

// bootPreemption returns the model in force, as debugfs writes it: none (voluntary) full.
func bootPreemption(text []byte) []byte {
	i, j := bytes.IndexByte(text, '('), bytes.IndexByte(text, ')')
	return text[i+1 : j]
}

func exists(path string) error {
	_, err := os.Lstat(path)
	return err
}

func contains(out string, code, want int, parts ...string) error {
	if code != want {
		return fmt.Errorf("exit status %d, want %d: %s", code, want, out)
	}
	var errs []error
	for _, p := range parts {
		if !strings.Contains(out, p) {
			errs = append(errs, fmt.Errorf("no %q in %s", p, out))
		}
	}
	return errors.Join(errs...)
}
