package loader

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"planfence/bpf"
	"planfence/plan"
)

// The request of [Fence.ask]; ASK in fence.h.
const askCommand = 0x7066c0de

const noAnchor = 0xffffffff

// Anchor is a directory from which paths are judged downwards.
type Anchor struct {
	Path  string     // absolute, as the fence's mount namespace sees it; for records
	Dir   *os.File   // an open descriptor, not O_PATH; the session keeps it until the next scope
	Start plan.State // the table's state at this directory
}

// Scope is everything that decides for one session. See struct scope_header.
type Scope struct {
	Table       *plan.Table
	Root        Anchor   // the project root
	Anchors     []Anchor // others: mounts' roots, allowed directories
	SocketStart plan.State
	Audit       bool       // refuse nothing, record what would have been
	Open        bool       // no task is active: what lies under no anchor is allowed
	Deny        bool       // no scope is in force: refusals carry the reason no-task
	Hardlinks   bool       // write files in place whatever links they have
	Stdio       []*os.File // what the operator opened descriptors 0, 1 and 2 on
}

// MaxAnchors is how many anchors a scope can have beside the root: the table stays sparse
// enough for short probes.
const MaxAnchors = int(bpf.LsmLimitANCHOR_SLOTS) / 2

func anchorHash(dentry uint64) uint32 {
	return (uint32(dentry) >> 6 * 0x9E3779B1) >> 24
}

// encoded is a scope as the programs read it.
type encoded struct {
	paths []string   // anchor id -> path
	files []*os.File // held as long as the scope is in force
	// Of anchors below which nothing is allowed: closed at once, or the operator
	// could not unmount their file systems. Were the address taken by another
	// directory, the anchor would still refuse.
	drop    []*os.File
	mountNS uint64 // address of the caller's mount namespace
}

// encode lays a scope out in value, scopeBytes of zeros.
func (f *Fence) encode(s Scope, session, generation uint64, value []byte) (*encoded, error) {
	if s.Table == nil {
		return nil, fmt.Errorf("encode the scope: no table")
	}
	var h bpf.LsmScopeHeader
	e := &encoded{}
	root, err := f.ask(s.Root.Dir)
	if err != nil {
		return nil, err
	}
	h.Session, h.Generation = session, generation
	h.Root, h.RootId = root.Dentry, root.Object
	h.RootStart = uint32(s.Root.Start)
	h.MntNs, h.Companion = root.MntNs, root.Tgid
	e.mountNS = root.MntNs
	h.SocketStart = uint32(s.SocketStart)
	if h.State, err = f.stateDir(); err != nil {
		return nil, err
	}
	h.OverlayStart, h.OverlayEnd = overlayText()
	h.Slash, h.End = s.Table.Class['/'], s.Table.Class[0]
	for flag, on := range map[bpf.LsmScopeFlag]bool{
		bpf.LsmScopeFlagSCOPE_AUDIT: s.Audit, bpf.LsmScopeFlagSCOPE_OPEN: s.Open,
		bpf.LsmScopeFlagSCOPE_DENY: s.Deny, bpf.LsmScopeFlagSCOPE_DEFAULTS: s.Table.Defaults, bpf.LsmScopeFlagSCOPE_HARDLINKS: s.Hardlinks,
	} {
		if on {
			h.Flags |= uint32(flag)
		}
	}
	add := func(a Anchor, ans bpf.LsmAnswer) error {
		id := uint32(len(e.paths))
		e.paths = append(e.paths, a.Path)
		if a.Start == plan.Dead {
			e.drop = append(e.drop, a.Dir)
		} else {
			e.files = append(e.files, a.Dir)
		}
		at := anchorHash(ans.Dentry)
		for i := range uint32(bpf.LsmLimitANCHOR_PROBES) {
			slot := &h.Anchors[(at+i)%uint32(bpf.LsmLimitANCHOR_SLOTS)]
			if slot.Dentry == ans.Dentry {
				return nil // the same directory under a second path: the first one stays
			}
			if slot.Dentry != 0 {
				continue
			}
			*slot = bpf.LsmAnchor{Dentry: ans.Dentry, Ino: ans.Object.Ino, Dev: ans.Object.Dev,
				Generation: ans.Object.Generation, Start: uint32(a.Start), Id: id}
			return nil
		}
		return fmt.Errorf("anchor %s: the table of anchors is crowded (%d anchors)", a.Path, len(e.paths))
	}
	if err := add(s.Root, root); err != nil {
		return nil, err
	}
	if len(s.Anchors) > MaxAnchors {
		return nil, fmt.Errorf("%d anchors, at most %d: mount or allow fewer directories", len(s.Anchors), MaxAnchors)
	}
	for _, a := range s.Anchors {
		ans, err := f.ask(a.Dir)
		if err != nil {
			return nil, err
		}
		if ans.IsRoot == 0 && a.Start == plan.Dead {
			e.drop = append(e.drop, a.Dir) // judged by its name in its own file system
			continue
		}
		if ans.IsRoot == 0 {
			h.Flags |= uint32(bpf.LsmScopeFlagSCOPE_INNER)
		}
		if err := add(a, ans); err != nil {
			return nil, err
		}
	}
	for _, file := range s.Stdio {
		ans, err := f.ask(file)
		if err != nil {
			return nil, err
		}
		switch ans.Mode & 0o170000 {
		case 0o100000:
			if int(h.Stdios) < len(h.Stdio) {
				h.Stdio[h.Stdios] = ans.Object
				h.Stdios++
			}
		case 0o020000:
			if int(h.Ttys) < len(h.Tty) {
				h.Tty[h.Ttys] = ans.Rdev
				h.Ttys++
			}
		}
	}
	cells := s.Table.Cells
	if len(cells) > int(bpf.LsmLimitMAX_CELLS) {
		return nil, fmt.Errorf("the scope's table has %d cells, at most %d", len(cells), int(bpf.LsmLimitMAX_CELLS))
	}
	names := encodeNames(s.Table, s.Root.Start)
	if len(names) > 0 {
		h.Flags |= uint32(bpf.LsmScopeFlagSCOPE_NAMES)
	}
	n, err := binary.Encode(value, binary.NativeEndian, &h)
	if err != nil {
		return nil, fmt.Errorf("encode the scope: %w", err)
	}
	for i, c := range s.Table.Class {
		binary.NativeEndian.PutUint16(value[n+2*i:], c)
	}
	n += 2 * len(s.Table.Class)
	for at, name := range names {
		if _, err := binary.Encode(value[n+nameBytes*at:], binary.NativeEndian, &name); err != nil {
			return nil, fmt.Errorf("encode the scope: %w", err)
		}
	}
	n += nameBytes * int(bpf.LsmLimitNAME_SLOTS)
	skips := map[plan.State]bool{}
	if !s.Table.Defaults { // else the fast walk, which alone skips, is not taken
		skips = s.Table.Skips()
	}
	for i, c := range cells {
		if skips[plan.State(c>>32)] && uint32(i)*8-uint32(c) == uint32(h.Slash) {
			c |= uint64(bpf.LsmStateSTATE_SKIPS) << 32
		}
		binary.NativeEndian.PutUint64(value[n+8*i:], c)
	}
	return e, nil
}

// stateDir identifies [StateDir], below which no fenced process may take locks.
func (f *Fence) stateDir() (bpf.LsmObject, error) {
	dir, err := os.Open(StateDir)
	if err != nil {
		return bpf.LsmObject{}, fmt.Errorf("open the state of sessions: %w", err)
	}
	defer dir.Close()
	ans, err := f.ask(dir)
	return ans.Object, err
}

const (
	nameBytes  = int(unsafe.Sizeof(bpf.LsmName{}))
	scopeBytes = int(unsafe.Sizeof(bpf.LsmScopeHeader{})) + 2*256 + nameBytes*int(bpf.LsmLimitNAME_SLOTS) + 8*int(bpf.LsmLimitMAX_CELLS)
)

// nameWords returns a name of at most NAME_SHORT bytes as name_words does.
func nameWords(text string) (w [2]uint64) {
	for i := range w {
		part := text[min(8*i, len(text)):min(8*i+8, len(text))]
		var b [8]byte
		copy(b[8-len(part):], part)
		w[i] = binary.LittleEndian.Uint64(b[:])
	}
	return w
}

// encodeNames lays out the table of names, by slot. A name whose slot is taken is
// left out: it is found in the cells.
func encodeNames(t *plan.Table, start plan.State) map[int]bpf.LsmName {
	out := map[int]bpf.LsmName{}
	if t.Defaults {
		return out
	}
	for _, n := range t.Names(start, int(bpf.LsmLimitNAME_SHORT), int(bpf.LsmLimitNAME_SLOTS)) {
		w := nameWords(n.Text)
		at := int((w[0] ^ w[1] ^ uint64(n.From)) * 0x9E3779B97F4A7C15 >> 53)
		if _, taken := out[at]; taken {
			continue
		}
		v := bpf.LsmName{Text: w, From: uint32(n.From), To: uint32(n.To)}
		if n.AllBelow {
			v.Below = uint32(plan.All)
		}
		out[at] = v
	}
	return out
}

// scopeMap makes the map of a scope and returns it with its value, mapped for
// writing. unmap is called before the map is closed.
func scopeMap() (m *ebpf.Map, value []byte, unmap func() error, err error) {
	m, err = ebpf.NewMap(&ebpf.MapSpec{Name: "scope", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(scopeBytes),
		MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make map scope: %w", err)
	}
	page := os.Getpagesize()
	value, err = unix.Mmap(m.FD(), 0, (scopeBytes+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		m.Close()
		return nil, nil, nil, fmt.Errorf("map the map scope: %w", err)
	}
	return m, value, func() error { return unix.Munmap(value) }, nil
}
