package policy

import (
	"os"
	"path/filepath"
	"strings"

	"planfence/plan"
)

type rule struct {
	why   string
	entry plan.Entry
	base  string
}

// gitClosed are the parts of a git directory that make something run later,
// outside the fence.
var gitClosed = []string{
	"!hooks/", "!config", "!config.worktree", "!config.lock", "!info/attributes", "!commondir",
	"!modules/**/hooks/", "!modules/**/config", "!modules/**/info/attributes",
	"!modules/**/commondir", "!worktrees/*/config.worktree",
}

// GitDirs returns the git directory of the checkout that root lies in and, for
// a linked worktree, the common one; none outside a checkout.
func GitDirs(root string) []string {
	for dir := root; ; dir = filepath.Dir(dir) {
		if dirs := gitDirsAt(dir); dirs != nil {
			return dirs
		}
		if dir == "/" || dir == "." {
			return nil
		}
	}
}

func gitDirsAt(dir string) []string {
	dot := filepath.Join(dir, ".git")
	st, err := os.Stat(dot)
	if err != nil {
		return nil
	}
	git := dot
	if !st.IsDir() {
		// gitfile: one line "gitdir: PATH", gitrepository-layout(5)
		b, err := os.ReadFile(dot)
		if err != nil {
			return nil
		}
		path, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "gitdir: ")
		if !ok {
			return nil
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		git = path
	}
	git, err = filepath.EvalSymlinks(git)
	if err != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(git, "HEAD")); err != nil {
		return nil
	}
	dirs := []string{git}
	if b, err := os.ReadFile(filepath.Join(git, "commondir")); err == nil {
		common := strings.TrimSpace(string(b))
		if !filepath.IsAbs(common) {
			common = filepath.Join(git, common)
		}
		if common, err = filepath.EvalSymlinks(common); err == nil && common != git {
			dirs = append(dirs, common)
		}
	}
	return dirs
}

func gitRules(root string) []rule {
	var out []rule
	for _, dir := range GitDirs(root) {
		out = append(out, rule{"git", plan.LiteralEntry(strings.TrimPrefix(dir, "/"), true), ""})
		for _, x := range gitClosed {
			e, err := plan.ParseEntry(x, plan.ParseOptions{})
			if err != nil {
				panic(err) // a constant of this file
			}
			out = append(out, rule{"git: runs later, outside the fence", e, dir})
		}
		// Where a linked worktree finds its configuration. New ones are made inside a session.
		links, _ := filepath.Glob(filepath.Join(dir, "worktrees", "*", "commondir"))
		for _, l := range links {
			out = append(out, rule{"git: runs later, outside the fence", plan.LiteralExclude(strings.TrimPrefix(l, "/"), false), ""})
		}
	}
	return out
}
