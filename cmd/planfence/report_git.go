package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/policy"
	"planfence/cmd/planfence/internal/report"
	"planfence/plan"
)

// gitTimeout bounds one call of git.
const gitTimeout = 2 * time.Minute

// maxCommits bounds how many commits a report tells.
const maxCommits = 1000

// gitRunner runs git in the project. As root it runs as the checkout's owner:
// what the checkout's configuration names is run with no more than that.
type gitRunner struct {
	dir      string
	uid, gid int
	drop     bool
}

func (g *gitRunner) run(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), gitTimeout)
	defer cancel()
	// Nothing of the checkout's own is started, and nothing is written.
	args = append([]string{"--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false"}, args...)
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = g.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0"}
	if home := os.Getenv("HOME"); home != "" && !g.drop {
		cmd.Env = append(cmd.Env, "HOME="+home)
	}
	if g.drop {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(g.uid), Gid: uint32(g.gid)}}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", args[7], err, blocklog.Printable(strings.TrimSpace(stderr.String())))
	}
	return out, nil
}

// askGit reads commits made between from and to, and what git status shows. nil
// where the project is no checkout or there is no git.
func askGit(p *project, pl *plan.Plan, allowed []string, from, to time.Time) (*report.Git, error) {
	if len(policy.GitDirs(p.root)) == 0 {
		return nil, nil
	}
	g := &gitRunner{dir: p.root}
	if os.Geteuid() == 0 {
		st, err := os.Stat(p.root)
		if err != nil {
			return nil, fmt.Errorf("ask git: %w", err)
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Uid != 0 {
			g.uid, g.gid, g.drop = int(sys.Uid), int(sys.Gid), true
		}
	}
	top, err := g.run("rev-parse", "--show-toplevel")
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, hinted(fmt.Errorf("ask git: %w", err), "--git=false makes the report without it")
	}
	j := &gitJudge{p: p, pl: pl, top: strings.TrimSuffix(string(top), "\n")}
	for _, a := range allowed {
		if en, err := policy.AllowEntry(a, p.root); err == nil {
			j.allowed = append(j.allowed, en)
		}
	}
	out := &report.Git{}
	if out.Changes, err = j.changes(g); err == nil && !from.IsZero() {
		out.Commits, err = j.commits(g, from, to)
	}
	if err != nil {
		return nil, hinted(fmt.Errorf("ask git: %w", err), "--git=false makes the report without it")
	}
	return out, nil
}

// gitJudge tells whose a path is.
type gitJudge struct {
	p       *project
	pl      *plan.Plan
	top     string
	allowed []plan.Entry
}

// rel turns git's name, relative to the top of the checkout, into one relative
// to the root; one that is outside it stays absolute.
func (j *gitJudge) rel(name string) string {
	abs := filepath.Join(j.top, name)
	if rel, err := filepath.Rel(j.p.root, abs); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
		return rel
	}
	return abs
}

// own says what of the fence's or the operator's a path is.
func (j *gitJudge) own(rel string) string {
	abs := rel
	if !filepath.IsAbs(rel) {
		abs = filepath.Join(j.p.root, rel)
	}
	switch {
	case abs == j.p.plan:
		return "plan"
	case abs == j.p.taskFile:
		return "active task"
	case abs == j.p.log || strings.HasPrefix(abs, j.p.log+"."):
		return "block log"
	}
	for _, e := range j.allowed {
		if e.Match(strings.TrimPrefix(abs, "/"), false) == plan.Accept {
			return "--allow"
		}
	}
	// What an editor left beside a file that it may save.
	for i := range j.pl.Tasks {
		if t, err := j.pl.CompileTask(&j.pl.Tasks[i], true); err == nil && t.End(t.Walk(t.Start[0], "/"+rel)) == plan.Sibling {
			return "sibling"
		}
	}
	return ""
}

func (j *gitJudge) changes(g *gitRunner) ([]report.Change, error) {
	b, err := g.run("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=none")
	if err != nil {
		return nil, err
	}
	var out []report.Change
	for _, line := range bytes.Split(b, []byte{0}) {
		if len(line) < 4 {
			continue
		}
		// A directory is a repository of its own that git does not look into.
		rel := strings.TrimSuffix(j.rel(string(line[3:])), "/")
		c := report.Change{Status: string(line[:2]), Own: j.own(rel), Owners: j.pl.Owners(rel, ""), When: j.changed(rel)}
		blocklog.SetPath(&c.Rel, &c.Bytes, rel)
		out = append(out, c)
	}
	return out, nil
}

// changed returns when a path was last changed: by its change time, which nobody
// sets back. For one that is gone, that of the nearest directory, which is later
// or the same.
func (j *gitJudge) changed(rel string) time.Time {
	for path := filepath.Join(j.p.root, rel); ; path = filepath.Dir(path) {
		var st unix.Stat_t
		err := unix.Lstat(path, &st)
		if err == nil {
			return time.Unix(st.Ctim.Unix())
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) || path == j.p.root || path == "/" {
			return time.Time{}
		}
	}
}

func (j *gitJudge) commits(g *gitRunner, from, to time.Time) ([]report.Commit, error) {
	// Asked by commit time; a second more on both sides, since git's have no fractions.
	b, err := g.run("log", "-z", "--all", "--format=%H%n%ct%n%an%n%s", "--max-count="+strconv.Itoa(maxCommits),
		"--since=@"+strconv.FormatInt(from.Unix(), 10), "--until=@"+strconv.FormatInt(to.Unix()+1, 10))
	if err != nil {
		if strings.Contains(err.Error(), "does not have any commits") {
			return nil, nil
		}
		return nil, err
	}
	var out []report.Commit
	for _, entry := range bytes.Split(b, []byte{0}) {
		f := strings.SplitN(string(entry), "\n", 4)
		if len(f) < 4 {
			continue
		}
		sec, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			continue
		}
		c := report.Commit{Hash: f[0], Time: time.Unix(sec, 0).UTC()}
		var unused string
		blocklog.SetPath(&c.Author, &unused, f[2])
		blocklog.SetPath(&c.Subject, &unused, f[3])
		names, err := g.run("diff-tree", "-z", "--no-commit-id", "--name-only", "-r", "--root", "--no-renames", c.Hash)
		if err != nil {
			return nil, err
		}
		for _, n := range bytes.Split(names, []byte{0}) {
			if len(n) == 0 {
				continue
			}
			c.Files++
			rel := j.rel(string(n))
			if len(j.pl.Owners(rel, "")) == 0 && j.own(rel) == "" {
				var text string
				blocklog.SetPath(&text, &unused, rel)
				c.Outside = append(c.Outside, text)
			}
		}
		out = append(out, c)
	}
	return out, nil
}
