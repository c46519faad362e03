package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Revoke attaches the programs that judge every write through a descriptor, for
// as long as descriptors of an older scope may be open. They cost every process
// some 180 instructions a read or write, so they are not attached without need.
// Idempotent, also between processes. The caller holds [Lock].
func (f *Fence) Revoke() error {
	for name := range onDemand {
		pin := filepath.Join(f.Dir, "revoke_"+name)
		if _, err := os.Stat(pin); err == nil {
			continue
		}
		p, err := ebpf.LoadPinnedProgram(filepath.Join(f.Dir, "prog_"+name), nil)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a hook that this kernel does not have
		}
		if err != nil {
			return fmt.Errorf("open program %s: %w", name, err)
		}
		l, err := attach(p, f.Mode)
		p.Close()
		if err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("attach %s: %w", name, err)
		}
		if err == nil {
			err = l.Pin(pin)
			l.Close()
			if err != nil {
				return fmt.Errorf("pin link %s: %w", name, err)
			}
		}
	}
	return nil
}

// Unrevoke detaches what [Fence.Revoke] attached. The caller holds [Lock] and
// knows that no session needs it.
func (f *Fence) Unrevoke() error {
	var errs []error
	for name := range onDemand {
		pin := filepath.Join(f.Dir, "revoke_"+name)
		l, err := link.LoadPinnedLink(pin, nil)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("open link %s: %w", name, err))
			continue
		}
		errs = append(errs, l.Unpin(), l.Close())
	}
	return errors.Join(errs...)
}

// OnDemand reports whether a program is attached only while a revocation is
// pending.
func OnDemand(program string) bool { return onDemand[program] }
