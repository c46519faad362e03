package loader

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"planfence/bpf"
)

// Mode says which functions of the kernel the programs are attached to.
type Mode string

// Attach modes. Auto prefers LSM.
const (
	Auto    Mode = "auto"
	LSM     Mode = "lsm"      // BPF LSM programs: bpf is in the active list of security modules
	FmodRet Mode = "fmod_ret" // fmod_ret programs on the security_* functions
)

// StateDir holds what planfence keeps while sessions run: the lock, sessions'
// state, and the bpf file system where the machine has none mounted.
const StateDir = "/run/planfence"

// pinDir is where a build's programs of a mode are pinned. The list of a
// session's processes ends at the pid namespace, so each has pins of its own.
func pinDir(base string, m Mode) string {
	name := "planfence-" + Build() + "-" + string(m)
	if ns := PIDNamespace(); ns != 0 {
		name += "-" + strconv.FormatUint(ns, 10)
	}
	return filepath.Join(base, name)
}

// PIDNamespace returns the number of this process's pid namespace, 0 for the
// host's own.
func PIDNamespace() uint64 {
	const initial = 0xEFFFFFFC // PROC_PID_INIT_INO
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.Trim(strings.TrimPrefix(ns, "pid:"), "[]"), 10, 64)
	if err != nil || n == initial {
		return 0
	}
	return n
}

// Options for [Open].
type Options struct {
	Mode Mode // zero: Auto
}

// Fence is the set of attached programs and their maps.
type Fence struct {
	Mode Mode
	Dir  string // where programs and maps are pinned

	maps  map[string]*ebpf.Map
	iter  *link.Iter
	links []link.Link // held beside the pins: a pin that is unmounted does not end the fence
}

// revocation programs are pinned but attached only while a revocation is pending.
var onDemand = map[string]bool{
	"file_permission": true, "file_truncate": true, "mmap_file": true, "file_mprotect": true,
}

// Lock keeps other planfence processes from changing sessions and pins. The
// returned function releases it.
func Lock() (func(), error) {
	if err := os.MkdirAll(StateDir, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", StateDir, err)
	}
	f, err := os.OpenFile(filepath.Join(StateDir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// bpffs returns a directory on a bpf file system, mounting one if need be.
func bpffs() (string, error) {
	const usual = "/sys/fs/bpf"
	var st unix.Statfs_t
	if err := unix.Statfs(usual, &st); err == nil && st.Type == unix.BPF_FS_MAGIC {
		return usual, nil
	}
	own := filepath.Join(StateDir, "bpf")
	if err := os.MkdirAll(own, 0o700); err != nil {
		return "", fmt.Errorf("make %s: %w", own, err)
	}
	if err := unix.Statfs(own, &st); err == nil && st.Type == unix.BPF_FS_MAGIC {
		return own, nil
	}
	if err := unix.Mount("bpf", own, "bpf", 0, "mode=0700"); err != nil {
		return "", fmt.Errorf("mount a bpf file system on %s: %w", own, err)
	}
	return own, nil
}

// Build identifies the compiled programs: 12 hexadecimal digits.
func Build() string {
	h := sha256.New()
	h.Write(bpf.LsmELF())
	h.Write(bpf.FmodELF())
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// Open returns the fence of this build: the one that is pinned, or a new one.
// The caller holds [Lock].
func Open(o Options) (*Fence, error) {
	base, err := bpffs()
	if err != nil {
		return nil, preflightError(err)
	}
	modes := []Mode{o.Mode}
	if o.Mode == "" || o.Mode == Auto {
		modes = []Mode{LSM, FmodRet}
	}
	for _, m := range modes {
		dir := pinDir(base, m)
		if _, err := os.Stat(dir); err == nil {
			f, err := openPinned(dir, m)
			if err == nil {
				return f, nil
			}
			return nil, &Problem{fmt.Errorf("open what is pinned in %s: %w", dir, err),
				"if no session runs (planfence status), remove that directory"}
		}
	}
	k, want := ReadKernel(), o.Mode
	if (want == "" || want == Auto) && k.Modules == nil {
		// The list cannot be read: whether programs run tells.
		if f, err := load(pinDir(base, LSM), LSM); err == nil {
			if f.runs() {
				return f, nil
			}
			if err := f.remove(); err != nil {
				return nil, err
			}
		}
		want = FmodRet
	}
	m, err := k.Choose(want)
	if err != nil {
		return nil, err
	}
	return load(pinDir(base, m), m)
}

// runs reports whether the kernel calls the programs.
func (f *Fence) runs() bool {
	root, err := os.Open("/")
	if err != nil {
		return false
	}
	defer root.Close()
	_, err = f.ask(root)
	return err == nil
}

// hook returns the kernel function that a program is attached to.
func hook(p *ebpf.ProgramSpec, m Mode) string {
	if m == LSM {
		return "bpf_lsm_" + p.AttachTo
	}
	return p.AttachTo
}

// fit removes the programs whose hook this kernel does not have and sets the
// constants that depend on its version.
func fit(spec *ebpf.CollectionSpec, kernel *btf.Spec, m Mode) error {
	for name, p := range spec.Programs {
		if p.Type == ebpf.Tracing && p.AttachType == ebpf.AttachTraceIter {
			continue
		}
		var fn *btf.Func
		err := kernel.TypeByName(hook(p, m), &fn)
		if errors.Is(err, btf.ErrNotFound) {
			if needed[name] {
				return fmt.Errorf("%w: the kernel has no function %s", ErrUnsupported, hook(p, m))
			}
			delete(spec.Programs, name)
			continue
		}
		if err != nil {
			return fmt.Errorf("look up %s: %w", hook(p, m), err)
		}
		if name == "inode_setattr" {
			n := len(fn.Type.(*btf.FuncProto).Params)
			if err := spec.Variables["setattr_has_idmap"].Set(n == 3); err != nil {
				return err
			}
		}
	}
	return nil
}

// needed are the hooks without which a write could get through on every kernel
// from 6.1; the others came later or guard what an older kernel does elsewhere.
var needed = map[string]bool{
	"task_alloc": true, "file_open": true, "path_mknod": true, "path_mkdir": true, "path_rmdir": true,
	"path_unlink": true, "path_symlink": true, "path_link": true, "path_rename": true,
	"path_truncate": true, "path_chmod": true, "path_chown": true, "inode_setattr": true,
	"inode_setxattr": true, "inode_removexattr": true, "file_ioctl": true, "file_receive": true,
	"ptrace_access_check": true, "task_kill": true, "fence_bpf": true,
}

// Spec returns the programs as they would be loaded on this kernel.
func Spec(m Mode) (*ebpf.CollectionSpec, error) {
	load := bpf.LoadLsm
	if m == FmodRet {
		load = bpf.LoadFmod
	}
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("read the compiled programs: %w", err)
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("%w: read the kernel's BTF: %w", ErrUnsupported, err)
	}
	return spec, fit(spec, kernel, m)
}

// load loads, fills, attaches and pins; a failure undoes all.
func load(dir string, m Mode) (f *Fence, err error) {
	spec, err := Spec(m)
	if err != nil {
		return nil, preflightError(err)
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, preflightError(fmt.Errorf("load the programs: %w", err))
	}
	defer coll.Close()

	aside := dir + "-new" // no dots: bpffs reserves them
	if err := os.RemoveAll(aside); err != nil {
		return nil, fmt.Errorf("remove %s: %w", aside, err)
	}
	if err := os.Mkdir(aside, 0o700); err != nil {
		return nil, fmt.Errorf("make %s: %w", aside, err)
	}
	f = &Fence{Mode: m, Dir: dir, maps: map[string]*ebpf.Map{}}
	defer func() {
		if err != nil {
			f.Close()
			os.RemoveAll(aside)
		}
	}()
	for name, mp := range coll.Maps {
		if strings.HasPrefix(name, ".") {
			continue
		}
		if err := mp.Pin(filepath.Join(aside, "map_"+name)); err != nil {
			return f, fmt.Errorf("pin map %s: %w", name, err)
		}
		c, err := mp.Clone()
		if err != nil {
			return f, fmt.Errorf("clone map %s: %w", name, err)
		}
		f.maps[name] = c
	}
	for name, p := range coll.Programs {
		if name == "members" {
			it, err := link.AttachIter(link.IterOptions{Program: p})
			if err != nil {
				return f, fmt.Errorf("attach iterator %s: %w", name, err)
			}
			f.iter = it
			if err := it.Pin(filepath.Join(aside, "iter_"+name)); err != nil {
				return f, fmt.Errorf("pin iterator %s: %w", name, err)
			}
			continue
		}
		if onDemand[name] {
			if err := p.Pin(filepath.Join(aside, "prog_"+name)); err != nil {
				return f, fmt.Errorf("pin program %s: %w", name, err)
			}
			continue
		}
		l, err := attach(p, m)
		if err != nil {
			return f, preflightError(fmt.Errorf("attach %s: %w", name, err))
		}
		f.links = append(f.links, l)
		if err := l.Pin(filepath.Join(aside, "link_"+name)); err != nil {
			return f, fmt.Errorf("pin link %s: %w", name, err)
		}
	}
	if err := os.Rename(aside, dir); err != nil {
		return f, fmt.Errorf("rename %s: %w", aside, err)
	}
	return f, nil
}

func attach(p *ebpf.Program, m Mode) (link.Link, error) {
	if m == LSM {
		return link.AttachLSM(link.LSMOptions{Program: p})
	}
	return link.AttachTracing(link.TracingOptions{Program: p})
}

func openPinned(dir string, m Mode) (*Fence, error) {
	f := &Fence{Mode: m, Dir: dir, maps: map[string]*ebpf.Map{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		kind, name, _ := strings.Cut(e.Name(), "_")
		switch kind {
		case "map":
			mp, err := ebpf.LoadPinnedMap(path, nil)
			if err != nil {
				f.Close()
				return nil, fmt.Errorf("open %s: %w", path, err)
			}
			f.maps[name] = mp
		case "iter":
			l, err := link.LoadPinnedLink(path, nil)
			if err != nil {
				f.Close()
				return nil, fmt.Errorf("open %s: %w", path, err)
			}
			it, ok := l.(*link.Iter)
			if !ok {
				l.Close()
				f.Close()
				return nil, fmt.Errorf("open %s: it is no iterator", path)
			}
			f.iter = it
		case "link":
			l, err := link.LoadPinnedLink(path, nil)
			if err != nil {
				f.Close()
				return nil, fmt.Errorf("open %s: %w", path, err)
			}
			f.links = append(f.links, l)
		}
	}
	for _, name := range []string{"labels", "sessions", "scopes", "rings", "answers"} {
		if f.maps[name] == nil {
			f.Close()
			return nil, fmt.Errorf("map %s is missing", name)
		}
	}
	if f.iter == nil {
		f.Close()
		return nil, errors.New("the iterator is missing")
	}
	return f, nil
}

// Close frees this process's descriptors. The fence outlives it as long as it
// is pinned. Idempotent.
func (f *Fence) Close() error {
	var errs []error
	for _, m := range f.maps {
		errs = append(errs, m.Close())
	}
	for _, l := range f.links {
		errs = append(errs, l.Close())
	}
	if f.iter != nil {
		errs = append(errs, f.iter.Close())
	}
	f.maps, f.links, f.iter = nil, nil, nil
	return errors.Join(errs...)
}

// remove takes the fence down. The caller holds [Lock] and has seen that there
// is no session.
func (f *Fence) remove() error {
	if err := os.RemoveAll(f.Dir); err != nil {
		return fmt.Errorf("remove the pins: %w", err)
	}
	return f.Close()
}
