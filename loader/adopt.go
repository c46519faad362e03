package loader

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"planfence/bpf"
)

// OpenExisting returns the fence of this build that is pinned, in whatever
// attach mode; [os.ErrNotExist] if none is. The caller holds [Lock].
func OpenExisting() (*Fence, error) {
	base, err := bpffs()
	if err != nil {
		return nil, err
	}
	for _, m := range []Mode{LSM, FmodRet} {
		dir := pinDir(base, m)
		if _, err := os.Stat(dir); err == nil {
			return openPinned(dir, m)
		}
	}
	return nil, fmt.Errorf("open the pinned fence in %s: %w", base, os.ErrNotExist)
}

// Others lists the pins of other builds of planfence, which this one does not
// touch.
func Others() []string {
	base, err := bpffs()
	if err != nil {
		return nil
	}
	dirs, _ := filepath.Glob(filepath.Join(base, "planfence-*"))
	var out []string
	for _, d := range dirs {
		if d != pinDir(base, LSM) && d != pinDir(base, FmodRet) {
			out = append(out, d)
		}
	}
	return out
}

// Adopt takes a session over whose companion is gone: scope, totals and unread
// events are as it left them.
func (f *Fence) Adopt(id uint64) (*Session, error) {
	slots, err := f.sessions()
	if err != nil {
		return nil, err
	}
	slot, ok := slots[id]
	if !ok {
		return nil, fmt.Errorf("adopt session: %w", os.ErrNotExist)
	}
	s := &Session{ID: id, Slot: slot, f: f}
	var inner ebpf.MapID
	if err := f.maps["rings"].Lookup(slot, &inner); err != nil {
		return nil, fmt.Errorf("find the ring: %w", err)
	}
	if s.ring, err = ebpf.NewMapFromID(inner); err != nil {
		return nil, fmt.Errorf("open the ring: %w", err)
	}
	if s.reader, err = ringbuf.NewReader(s.ring); err != nil {
		s.ring.Close()
		return nil, fmt.Errorf("read the ring: %w", err)
	}
	if s.generation, err = f.scopeGeneration(slot); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// scopeGeneration reads the generation of the scope in force, 0 if none is.
func (f *Fence) scopeGeneration(slot uint32) (uint64, error) {
	var inner ebpf.MapID
	if err := f.maps["scopes"].Lookup(slot, &inner); err != nil {
		return 0, nil // no scope was ever set
	}
	m, err := ebpf.NewMapFromID(inner)
	if err != nil {
		return 0, fmt.Errorf("open the scope: %w", err)
	}
	defer m.Close()
	value := make([]byte, m.ValueSize())
	if err := m.Lookup(uint32(0), &value); err != nil {
		return 0, fmt.Errorf("read the scope: %w", err)
	}
	var h bpf.LsmScopeHeader
	if _, err := binary.Decode(value, binary.NativeEndian, &h); err != nil {
		return 0, fmt.Errorf("read the scope: %w", err)
	}
	return h.Generation, nil
}

// Generation returns the generation of the scope in force.
func (s *Session) Generation() uint64 { return s.generation }

// Remember tells the reader the anchors of a generation that another process
// put in force.
func (s *Session) Remember(generation uint64, anchors []string) { s.anchors.add(generation, anchors) }

// Info is what the maps tell of a session.
type Info struct {
	ID      uint64
	Slot    uint32
	Members []Member
	Counts  Counts
}

// List returns all sessions of the fence, by slot.
func (f *Fence) List() ([]Info, error) {
	members, err := f.Members()
	if err != nil {
		return nil, err
	}
	var out []Info
	for slot := range uint32(bpf.LsmLimitMAX_SESSIONS) {
		var row bpf.LsmSessionRow
		if err := f.maps["sessions"].Lookup(slot, &row); err != nil {
			return nil, fmt.Errorf("read session slot %d: %w", slot, err)
		}
		if row.Session != 0 {
			out = append(out, Info{row.Session, slot, members[row.Session], countsOf(&row)})
		}
	}
	return out, nil
}

// RecursionMisses adds up how often the kernel skipped a run of a program: any
// number but 0 means that something may have passed.
func (f *Fence) RecursionMisses() (uint64, error) {
	var n uint64
	for _, l := range f.links {
		info, err := l.Info()
		if err != nil {
			return 0, fmt.Errorf("read a link: %w", err)
		}
		p, err := ebpf.NewProgramFromID(info.Program)
		if err != nil {
			return 0, fmt.Errorf("open program %d: %w", info.Program, err)
		}
		st, err := p.Stats()
		p.Close()
		if err != nil {
			return 0, fmt.Errorf("read program %d: %w", info.Program, err)
		}
		n += st.RecursionMisses
	}
	return n, nil
}
