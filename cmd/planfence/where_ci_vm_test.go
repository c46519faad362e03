//go:build vm

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// ciAgent is the agent of README's jobs: it works in scope, reports its result as
// the service wants it, and tries what it must not.
const ciAgent = `#!/bin/sh
echo work > in/f
for f in "$GITHUB_OUTPUT" "$GITHUB_STEP_SUMMARY" "$GITHUB_STATE"; do
	[ -z "$f" ] || echo answer=42 >> "$f" || echo "closed: $f"
done
for f in "$GITHUB_ENV" "$GITHUB_PATH"; do
	[ -z "$f" ] || echo EVIL=1 >> "$f"
done
echo no > out/f
echo "agent: $(id -un) $PWD $HOME"
git add in/f && git -c user.name=ci -c user.email=ci@example.com commit -qm work && echo committed
exit 0
`

// ciLayout makes a checkout and, beside it, a runner's directory of command files.
func ciLayout(t *testing.T, work string) (checkout string) {
	t.Helper()
	checkout = work + "/app/app"
	for _, d := range []string{"/in", "/out", "/.claude"} {
		must(t, os.MkdirAll(checkout+d, 0o755))
	}
	must(t, os.WriteFile(checkout+"/.claude/plan.json", []byte(planText), 0o644))
	must(t, os.WriteFile(checkout+"/agent.sh", []byte(ciAgent), 0o755))
	mustRun(t, "git", "init", "-q", checkout)
	commands := work + "/_temp/_runner_file_commands"
	must(t, os.MkdirAll(commands, 0o755))
	for _, f := range ciFiles {
		must(t, os.WriteFile(commands+"/"+f+"_1b2c", nil, 0o644))
	}
	return checkout
}

var ciFiles = []string{"set_output", "step_summary", "save_state", "set_env", "add_path"}

// githubEnv is what a runner sets, for its work directory as the job sees it.
func githubEnv(work string) []string {
	f := work + "/_temp/_runner_file_commands/"
	return []string{
		"CI=true", "GITHUB_ACTIONS=true", "GITHUB_WORKSPACE=" + work + "/app/app", "RUNNER_TEMP=" + work + "/_temp",
		"GITHUB_OUTPUT=" + f + "set_output_1b2c", "GITHUB_STEP_SUMMARY=" + f + "step_summary_1b2c", "GITHUB_STATE=" + f + "save_state_1b2c",
		"GITHUB_ENV=" + f + "set_env_1b2c", "GITHUB_PATH=" + f + "add_path_1b2c",
	}
}

// testWhereCI runs the jobs of README as the services' runners lay them out: a
// GitHub job on a hosted machine, one in a container, and a GitLab job.
func testWhereCI(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	t.Run("github", func(t *testing.T) {
		mustRun(t, "useradd", "-m", "-u", "1001", "-s", "/bin/bash", "runner")
		must(t, os.WriteFile("/etc/sudoers.d/runner", []byte("runner ALL=(ALL) NOPASSWD: ALL\n"), 0o440))
		runner := &account{name: "runner", home: "/home/runner", owner: "runner:runner", uid: 1001}
		work := "/home/runner/work"
		checkout := ciLayout(t, work)
		script := work + "/_temp/step.sh"
		must(t, os.WriteFile(script, []byte("sudo planfence run --task T1 -- ./agent.sh\n"), 0o644))
		mustRun(t, "chown", "-R", "runner:runner", work)
		// A hosted machine has no fence yet, but this one has: the session joins it.
		cmd := runner.command(ctx, "/usr/bin/bash", "-e", script)
		cmd.Dir = checkout
		cmd.Env = append(slices.DeleteFunc(cmd.Env, func(kv string) bool { return strings.HasPrefix(kv, "PATH=") }), githubEnv(work)...)
		cmd.Env = append(cmd.Env, "PATH=/usr/local/bin:/usr/bin:/bin")
		out, err := cmd.CombinedOutput()
		count(t, "a GitHub job", checkCI(t, work, checkout, checkout, "agent: runner "+checkout+" /home/runner", string(out), err))
	})
	t.Run("in containers", func(t *testing.T) {
		mustRun(t, "modprobe", "overlay")
		for _, service := range []string{"github", "gitlab"} {
			t.Run(service, func(t *testing.T) {
				t.Parallel()
				base := t.TempDir()
				c := &container{name: service}
				work := filepath.Join(base, service, "work")
				c.work = work
				checkout := ciLayout(t, work)
				inside, stdin, home := "/__w/app/app", "", "/github/home"
				script := "cd " + inside + " && sh -e /__w/_temp/step.sh"
				if service == "github" {
					must(t, os.WriteFile(work+"/_temp/step.sh", []byte("planfence run --task T1 -- ./agent.sh\n"), 0o644))
					must(t, os.Mkdir(base+"/home", 0o755))
					c.bind = []string{work + ":/__w", base + "/home:/github/home"}
					c.env = append(githubEnv("/__w"), "HOME=/github/home")
				} else {
					// The runner pipes the script into the container's shell.
					inside, home = "/builds/group/app", "/root"
					script, stdin = "sh", "cd /builds/group/app\nplanfence run --task T1 -- ./agent.sh\n"
					must(t, os.MkdirAll(work+"/app.tmp", 0o755))
					c.bind = []string{work + "/app:/builds/group", work + "/app.tmp:/builds/group.tmp"}
					c.env = []string{"CI=true", "GITLAB_CI=true", "CI_PROJECT_DIR=" + inside}
				}
				cmd := c.crun(ctx, t, script)
				cmd.Stdin = strings.NewReader(stdin)
				out, err := cmd.CombinedOutput()
				count(t, "a "+service+" job in a container", checkCI(t, work, checkout, inside, "agent: root "+inside+" "+home, string(out), err))
			})
		}
	})
}

// checkCI checks what a job left: checkout is the checkout outside, inside is
// where the job saw it.
func checkCI(t *testing.T, work, checkout, inside, said, out string, err error) error {
	t.Helper()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if !strings.Contains(out, said) || !strings.Contains(out, "committed") || strings.Contains(out, "closed: ") {
		return fmt.Errorf("the job says:\n%s", out)
	}
	if b, err := os.ReadFile(checkout + "/in/f"); err != nil || string(b) != "work\n" {
		return fmt.Errorf("in/f: %q, %v\n%s", b, err, out)
	}
	if exists(checkout+"/out/f") == nil {
		return fmt.Errorf("out/f was written\n%s", out)
	}
	want := []string{inside + "/out/f"}
	github := strings.Contains(out, "set_env_")
	for i, f := range ciFiles {
		b, err := os.ReadFile(work + "/_temp/_runner_file_commands/" + f + "_1b2c")
		must(t, err)
		text := ""
		if github && i < 3 {
			text = "answer=42\n"
		}
		if !bytes.Equal(b, []byte(text)) {
			return fmt.Errorf("%s holds %q, want %q\n%s", f, b, text, out)
		}
	}
	if github {
		want = append(want, "set_env_1b2c", "add_path_1b2c")
	}
	for _, r := range readLog(t, checkout+"/.claude/blocked.log").blocks {
		at := slices.IndexFunc(want, func(w string) bool { return r.Path == w || filepath.Base(r.Path) == w })
		if at < 0 {
			return fmt.Errorf("record %s\n%s", r.show(), out)
		}
		want = slices.Delete(want, at, at+1)
	}
	if len(want) > 0 {
		return fmt.Errorf("no records of %q\n%s", want, out)
	}
	return nil
}
