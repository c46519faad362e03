package loader

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/cilium/ebpf"

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
	value []byte     // struct scope
	paths []string   // anchor id -> path
	files []*os.File // held as long as the scope is in force
	// Of anchors below which nothing is allowed: closed at once, or the operator
	// could not unmount their file systems. Were the address taken by another
	// directory, the anchor would still refuse.
	drop []*os.File
}

func (f *Fence) encode(s Scope, session, generation uint64) (*encoded, error) {
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
	h.SocketStart = uint32(s.SocketStart)
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
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, &h); err != nil {
		return nil, fmt.Errorf("encode the scope: %w", err)
	}
	if err := binary.Write(&b, binary.NativeEndian, s.Table.Class); err != nil {
		return nil, fmt.Errorf("encode the scope: %w", err)
	}
	e.value = make([]byte, b.Len()+8*int(bpf.LsmLimitMAX_CELLS))
	n := copy(e.value, b.Bytes())
	for i, c := range cells {
		binary.NativeEndian.PutUint64(e.value[n+8*i:], c)
	}
	return e, nil
}

// one makes an array map of one value.
func one(name string, value []byte) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4,
		ValueSize: uint32(len(value)), MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("make map %s: %w", name, err)
	}
	if err := m.Put(uint32(0), value); err != nil {
		m.Close()
		return nil, fmt.Errorf("fill map %s: %w", name, err)
	}
	return m, nil
}
