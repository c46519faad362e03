//go:build vm

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"planfence/cmd/planfence/internal/companion"
)

const taskPlan = `{"tasks": [
  {"id": "T1", "scope": ["a/", "shared"]},
  {"id": "T2", "scope": ["b/", "shared"]},
  {"id": "T3", "scope": ["c/"%s]}]}
`

// testTasks: one session, whose task and plan are changed while it runs. Each
// task sees its own scope only.
func testTasks(t *testing.T, u *account, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	must(t, os.WriteFile(dir+"/plan.json", fmt.Appendf(nil, taskPlan, ""), 0o644))
	for _, d := range []string{"a", "b", "c", "d"} {
		u.dir(t, dir, d)
	}
	must(t, os.WriteFile(dir+"/shared", nil, 0o666))
	must(t, os.Chmod(dir+"/shared", 0o666))
	operator := func(args ...string) {
		t.Helper()
		cmd := u.command(ctx, append([]string{planfence}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("planfence %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	operator("task", "T1")
	cmd := u.fenced(ctx, append([]string{"--quiet", "--"}, driver(t, "write", setting{})...)...)
	cmd.Dir = dir
	var text bytes.Buffer
	cmd.Stderr = &text
	in, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	answers := bufio.NewScanner(stdout)
	ask := func(path string) string {
		if _, err := fmt.Fprintln(in, path); err != nil || !answers.Scan() {
			t.Fatalf("the session does not answer: %v: %s", err, &text)
		}
		return answers.Text()
	}
	if !answers.Scan() {
		t.Fatalf("the session does not begin: %s", &text)
	}
	name := answers.Text()
	inForce := func(task string, generation uint64) func() bool {
		return func() bool {
			s, err := companion.ReadState(name)
			return err == nil && s.Task == task && s.Generation >= generation
		}
	}
	var want []string
	all := map[string][]string{"a/f": {"T1"}, "b/f": {"T2"}, "c/f": {"T3"}, "shared": {"T1", "T2"}, "d/f": nil}
	probe := func(task string) {
		for _, path := range []string{"a/f", "b/f", "c/f", "shared", "d/f"} {
			answer, op := "ok", "create"
			if !slices.Contains(all[path], task) {
				answer = refused
				if _, err := os.Stat(dir + "/" + path); err == nil {
					op = "open"
				}
				want = append(want, fmt.Sprintf("%s %s %s %q", task, op, path, all[path]))
			}
			got, err := ask(path), error(nil)
			if got != answer {
				err = fmt.Errorf("%s, want %s", got, answer)
			}
			count(t, "task "+task+": "+path, err)
		}
	}
	probe("T1")
	for i, task := range []string{"T2", "T3", "T1", "T3"} {
		operator("task", task)
		eventually(t, "task "+task+" is in force", inForce(task, uint64(i+2)))
		probe(task)
	}
	// The plan changes under the active task.
	must(t, os.WriteFile(dir+"/plan.json", fmt.Appendf(nil, taskPlan, `, "d/"`), 0o644))
	all["d/f"] = []string{"T3"}
	eventually(t, "the new plan is in force", inForce("T3", 6))
	probe("T3")
	// The plan breaks: the last good one stays in force, and check knows it.
	must(t, os.WriteFile(dir+"/plan.json", []byte(`{"tasks": [`), 0o644))
	eventually(t, "the plan is known to be broken", func() bool {
		s, err := companion.ReadState(name)
		return err == nil && s.StaleWhy != ""
	})
	for path, answer := range map[string]string{"d/f": "ok", "new": refused} {
		got, err := ask(path), error(nil)
		if got != answer {
			err = fmt.Errorf("%s, want %s", got, answer)
		}
		count(t, "tasks: "+path+" while the plan is broken", err)
	}
	want = append(want, "T3 create new []")
	for path, code := range map[string]int{"d/f": 0, "a/f": 1} {
		cmd := u.command(ctx, "env", "PLANFENCE_SESSION="+name, planfence, "check", dir+"/"+path)
		var text bytes.Buffer
		cmd.Stderr = &text
		out, _ := cmd.Output()
		var err error
		if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), "task T3") || !strings.Contains(text.String(), "not in force") {
			err = fmt.Errorf("exit status %d, want %d: %s%s", got, code, out, &text)
		}
		count(t, "tasks: check of "+path+" while the plan is broken", err)
	}
	must(t, in.Close())
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the session: %v: %s", err, &text)
	}
	log := readLog(t, dir+"/blocked.log")
	var got, story []string
	for _, r := range log.blocks {
		got = append(got, fmt.Sprintf("%s %s %s %q", r.Task, r.Op, r.Rel, r.Owner))
	}
	if !slices.Equal(got, want) {
		err = fmt.Errorf("it has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	count(t, "tasks: the log", err)
	for _, r := range log.others {
		story = append(story, r.Kind+" "+r.Message)
	}
	err = nil
	want = []string{"task T1 -> T2", "task T2 -> T3", "task T3 -> T1", "task T1 -> T3", "plan the plan changed", "sync-error "}
	if len(story) != len(want) || !slices.EqualFunc(story, want, strings.HasPrefix) {
		s := strings.Join(story, ", ")
		err = fmt.Errorf("it has %s", s)
	}
	count(t, "tasks: the story", err)
}
