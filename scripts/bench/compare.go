package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// A row is worse when it takes this much more than in the kept run. Rows that
// count whole commands or what the scheduler has a hand in get more.
const (
	worse     = 0.03
	worseWork = 0.05
)

// compareMain compares a kept run with a new one: compare OLD NEW.
func compareMain(args []string) error {
	if len(args) != 2 {
		return errors.New("compare OLD NEW")
	}
	var runs [2]*Run
	for i, path := range args {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		runs[i], err = readRun(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	bad, seen := compare(runs[0], runs[1])
	for _, line := range bad {
		fmt.Println(line)
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d rows are worse than in %s (Linux %s, %s)", len(bad), seen, args[0], runs[0].Kernel, runs[0].Date)
	}
	if seen == 0 {
		return errors.New("no row is in both runs")
	}
	fmt.Printf("%d rows, none worse than in %s (Linux %s, %s)\n", seen, args[0], runs[0].Kernel, runs[0].Date)
	return nil
}

// compare returns a line a row that got worse, and how many rows were compared.
// A row of the old run that the new one does not have is worse, unless its whole
// set was left out; what is ours
// alone is looked at.
func compare(old, fresh *Run) (bad []string, seen int) {
	now := fresh.index()
	scopes := map[string]bool{}
	work := map[string]bool{}
	for _, r := range fresh.Results {
		scopes[r.Scope] = true
	}
	for _, w := range workRows {
		work[w.name] = true
	}
	worked := slices.ContainsFunc(fresh.Results, func(r Result) bool { return work[r.Row] })
	for _, r := range old.Results {
		if r.Column != "fenced" && r.Column != "attached" {
			continue
		}
		limit := worse
		switch {
		case strings.HasSuffix(r.Row, " lost") && r.Unit == "events":
			limit = 0
		case r.Unit == "ns", r.Unit == "a second", r.Unit == "bytes":
			continue // kept for people; the scheduler has a hand in them
		case strings.HasPrefix(r.Row, "fork and exec"):
			limit = worseWork
		}
		if work[r.Row] {
			limit = worseWork
		}
		if !scopes[r.Scope] || work[r.Row] && !worked {
			continue // a set that was not counted this time
		}
		v, ok := now[key{r.Row, r.Scope, r.Column}]
		if !ok {
			bad = append(bad, fmt.Sprintf("missing: %s, %s, %s", r.Row, r.Scope, r.Column))
			continue
		}
		seen++
		if float64(v) > float64(r.Value)*(1+limit) {
			bad = append(bad, fmt.Sprintf("worse: %s, %s, %s: %d -> %d (%+.1f %%)", r.Row, r.Scope, r.Column, r.Value, v,
				float64(v-r.Value)/float64(r.Value)*100))
		}
	}
	return bad, seen
}
