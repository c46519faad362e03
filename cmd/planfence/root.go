package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"planfence/loader"
	"planfence/plan"
)

// env carries what commands use of the process.
type env struct {
	stdout io.Writer
	stderr io.Writer
	stdin  io.Reader
	getenv func(string) string
}

// exitError is an error with an exit status of its own; err may be nil where
// everything has been said.
type exitError struct {
	code int
	err  error
	hint string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// hinted adds the way out to an error.
func hinted(err error, format string, args ...any) error {
	return &loader.Problem{Err: err, Hint: fmt.Sprintf(format, args...)}
}

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "planfence",
		Short: "a kernel-level write fence for AI coding agents and CI jobs",
		Long: `planfence starts a command inside a fence: the kernel refuses every write
outside the scope of the active task of a plan, whatever program makes it.`,
		Example: `  sudo planfence run -- claude
  planfence task T2
  planfence check src/slug.js`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetIn(e.stdin)
	root.AddCommand(commands(e)...)
	return root
}

// execute runs one command line and returns the exit status.
func execute(args []string, e *env) int {
	root := newRoot(e)
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	code := 1
	if len(args) > 0 && args[0] == "run" {
		code = 125
	}
	var ee *exitError
	if errors.As(err, &ee) {
		code = ee.code
		if ee.err == nil {
			return code
		}
	}
	complain(e, cmd, err)
	return code
}

// complain prints an error and its way out.
func complain(e *env, cmd *cobra.Command, err error) {
	text := strings.TrimSpace(err.Error())
	hint := hintOf(err)
	if hint == "" && (strings.HasPrefix(text, "unknown flag") || strings.HasPrefix(text, "unknown command") ||
		strings.HasPrefix(text, "unknown shorthand") || strings.HasPrefix(text, "flag needs") ||
		strings.HasPrefix(text, "invalid argument")) {
		hint = cmd.CommandPath() + " --help lists what there is"
	}
	for i, line := range strings.Split(text, "\n") {
		if i == 0 || strings.Contains(line, ":") {
			fmt.Fprintf(e.stderr, "planfence: %s\n", line)
		} else {
			fmt.Fprintln(e.stderr, line)
		}
	}
	if hint != "" {
		fmt.Fprintf(e.stderr, "hint: %s\n", hint)
	}
}

func hintOf(err error) string {
	var ee *exitError
	if errors.As(err, &ee) && ee.hint != "" {
		return ee.hint
	}
	var p *loader.Problem
	if errors.As(err, &p) {
		return p.Hint
	}
	var pe *plan.Error
	if errors.As(err, &pe) {
		return cmp.Or(pe.Hint, "mend the plan there; planfence lint "+pe.File+" checks the whole plan")
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return "it may need root: sudo planfence …"
	}
	return ""
}
