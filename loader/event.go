package loader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"planfence/bpf"
)

// Event is one refusal, or in an auditing session one that would have been.
type Event struct {
	Seq        uint64        // from 1 in a session; a gap is a lost event
	Boot       time.Duration // CLOCK_BOOTTIME
	Session    uint64
	Generation uint64 // of the scope that decided
	Op, Reason string
	Would      bool
	Tentative  bool // may be followed by an event of the same thread that supersedes or retracts it
	Supersedes bool
	Retracts   bool
	Second     bool // the second path was the one refused
	Cut        bool // the paths were longer than an event holds: their ends (leaf side) are given
	PID        int  // thread group, initial pid namespace
	TID        int
	NSPID      int // in the process's own pid namespace
	PPID       int
	UID        uint32
	Comm       string
	Mode       uint32 // st_mode of the object, 0: none
	Path       Path
	Path2      Path
	Exe        string // "" where not yet known
}

// Path is where an object lies.
type Path struct {
	Anchor string // path of the anchor directory, "" if it lies under none
	Below  string // from there, or from the file system's root; starts with '/' unless empty
	Dev    uint32 // s_dev of the file system: major << 20 | minor
}

// Known reports whether there is a path at all.
func (p Path) Known() bool { return p.Anchor != "" || p.Below != "" }

// String returns the absolute path where the anchor is known.
func (p Path) String() string {
	if p.Anchor == "/" {
		if p.Below == "" {
			return "/"
		}
		return p.Below
	}
	return p.Anchor + p.Below
}

// anchorList keeps the anchors' paths of the last few generations, for events
// that were made before a switch and read after it.
type anchorList struct {
	mu   sync.Mutex
	gens map[uint64][]string
}

func (l *anchorList) add(gen uint64, paths []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gens == nil {
		l.gens = map[uint64][]string{}
	}
	l.gens[gen] = paths
	if gen > keepGenerations {
		delete(l.gens, gen-keepGenerations)
	}
}

// keepGenerations bounds what [anchorList] holds: events are read within a
// second, and the companion does not switch a thousand times in one.
const keepGenerations = 1024

func (l *anchorList) path(gen uint64, id uint32) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if paths := l.gens[gen]; int(id) < len(paths) {
		return paths[id]
	}
	return ""
}

// Reader turns a session's ring into events.
type Reader struct {
	s    *Session
	exes map[[2]uint64]string
	rec  ringbuf.Record
}

// NewReader returns the one reader of the session's events.
func (s *Session) NewReader() *Reader {
	return &Reader{s: s, exes: map[[2]uint64]string{}}
}

// Read returns the next event, waiting for at most wait; [os.ErrDeadlineExceeded]
// when there is none, [os.ErrClosed] after Close. The programs do not wake the
// reader: a refusal must not cost a wake-up, so events arrive when wait ends.
func (r *Reader) Read(wait time.Duration) (*Event, error) {
	reader := r.s.reader
	if reader == nil {
		return nil, os.ErrClosed
	}
	reader.SetDeadline(time.Now().Add(wait))
	if err := reader.ReadInto(&r.rec); err != nil {
		if errors.Is(err, ringbuf.ErrClosed) {
			return nil, os.ErrClosed
		}
		return nil, err
	}
	return r.decode(r.rec.RawSample)
}

func (r *Reader) decode(b []byte) (*Event, error) {
	var e bpf.LsmEvent
	size := int(unsafe.Sizeof(e))
	if len(b) < size {
		return nil, fmt.Errorf("decode event: %d bytes, at least %d", len(b), size)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), size), b) // generated: laid out as in C
	names := b[size:]
	total := int(e.Len) + int(e.Len2) + int(e.ExeLen)
	if total > len(names) {
		return nil, fmt.Errorf("decode event: %d bytes of names, at most %d", total, len(names))
	}
	flag := func(f bpf.LsmEventFlag) bool { return e.Flags&uint16(f) != 0 }
	out := &Event{
		Seq: e.Seq, Boot: time.Duration(e.Time), Session: e.Session, Generation: e.Generation,
		Op: opName(e.Op), Reason: reasonName(e.Reason),
		Would: flag(bpf.LsmEventFlagEVENT_WOULD), Tentative: flag(bpf.LsmEventFlagEVENT_TENTATIVE),
		Supersedes: flag(bpf.LsmEventFlagEVENT_SUPERSEDES), Retracts: flag(bpf.LsmEventFlagEVENT_RETRACTS),
		Second: flag(bpf.LsmEventFlagEVENT_PATH2), Cut: flag(bpf.LsmEventFlagEVENT_CUT),
		PID: int(e.Pid), TID: int(e.Tid), NSPID: int(e.Nspid), PPID: int(e.Ppid), UID: e.Uid,
		Comm: cString(e.Comm[:]), Mode: uint32(e.Mode),
	}
	anchor := func(id uint32) string {
		if id == noAnchor {
			return ""
		}
		return r.s.anchors.path(e.Generation, id)
	}
	a, names := names[:e.Len], names[e.Len:]
	b2, x := names[:e.Len2], names[e.Len2:][:e.ExeLen]
	out.Path = Path{anchor(e.Anchor), reverse(a), e.Dev}
	out.Path2 = Path{anchor(e.Anchor2), reverse(b2), e.Dev2}
	key := [2]uint64{e.Exe, e.ExeIno}
	if e.ExeLen > 0 {
		r.exes[key] = Path{anchor(e.ExeAnchor), reverse(x), 0}.String()
	}
	if e.Exe != 0 {
		out.Exe = r.exes[key]
	} else if e.ExeLen > 0 {
		out.Exe = r.exes[key]
	}
	return out, nil
}

// reverse turns "c/b/a/" into "/a/b/c".
func reverse(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	parts := strings.Split(string(b[:len(b)-1]), "/")
	slices.Reverse(parts)
	return "/" + strings.Join(parts, "/")
}

func cString(b []int8) string {
	var s strings.Builder
	for _, c := range b {
		if c == 0 {
			break
		}
		s.WriteByte(byte(c))
	}
	return s.String()
}

// Member is a fenced thread.
type Member struct {
	PID, TID int    // initial pid namespace
	MountNS  uint64 // address of its mount namespace
	IOUring  bool   // it has made a ring
}

func decodeMembers(b []byte) map[uint64][]Member {
	var m bpf.LsmMember
	out := map[uint64][]Member{}
	size := int(unsafe.Sizeof(m))
	for ; len(b) >= size; b = b[size:] {
		if binary.Read(bytes.NewReader(b[:size]), binary.NativeEndian, &m) == nil {
			out[m.Session] = append(out[m.Session], Member{int(m.Pid), int(m.Tid), m.MntNs, m.IoUring != 0})
		}
	}
	return out
}
