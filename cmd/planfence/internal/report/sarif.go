package report

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxResults bounds a SARIF file: code scanning takes no more than 25,000
// results, and nobody reads that many.
const maxResults = 5000

type sarif = map[string]any

// ruleTexts say what a reason means.
var ruleTexts = map[string]string{
	"scope": "The path is outside the active task's scope.", "no-task": "No task is active and the session is closed then.",
	"protected": "The fence itself stands on this path.", "hardlink": "The file has other names that are not accounted for.",
	"device": "Devices are not written.", "directory": "A directory is moved with contents that are not wholly in scope.",
	"revoked": "The descriptor was opened under an earlier scope.", "process": "Another process is not the session's.",
	"kernel": "The kernel's settings and programs are not the session's.", "mount": "Mounting could hide or duplicate files.",
	"socket": "A daemon behind this socket would run commands outside the fence.",
}

// SARIF renders the report as SARIF 2.1.0: a result a blocked path and reason,
// a notification a finding.
func (r *Report) SARIF(w io.Writer) error {
	rules := []sarif{}
	index := map[string]int{}
	results := []sarif{}
	left := r.Truncated
	for _, p := range r.Paths {
		if len(results) >= maxResults {
			left++
			continue
		}
		id := "planfence/" + ruleID(p.Reasons)
		if _, ok := index[id]; !ok {
			index[id] = len(rules)
			text := ruleTexts[strings.TrimPrefix(id, "planfence/")]
			if text == "" {
				text = "The fence refused this operation."
			}
			rules = append(rules, sarif{"id": id, "name": "WriteRefused", "shortDescription": sarif{"text": text},
				"defaultConfiguration": sarif{"level": "error"}})
		}
		results = append(results, p.sarif(id, index[id]))
	}
	for _, c := range r.changes() {
		id := "planfence/changed-outside"
		if _, ok := index[id]; !ok {
			index[id] = len(rules)
			rules = append(rules, sarif{"id": id, "name": "ChangedOutside",
				"shortDescription":     sarif{"text": "git shows a change outside every scope."},
				"defaultConfiguration": sarif{"level": "error"}})
		}
		level := "warning"
		if c.During != "" {
			level = "error"
		}
		results = append(results, sarif{"ruleId": id, "ruleIndex": index[id], "level": level,
			"message":   sarif{"text": fmt.Sprintf("%s is changed (%s), in no task's scope, and the log does not explain it", clean(c.Rel), clean(c.Status))},
			"locations": []sarif{location(c.Rel, c.Bytes, true)}})
	}
	notes := []sarif{}
	for _, f := range r.Findings {
		level := map[Verdict]string{Warn: "warning", Block: "error", Indeterminate: "error"}[f.Verdict]
		notes = append(notes, sarif{"level": level, "descriptor": sarif{"id": f.ID}, "message": sarif{"text": clean(f.Text)}})
	}
	if left > 0 {
		notes = append(notes, sarif{"level": "note", "descriptor": sarif{"id": "more-paths"}, "message": sarif{"text": count(uint64(left), "path more is not listed", "paths more are not listed")}})
	}
	driver := sarif{"name": "planfence", "rules": rules}
	if r.Version != "" {
		driver["version"] = r.Version
	}
	invocation := sarif{"executionSuccessful": r.Verdict != Indeterminate, "exitCode": r.Verdict.Exit(), "toolExecutionNotifications": notes}
	if !r.From.IsZero() {
		invocation["startTimeUtc"] = r.From.UTC().Format(time.RFC3339)
		invocation["endTimeUtc"] = r.To.UTC().Format(time.RFC3339)
	}
	run := sarif{
		"tool": sarif{"driver": driver}, "invocations": []sarif{invocation}, "results": results, "columnKind": "unicodeCodePoints",
		"properties": sarif{"verdict": r.Verdict, "blocks": r.Blocks, "lost": r.Lost, "elapsedSeconds": r.Elapsed},
	}
	if r.Root != "" {
		run["originalUriBaseIds"] = sarif{"ROOT": sarif{"uri": "file://" + escapePath(strings.TrimSuffix(r.Root, "/")) + "/"}}
	}
	return writeJSON(w, sarif{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": []sarif{run},
	})
}

// changes are git's outside every scope.
func (r *Report) changes() (out []*Change) {
	if r.Git == nil {
		return nil
	}
	for i := range r.Git.Changes {
		if c := &r.Git.Changes[i]; c.Outside() {
			out = append(out, c)
		}
	}
	return out
}

func ruleID(reasons []string) string {
	if len(reasons) == 0 {
		return "unknown"
	}
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c == '-' {
			return c
		}
		return '_'
	}, reasons[0])
}

func (p *Path) sarif(rule string, index int) sarif {
	level, verb, n := "error", "refused", p.Count
	if p.Count == 0 {
		level, verb, n = "warning", "would have refused", p.Would
	}
	tasks := make([]string, 0, len(p.Tasks))
	for _, t := range p.Tasks {
		tasks = append(tasks, none(t))
	}
	text := fmt.Sprintf("The fence %s %s of %s (%s) under task %s; it belongs to %s", verb, strings.Join(cleanAll(p.Ops), ", "), p.Text(),
		strings.Join(cleanAll(p.Reasons), ", "), none(strings.Join(tasks, ", ")), none(strings.Join(p.Owners, ", ")))
	res := sarif{
		"ruleId": rule, "ruleIndex": index, "level": level, "message": sarif{"text": text}, "occurrenceCount": n,
		"partialFingerprints": sarif{"planfence/v1": rule + ":" + escapePath(exactName(p.Path, p.Bytes))},
		"properties":          sarif{"tasks": slices.Concat([]string{}, tasks), "owners": slices.Concat([]string{}, cleanAll(p.Owners)), "programs": slices.Concat([]string{}, cleanAll(p.Comms))},
	}
	switch {
	case p.Rel != "":
		res["locations"] = []sarif{{"physicalLocation": sarif{"artifactLocation": sarif{"uri": escapePath(exactRel(p)), "uriBaseId": "ROOT"}}}}
	case strings.HasPrefix(p.Path, "/"):
		res["locations"] = []sarif{location(p.Path, p.Bytes, false)}
	}
	return res
}

// exactRel is the part of a path's bytes below the root.
func exactRel(p *Path) string {
	root, ok := strings.CutSuffix(p.Path, p.Rel)
	exact := exactName(p.Path, p.Bytes)
	if rest, found := strings.CutPrefix(exact, root); ok && found {
		return rest
	}
	return exact
}

func location(name, exact string, below bool) sarif {
	l := sarif{"uri": "file://" + escapePath(exactName(name, exact))}
	if below {
		l = sarif{"uri": escapePath(exactName(name, exact)), "uriBaseId": "ROOT"}
	}
	return sarif{"physicalLocation": sarif{"artifactLocation": l}}
}

func exactName(text, exact string) string {
	if exact == "" {
		return text
	}
	b, err := base64.StdEncoding.DecodeString(exact)
	if err != nil {
		return text
	}
	return string(b)
}

// escapePath makes a path of a URI: each byte that is not plain is escaped, a
// colon, too, so that a relative path never begins with a scheme.
func escapePath(p string) string {
	parts := strings.Split(p, "/")
	for i, s := range parts {
		parts[i] = strings.ReplaceAll(url.PathEscape(s), ":", "%3A")
	}
	return strings.Join(parts, "/")
}
