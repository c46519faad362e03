//go:build vm

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// gitWork is what people do with git in a checkout whose task covers in/. Every
// step must succeed.
var gitWork = []struct{ name, script string }{
	{"add, commit, amend", `echo 1 > in/f; git add in/f; git commit -qm one; echo 2 >> in/f; git commit -qa --amend -m two; git log --format=%s -1 | grep -qx two`},
	{"stash", `echo 3 >> in/f; git stash -q; ! grep -q 3 in/f; git stash pop -q; grep -q 3 in/f; git checkout -q -- in/f`},
	{"branch, merge", `git switch -qc topic; echo t > in/t; git add in/t; git commit -qm topic; git switch -q main; echo m > in/m; git add in/m; git commit -qm m
		git merge -q --no-edit topic; test -f in/t; git branch -d topic`},
	{"rebase", `git switch -qc side HEAD~1; echo s > in/s; git add in/s; git commit -qm side; git rebase -q main; git switch -q main; git merge -q --ff-only side; git tag v1`},
	{"interactive rebase", `GIT_SEQUENCE_EDITOR='sed -i 2s/pick/fixup/' git rebase -qi HEAD~2; git reset -q --hard ORIG_HEAD`},
	{"push, fetch", `git push -q origin main; git fetch -q origin; test "$(git rev-parse origin/main)" = "$(git rev-parse main)"`},
	{"gc", `git gc -q; git fsck --no-progress; ls .git/objects/pack/*.pack`},
	{"worktree", `git worktree add -q in/wt -b wt; echo w > in/wt/in/w; git -C in/wt add in/w; git -C in/wt commit -qm w; git worktree remove in/wt; git worktree prune; git branch -qD wt`},
	{"submodule", `echo n > in/sub/n; git -C in/sub add n; git -C in/sub commit -qm n; git add in/sub; git commit -qm sub; git submodule -q status; git -C in/sub fetch -q`},
	{"bisect, cherry-pick, revert", `git revert --no-edit HEAD~1 >/dev/null; git cherry-pick HEAD~1 >/dev/null 2>&1 || git cherry-pick --skip || git cherry-pick --abort; git bisect start HEAD HEAD~2; git bisect reset`},
	{"status, notes", `git status --short; git notes add -m note; git update-index --refresh; git reflog -3`},
}

// gitClosed is what runs later, outside: every step must fail and leave exactly
// records of these paths.
var gitClosed = []struct{ name, script, record string }{
	{"config", `git config user.name Other`, ".git/config.lock"},
	{"config, written", `echo '[core]' >> .git/config`, ".git/config"},
	{"hook", `echo '#!/bin/sh' > .git/hooks/post-commit`, ".git/hooks/post-commit"},
	{"hook's mode", `chmod +x .git/hooks/pre-push`, ".git/hooks/pre-push"},
	{"hooks moved", `mv .git/hooks .git/hooks.old`, ".git/hooks"},
	{"attributes", `echo '* filter=x' > .git/info/attributes`, ".git/info/attributes"},
	{"a submodule's config", `git -C in/sub config x.y z`, ".git/modules/in/sub/config.lock"},
	{"submodule update", `git submodule -q update`, ".git/modules/in/sub/config.lock"},
	{"upstream", `git branch -q --unset-upstream`, ".git/config.lock"},
	{"a submodule's hook", `echo > .git/modules/in/sub/hooks/post-commit`, ".git/modules/in/sub/hooks/post-commit"},
	{"commit to a file outside", `git checkout -q first -- out/f`, "out/f"},
	{"the git directory moved", `mv .git .git2`, ".git"},
}

func testWhereGit(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	dev := users[1]
	base := dev.dir(t, "/home/dev", "git")
	defer os.RemoveAll(base)
	p := base + "/p"
	prepare := dev.command(ctx, "bash", "-ec", `cd $0
		git init -q sub; (cd sub; echo s > s; git add s; git commit -qm sub)
		git init -q --bare remote.git
		git init -q p; cd p; mkdir -p in out .claude
		echo keep > in/keep; echo one > out/f; git add .; git commit -qm first; git tag first
		echo two > out/f; git commit -qam second
		git -c protocol.file.allow=always submodule --quiet add $0/sub in/sub; git commit -qm submodule
		echo '#!/bin/sh' > .git/hooks/pre-push; git config protocol.file.allow always; git -C in/sub config protocol.file.allow always
		git remote add origin $0/remote.git; git push -q -u origin main`, base)
	if out, err := prepare.CombinedOutput(); err != nil {
		t.Fatalf("prepare: %v\n%s", err, out)
	}
	must(t, os.WriteFile(p+"/.claude/plan.json", []byte(planText), 0o644))
	must(t, os.Chown(p+"/.claude/plan.json", dev.uid, dev.uid))
	protected := func() string {
		out, err := everythingBelow(p, ".git/hooks", ".git/config", ".git/modules/in/sub/config", ".git/modules/in/sub/hooks", "out")
		must(t, err)
		return out
	}
	before := protected()
	var script strings.Builder
	for i, w := range gitWork {
		fmt.Fprintf(&script, "( set -e; %s ) 2>&1; echo \"=== work %d $? 0\"\n", w.script, i)
	}
	for i, w := range gitClosed {
		fmt.Fprintf(&script, "( set -e; %s ) 2>&1; echo \"=== closed %d $? 0\"\n", w.script, i)
	}
	var text bytes.Buffer
	run := dev.fenced(ctx, "--quiet", "--task", "T1", "--allow", base+"/remote.git/", "--", "bash", "-c", script.String())
	run.Dir, run.Stderr = p, &text
	out, err := run.Output()
	if err != nil {
		t.Fatalf("the session: %v\n%s%s", err, out, &text)
	}
	runs := toolRuns(t, string(out))
	if len(runs) != len(gitWork)+len(gitClosed) {
		t.Fatalf("%d runs: %s%s", len(runs), out, &text)
	}
	for i, w := range gitWork {
		var err error
		if runs[i].status != "0" {
			err = fmt.Errorf("status %s\n%s", runs[i].status, runs[i].text)
		}
		count(t, w.name, err)
	}
	// A path may be tried by several steps: there are at least as many records of it.
	left := map[string]int{}
	blocks := readLog(t, p+"/.claude/blocked.log").blocks
	for _, b := range blocks {
		left[b.Rel]++
	}
	for i, w := range gitClosed {
		r := runs[len(gitWork)+i]
		var err error
		if r.status == "0" {
			err = errors.New("it succeeded")
		}
		if left[w.record]--; left[w.record] < 0 {
			err = errors.Join(err, errors.New("no record"))
		}
		for _, b := range blocks {
			b.taken = b.taken || b.Rel == w.record
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, r.text)
		}
		count(t, w.name, err)
	}
	for _, b := range blocks {
		if !b.taken {
			t.Errorf("a record that no step accounts for: %s", b.show())
		}
	}
	if after := protected(); after != before {
		t.Errorf("hooks, configuration or files outside changed:\n%s\nwere:\n%s", after, before)
	}
}
