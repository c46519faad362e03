//go:build vm

package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Programs as people use them. Each script of testdata/where runs twice in one
// session of the user dev, in a directory of its own that its first part, up to a
// line "## act", has filled beforehand: inside the scope, where it must succeed,
// change something and leave no record; and outside, where nothing may change
// and every record lies in that directory.
//
//go:embed testdata/where
var whereScripts embed.FS

// whereRunner runs the scripts named in $TOOLS below each directory named in
// $SIDES and says how each ended.
const whereRunner = `
for side in $SIDES; do for tool in $TOOLS; do
	cd "$BASE/$side/$tool" || exit 9
	began=$EPOCHREALTIME
	bash -e "$BASE/scripts/$tool.act" < /dev/null 2>&1
	echo "=== $side $tool $? $(( (${EPOCHREALTIME/./} - ${began/./}) / 1000 ))"
done; done`

// TestWhere is what a user's programs meet, beside one session that keeps the fence.
func TestWhere(t *testing.T) {
	keep := startKeeper(t)
	t.Run("with", func(t *testing.T) {
		t.Run("tools", testWhereTools)
		t.Run("git", testWhereGit)
		t.Run("terminal", testWhereTerminal)
		t.Run("containers", func(t *testing.T) {
			t.Parallel()
			testWhereContainers(t)
		})
		t.Run("ci", testWhereCI)
	})
	// What containers had loaded went with them, also with the one that was killed.
	eventually(t, "one set of programs is left", func() bool { return loadedPrograms(t) == 1 })
	keep.end(t)
}

type toolRun struct {
	side, tool, status, text string
}

var toolEnd = regexp.MustCompile(`(?m)^=== (\S+) (\S+) (\d+) (\d+)$`)

func toolRuns(t *testing.T, out string) (runs []toolRun) {
	t.Helper()
	from := 0
	for _, m := range toolEnd.FindAllStringSubmatchIndex(out, -1) {
		f := func(i int) string { return out[m[2*i]:m[2*i+1]] }
		runs = append(runs, toolRun{f(1), f(2), f(3), out[from:m[0]]})
		t.Logf("%s %s: status %s, %s ms", f(1), f(2), f(3), f(4))
		from = m[1]
	}
	return runs
}

func testWhereTools(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	dev := users[1]
	base := dev.dir(t, "/home/dev", "tools")
	defer os.RemoveAll(base)
	must(t, os.MkdirAll(base+"/scripts", 0o755))
	must(t, os.MkdirAll(base+"/.claude", 0o755))
	must(t, os.WriteFile(base+"/.claude/plan.json", []byte(planText), 0o644))
	var tools []string
	files, err := fs.Glob(whereScripts, "testdata/where/*.sh")
	must(t, err)
	for _, f := range files {
		b, err := whereScripts.ReadFile(f)
		must(t, err)
		name := strings.TrimSuffix(filepath.Base(f), ".sh")
		prepare, act, ok := strings.Cut("\n"+string(b), "\n## act\n")
		if !ok {
			t.Fatalf("%s has no line ## act", f)
		}
		tools = append(tools, name)
		must(t, os.WriteFile(base+"/scripts/"+name+".prepare", []byte(prepare), 0o644))
		must(t, os.WriteFile(base+"/scripts/"+name+".act", []byte(act), 0o644))
	}
	if only := os.Getenv("WHERE_TOOLS"); only != "" { // while one is being written
		tools = strings.Fields(only)
	}
	screen, err := whereScripts.ReadFile("testdata/where/screen.py")
	must(t, err)
	must(t, os.WriteFile(base+"/scripts/screen.py", screen, 0o644))
	mustRun(t, "chown", "-R", "dev:dev", base)
	env := []string{"BASE=" + base, "TOOLS=" + strings.Join(tools, " "), "GOTOOLCHAIN=local", "GOPROXY=off", "CGO_ENABLED=0", "TERM=xterm"}
	prepare := dev.command(ctx, "bash", "-ec", `git init -q "$BASE"
		for side in in out; do for tool in $TOOLS; do
			mkdir -p "$BASE/$side/$tool"; cd "$BASE/$side/$tool"; bash -e "$BASE/scripts/$tool.prepare"
		done; done`)
	prepare.Env = append(prepare.Env, env...)
	if out, err := prepare.CombinedOutput(); err != nil {
		t.Fatalf("prepare: %v\n%s", err, out)
	}
	before, err := describeAll(base, "in", "out")
	must(t, err)

	var text bytes.Buffer
	run := dev.fenced(ctx, "--quiet", "--task", "T1", "--profile", "claude", "--", "bash", "-c", whereRunner)
	run.Dir, run.Stderr = base, &text
	run.Env = append(append(run.Env, env...), "SIDES=in out")
	fencedOut, err := run.Output()
	if err != nil {
		t.Fatalf("the session: %v\n%s%s", err, fencedOut, &text)
	}
	after, err := describeAll(base, "in", "out")
	must(t, err)
	runs := toolRuns(t, string(fencedOut))
	if len(runs) != 2*len(tools) {
		t.Fatalf("%d runs of %d tools: %s%s", len(runs), len(tools), fencedOut, &text)
	}

	// Outside, a program may try further places; everything inside was done before.
	records := map[string][]string{}
	log := readLog(t, base+"/.claude/blocked.log")
	outsideBegan := false
	for _, r := range log.blocks {
		where := ""
		for _, side := range []string{"in", "out"} {
			for _, tool := range tools {
				d := side + "/" + tool
				if within(r.Rel, d) && (r.Rel2 == "" || within(r.Rel2, d)) {
					where = d
				}
			}
		}
		outsideBegan = outsideBegan || strings.HasPrefix(where, "out/")
		if where == "" && !outsideBegan {
			t.Errorf("a record inside the scope, of no tool's directory: %s", r.show())
		}
		records[where] = append(records[where], r.show())
	}
	for _, r := range runs {
		key := r.side + "/" + r.tool
		changed := changedBelow(before, after, key)
		err := func() error {
			if r.side == "out" {
				if len(changed) > 0 {
					return fmt.Errorf("changed: %s", changed)
				}
				if len(records[key]) == 0 {
					return errors.New("no record")
				}
				return nil
			}
			if r.status != "0" {
				return fmt.Errorf("status %s", r.status)
			}
			if len(records[key]) > 0 {
				return fmt.Errorf("records: %s", strings.Join(records[key], "\n"))
			}
			if len(changed) == 0 {
				return errors.New("nothing changed")
			}
			return nil
		}()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, r.text)
		}
		count(t, key, err)
	}
}

func within(rel, dir string) bool { return rel == dir || strings.HasPrefix(rel, dir+"/") }

// changedBelow returns the entries at and below a directory that differ.
func changedBelow(before, after map[string]string, dir string) (out []string) {
	for k, v := range after {
		if within(k, dir) && before[k] != v {
			out = append(out, k)
		}
	}
	for k := range before {
		if _, ok := after[k]; !ok && within(k, dir) {
			out = append(out, k+" is gone")
		}
	}
	return out
}

// everything describes the three trees, path by path.
func everything(base string) (map[string]string, error) {
	return describeAll(base, "free", "in", "out")
}

func describeAll(base string, tops ...string) (map[string]string, error) {
	all := map[string]string{}
	for _, top := range tops {
		err := filepath.WalkDir(filepath.Join(base, top), func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			all[strings.TrimPrefix(path, base+"/")], err = describe(path)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", base, err)
		}
	}
	return all, nil
}

// everythingBelow is describeAll as one text.
func everythingBelow(base string, tops ...string) (string, error) {
	all, err := describeAll(base, tops...)
	var lines []string
	for k, v := range all {
		lines = append(lines, k+" "+v)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), err
}
