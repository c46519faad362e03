package loader

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"planfence/bpf"
)

// random returns a number that is not 0.
func random() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:])
		if n := binary.NativeEndian.Uint64(b[:]); n != 0 {
			return n
		}
	}
}

// ask returns what the kernel knows of the object behind a descriptor: its
// addresses and its identity as the file system's code sees it, which stat(2)
// does not tell on btrfs and overlayfs. The descriptor must not be O_PATH, on
// which ioctl(2) does not work.
func (f *Fence) ask(file *os.File) (bpf.LsmAnswer, error) {
	var a bpf.LsmAnswer
	token := random()
	answers := f.maps["answers"]
	if err := answers.Put(token, a); err != nil {
		return a, fmt.Errorf("ask about %s: %w", file.Name(), err)
	}
	defer answers.Delete(token)
	// The answer is given by the hook; what the file itself says to the request does not matter.
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, file.Fd(), askCommand, uintptr(token))
	if err := answers.Lookup(token, &a); err != nil {
		return a, fmt.Errorf("ask about %s: %w", file.Name(), err)
	}
	if a.Done == 0 {
		return a, fmt.Errorf("ask about %s: %w", file.Name(), errors.New("no answer: the programs do not run"))
	}
	return a, nil
}
