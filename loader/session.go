package loader

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"planfence/bpf"
)

// RingBytes is the size of a session's ring: some 5,000 refusals of ordinary
// path length between two looks of the companion.
const RingBytes = 4 << 20

// Session is one fenced process tree. Not safe for concurrent use, but for
// [Session.Read], which may run beside the other methods.
type Session struct {
	ID   uint64
	Slot uint32
	// MountNS is the address of the mount namespace that the last scope was set from; 0 before.
	MountNS uint64

	f          *Fence
	generation uint64
	reader     *ringbuf.Reader
	ring       *ebpf.Map
	anchors    anchorList
	held       []*os.File
}

// NewSession takes a free slot. The caller holds [Lock].
func (f *Fence) NewSession() (*Session, error) {
	for slot := range uint32(bpf.LsmLimitMAX_SESSIONS) {
		var row bpf.LsmSessionRow
		if err := f.maps["sessions"].Lookup(slot, &row); err != nil {
			return nil, fmt.Errorf("read session slot %d: %w", slot, err)
		}
		if row.Session != 0 {
			continue
		}
		s := &Session{ID: random(), Slot: slot, f: f}
		ring, err := ebpf.NewMap(&ebpf.MapSpec{Name: "ring", Type: ebpf.RingBuf, MaxEntries: RingBytes})
		if err != nil {
			return nil, fmt.Errorf("make the ring: %w", err)
		}
		s.ring = ring
		if err := f.maps["rings"].Put(slot, ring); err != nil {
			ring.Close()
			return nil, fmt.Errorf("set the ring: %w", err)
		}
		if s.reader, err = ringbuf.NewReader(ring); err != nil {
			ring.Close()
			return nil, fmt.Errorf("read the ring: %w", err)
		}
		row = bpf.LsmSessionRow{Session: s.ID}
		if err := f.maps["sessions"].Put(slot, row); err != nil {
			s.Close()
			return nil, fmt.Errorf("take session slot %d: %w", slot, err)
		}
		return s, nil
	}
	return nil, &Problem{fmt.Errorf("%w: all %d are taken", ErrFull, int(bpf.LsmLimitMAX_SESSIONS)),
		"end sessions that are no longer needed: planfence status lists them"}
}

// SetScope puts a scope in force: one pointer changes, so every operation sees
// the old scope or the new one. It returns the scope's generation. The
// descriptors in s are the session's from then on; on an error they stay the
// caller's and the old scope stays in force.
func (s *Session) SetScope(sc Scope) (uint64, error) {
	gen := s.generation + 1
	m, value, unmap, err := scopeMap()
	if err != nil {
		return 0, err
	}
	defer m.Close()
	e, err := s.f.encode(sc, s.ID, gen, value)
	if err = errors.Join(err, unmap()); err != nil {
		return 0, err
	}
	s.anchors.add(gen, e.paths)
	if err := s.f.maps["scopes"].Put(s.Slot, m); err != nil {
		return 0, fmt.Errorf("set the scope: %w", err)
	}
	s.generation, s.MountNS = gen, e.mountNS
	for _, f := range s.held {
		f.Close()
	}
	s.held = e.files
	for _, f := range e.drop {
		f.Close()
	}
	return gen, nil
}

// Label makes the process behind a pidfd a member. It must have one thread:
// only the thread group's leader is labelled.
func (s *Session) Label(pidfd int) error {
	l := bpf.LsmLabel{Session: s.ID, Slot: s.Slot, Role: uint32(bpf.LsmRoleROLE_FENCED)}
	if err := s.f.maps["labels"].Put(uint32(pidfd), l); err != nil {
		return fmt.Errorf("label the process: %w", err)
	}
	return nil
}

// Guard marks the process with the number pid as a companion: no fenced process
// can signal it.
func (f *Fence) Guard(pid int) error {
	pidfd, err := PidfdOpen(pid)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	if err := f.maps["labels"].Put(uint32(pidfd), bpf.LsmLabel{Role: uint32(bpf.LsmRoleROLE_COMPANION)}); err != nil {
		return fmt.Errorf("guard process %d: %w", pid, err)
	}
	return nil
}

// Reset sets the session's totals and the events' numbering back to nothing:
// what the canary did is no part of the run. Nothing else may be fenced yet.
func (s *Session) Reset() error {
	if err := s.f.maps["sessions"].Put(s.Slot, bpf.LsmSessionRow{Session: s.ID}); err != nil {
		return fmt.Errorf("reset session slot %d: %w", s.Slot, err)
	}
	return nil
}

// Members returns the processes of every session, by session id.
func (f *Fence) Members() (map[uint64][]Member, error) {
	r, err := f.iter.Open()
	if err != nil {
		return nil, fmt.Errorf("list fenced processes: %w", err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("list fenced processes: %w", err)
	}
	return decodeMembers(data), nil
}

// Counts are totals by operation and reason, exact whatever happens to the
// stream of events.
type Counts struct {
	Refused, Audited map[OpReason]uint64
	Events, Lost     uint64
}

// OpReason is a pair of an operation and a reason, as in records.
type OpReason struct{ Op, Reason string }

// Counts returns the session's totals.
func (s *Session) Counts() (Counts, error) {
	var row bpf.LsmSessionRow
	if err := s.f.maps["sessions"].Lookup(s.Slot, &row); err != nil {
		return Counts{}, fmt.Errorf("read session slot %d: %w", s.Slot, err)
	}
	return countsOf(&row), nil
}

func countsOf(row *bpf.LsmSessionRow) Counts {
	c := Counts{Refused: map[OpReason]uint64{}, Audited: map[OpReason]uint64{}, Events: row.Seq, Lost: row.Lost}
	for op := range row.Refused {
		for reason := range row.Refused[op] {
			k := OpReason{opName(uint8(op)), reasonName(uint8(reason))}
			if n := row.Refused[op][reason]; n != 0 {
				c.Refused[k] += n
			}
			if n := row.Audited[op][reason]; n != 0 {
				c.Audited[k] += n
			}
		}
	}
	return c
}

// End takes the session's row away, and the fence itself if it was the last
// session. While the session has processes it returns [ErrBusy] and changes
// nothing. The caller holds [Lock].
func (s *Session) End() error {
	if err := s.f.DropLast(s.ID); err != nil {
		return err
	}
	return s.Close()
}

// DropLast is [Fence.Drop], and takes the fence down if no session is left.
func (f *Fence) DropLast(id uint64) error {
	if err := f.Drop(id); err != nil {
		return err
	}
	left, err := f.sessions()
	if err != nil || len(left) > 0 {
		return err
	}
	return f.remove()
}

// Drop frees the slot of a session that has no processes; [ErrBusy] otherwise.
// The programs stay. The caller holds [Lock].
func (f *Fence) Drop(id uint64) error {
	all, err := f.Members()
	if err != nil {
		return err
	}
	if n := len(all[id]); n > 0 {
		return fmt.Errorf("%w: %d", ErrBusy, n)
	}
	slots, err := f.sessions()
	if err != nil {
		return err
	}
	if slot, ok := slots[id]; ok {
		return errors.Join(f.clear(slot), f.forgetLinks(id))
	}
	return nil
}

// forgetLinks removes what a session accounted for: the map is shared, and one that
// fills leaves others without room.
func (f *Fence) forgetLinks(id uint64) error {
	m := f.maps["link_counts"]
	var keys []bpf.LsmLinkKey
	var key bpf.LsmLinkKey
	var n uint32
	it := m.Iterate()
	for it.Next(&key, &n) {
		if key.Session == id {
			keys = append(keys, key)
		}
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // others add to it
		return fmt.Errorf("read the links that are accounted for: %w", err)
	}
	for _, k := range keys {
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove a link that is accounted for: %w", err)
		}
	}
	return nil
}

// clear frees a slot that has no members.
func (f *Fence) clear(slot uint32) error {
	for _, del := range []struct {
		m   string
		key uint32
	}{{"scopes", slot}, {"rings", slot}} {
		if err := f.maps[del.m].Delete(del.key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("clear session slot %d: %w", slot, err)
		}
	}
	if err := f.maps["sessions"].Put(slot, bpf.LsmSessionRow{}); err != nil {
		return fmt.Errorf("clear session slot %d: %w", slot, err)
	}
	return nil
}

// sessions returns the slots in use, by session id.
func (f *Fence) sessions() (map[uint64]uint32, error) {
	out := map[uint64]uint32{}
	for slot := range uint32(bpf.LsmLimitMAX_SESSIONS) {
		var row bpf.LsmSessionRow
		if err := f.maps["sessions"].Lookup(slot, &row); err != nil {
			return nil, fmt.Errorf("read session slot %d: %w", slot, err)
		}
		if row.Session != 0 {
			out[row.Session] = slot
		}
	}
	return out, nil
}

// Close frees descriptors; the session stays in force. Idempotent.
func (s *Session) Close() error {
	var errs []error
	if s.reader != nil {
		errs = append(errs, s.reader.Close())
	}
	if s.ring != nil {
		errs = append(errs, s.ring.Close())
	}
	for _, f := range s.held {
		f.Close()
	}
	s.reader, s.ring, s.held = nil, nil, nil
	return errors.Join(errs...)
}

// PidfdOpen opens a pidfd of a process.
func PidfdOpen(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, fmt.Errorf("open a pidfd of %d: %w", pid, err)
	}
	return fd, nil
}
