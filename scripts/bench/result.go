package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// Result is one number: a row under a column.
type Result struct {
	Row    string `json:"row"`    // what was done
	Scope  string `json:"scope"`  // under which scope: dir, file, glob, entries-10, entries-10000
	Column string `json:"column"` // off, empty, attached, fenced, landlock, apparmor
	Value  int64  `json:"value"`
	Unit   string `json:"unit"` // instructions; bytes, programs ...
}

// Run is one run of the benchmark: what is kept as JSON.
type Run struct {
	Kernel  string   `json:"kernel"` // uname -r
	Date    string   `json:"date"`   // YYYY-MM-DD
	Notes   []string `json:"notes"`  // columns that the machine does not have, and why
	Results []Result `json:"results"`
}

type key struct{ row, scope, column string }

func (r *Run) index() map[key]int64 {
	m := map[key]int64{}
	for _, x := range r.Results {
		m[key{x.Row, x.Scope, x.Column}] = x.Value
	}
	return m
}

func emit(w io.Writer, r Result) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}

func readRun(r io.Reader) (*Run, error) {
	var run Run
	if err := json.NewDecoder(r).Decode(&run); err != nil {
		return nil, fmt.Errorf("read a result: %w", err)
	}
	return &run, nil
}
