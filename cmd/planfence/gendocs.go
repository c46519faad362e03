//go:build gendocs

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// This is the program instead of main.go where the package is built with the tag
// gendocs: it writes the manual pages and shell completions to the directory
// named on its command line.
func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gendocs DIR")
		os.Exit(2)
	}
	if err := writeDocs(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}

func writeDocs(dir string) error {
	root := newRoot(&env{stdout: os.Stdout, stderr: os.Stderr, stdin: os.Stdin, getenv: os.Getenv})
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	man := filepath.Join(dir, "man")
	for _, d := range []string{man, filepath.Join(dir, "completions")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	// No date of the build: the same sources give the same pages.
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "8", Source: "planfence", Manual: "planfence", Date: &epoch}, man); err != nil {
		return err
	}
	for name, write := range map[string]func(*cobra.Command, string) error{
		"planfence.bash": func(c *cobra.Command, f string) error { return c.GenBashCompletionFileV2(f, true) },
		"_planfence":     func(c *cobra.Command, f string) error { return c.GenZshCompletionFile(f) },
		"planfence.fish": func(c *cobra.Command, f string) error { return c.GenFishCompletionFile(f, true) },
	} {
		if err := write(root, filepath.Join(dir, "completions", name)); err != nil {
			return err
		}
	}
	return nil
}
