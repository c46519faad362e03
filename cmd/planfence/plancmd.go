package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/companion"
	"planfence/plan"
)

func newPlan(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:     "plan",
		Short:   "Look at a plan: who may write what, and what a task would need",
		Example: "  planfence plan show\n  planfence plan suggest T2 --from audit.log",
		Args:    cobra.NoArgs,
	}
	c.AddCommand(newPlanShow(e), newPlanSuggest(e))
	return c
}

type showFlags struct {
	projectFlags
	asJSON, all bool
	colour      bool
}

func newPlanShow(e *env) *cobra.Command {
	f := &showFlags{}
	c := &cobra.Command{
		Use:   "show",
		Short: "Draw who may write what, as a tree of the checkout",
		Long: `show draws the tracked files as a tree, each with the tasks whose scope covers
it; files of no task are marked with a dash. A directory all of whose files
belong to the same tasks is one line, unless --all is given.`,
		Example: "  planfence plan show\n  planfence plan show --all\n  planfence plan show --json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return f.run(e) },
	}
	c.Flags().StringVar(&f.plan, "plan", "", "the plan `file`")
	c.Flags().StringVar(&f.root, "root", "", "the project's root `directory`")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON: a list of paths and their tasks")
	c.Flags().BoolVar(&f.all, "all", false, "draw every file")
	return c
}

// node is a directory or file of the tree.
type node struct {
	name     string
	owners   string // comma-separated ids; "" for none; "\x00" where those below differ
	files    int
	children map[string]*node
}

func (f *showFlags) run(e *env) error {
	p, err := f.find()
	if err != nil {
		return err
	}
	pl, err := companion.ReadPlan(p.plan, p.root)
	if err != nil {
		return err
	}
	files := tracked(p.root)
	if files == nil {
		return hinted(fmt.Errorf("draw %s: git does not list its files", p.root), "run it in a checkout: git init && git add .")
	}
	sort.Strings(files)
	if f.asJSON {
		type row struct {
			Path  string   `json:"path"`
			Tasks []string `json:"tasks"`
		}
		rows := make([]row, 0, len(files))
		for _, file := range files {
			ids := pl.Owners(file, "")
			if ids == nil {
				ids = []string{}
			}
			rows = append(rows, row{file, ids})
		}
		enc := json.NewEncoder(e.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	out, isFile := e.stdout.(*os.File)
	f.colour = isFile && terminal(out) && e.getenv("NO_COLOR") == ""
	root := &node{children: map[string]*node{}}
	unowned := 0
	for _, file := range files {
		ids := strings.Join(pl.Owners(file, ""), ", ")
		if ids == "" {
			unowned++
		}
		root.add(strings.Split(file, "/"), ids)
	}
	colours := map[string]string{}
	for i, id := range pl.IDs() {
		colours[id] = []string{"32", "33", "34", "35", "36", "31"}[i%6]
	}
	fmt.Fprintln(e.stdout, blocklog.Printable(p.root))
	f.draw(e, root, "", colours)
	fmt.Fprintf(e.stderr, "%s, %d of no task\n", plural(len(files), "tracked file"), unowned)
	return nil
}

func (n *node) add(parts []string, owners string) {
	if n.files == 0 {
		n.owners = owners
	} else if n.owners != owners {
		n.owners = "\x00"
	}
	n.files++
	if len(parts) == 0 {
		return
	}
	c := n.children[parts[0]]
	if c == nil {
		c = &node{name: parts[0], children: map[string]*node{}}
		n.children[parts[0]] = c
	}
	c.add(parts[1:], owners)
}

func (f *showFlags) draw(e *env, n *node, indent string, colours map[string]string) {
	names := make([]string, 0, len(n.children))
	for name := range n.children {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, name := range names {
		c := n.children[name]
		branch, below := "├── ", "│   "
		if i == len(names)-1 {
			branch, below = "└── ", "    "
		}
		label := blocklog.Printable(name)
		dir := len(c.children) > 0
		if dir {
			label += "/"
		}
		fold := dir && !f.all && c.owners != "\x00"
		if !dir || fold {
			tag := c.owners
			if tag == "" {
				tag = "-"
			}
			if fold {
				tag += fmt.Sprintf(" (%s)", plural(c.files, "file"))
			}
			first, _, _ := strings.Cut(c.owners, ",")
			if code := colours[first]; f.colour && code != "" {
				tag = "\x1b[" + code + "m" + tag + "\x1b[0m"
			}
			label = fmt.Sprintf("%-*s %s", max(1, 36-len([]rune(indent))), label, tag)
		}
		fmt.Fprintf(e.stdout, "%s%s%s\n", indent, branch, label)
		if dir && !fold {
			f.draw(e, c, indent+below, colours)
		}
	}
}

// tidy returns the smallest tidy list of entries that covers the written paths:
// a directory where everything tracked in it was written, or nothing in it was
// tracked before; else the file itself.
func tidy(written map[string]bool, tracked []string) []string {
	below := map[string]int{} // tracked files below a directory that were not written
	had := map[string]bool{}  // directories with tracked files
	count := map[string]int{} // written files below a directory
	for _, f := range tracked {
		for d := path.Dir(f); d != "."; d = path.Dir(d) {
			had[d] = true
			if !written[f] {
				below[d]++
			}
		}
	}
	for f := range written {
		for d := path.Dir(f); d != "."; d = path.Dir(d) {
			count[d]++
		}
	}
	pick := map[string]bool{}
	for f := range written {
		entry := f
		// The highest directory that holds nothing else, if that saves an entry.
		for d := path.Dir(f); d != "."; d = path.Dir(d) {
			if below[d] == 0 && (count[d] > 1 || !had[d]) {
				entry = d + "/"
			}
		}
		pick[entry] = true
	}
	out := make([]string, 0, len(pick))
	for entry := range pick {
		out = append(out, entry)
	}
	sort.Strings(out)
	return out
}

// escapeEntry makes a path an entry that means just that path.
func escapeEntry(p string) string {
	p = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "{", `\{`, "}", `\}`).Replace(p)
	switch {
	case strings.HasPrefix(p, "!"), strings.HasPrefix(p, "~"), strings.HasPrefix(p, "$"):
		p = `\` + p
	}
	return p
}

// dropSiblings removes what is only written in order to save another file.
func dropSiblings(written map[string]bool) {
	for f := range written {
		for g := range written {
			if f != g && path.Dir(f) == path.Dir(g) {
				if _, ok := plan.IsSibling(path.Base(g), path.Base(f)); ok {
					delete(written, f)
					break
				}
			}
		}
	}
}
