package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/companion"
	"planfence/plan"
)

type suggestFlags struct {
	projectFlags
	from string
}

func newPlanSuggest(e *env) *cobra.Command {
	f := &suggestFlags{}
	c := &cobra.Command{
		Use:   "suggest TASK --from LOG",
		Short: "Turn an audit log into the scope that a task needs, as a diff of the plan",
		Long: `suggest reads the records of a task from a log (of a run with --mode audit, or
any other), and prints the change of the plan that would cover what the task
wrote: directories where it wrote everything there is, files otherwise. Paths
that other tasks own are named on stderr and left out.`,
		Example: "  sudo planfence run --mode audit --task T2 --log audit.log -- make\n  planfence plan suggest T2 --from audit.log | patch -p0",
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return f.run(e, args[0]) },
	}
	c.Flags().StringVar(&f.plan, "plan", "", "the plan `file`")
	c.Flags().StringVar(&f.root, "root", "", "the project's root `directory`")
	c.Flags().StringVar(&f.from, "from", "", "the `log` to read (default: blocked.log beside the plan)")
	return c
}

func (f *suggestFlags) run(e *env, id string) error {
	p, err := f.find()
	if err != nil {
		return err
	}
	pl, err := companion.ReadPlan(p.plan, p.root)
	if err != nil {
		return err
	}
	task := pl.Task(id)
	if task == nil {
		return hinted(errors.New(companion.UnknownTask(pl, id)), "planfence plan suggest ID with one of these")
	}
	if f.from == "" {
		f.from = p.log
	}
	written, outside := map[string]bool{}, map[string]bool{}
	if _, err := blocklog.ReadAll(f.from, func(r *blocklog.Record) {
		if r.Kind != "block" || r.Task != id || r.Reason == "protected" {
			return
		}
		if r.Op == "mkdir" {
			return // follows from what is written in it
		}
		for _, x := range [][2]string{{r.Rel, r.Path}, {r.Rel2, r.Path2}} {
			switch {
			case x[0] != "" && x[0] != ".":
				written[x[0]] = true
			case x[1] != "":
				outside[x[1]] = true
			}
		}
	}); err != nil {
		return hinted(err, "--from names the log: planfence run --mode audit --log FILE")
	}
	dropSiblings(written)
	for path := range written {
		if pl.Explain(task, path, plan.Write).Allowed {
			delete(written, path)
			continue
		}
		if owners := pl.Owners(path, id); len(owners) > 0 {
			fmt.Fprintf(e.stderr, "planfence: %s belongs to %s: left out\n", blocklog.Printable(path), strings.Join(owners, ", "))
			delete(written, path)
		}
	}
	for path := range outside {
		fmt.Fprintf(e.stderr, "planfence: %s lies outside the project: run --allow opens it\n", blocklog.Printable(path))
	}
	if len(written) == 0 {
		fmt.Fprintf(e.stderr, "the scope of %s covers all that %s tells of\n", id, f.from)
		return nil
	}
	var entries []string
	for _, x := range tidy(written, tracked(p.root)) {
		entries = append(entries, escapeEntry(x))
	}
	old, err := os.ReadFile(p.plan)
	if err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	changed, err := addToScope(old, task, entries)
	if err != nil {
		return err
	}
	if _, err := plan.Parse(p.plan, changed, plan.ParseOptions{Root: p.root}); err != nil {
		return fmt.Errorf("change the plan: %w", err)
	}
	_, err = e.stdout.Write(diff.Diff(f.shown(p), old, f.shown(p), changed))
	return err
}

// shown is the plan's name in the diff: relative where that is shorter.
func (f *suggestFlags) shown(p *project) string {
	if cwd, err := os.Getwd(); err == nil {
		if rel, ok := strings.CutPrefix(p.plan, cwd+"/"); ok {
			return rel
		}
	}
	return p.plan
}

// addToScope inserts entries at the end of a task's scope, in the array's own
// style: on the same line, or one a line where it is written so.
func addToScope(text []byte, task *plan.Task, entries []string) ([]byte, error) {
	start := offsetOf(text, task.Pos)
	open, end, last, err := scopeArray(text[start:])
	if err != nil {
		return nil, fmt.Errorf("change the scope of %s: %w", task.ID, err)
	}
	open, end, last = open+start, end+start, last+start
	var quoted []string
	for _, x := range entries {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(x); err != nil {
			return nil, err
		}
		quoted = append(quoted, strings.TrimSpace(b.String()))
	}
	sep := ", "
	if bytes.Contains(text[open:end], []byte("\n")) {
		line := text[bytes.LastIndexByte(text[:last], '\n')+1 : last]
		sep = ",\n" + string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
	}
	insert := strings.Join(quoted, sep)
	if last > open+1 {
		insert = sep + insert
	}
	return append(append(append([]byte{}, text[:last]...), insert...), text[last:]...), nil
}

func offsetOf(text []byte, pos plan.Pos) int {
	off := 0
	for line := 1; line < pos.Line; line++ {
		i := bytes.IndexByte(text[off:], '\n')
		if i < 0 {
			return len(text)
		}
		off += i + 1
	}
	return min(off+pos.Column-1, len(text))
}

// scopeArray finds the array of the key "scope" of the object that text begins
// with: the offsets of its bracket, of the closing one, and behind its last element.
func scopeArray(text []byte) (open, end, last int, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	depth, isKey, inScope := 0, false, false
	for {
		tok, err := d.Token()
		if err != nil {
			return 0, 0, 0, errors.New("its array was not found")
		}
		at := int(d.InputOffset())
		switch tok {
		case json.Delim('{'), json.Delim('['):
			if depth == 1 && inScope && tok == json.Delim('[') {
				open, last = at-1, at
			}
			depth++
			isKey = true
			continue
		case json.Delim('}'), json.Delim(']'):
			depth--
			if depth == 1 && inScope {
				return open, at - 1, last, nil
			}
			isKey = true
			continue
		}
		if depth == 2 && inScope {
			last = at
		}
		if depth == 1 {
			if isKey {
				inScope = tok == "scope"
			}
			isKey = !isKey
		}
	}
}
