package blocklog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Writer appends records to a file. A failed write never stops the session: it
// is counted, and told when writing works again. Safe for concurrent use.
type Writer struct {
	mu     sync.Mutex
	path   string
	dir    *os.File
	f      *os.File
	max    int64 // 0: no cap
	size   int64
	Failed uint64 // records that could not be written
	uid    int
	gid    int
}

// Open opens the log for appending, creating it with mode 0644 for the given
// owner. Nothing on the way is followed at its last step: a symbolic link, a
// FIFO or a device there is an error. max is the size in bytes from which the
// log is rotated to PATH.1 (0: never).
func Open(path string, uid, gid int, max int64) (*Writer, error) {
	dir, err := os.OpenFile(filepath.Dir(path), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the log's directory: %w", err)
	}
	w := &Writer{path: path, dir: dir, max: max, uid: uid, gid: gid}
	if err := w.open(); err != nil {
		dir.Close()
		return nil, err
	}
	return w, nil
}

func (w *Writer) open() error {
	name := filepath.Base(w.path)
	flags := unix.O_WRONLY | unix.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	created := false
	fd, err := unix.Openat(int(w.dir.Fd()), name, flags, 0)
	if errors.Is(err, unix.ENOENT) {
		fd, err = unix.Openat(int(w.dir.Fd()), name, flags|unix.O_CREAT|unix.O_EXCL, 0o644)
		created = true
	}
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("open log %s: it is a symbolic link", w.path)
	}
	if err != nil {
		return fmt.Errorf("open log %s: %w", w.path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return fmt.Errorf("stat log %s: %w", w.path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return fmt.Errorf("open log %s: it is no regular file", w.path)
	}
	if st.Nlink > 1 {
		unix.Close(fd)
		return fmt.Errorf("open log %s: it has %d hard links", w.path, st.Nlink)
	}
	if created {
		if err := unix.Fchown(fd, w.uid, w.gid); err != nil {
			unix.Close(fd)
			return fmt.Errorf("chown log %s: %w", w.path, err)
		}
	}
	w.f = os.NewFile(uintptr(fd), w.path)
	w.size = st.Size
	return nil
}

// Write appends one record.
func (w *Writer) Write(r *Record) error {
	line, err := r.Marshal()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.follow()
	if w.f == nil {
		w.Failed++
		return fmt.Errorf("write log %s: it is not open", w.path)
	}
	n, err := w.f.Write(line)
	w.size += int64(n)
	if err != nil {
		w.Failed++
		return fmt.Errorf("write log: %w", err)
	}
	if w.max > 0 && w.size >= w.max {
		w.rotate()
	}
	return nil
}

// follow opens the log anew if it was renamed or removed (logrotate).
func (w *Writer) follow() {
	var byName, open unix.Stat_t
	if w.f != nil {
		if unix.Fstatat(int(w.dir.Fd()), filepath.Base(w.path), &byName, unix.AT_SYMLINK_NOFOLLOW) == nil &&
			unix.Fstat(int(w.f.Fd()), &open) == nil && byName.Ino == open.Ino && byName.Dev == open.Dev {
			w.size = open.Size
			return
		}
		w.f.Close()
		w.f = nil
	}
	_ = w.open() // a failure shows as a closed log: counted by Write
}

// Reopen closes and opens the log, for SIGHUP.
func (w *Writer) Reopen() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.f != nil {
		w.f.Close()
		w.f = nil
	}
	return w.open()
}

// keep is how many rotated logs --log-max leaves.
const keep = 5

func (w *Writer) rotate() {
	base := filepath.Base(w.path)
	d := int(w.dir.Fd())
	for i := keep - 1; i >= 1; i-- {
		_ = unix.Renameat(d, fmt.Sprintf("%s.%d", base, i), d, fmt.Sprintf("%s.%d", base, i+1))
	}
	if unix.Renameat(d, base, d, base+".1") == nil {
		w.f.Close()
		w.f = nil
		_ = w.open()
	}
}

// Close closes the log.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dir.Close()
	if w.f == nil {
		return nil
	}
	err := w.f.Close()
	w.f = nil
	return err
}
