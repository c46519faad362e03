//go:build vm

package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The tree that sessions run in:
//
//	.git              a repository
//	.claude/plan.json T1 covers in/, T2 covers out/
//	in/ACT, out/ACT   where an act happens inside and outside the scope of T1
//	in/ACT.i, .o      the second directory of each
//	out/beside        where an unfenced process writes meanwhile
const planText = `{"tasks": [
  {"id": "T1", "title": "inside", "scope": ["in/"]},
  {"id": "T2", "title": "outside", "scope": ["out/"]},
  {"id": "T3", "title": "outside, but for one file", "scope": ["out/", "!out/closed"]}]}
`

// side tells the two places of an act apart.
type side string

const (
	inside  side = "in"
	outside side = "out"
)

func (a *act) at(root string, s side, owner string) place {
	p := place{root: root, d: filepath.Join(root, string(s), a.dir), owner: owner}
	p.s = filepath.Join(root, "in", a.dir+"."+string(s[0]))
	return p
}

// runs reports whether the act has that side.
func (a *act) runs(s side) bool { return !(s == inside && a.outOnly || s == outside && a.inOnly) }

// makeTree makes the tree for the acts, to be run as the user who will own it.
// repo is a repository to copy; sides says which places are wanted.
func makeTree(root, repo string, list []act, sides ...side) error {
	for _, d := range []string{".claude", "in", "out/beside"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.CopyFS(root+"/.git", os.DirFS(repo+"/.git")); err != nil {
		return fmt.Errorf("copy %s: %w", repo, err)
	}
	if err := os.WriteFile(filepath.Join(root, ".claude/plan.json"), []byte(planText), 0o644); err != nil {
		return err
	}
	for i := range list {
		for _, s := range sides {
			if err := makePlace(&list[i], list[i].at(root, s, "")); err != nil {
				return fmt.Errorf("make %s for %s: %w", s, list[i].name, err)
			}
		}
	}
	return nil
}

func makePlace(a *act, p place) error {
	if _, err := os.Lstat(p.s); err == nil && a.setup == nil {
		return nil // acts share the directory
	}
	for _, d := range []string{p.d, p.d + "/sub", p.s} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	for _, f := range []string{p.d + "/f", p.s + "/f"} {
		if err := os.WriteFile(f, []byte("keep\n"), 0o644); err != nil {
			return err
		}
	}
	if err := os.Symlink("f", p.d+"/l"); err != nil {
		return err
	}
	if a.setup != nil {
		return a.setup(p)
	}
	return nil
}

// makeRepo makes the repository that trees are given a copy of. Its one commit
// has the two files of git-checkout, with other contents than the trees'.
func makeRepo(dir string) error {
	for _, s := range []side{inside, outside} {
		d := filepath.Join(dir, string(s), "git-checkout")
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(d+"/f", []byte("committed\n"), 0o644); err != nil {
			return err
		}
	}
	c := exec.Command("sh", "-c", "git init -q && git add . && git commit -qm first && rm .git/hooks/*.sample")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("make a repository: %w: %s", err, out)
	}
	return nil
}

// snapshot describes everything below the root's directories in, out and
// .git/hooks and .git/config, by directory (in/ACT): contents and metadata,
// change times included, access times not.
func snapshot(root string) (map[string]string, error) {
	lines := map[string]*strings.Builder{}
	for _, top := range []string{"in", "out", ".git/hooks", ".git/config"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel := strings.TrimPrefix(path, root+"/")
			key := rel
			if parts := strings.SplitN(rel, "/", 3); len(parts) == 3 {
				key = parts[0] + "/" + parts[1]
			}
			if rel == "in" || rel == "out" {
				return nil
			}
			if rel == "out/beside" {
				return fs.SkipDir // changes all the time
			}
			line, err := describe(path)
			if err != nil {
				return err
			}
			if lines[key] == nil {
				lines[key] = &strings.Builder{}
			}
			fmt.Fprintf(lines[key], "%q %s\n", rel, line)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", root, err)
		}
	}
	out := map[string]string{}
	for k, b := range lines {
		out[k] = b.String()
	}
	return out, nil
}

func describe(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", err
	}
	line := fmt.Sprintf("mode %o owner %d:%d links %d size %d mtime %d.%d ctime %d.%d", st.Mode, st.Uid, st.Gid, st.Nlink, st.Size,
		st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		to, err := os.Readlink(path)
		return fmt.Sprintf("%s to %q", line, to), err
	case unix.S_IFREG:
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		line += fmt.Sprintf(" content %.8x", sha256.Sum256(b))
	}
	names := make([]byte, 1024)
	n, err := unix.Llistxattr(path, names)
	if err != nil && err != syscall.ENOTSUP {
		return "", fmt.Errorf("list attributes of %s: %w", path, err)
	}
	return fmt.Sprintf("%s attributes %q", line, names[:max(n, 0)]), nil
}
