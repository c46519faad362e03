//go:build vm

package main_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// digests describes everything of each site that is out of scope.
func digests(o order) map[string]string {
	out := map[string]string{}
	for n, s := range o.Sites {
		out[n] = digest(s)
	}
	return out
}

// digest has a line a file below D, without what lies in the scope: type, mode,
// owner, links, inode, times of contents and of the inode, flags, extended
// attributes, contents.
func digest(s site) string {
	var lines []string
	_ = filepath.WalkDir(s.D, func(path string, e fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(path, s.D)
		if err != nil {
			lines = append(lines, rel+" "+err.Error())
			return nil
		}
		if strings.HasPrefix(rel, "/in/") {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		lines = append(lines, rel+" "+describe(path, rel != "/in" && rel != "" && !strings.HasPrefix(rel, "/g")))
		return nil
	})
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func describe(path string, times bool) string {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err.Error()
	}
	b := fmt.Sprintf("%o %d:%d ino %d", st.Mode, st.Uid, st.Gid, st.Ino)
	if times {
		b += fmt.Sprintf(" links %d mtime %d ctime %d", st.Nlink, st.Mtim.Nano(), st.Ctim.Nano())
	}
	names := make([]byte, 4096)
	if n, err := unix.Llistxattr(path, names); err == nil {
		b += fmt.Sprintf(" xattr %q", names[:n])
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		text, err := os.ReadFile(path)
		b += fmt.Sprintf(" %q %v", text, err)
	case unix.S_IFLNK:
		to, _ := os.Readlink(path)
		b += " -> " + to
	}
	return b
}

// diff lists the lines in which two digests differ.
func diff(a, b string) string {
	in := func(text string) map[string]bool {
		m := map[string]bool{}
		for _, l := range strings.Split(text, "\n") {
			m[l] = true
		}
		return m
	}
	x, y := in(a), in(b)
	var out []string
	for l := range x {
		if !y[l] {
			out = append(out, "- "+l)
		}
	}
	for l := range y {
		if !x[l] {
			out = append(out, "+ "+l)
		}
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// command runs a program and fails the test when it fails.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	b, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, b)
	}
	return string(b)
}

// shareMounts makes all mounts shared, as systemd does: a mount in a namespace
// of one's own then shows in all others.
func shareMounts(t *testing.T) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
}

var (
	held    sync.Once
	heldCmd *exec.Cmd // not collected: its pipe would be closed
)

// hold keeps a session alive while the tests run, so that others join its
// programs: it ends with the pipe to it.
func hold(t *testing.T) {
	t.Helper()
	held.Do(func() { holdSession(t) })
}

func holdSession(t *testing.T) {
	t.Helper()
	const root = "/work/held"
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/plan.json", []byte(`{"tasks":[]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(planfence, "run", "--quiet", "--", "sh", "-c", "echo up; cat")
	heldCmd = c
	c.Dir, c.Stderr = root, os.Stderr
	if _, err := c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if n, err := out.Read(make([]byte, 8)); err != nil || n == 0 {
		t.Fatalf("the session that is held did not start: %v", err)
	}
}

// overlay mounts an overlay file system, with everything in its upper layer
// copied up by use.
func overlay(t *testing.T, at string) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return
	}
	for _, d := range []string{at, "/work/layers/lower/dev", "/work/layers/lower/root", "/work/layers/upper", "/work/layers/work"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command(t, "mount", "-t", "overlay", "overlay", "-o",
		"lowerdir=/work/layers/lower,upperdir=/work/layers/upper,workdir=/work/layers/work", at)
}

// eventually waits for something that another process brings about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after a minute still not: %s", what)
		}
	}
}
