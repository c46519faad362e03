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
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testExit: the exit status is the command's or says why there was none, and
// then nothing was started.
func testExit(t *testing.T, u *account, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for name, text := range map[string]string{
		"plan.json":        `{"tasks": [{"id": "T1", "scope": ["in/"]}]}`,
		"syntax.json":      `{"tasks": [{"id": "T1", "scope": ["in/"]},]}`,
		"all.json":         `{"tasks": [{"id": "T1", "scope": ["**"]}]}`,
		"plain":            "no program\n",
		"no-interpreter":   "#!/no/such/interpreter\n",
		"no-program":       "\x7fELF and nothing behind it",
		"in/keep":          "",
		"script-without-x": "#!/bin/sh\n",
	} {
		f := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(f), 0o777))
		must(t, os.WriteFile(f, []byte(text), 0o644))
	}
	must(t, os.Chmod(dir+"/in", 0o777))
	must(t, os.Chmod(dir+"/no-interpreter", 0o755))
	must(t, os.Chmod(dir+"/no-program", 0o755))
	canary := dir + "/in/canary"
	touch := " -- touch " + canary
	for _, c := range []struct {
		name, args string
		code       int
		text       string // what stderr says, beside a hint where planfence failed
	}{
		{"success", "--task T1 -- true", 0, ""},
		{"status", "--task T1 -- sh -c exit${IFS}7", 7, ""},
		{"125 of the command", "--task T1 -- sh -c exit${IFS}125", 125, ""},
		{"terminated", "--task T1 -- sh -c kill${IFS}-TERM${IFS}$$", 128 + 15, ""},
		{"killed", "--task T1 -- sh -c kill${IFS}-KILL${IFS}$$", 128 + 9, ""},
		{"not in PATH", "--task T1 -- no-such-command", 127, "no-such-command"},
		{"no such path", "--task T1 -- ./no-such-command", 127, "./no-such-command"},
		{"no interpreter", "--task T1 -- ./no-interpreter", 127, "no-interpreter"},
		{"not executable", "--task T1 -- ./script-without-x", 126, "script-without-x"},
		{"a directory", "--task T1 -- ./in", 126, "./in"},
		{"no program", "--task T1 -- ./no-program", 126, "no-program"},
		{"missing plan", "--plan missing.json --task T1" + touch, 125, "missing.json"},
		{"syntax error", "--plan syntax.json --task T1" + touch, 125, "syntax.json:1:"},
		{"whole scope", "--plan all.json --task T1" + touch, 125, "**"},
		{"unknown task", "--task T9" + touch, 125, "T1"},
		{"unknown flag", "--no-such-flag" + touch, 125, "--no-such-flag"},
		{"flag's value", "--mode half --task T1" + touch, 125, "half"},
		{"no command", "--task T1", 125, "no command"},
		{"no command after --", "--task T1 --", 125, "no command"},
	} {
		cmd := u.fenced(ctx, strings.Fields(c.args)...)
		var out, text bytes.Buffer
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &text
		err := cmd.Run()
		count(t, "exit: "+c.name, func() error {
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				return fmt.Errorf("exit status %d (%v), want %d: %s", code, err, c.code, &text)
			}
			if out.Len() != 0 {
				return fmt.Errorf("stdout has %q", &out)
			}
			if c.text == "" {
				return nil
			}
			if !strings.Contains(text.String(), "planfence: ") || !strings.Contains(text.String(), c.text) || !strings.Contains(text.String(), "hint: ") {
				return fmt.Errorf("stderr has neither %q and a hint: %s", c.text, &text)
			}
			if _, err := os.Lstat(canary); err == nil {
				return errors.New("the command was started")
			}
			return noSession(dir)
		}())
	}
}

// noSession checks that no session of a project exists, by its state or in the
// kernel's maps.
func noSession(root string) error {
	out, err := exec.Command(planfence, "status", "--json").Output()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		return err
	}
	var all struct {
		Sessions []struct {
			Session string
			Config  struct{ Root string }
		}
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return fmt.Errorf("status --json: %w: %s", err, out)
	}
	for _, s := range all.Sessions {
		if s.Config.Root == root || s.Config.Root == "" { // "": a row in the maps without a state
			return fmt.Errorf("session %s is left", s.Session)
		}
	}
	return nil
}

// testAlways: what is writable whatever the scope, whom files belong to, and
// the private temporary directory.
func testAlways(t *testing.T, u *account, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	must(t, os.WriteFile(dir+"/plan.json", []byte(planText), 0o644))
	run := u.fenced(ctx, "--task", "T1", "--", "bash", "-c", `set -e
		mkdir -p in/dir; echo x > in/dir/new
		for f in /dev/null /dev/zero /dev/full /dev/random /proc/self/oom_score_adj /proc/$$/oom_score_adj; do
			: >> $f; echo 9 > $f || [ $f = /dev/full ]
		done 2>&1
		echo x > /dev/shm/planfence.$$; mkdir /dev/shm/planfence-d.$$; rm -r /dev/shm/planfence*.$$
		echo x > $TMPDIR/file; mkdir $TMPDIR/dir; mktemp -d > /dev/null
		stat -c 'tmp %U:%G %a' $TMPDIR
		printf 'temp %s\n' "$TMPDIR" "$TMP" "$TEMP" "${TMPPREFIX%/*}"
		cat <<< here | tee $TMPDIR/tee > /dev/null
		echo id $(id -u) $(id -g) $(id -G) $HOME $USER $SHELL $PWD
		ls -l /proc/self/fd | wc -l`)
	var text bytes.Buffer
	run.Dir, run.Stderr = dir, &text
	must(t, os.Chown(dir+"/plan.json", u.uid, u.uid))
	out, err := run.Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) < 7 {
		t.Fatalf("%v: %s%s", err, out, &text)
	}
	lines = lines[len(lines)-7:]
	check := func(name string, ok bool) {
		t.Helper()
		if ok {
			count(t, name, nil)
		} else {
			count(t, name, fmt.Errorf("not so: %s%s", out, &text))
		}
	}
	log := readLog(t, dir+"/blocked.log")
	check("always writable: no record", len(log.blocks) == 0)
	check("the temporary directory is private", lines[0] == "tmp dev:dev 700")
	tmp := strings.TrimPrefix(lines[1], "temp ")
	check("TMPDIR, TMP, TEMP and TMPPREFIX agree", lines[2] == lines[1] && lines[3] == lines[1] && lines[4] == lines[1])
	_, err = os.Lstat(tmp)
	check("the temporary directory is removed", strings.HasPrefix(tmp, "/tmp/") && os.IsNotExist(err))
	check("the calling user", lines[5] == "id 1000 1000 1000 /home/dev dev /bin/bash "+dir)
	check("no further descriptors", lines[6] == "5") // total, 0, 1, 2 and the directory itself
	for _, f := range []string{"in", "in/dir", "in/dir/new", "blocked.log"} {
		st, err := os.Lstat(filepath.Join(dir, f))
		must(t, err)
		sys := st.Sys().(*syscall.Stat_t)
		check(f+" belongs to the user", sys.Uid == 1000 && sys.Gid == 1000)
	}
}

// testStdout: what the operator opened is written and opened again, other files
// are not.
func testStdout(t *testing.T, u *account, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	must(t, os.WriteFile(dir+"/plan.json", []byte(planText), 0o644))
	must(t, os.Chmod(dir, 0o777))
	files := map[string]*os.File{}
	for _, n := range []string{"report", "errors", "other"} {
		f, err := os.OpenFile(dir+"/"+n, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		must(t, err)
		defer f.Close()
		must(t, f.Chown(u.uid, u.uid))
		files[n] = f
	}
	cmd := u.fenced(ctx, "--quiet", "--task", "T1", "--", "sh", "-c",
		`echo one; echo two > /dev/stdout; echo three >> /proc/self/fd/1; echo e >> /dev/stderr; chmod 600 report; echo four >> report; echo no > other`)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, files["report"], files["errors"]
	if err := cmd.Run(); cmd.ProcessState.ExitCode() == 0 {
		t.Errorf("the last command's status is lost: %v", err)
	}
	for name, want := range map[string]string{"report": "two\nthree\nfour\n", "other": ""} {
		b, err := os.ReadFile(dir + "/" + name)
		must(t, err)
		if string(b) != want {
			err = fmt.Errorf("it holds %q, want %q", b, want)
		}
		count(t, "stdout: "+name, err)
	}
	errText, err := os.ReadFile(dir + "/errors")
	must(t, err)
	if !strings.Contains(string(errText), "e\n") || !strings.Contains(string(errText), "cannot create other: Permission denied") {
		err = fmt.Errorf("it holds %q", errText)
	}
	count(t, "stdout: errors", err)
	err = nil
	var got []string
	for _, r := range readLog(t, dir+"/blocked.log").blocks {
		got = append(got, r.Op+" "+r.Rel)
	}
	if s := strings.Join(got, ", "); s != "chmod report, open other" {
		err = fmt.Errorf("the log has: %s", s)
	}
	count(t, "stdout: the log", err)
}

// eventually waits until a condition holds, for at most a minute.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for tick := time.NewTicker(5 * time.Millisecond); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not so after a minute: %s", what)
		}
	}
}
