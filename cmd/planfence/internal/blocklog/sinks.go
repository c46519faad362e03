package blocklog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
)

// Stream is a [Sink] that writes lines to a stream, such as stdout.
type Stream struct {
	mu sync.Mutex
	W  io.Writer
}

// Write writes one record.
func (s *Stream) Write(r *Record) error {
	line, err := r.Marshal()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.W.Write(line); err != nil {
		return fmt.Errorf("write the log to stdout: %w", cause(err))
	}
	return nil
}

// Reopen does nothing: the stream is the operator's.
func (s *Stream) Reopen() error { return nil }

// Close does nothing: the stream is the operator's.
func (s *Stream) Close() error { return nil }

// Journal is a [Sink] that writes to systemd's journal: the text for people as
// the message, and each field of the record as PLANFENCE_FIELD.
type Journal struct{}

// NewJournal fails where no journal listens.
func NewJournal() (*Journal, error) {
	if !journal.Enabled() {
		return nil, errors.New("open the journal: systemd-journald does not listen on /run/systemd/journal/socket")
	}
	return &Journal{}, nil
}

// Write writes one record.
func (*Journal) Write(r *Record) error {
	vars, err := r.fields()
	if err != nil {
		return err
	}
	text, level := r.Text(), journal.PriWarning
	switch r.Kind {
	case "block", "hook":
	case "sync-error", "lost":
		text, level = r.Kind+": "+Printable(r.Message), journal.PriErr
	default:
		text, level = strings.TrimSpace(r.Kind+" "+Printable(r.Message)), journal.PriInfo
	}
	if err := journal.Send(text, level, vars); err != nil {
		return fmt.Errorf("write to the journal: %w", err)
	}
	return nil
}

// fields are the record's fields by their names in the journal. Lists are one
// value each, separated by spaces.
func (r *Record) fields() (map[string]string, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	var all map[string]any
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	vars := map[string]string{"SYSLOG_IDENTIFIER": "planfence"}
	for k, v := range all {
		name := "PLANFENCE_" + strings.ToUpper(k)
		switch v := v.(type) {
		case string:
			vars[name] = v
		case json.Number:
			vars[name] = v.String()
		case bool:
			vars[name] = strconv.FormatBool(v)
		case []any:
			var words []string
			for _, w := range v {
				words = append(words, fmt.Sprint(w))
			}
			vars[name] = strings.Join(words, " ")
		}
	}
	return vars, nil
}

// Reopen does nothing.
func (*Journal) Reopen() error { return nil }

// Close does nothing: one socket serves the whole process.
func (*Journal) Close() error { return nil }
