package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"planfence/loader"
)

func newDoctor(e *env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine offers, and whether a fence would hold",
		Long: `doctor looks at the kernel, its options and privileges, loads and attaches a
trial program, and as root raises a real fence for a moment. Each failing row
names one cause and one remedy.

The exit status is 0 only if a fence would hold.`,
		Example: "  sudo planfence doctor\n  planfence doctor --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			rows := loader.Doctor()
			rows = append(rows, canaryRow(rows))
			if asJSON {
				enc := json.NewEncoder(e.stdout)
				enc.SetIndent("", "  ")
				if err := enc.Encode(rows); err != nil {
					return err
				}
			} else {
				w := tabwriter.NewWriter(e.stdout, 0, 8, 2, ' ', 0)
				for _, r := range rows {
					fmt.Fprintf(w, "%s\t%s\t%s\n", r.Outcome, r.Name, r.Detail)
					if r.Remedy != "" {
						fmt.Fprintf(w, "\t\tremedy: %s\n", r.Remedy)
					}
				}
				w.Flush()
			}
			if last := rows[len(rows)-1]; last.Outcome != loader.Yes {
				return &exitError{code: 1}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// canaryRow raises a real fence around true(1) in a directory of its own.
func canaryRow(rows []loader.Check) loader.Check {
	c := loader.Check{Name: "canary", Outcome: loader.Unknown, Needed: true}
	for _, r := range rows {
		if r.Needed && r.Outcome == loader.No {
			c.Outcome, c.Detail = loader.No, "not tried: "+r.Name
			return c
		}
	}
	if os.Geteuid() != 0 {
		c.Detail = "not root: no fence can be raised"
		return c
	}
	dir, err := os.MkdirTemp("", "planfence-doctor-")
	if err != nil {
		c.Detail = err.Error()
		return c
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "plan.json")
	if err := os.WriteFile(file, []byte(`{"tasks":[{"id":"doctor","scope":[]}]}`), 0o600); err != nil {
		c.Detail = err.Error()
		return c
	}
	self, err := os.Executable()
	if err != nil {
		c.Detail = err.Error()
		return c
	}
	cmd := exec.Command(self, "run", "--quiet", "--plan", file, "--root", dir, "--task", "doctor", "--log", "-", "--", "true")
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		c.Outcome, c.Detail = loader.No, lines[0]
		for _, l := range lines {
			if h, ok := strings.CutPrefix(l, "hint: "); ok {
				c.Remedy = h
			}
		}
		return c
	}
	c.Outcome, c.Detail = loader.Yes, "a fenced process was refused a write"
	return c
}
