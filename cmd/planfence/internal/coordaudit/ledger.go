package coordaudit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Turn is one turn of a coordinator, a line of the ledger.
type Turn struct {
	TurnID        string    `json:"turn_id"`
	SessionID     string    `json:"session_id"`
	Timestamp     string    `json:"timestamp"`
	Mode          string    `json:"mode"` // Direct, Lightweight, Standard, Full
	TaskCalls     int       `json:"task_calls_since_last_turn"`
	WriteTools    []string  `json:"write_tools_used"`
	Artifact      *Artifact `json:"domain_artifact_declared"`
	Justification string    `json:"justification"`
	RecordType    string    `json:"record_type"`
}

// Artifact is what a turn says that it made.
type Artifact struct {
	Value       bool   `json:"value"`
	Description string `json:"description"`
}

// Modes of a turn.
const (
	Direct      = "Direct"
	Lightweight = "Lightweight"
	Standard    = "Standard"
	Full        = "Full"
)

var modes = []string{Direct, Lightweight, Standard, Full}

// Ledger is what was read.
type Ledger struct {
	Turns     []Turn
	Other     int // records that are no turns, such as verdicts
	Malformed int // lines that cannot be read
	LastBad   bool
}

// ReadLedger reads the turns of a ledger: of one session where session is given,
// else of the session of the last turn. Lines that cannot be read are counted.
func ReadLedger(b []byte, session string) *Ledger {
	l := &Ledger{}
	var all []Turn
	for line := range bytes.SplitSeq(b, []byte{'\n'}) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		t, err := readTurn(line)
		l.LastBad = err != nil
		switch {
		case err != nil:
			l.Malformed++
		case t == nil:
			l.Other++
		default:
			all = append(all, *t)
		}
	}
	if session == "" && len(all) > 0 {
		session = all[len(all)-1].SessionID
	}
	l.Turns = slices.DeleteFunc(all, func(t Turn) bool { return t.SessionID != session })
	return l
}

// readTurn reads one line; nil for a record that is no turn.
func readTurn(line []byte) (*Turn, error) {
	var w struct {
		TurnID     json.RawMessage `json:"turn_id"`
		SessionID  string          `json:"session_id"`
		Timestamp  json.RawMessage `json:"timestamp"`
		Mode       string          `json:"mode"`
		TaskCalls  json.RawMessage `json:"task_calls_since_last_turn"`
		WriteTools json.RawMessage `json:"write_tools_used"`
		Artifact   *struct {
			Value       json.RawMessage `json:"value"`
			Description string          `json:"description"`
		} `json:"domain_artifact_declared"`
		Justification string `json:"justification"`
		RecordType    string `json:"record_type"`
	}
	var kind struct {
		RecordType string `json:"record_type"`
	}
	if err := json.Unmarshal(line, &kind); err != nil {
		return nil, err
	}
	if kind.RecordType != "" && kind.RecordType != "turn" && kind.RecordType != "coordinator_turn" {
		return nil, nil
	}
	if err := json.Unmarshal(line, &w); err != nil {
		return nil, err
	}
	if !slices.Contains(modes, w.Mode) {
		return nil, fmt.Errorf("mode %q", w.Mode)
	}
	calls, err := amount(w.TaskCalls)
	if err != nil {
		return nil, fmt.Errorf("task_calls_since_last_turn: %w", err)
	}
	tools, err := names(w.WriteTools)
	if err != nil {
		return nil, fmt.Errorf("write_tools_used: %w", err)
	}
	t := &Turn{
		TurnID: scalar(w.TurnID), SessionID: w.SessionID, Timestamp: scalar(w.Timestamp), Mode: w.Mode, TaskCalls: calls,
		WriteTools: tools, Justification: w.Justification, RecordType: w.RecordType,
	}
	if w.Artifact != nil {
		t.Artifact = &Artifact{Value: truth(w.Artifact.Value), Description: w.Artifact.Description}
	}
	return t, nil
}

// amount reads a number that is not negative, or the length of a list.
func amount(raw json.RawMessage) (int, error) {
	var n *float64
	if json.Unmarshal(raw, &n) == nil && n != nil && *n >= 0 && *n < 1<<31 {
		return int(*n), nil
	}
	var list *[]any
	if json.Unmarshal(raw, &list) == nil && list != nil {
		return len(*list), nil
	}
	return 0, errors.New("a number is expected")
}

// names reads a list of names. A ledger that only says whether, or how many, is
// read as well.
func names(raw json.RawMessage) ([]string, error) {
	list := []string{}
	if json.Unmarshal(raw, &list) == nil && string(raw) != "null" {
		return list, nil
	}
	var yes *bool
	if json.Unmarshal(raw, &yes) == nil && yes != nil {
		if *yes {
			return []string{"a write tool"}, nil
		}
		return []string{}, nil
	}
	if n, err := amount(raw); err == nil {
		if n > 0 {
			return []string{fmt.Sprintf("%d write tools", n)}, nil
		}
		return []string{}, nil
	}
	return nil, errors.New("a list of names is expected")
}

// truth is false for what says nothing: false, null, an empty text, 0.
func truth(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", `""`, "0":
		return false
	}
	return true
}

// scalar is a string's text or a number as it stands.
func scalar(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
