package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const planfence = "/usr/local/bin/planfence"

// bench is one run inside the guest.
type bench struct {
	run  Run
	self string
	sets map[string]bool
	only string // rows; empty: all
}

// guest runs everything and prints a [Run].
func guest(args []string) error {
	fs := flag.NewFlagSet("guest", flag.ContinueOnError)
	sets := fs.String("sets", "rows,scopes,work,figures", "")
	date := fs.String("date", "", "")
	only := fs.String("rows", "", "")
	columns := fs.String("columns", "", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	b := &bench{self: "/root/bench", sets: map[string]bool{}, only: *only}
	b.run.Kernel, b.run.Date = unix.ByteSliceToString(u.Release[:]), *date
	for _, s := range strings.Split(*sets, ",") {
		b.sets[s] = true
	}
	// A name that the AppArmor profile can execute, and that stays when the share goes.
	if err := copyFile("/proc/self/exe", b.self); err != nil {
		return err
	}
	steps := []struct {
		name string
		set  string // empty: always
		do   func() error
	}{
		{"tree", "", makeTree},
		{"work tree", "work", makeWork},
		{"off", "rows", func() error { return b.rows("off", "dir", b.self, "measure") }},
		{"off, work", "work", func() error { return b.rows("off", "dir", b.self, "work") }},
		{"empty", "rows", b.empty},
		{"landlock", "rows", func() error { return b.rows("landlock", "dir", b.self, "measure", "--refused") }},
		{"landlock, work", "work", func() error { return b.rows("landlock", "dir", b.self, "work") }},
		{"apparmor", "rows", func() error { return b.apparmor("measure", "--refused") }},
		{"apparmor, work", "work", func() error { return b.apparmor("work") }},
		{"start, cold", "figures", func() error { return b.first("cold") }},
		{"attached", "rows", func() error {
			return b.beside(func() error { return b.rows("attached", "dir", b.self, "measure") })
		}},
		{"fenced", "rows", func() error { return b.beside(func() error { return b.fenced("dir", "measure", "--refused") }) }},
		{"fenced, work", "work", func() error {
			return b.beside(func() error {
				return b.collect("fenced, work", fenceIn(workRoot, "dir", b.self, "work", "--column", "fenced"))
			})
		}},
		{"other scopes", "scopes", func() error { return b.beside(b.scopes) }},
		{"figures", "figures", func() error { return b.beside(b.figures) }},
	}
	for _, s := range steps {
		if s.set != "" && !b.sets[s.set] {
			continue
		}
		column, _, _ := strings.Cut(s.name, ",")
		if *columns != "" && s.set == "rows" && !slices.Contains(strings.Split(*columns, ","), column) {
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: %s\n", s.name)
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	enc := json.NewEncoder(os.Stdout)
	return enc.Encode(b.run)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// makeTree lays out the tree on a file system in memory: a journal's share of a
// call differs from call to call.
func makeTree() error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	for _, d := range depths {
		for _, top := range []string{"src", "out"} {
			dir := dirAt(top, d)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, fileName), []byte("x"), 0o644); err != nil {
				return err
			}
		}
	}
	return writePlan(root, scopeEntries())
}

// scopeEntries are the scopes by name.
func scopeEntries() map[string][]string {
	var files []string
	for _, d := range depths {
		rel := strings.TrimPrefix(dirAt("src", d), root+"/")
		files = append(files, rel+"/"+fileName, rel+"/"+newName, rel+"/"+dirName)
	}
	many := func(n int) []string {
		out := []string{"src/"}
		for i := range n - 1 {
			out = append(out, fmt.Sprintf("gen/pkg%03d/file%04d.go", i%100, i))
		}
		return out
	}
	return map[string][]string{"dir": {"src/"}, "file": files, "glob": {"**/*.md"}, "entries-10": many(10), "entries-10000": many(10000)}
}

func writePlan(dir string, scopes map[string][]string) error {
	type task struct {
		ID    string   `json:"id"`
		Scope []string `json:"scope"`
	}
	var p struct {
		Tasks []task `json:"tasks"`
	}
	for id, scope := range scopes {
		p.Tasks = append(p.Tasks, task{id, scope})
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir+"/.claude", 0o755); err != nil {
		return err
	}
	return os.WriteFile(dir+"/.claude/plan.json", data, 0o644)
}

// rows runs a command that prints results and keeps them.
func (b *bench) rows(column, scope string, argv ...string) error {
	argv = append(argv, "--column", column)
	if b.only != "" && slices.Contains(argv, "measure") {
		argv = append(argv, "--rows", b.only)
	}
	return b.collect(column, exec.Command(argv[0], argv[1:]...))
}

func (b *bench) collect(what string, cmd *exec.Cmd) error {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	sc := bufio.NewScanner(&out)
	for sc.Scan() {
		var r Result
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			return fmt.Errorf("%s printed %q: %w", what, sc.Text(), err)
		}
		b.run.Results = append(b.run.Results, r)
	}
	return sc.Err()
}

func (b *bench) empty() error {
	done, err := emptyPrograms()
	if err != nil {
		return err
	}
	defer done()
	return b.rows("empty", "dir", b.self, "measure")
}

func (b *bench) apparmor(args ...string) error {
	if err := loadProfile(); err != nil {
		b.run.Notes = append(b.run.Notes, fmt.Sprintf("no column apparmor: %v", err))
		return nil
	}
	return b.rows("apparmor", "dir", append([]string{b.self, "confined", b.self}, args...)...)
}

// fenceCommand runs args in a session of its own.
func fenceCommand(task string, args ...string) *exec.Cmd { return fenceIn(root, task, args...) }

func fenceIn(dir, task string, args ...string) *exec.Cmd {
	argv := append([]string{"run", "--root", dir, "--plan", dir + "/.claude/plan.json", "--task", task,
		"--profile", "none", "--quiet", "--"}, args...)
	return exec.Command(planfence, argv...)
}

func (b *bench) fenced(scope string, args ...string) error {
	args = append([]string{b.self}, args...)
	args = append(args, "--column", "fenced", "--scope", scope)
	if b.only != "" && !slices.Contains(args, "--rows") {
		args = append(args, "--rows", b.only)
	}
	return b.collect("fenced", fenceCommand(scope, args...))
}

// beside runs do while another session is alive, so that the programs stay
// loaded and attached.
func (b *bench) beside(do func() error) error {
	other := fenceCommand("dir", b.self, "wait")
	in, err := other.StdinPipe()
	if err != nil {
		return err
	}
	out, err := other.StdoutPipe()
	if err != nil {
		return err
	}
	other.Stderr = os.Stderr
	if err := other.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("start a session: %w", err)
	}
	err = do()
	in.Close()
	if e := other.Wait(); err == nil {
		err = e
	}
	return err
}

// waitMain says that it runs, and waits for the end of its input.
func waitMain([]string) error {
	fmt.Println("ready")
	_, err := bufio.NewReader(os.Stdin).ReadByte()
	if err != nil && err.Error() != "EOF" {
		return err
	}
	return nil
}

func (b *bench) scopes() error {
	open := "open for writing|create and unlink, depth 7"
	for scope, only := range map[string]string{"file": open, "glob": open, "entries-10": "open for writing", "entries-10000": "open for writing"} {
		if err := b.fenced(scope, "measure", "--rows", only); err != nil {
			return fmt.Errorf("scope %s: %w", scope, err)
		}
	}
	return nil
}
