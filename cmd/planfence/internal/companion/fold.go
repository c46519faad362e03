package companion

import (
	"time"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/loader"
)

// Held back before they are written: long enough for a burst to be folded and
// for a tentative event to be superseded, short enough for a person.
const hold = 250 * time.Millisecond

type heldRecord struct {
	rec       *blocklog.Record
	at        time.Time // first event
	tid       int
	tentative bool
	dropped   bool
}

type foldKey struct {
	pid                       int
	verdict, op, reason       string
	path, path2, task, errno_ string
	generation                uint64
}

// folder keeps records for a moment, in order, so that identical refusals of a
// burst become one record with a count, and tentative ones can be taken back.
type folder struct {
	queue []*heldRecord
	open  map[foldKey]*heldRecord
}

func keyOf(r *blocklog.Record) foldKey {
	return foldKey{r.PID, r.Verdict, r.Op, r.Reason, r.Path + "\x00" + r.PathBytes, r.Path2 + "\x00" + r.Path2Bytes, r.Task, r.Errno, r.Generation}
}

// add takes one event and its record.
func (f *folder) add(e *loader.Event, r *blocklog.Record, now time.Time) {
	if f.open == nil {
		f.open = map[foldKey]*heldRecord{}
	}
	if e.Supersedes || e.Retracts {
		for i := len(f.queue) - 1; i >= 0; i-- {
			h := f.queue[i]
			if h.tid == e.TID && h.tentative && !h.dropped {
				h.tentative = false
				if h.rec.Count--; h.rec.Count == 0 {
					h.dropped = true
					delete(f.open, keyOf(h.rec))
				}
				break
			}
		}
		if e.Retracts {
			return
		}
	}
	k := keyOf(r)
	if h := f.open[k]; h != nil && !h.dropped {
		h.rec.Count++
		h.rec.Last = r.Time
		h.tentative = e.Tentative
		h.tid = e.TID
		return
	}
	h := &heldRecord{rec: r, at: now, tid: e.TID, tentative: e.Tentative}
	f.queue = append(f.queue, h)
	f.open[k] = h
}

// ripe returns the records whose time has come, all of them if force is set.
func (f *folder) ripe(now time.Time, force bool) []*blocklog.Record {
	var out []*blocklog.Record
	n := 0
	for ; n < len(f.queue); n++ {
		h := f.queue[n]
		if !force && now.Sub(h.at) < hold {
			break
		}
		if h.dropped {
			continue
		}
		if f.open[keyOf(h.rec)] == h {
			delete(f.open, keyOf(h.rec))
		}
		out = append(out, h.rec)
	}
	f.queue = f.queue[n:]
	return out
}
