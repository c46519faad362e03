package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The work rows count the processor time of whole commands and their children,
// which the kernel keeps in nanoseconds: waiting for the disk is not in it.
const (
	workRoot  = "/root/w" // on the disk
	workDir   = workRoot + "/src/work"
	workFiles = 2000
	workRuns  = 3
	packages  = 25
)

type workRow struct {
	name   string
	before string // shell, not counted
	do     string // shell
	check  string // shell, not counted: fails unless the work was done
}

var workRows = []workRow{
	{"git checkout of 2,000 files", "cd repo && git checkout -q empty", "cd repo && git checkout -q full", `test "$(find repo/d* -type f | wc -l)" = 2000`},
	{"git status, 2,000 files", "cd repo && touch d3/f7", "cd repo && git status --porcelain", `test -z "$(git -C repo status --porcelain)"`},
	{"tar -x of 2,000 files", "rm -rf x && mkdir x", "tar -C x -xf full.tar", `test "$(find x -type f | wc -l)" = 2000`},
	{"make -j2 of 8 files", "cd make && rm -f *.o prog", "cd make && make -s -j2", `test "$(make/prog)" = 28`},
	{"npm ci of 25 packages", "cd npm && rm -rf node_modules", "cd npm && npm ci --offline --silent --no-audit --no-fund --cache ../npm-cache --logs-max 0", `test "$(ls npm/node_modules | wc -l)" = 25`},
}

func shell(script string) error {
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = workDir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + workDir + "/home", "TMPDIR=" + workDir + "/tmp", "LC_ALL=C",
		"GIT_AUTHOR_NAME=Dev", "GIT_AUTHOR_EMAIL=dev@example.com", "GIT_COMMITTER_NAME=Dev", "GIT_COMMITTER_EMAIL=dev@example.com",
		"UV_THREADPOOL_SIZE=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return nil
}

func childTime() int64 {
	var ru unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &ru)
	return (ru.Utime.Nano() + ru.Stime.Nano())
}

func workMain(args []string) error {
	fs := flag.NewFlagSet("work", flag.ContinueOnError)
	column := fs.String("column", "off", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *column == "landlock" {
		if err := landlock(workRoot + "/src"); err != nil {
			return err
		}
	}
	time.Sleep(settleTime)
	for _, w := range workRows {
		best := int64(math.MaxInt64)
		for i := range workRuns + 1 {
			if err := shell(w.before); err != nil {
				return err
			}
			unix.Sync()
			t := childTime()
			if err := shell(w.do); err != nil {
				return fmt.Errorf("%s: %w", *column, err)
			}
			if d := childTime() - t; i > 0 { // the first run warms up
				best = min(best, d)
			}
			if err := shell(w.check); err != nil {
				return err
			}
		}
		if err := emit(os.Stdout, Result{w.name, "dir", *column, best, "instructions"}); err != nil {
			return err
		}
	}
	return nil
}

// makeWork lays out what the work rows need. It runs without a fence.
func makeWork() error {
	for _, d := range []string{"home", "tmp", "make", "npm", "npm-cache", "pkgs"} {
		if err := os.MkdirAll(filepath.Join(workDir, d), 0o755); err != nil {
			return err
		}
	}
	if err := writePlan(workRoot, map[string][]string{"dir": {"src/"}}); err != nil {
		return err
	}
	for i := range 8 {
		src := fmt.Sprintf("int f%d(void) { return %d; }\n", i, i)
		if err := os.WriteFile(fmt.Sprintf("%s/make/f%d.c", workDir, i), []byte(src), 0o644); err != nil {
			return err
		}
	}
	main := "#include <stdio.h>\nint f0(), f1(), f2(), f3(), f4(), f5(), f6(), f7();\n" +
		"int main(void) { printf(\"%d\\n\", f0() + f1() + f2() + f3() + f4() + f5() + f6() + f7()); }\n"
	rules := "prog: main.o f0.o f1.o f2.o f3.o f4.o f5.o f6.o f7.o\n\t$(CC) -o $@ $^\n"
	if err := os.WriteFile(workDir+"/make/main.c", []byte(main), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(workDir+"/make/Makefile", []byte(rules), 0o644); err != nil {
		return err
	}
	err := shell(fmt.Sprintf(`git init -q -b empty repo; cd repo; echo x >x; git add x; git commit -qm x
git checkout -q -b full
for d in $(seq 40); do mkdir d$d; for f in $(seq %d); do echo "$d $f" >d$d/f$f; done; done
git add .; git commit -qm full; cd ..; tar -C repo -cf full.tar $(cd repo; ls -d d*)`, workFiles/40))
	if err != nil {
		return err
	}
	return makePackages()
}

// makePackages puts small packages into a cache of npm's and locks them, so that
// npm ci finds them by their digests without a network.
func makePackages() error {
	lock := map[string]any{}
	deps := map[string]string{}
	var all string
	for i := range packages {
		name := fmt.Sprintf("pkg%d", i)
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		t := tar.NewWriter(z)
		files := map[string]string{"package/package.json": fmt.Sprintf(`{"name":%q,"version":"1.0.0","main":"f0.js"}`, name)}
		for f := range 20 {
			files[fmt.Sprintf("package/f%d.js", f)] = fmt.Sprintf("module.exports = %d\n", i*f)
		}
		for n, text := range files {
			if err := t.WriteHeader(&tar.Header{Name: n, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
				return err
			}
			if _, err := t.Write([]byte(text)); err != nil {
				return err
			}
		}
		if err := t.Close(); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		if err := os.WriteFile(fmt.Sprintf("%s/pkgs/%s.tgz", workDir, name), b.Bytes(), 0o644); err != nil {
			return err
		}
		sum := sha512.Sum512(b.Bytes())
		deps[name] = "1.0.0"
		lock["node_modules/"+name] = map[string]any{"version": "1.0.0", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
			"resolved": fmt.Sprintf("https://registry.npmjs.org/%s/-/%s-1.0.0.tgz", name, name)}
		all += " ../pkgs/" + name + ".tgz"
	}
	pkg := map[string]any{"name": "bench", "version": "1.0.0", "dependencies": deps}
	lock[""] = pkg
	for name, v := range map[string]any{"package.json": pkg,
		"package-lock.json": map[string]any{"name": "bench", "version": "1.0.0", "lockfileVersion": 3, "packages": lock}} {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(workDir+"/npm/"+name, b, 0o644); err != nil {
			return err
		}
	}
	return shell("cd npm && npm cache add --cache ../npm-cache" + all)
}
