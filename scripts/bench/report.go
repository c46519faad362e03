package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

var columns = []string{"empty", "attached", "fenced", "landlock", "apparmor"}

// reportMain reads a run and keeps it as BASE.json, BASE.txt and BASE.svg.
func reportMain(args []string) error {
	fs := flag.NewFlagSet("report", flag.ContinueOnError)
	base := fs.String("o", "", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	run, err := readRun(os.Stdin)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	writeText(&text, run)
	if _, err := os.Stdout.Write(text.Bytes()); err != nil || *base == "" {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(*base), 0o755); err != nil {
		return err
	}
	var svg, js bytes.Buffer
	writeSVG(&svg, run)
	enc := json.NewEncoder(&js)
	if err := enc.Encode(run); err != nil {
		return err
	}
	// A line a result: what changed is seen in a diff.
	out := strings.ReplaceAll(js.String(), `},{"row"`, "},\n{\"row\"")
	for ext, data := range map[string]string{".json": out, ".txt": text.String(), ".svg": svg.String()} {
		if err := os.WriteFile(*base+ext, []byte(data), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// order returns rows and scopes as they first come.
func order(run *Run, keep func(Result) bool) (out []key) {
	seen := map[key]bool{}
	for _, r := range run.Results {
		k := key{row: r.Row, scope: r.Scope}
		if keep(r) && !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	return out
}

// baseline returns the row under no fence that a row is compared with: a refused
// open with the same open allowed.
func baseline(v map[key]int64, row string) (int64, bool) {
	off, ok := v[key{strings.Replace(row, "refused open", "open for writing", 1), "dir", "off"}]
	return off, ok
}

func writeText(w io.Writer, run *Run) {
	v := run.index()
	fmt.Fprintf(w, "Linux %s, %s. Instructions of the guest, one processor.\n", run.Kernel, run.Date)
	fmt.Fprintf(w, "off: no fence; the other columns: what they add to it.\n")
	for _, n := range run.Notes {
		fmt.Fprintln(w, n)
	}
	table := func(title string, keep func(Result) bool, percent bool) {
		rows := order(run, keep)
		if len(rows) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s\n\n", title)
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(t, "\toff\t%s\tfenced / landlock\t\n", strings.Join(columns, "\t"))
		for _, k := range rows {
			off, ok := baseline(v, k.row)
			if !ok {
				continue
			}
			fmt.Fprintf(t, "%s\t%d", label(k), off)
			for _, c := range columns {
				x, ok := v[key{k.row, k.scope, c}]
				switch {
				case !ok:
					fmt.Fprint(t, "\t")
				case percent:
					fmt.Fprintf(t, "\t%+.2f %%", float64(x-off)/float64(off)*100)
				default:
					fmt.Fprintf(t, "\t%+d", x-off)
				}
			}
			fenced, ok1 := v[key{k.row, k.scope, "fenced"}]
			land, ok2 := v[key{k.row, "dir", "landlock"}]
			if ok1 && ok2 && land > off {
				fmt.Fprintf(t, "\t%.2f", float64(fenced-off)/float64(land-off))
			} else {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprintln(t, "\t")
		}
		t.Flush()
	}
	work := map[string]bool{}
	for _, r := range workRows {
		work[r.name] = true
	}
	instructions := func(r Result) bool { return r.Unit == "instructions" }
	table("Scope src/, a directory", func(r Result) bool { return instructions(r) && r.Scope == "dir" && !work[r.Row] }, false)
	table("Other scopes, beside Landlock's for src/", func(r Result) bool { return instructions(r) && r.Scope != "dir" }, false)
	table("Work", func(r Result) bool { return work[r.Row] }, true)
	fmt.Fprint(w, "\nFigures\n\n")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, r := range run.Results {
		if r.Unit != "instructions" {
			fmt.Fprintf(t, "%s\t%s\n", r.Row, human(r))
		}
	}
	t.Flush()
}

func label(k key) string {
	if k.scope == "dir" {
		return k.row
	}
	return k.scope + ": " + k.row
}

func human(r Result) string {
	switch r.Unit {
	case "ns":
		return fmt.Sprintf("%.1f ms", float64(r.Value)/1e6)
	case "bytes":
		return fmt.Sprintf("%.1f MiB", float64(r.Value)/(1<<20))
	default:
		return fmt.Sprintf("%d %s", r.Value, r.Unit)
	}
}
