//go:build vm

package main

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// place is where an act happens: in d, a directory of its own, whose scope is
// what the act is about. s is a second directory, always in scope, for acts on
// two names. All are absolute. owner is what chown(1) is given: something that
// the user may do.
type place struct {
	root, d, s, owner string
}

func (p place) fill(text string, a *act) string {
	below := ""
	if a.below != nil {
		below = a.below(p)
	}
	return strings.NewReplacer("@root", p.root, "@d", p.d, "@s", p.s, "@owner", p.owner, "@below", below).Replace(text)
}

// act is one thing that a process may try, in a directory that holds the file f
// ("keep\n"), the empty directory sub and the symbolic link l to f; s holds a
// file f as well. It must succeed without the fence and inside the scope, and
// change the directory. Outside the scope it must fail with EACCES, change
// nothing and leave exactly the records of want.
type act struct {
	name  string
	dir   string               // the directory's name, where it is not the act's
	argv  []string             // a program; "new\n" is its standard input
	call  func(p place) error  // or system calls of the driver itself
	batch []string             // or an interpreter: argv of one process for all places
	setup func(p place) error  // makes what else is needed, outside the fence
	below func(p place) string // a directory below d, for records
	cold  bool                 // the kernel knows no name below d when it begins

	want []want // the records outside the scope
	// audit is what an auditing session records, where it differs: what follows
	// the first call happens there as well.
	audit   []want
	noAudit bool // not run there: what follows depends on the file system

	outOnly bool     // there is no twin in the scope
	inOnly  bool     // nothing is refused
	allowed bool     // it is no write: never refused, changes nothing
	owner   []string // of the path, where it is not that of the directory
	also    string   // what else it would change, relative to the root
	// copiesUp: overlayfs copies the directory up before it asks, whatever the
	// answer; that shows in the directory's own change time and links.
	copiesUp bool
	needs    func(h host) bool
}

// want is an expected record. Paths have place's placeholders; one that ends in
// * is a beginning. reason "" is scope.
type want struct {
	op, path, path2, reason string
}

func one(op, path string) []want        { return []want{{op: op, path: path}} }
func two(op, path, path2 string) []want { return []want{{op: op, path: path, path2: path2}} }

// host is what the acts depend on.
type host struct {
	fs     string
	kernel release
}

// release of a kernel, major and minor.
type release [2]int

func (v release) atLeast(major, minor int) bool {
	return v[0] > major || v[0] == major && v[1] >= minor
}

func sh(shell, script string) []string { return []string{shell, "-c", script} }

func words(line string) []string { return strings.Fields(line) }

// acts returns all acts on a host, in the order in which they are run.
func acts(h host) []act {
	var out []act
	for _, list := range [][]act{programs(h), interpreters(), calls(h), names()} {
		for _, a := range list {
			if a.dir == "" {
				a.dir = a.name
			}
			if a.needs == nil || a.needs(h) {
				out = append(out, a)
			}
		}
	}
	return out
}

// programs are the commands of a shell session. What they share with one
// another is among the calls, which cost no process.
func programs(h host) []act {
	open := one("open", "@d/f")
	create := one("create", "@d/new")
	return []act{
		{name: "bash", argv: sh("bash", "echo x > @d/f"), want: open},
		{name: "bash-new", argv: sh("bash", "echo x > @d/new"), want: create},
		{name: "sh", argv: sh("sh", "echo x > @d/f"), want: open},
		{name: "sh-empty", argv: sh("sh", ": > @d/f"), want: open},
		{name: "zsh", argv: sh("zsh", "echo x > @d/f"), want: open},
		{name: "tee", argv: words("tee @d/f"), want: open},
		{name: "cp", argv: words("cp @s/f @d/f"), want: open, noAudit: true}, // tries to clone
		{name: "cp-new", argv: words("cp @s/f @d/new"), want: create, noAudit: true},
		{name: "dd", argv: words("dd if=/dev/zero of=@d/f bs=1 count=1 status=none"), want: open},
		{name: "rm", argv: words("rm @d/f"), want: one("unlink", "@d/f")},
		{name: "rmdir", argv: words("rmdir @d/sub"), want: one("rmdir", "@d/sub")},
		{name: "ln-in", argv: words("ln @d/f @s/new"), want: two("link", "@d/f", "@s/new")},
		{name: "ln-out", argv: words("ln @s/f @d/new"), want: two("link", "@s/f", "@d/new")},
		{name: "ln-s", argv: words("ln -s f @d/new"), want: one("symlink", "@d/new")},
		{name: "mkfifo", argv: words("mkfifo @d/new"), want: one("mknod", "@d/new")},
		{name: "truncate", argv: words("truncate -s 1 @d/f"), want: open, noAudit: true}, // ftruncate(2) follows
		{name: "chmod", argv: words("chmod 600 @d/f"), want: one("chmod", "@d/f")},
		{name: "chown", argv: words("chown @owner @d/f"), want: one("chown", "@d/f")},
		{name: "mkdir-p", argv: words("mkdir -p @d/a/b/c"), want: one("mkdir", "@d/a"), noAudit: true},
		{name: "mv", argv: words("mv @d/f @d/new"), want: two("rename", "@d/f", "@d/new")},
		{name: "mv-in", argv: words("mv @d/f @s/new"), want: two("rename", "@d/f", "@s/new")},
		{name: "mv-out", argv: words("mv @s/f @d/new"), want: two("rename", "@s/f", "@d/new")},
		{name: "mv-over", argv: words("mv -f @s/f @d/f"), want: two("rename", "@s/f", "@d/f")},
		{name: "touch", argv: words("touch @d/f"), want: []want{{op: "open", path: "@d/f"}, {op: "utimes", path: "@d/f"}}},
		{name: "setfacl", argv: words("setfacl -m u:1:r @d/f"), want: one(setaclOp(h), "@d/f")},
		{name: "git-commit", argv: sh("sh", "git add @d/f && git commit -qm x && git log --format=%s -1 > @d/new"), inOnly: true},
		// The operator changed f since the last commit; git takes it back.
		{name: "git-checkout", argv: words("git checkout -- @d/f"), want: one("unlink", "@d/f"), noAudit: true},
		// What runs later, outside the fence, is no part of git's allowance.
		{name: "git-hook", argv: sh("sh", "echo x > .git/hooks/pre-push"), outOnly: true, owner: []string{}, noAudit: true,
			also: ".git/hooks", want: one("create", "@root/.git/hooks/pre-push")},
		{name: "git-config", argv: words("git config alias.x !sh"), outOnly: true, owner: []string{}, noAudit: true,
			also: ".git/config", want: one("create", "@root/.git/config.lock")},
	}
}

// interpreters get the driver's places as arguments, d and s by turns, and
// print for each "ok" if all went through, "EACCES" if all was refused.
func interpreters() []act {
	all := []want{
		{op: "open", path: "@d/f"}, {op: "create", path: "@d/n1"}, {op: "mkdir", path: "@d/n2"},
		{op: "rename", path: "@s/f", path2: "@d/n3"}, {op: "rmdir", path: "@d/sub"}, {op: "unlink", path: "@d/l"},
	}
	return []act{
		{name: "python", batch: []string{"python3", "-c", pythonBatch}, want: all},
		{name: "node", batch: []string{"node", "-e", nodeBatch}, want: all},
		{name: "perl", batch: []string{"perl", "-e", perlBatch}, want: all},
	}
}

const pythonBatch = `
import os, sys
a = sys.argv[1:]
for d, s in zip(a[::2], a[1::2]):
    got = []
    for f in (lambda: open(d+"/f", "w").write("x"), lambda: open(d+"/n1", "x"), lambda: os.mkdir(d+"/n2"),
              lambda: os.rename(s+"/f", d+"/n3"), lambda: os.rmdir(d+"/sub"), lambda: os.unlink(d+"/l")):
        try:
            f(); got.append("ok")
        except PermissionError: got.append("EACCES")
    print(got[0] if len(set(got)) == 1 else got)
`

const nodeBatch = `
const fs = require("fs"), a = process.argv.slice(1)
for (let i = 0; i < a.length; i += 2) {
  const d = a[i], s = a[i + 1], got = []
  for (const f of [() => fs.writeFileSync(d + "/f", "x"), () => fs.writeFileSync(d + "/n1", "x"), () => fs.mkdirSync(d + "/n2"),
                   () => fs.renameSync(s + "/f", d + "/n3"), () => fs.rmdirSync(d + "/sub"), () => fs.unlinkSync(d + "/l")]) {
    try { f(); got.push("ok") } catch (e) { got.push(e.code) }
  }
  console.log(new Set(got).size == 1 ? got[0] : JSON.stringify(got))
}
`

const perlBatch = `
while (my ($d, $s) = splice @ARGV, 0, 2) {
  my %got;
  for my $f (sub { open(H, ">", "$d/f") && print H "x" }, sub { open(H, ">", "$d/n1") }, sub { mkdir "$d/n2" },
             sub { rename "$s/f", "$d/n3" }, sub { rmdir "$d/sub" }, sub { unlink "$d/l" }) {
    $got{ $f->() ? "ok" : $!{EACCES} ? "EACCES" : "$!" } = 1;
  }
  print join(" ", sort keys %got), "\n";
}
`

// names are paths that are hard to walk or to tell.
func names() []act {
	var out []act
	add := func(name string, below func(p place) string) {
		f := func(p place) string { return below(p) + "/f" }
		n := func(p place) string { return below(p) + "/n" }
		for _, a := range []act{
			{name: name, setup: func(p place) error {
				if err := os.MkdirAll(below(p), 0o755); err != nil {
					return err
				}
				return os.WriteFile(f(p), []byte("keep\n"), 0o644)
			}, call: func(p place) error { return openClose(f(p), unix.O_WRONLY|unix.O_TRUNC) }, want: one("open", "@below/f")},
			{name: name + "-chmod", call: func(p place) error { return unix.Chmod(f(p), 0o600) }, want: one("chmod", "@below/f")},
			{name: name + "-new", call: func(p place) error { return openClose(n(p), unix.O_WRONLY|unix.O_CREAT) }, want: one("create", "@below/n")},
			{name: name + "-rename", call: func(p place) error { return unix.Rename(p.s+"/f", n(p)) }, want: two("rename", "@s/f", "@below/n")},
		} {
			a.dir, a.below = name, below
			out = append(out, a)
		}
	}
	add("deep", func(p place) string { return p.d + strings.Repeat("/d", 300) })
	add("long", longPath)
	add("name-255", func(p place) string { return p.d + "/" + strings.Repeat("n", 255) })
	add("name-newline", func(p place) string { return p.d + "/a\nb\t\"\\\x01\u202e" })
	add("name-bytes", func(p place) string { return p.d + "/a\xff\xfeb\xc3" })
	return out
}

// longPath returns a directory below d in which a name of one byte has an
// absolute path of 4,000 bytes.
func longPath(p place) string {
	d := p.d
	for left := 4000 - len("/f") - len(d); left > 0; left = 4000 - len("/f") - len(d) {
		n := min(200, left-1)
		if left-1-n == 1 {
			n-- // one byte would be left, too few for a slash and a name
		}
		d += "/" + strings.Repeat("p", n)
	}
	return d
}
