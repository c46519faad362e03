//go:build vm

package main_test

import (
	"os"
	"os/exec"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fencedScript runs a shell script as root in a session, in the project's root,
// and returns what it prints.
func fencedScript(t *testing.T, root, script string) string {
	t.Helper()
	c := exec.Command(planfence, "run", "--quiet", "--task", "T", "--", "bash", "-c", script)
	c.Dir = root
	var stderr strings.Builder
	c.Stderr = &stderr
	b, err := c.Output()
	if err != nil {
		t.Fatalf("the session: %v: %s%s", err, b, stderr.String())
	}
	return string(b)
}

// attempt is a line of script that says whether a command worked.
func attempt(name, cmd string) string {
	return "if (" + cmd + ") >/dev/null 2>&1; then echo " + name + " worked; else echo " + name + " refused; fi\n"
}

func expect(t *testing.T, got string, want ...string) {
	t.Helper()
	if g, w := strings.TrimSpace(got), strings.Join(want, "\n"); g != w {
		t.Errorf("got:\n%s\nwant:\n%s", g, w)
	}
}

// image makes a file system in a file and mounts it.
func image(t *testing.T, at string, mkfs ...string) {
	t.Helper()
	img := at + ".img"
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	_ = exec.Command("modprobe", "loop").Run() // where it is built in there is no module
	command(t, "truncate", "-s", "256M", img)
	command(t, mkfs[0], append(mkfs[1:], img)...)
	command(t, "mount", "-o", "loop", img, at)
}

// TestBypassRemade: a scope directory that is deleted and made again is the
// scope again, whatever inode it has.
func TestBypassRemade(t *testing.T) {
	shareMounts(t)
	hold(t)
	b := newBench(t, "/work/remade", 0)
	s := b.site(&attack{name: "r"})
	got := fencedScript(t, b.root, `cd t/r
for i in 1 2 3 4 5; do rm -rf in; mkdir in; echo x > in/f || echo lost; done
rm -rf in; `+attempt("other", "mv out in")+attempt("again", "mkdir in && echo x > in/f")+attempt("out", "echo x > out/f"))
	expect(t, got, "other refused", "again worked", "out refused")
	if text, _ := os.ReadFile(s.Out + "/f"); string(text) != "keep\n" {
		t.Errorf("out/f is %q", text)
	}
}

// TestBypassRenamed: the project's directory is moved from outside and another
// one takes its name: the fence stays with the directory.
func TestBypassRenamed(t *testing.T) {
	shareMounts(t)
	hold(t)
	const root = "/work/renamed/p"
	b := newBench(t, root, 0)
	b.site(&attack{name: "r"})
	done := make(chan string)
	go func() {
		done <- fencedScript(t, root, `cd t/r; touch in/ready; until [ -e in/go ]; do sleep 0.05; done
`+attempt("in", "echo x > in/after")+attempt("out", "echo x > out/f")+attempt("decoy", "echo x > "+root+"/t/r/in/f"))
	}()
	for deadline := time.Now().Add(60 * time.Second); !exists(root + "/t/r/in/ready"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the session is not ready")
		}
	}
	if err := os.Rename(root, root+"-moved"); err != nil {
		t.Fatal(err)
	}
	newBench(t, root, 0).site(&attack{name: "r"})
	if err := fresh(root + "-moved/t/r/in/go"); err != nil {
		t.Fatal(err)
	}
	expect(t, <-done, "in worked", "out refused", "decoy refused")
}

// TestBypassSubvolumes: two btrfs subvolumes with the same inode numbers under
// one device number; and a clone into a file outside.
func TestBypassSubvolumes(t *testing.T) {
	shareMounts(t)
	hold(t)
	const at = "/work/btrfs"
	image(t, at, "mkfs.btrfs", "-q")
	command(t, "btrfs", "subvolume", "create", at+"/one")
	command(t, "btrfs", "subvolume", "create", at+"/two")
	b := newBench(t, at+"/one/p", 0)
	b.site(&attack{name: "r"})
	twin := newBench(t, at+"/two/p", 0).site(&attack{name: "r"})
	for _, f := range []string{"/t/r/in/big", "/t/r/out/big"} {
		b.file(b.root+f, strings.Repeat("x", 1<<16))
	}
	before := digest(twin)
	got := fencedScript(t, b.root, `cd t/r
`+attempt("in", "echo x >> in/f")+attempt("two", "echo x >> "+twin.In+"/f")+attempt("clone-in", "cp --reflink=always in/f in/c")+
		attempt("clone-out", "cp --reflink=always in/f out/c")+attempt("snapshot", "btrfs subvolume snapshot "+at+"/one "+at+"/two/snap")+
		attempt("delete", "btrfs subvolume delete "+at+"/two")+
		attempt("dedupe", dedupe("in/big", "out/big")))
	expect(t, got, "in worked", "two refused", "clone-in worked", "clone-out refused", "snapshot refused", "delete refused", "dedupe refused")
	command(t, "sh", "-c", "cd "+b.root+"/t/r && "+dedupe("in/big", "out/big")) // the control
	if text, _ := os.ReadFile(twin.In + "/f"); string(text) != "keep\n" {
		t.Errorf("two: in/f is %q", text)
	}
	if d := diff(before, digest(twin)); d != "" {
		t.Errorf("two:\n%s", d)
	}
}

// dedupe is a command that has two files share what they hold: FIDEDUPERANGE, for which
// the second one need not be open for writing. It fails unless the kernel did it.
func dedupe(from, to string) string {
	return `python3 -c 'import fcntl, os, struct, sys
a, b = (os.open(f, os.O_RDONLY) for f in sys.argv[1:])
n = os.fstat(a).st_size
arg = bytearray(struct.pack("QQHHI", 0, n, 1, 0, 0) + struct.pack("qQQiI", b, 0, 0, 0, 0))
fcntl.ioctl(a, 0xc0189436, arg)
sys.exit(struct.unpack("i", arg[48:52])[0] != 0)' ` + from + " " + to
}

// TestBypassCasefold: in a directory that compares names without regard to case
// an exclusion holds in every spelling.
func TestBypassCasefold(t *testing.T) {
	shareMounts(t)
	hold(t)
	const at = "/work/casefold"
	image(t, at, "mkfs.ext4", "-q", "-O", "casefold", "-E", "encoding=utf8")
	b := newBench(t, at+"/p", 0)
	for _, d := range []string{"docs", "plain"} {
		b.mkdir(b.root + "/" + d)
	}
	command(t, "chattr", "+F", b.root+"/docs")
	b.mkdir(b.root + "/docs/private")
	b.mkdir(b.root + "/plain/private")
	b.file(b.root+"/docs/private/f", "keep\n")
	b.file(b.root+"/.claude/plan.json", `{"tasks":[{"id":"T","scope":["docs/","!docs/private/","plain/","!plain/private/","all/"]}]}`)
	command(t, "sh", "-c", "echo 3 > /proc/sys/vm/drop_caches") // so that the attacker looks first
	got := fencedScript(t, b.root, attempt("spelled", "echo x > docs/PRIVATE/f")+attempt("exact", "echo x > docs/private/f")+
		attempt("plain", "echo x > plain/f")+attempt("excluded", "echo x > plain/private/f")+
		attempt("all", "mkdir all && chattr +F all && echo x > all/F && echo y > all/f"))
	expect(t, got, "spelled refused", "exact refused", "plain worked", "excluded refused", "all worked")
	if text, _ := os.ReadFile(b.root + "/docs/private/f"); string(text) != "keep\n" {
		t.Errorf("docs/private/f is %q", text)
	}
}

// tower makes n directories of one name, each in the one before, with a file in the last.
func tower(t *testing.T, at, name string, n int) {
	t.Helper()
	fd, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY, 0)
	for range n {
		if err == nil {
			err = unix.Mkdirat(fd, name, 0o755)
		}
		below := -1
		if err == nil {
			below, err = unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		}
		_ = unix.Close(fd)
		fd = below
	}
	if err == nil {
		_, err = unix.Openat(fd, "f", unix.O_CREAT|unix.O_WRONLY, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestBypassDeep: paths deeper than any buffer and names as long as there are.
func TestBypassDeep(t *testing.T) {
	shareMounts(t)
	hold(t)
	b := newBench(t, "/work/deep", 0)
	s := b.site(&attack{name: "r"})
	long := strings.Repeat("n", 255)
	for _, d := range []string{s.In, s.Out} {
		tower(t, d, "d", 300)
		tower(t, d, long, 12)
	}
	down := func(d, name, n string) string {
		return "cd t/r/" + d + " && for i in {1.." + n + "}; do cd -P " + name + " || exit 1; done && echo x > f"
	}
	got := fencedScript(t, b.root, attempt("deep-in", down("in", "d", "300"))+attempt("deep-out", down("out", "d", "300"))+
		attempt("long-in", down("in", long, "12"))+attempt("long-out", down("out", long, "12")))
	expect(t, got, "deep-in worked", "deep-out refused", "long-in worked", "long-out refused")
}

// TestBypassInherited: a descriptor that the caller left open does not come along.
func TestBypassInherited(t *testing.T) {
	shareMounts(t)
	hold(t)
	b := newBench(t, "/work/inherited", 0)
	s := b.site(&attack{name: "r"})
	before := digest(s)
	command(t, "bash", "-c", "cd "+b.root+" && exec 9>>"+s.Out+"/f && "+planfence+" run --quiet --task T -- bash -c 'echo x >&9 || true'")
	if d := diff(before, digest(s)); d != "" {
		t.Errorf("changed outside the scope:\n%s", d)
	}
	command(t, "bash", "-c", "exec 9>>"+s.Out+"/f && echo x >&9") // the control
	if diff(before, digest(s)) == "" {
		t.Errorf("the control changed nothing")
	}
}

// TestBypassGit: git works, and what it would run later, outside, is closed.
func TestBypassGit(t *testing.T) {
	shareMounts(t)
	hold(t)
	b := newBench(t, "/work/git", 0)
	b.site(&attack{name: "r"})
	command(t, "bash", "-c", `cd `+b.root+` && git init -q . && git add -A && git commit -q -m first && git worktree add -q /work/git-other -b other &&
		mkdir -p .git/hooks .git/info .git/modules/m/hooks && touch .git/modules/m/config .git/info/attributes`)
	closed := map[string]string{
		"hook": "echo x > .git/hooks/pre-commit", "hook-mode": "chmod 755 .git/hooks/*", "hooks-moved": "mv .git/hooks .git/h",
		"config": "git config core.pager evil", "config-replaced": "mv -f t/r/in/f .git/config", "worktree-config": "echo x > .git/config.worktree",
		"attributes": "echo x > .git/info/attributes", "info-moved": "mv .git/info .git/i", "module-hook": "echo x > .git/modules/m/hooks/h",
		"module-config": "echo x > .git/modules/m/config", "module-moved": "mv .git/modules .git/m",
		"commondir": "echo /tmp > .git/worktrees/git-other/commondir", "worktree-moved": "mv .git/worktrees/git-other .git/worktrees/o",
		"git-moved": "mv .git t/r/in/git", "common": "echo x > .git/commondir",
	}
	var names []string
	script := ""
	for n := range closed {
		names = append(names, n)
	}
	sort.Strings(names)
	var want []string
	for _, n := range names {
		script += attempt(n, closed[n])
		want = append(want, n+" refused")
	}
	script += attempt("commit", "echo y > t/r/in/f && git add t && git commit -q -m second && git status && git stash list && git branch b2 && git gc -q") +
		attempt("own-worktree", "git worktree add -q t/r/in/wt -b mine && cd t/r/in/wt && echo z > z.txt; git status")
	got := fencedScript(t, b.root, script)
	expect(t, got, append(want, "commit worked", "own-worktree worked")...)
}
