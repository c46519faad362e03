package blocklog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Sink takes records. A failed write is the caller's to count: the record is
// not written later. Safe for concurrent use.
type Sink interface {
	Write(*Record) error
	Reopen() error // after the log has been moved away, for SIGHUP
	Close() error
}

// Writer is a [Sink] that appends to a file.
type Writer struct {
	mu   sync.Mutex
	path string
	dir  *os.File
	f    *os.File
	max  int64 // 0: no cap
	size int64
	torn bool // the last line has no end
	uid  int
	gid  int
}

// Open opens the log for appending, creating it with mode 0644 for the given
// owner. path is absolute and resolved: a symbolic link anywhere on the way is an
// error, and so is a FIFO, a device or a file with further hard links. max is the size in bytes from which the
// log is rotated to PATH.1 (0: never).
func Open(path string, uid, gid int, max int64) (*Writer, error) {
	dir, err := openDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	w := &Writer{path: path, dir: dir, max: max, uid: uid, gid: gid}
	if err := w.open(); err != nil {
		dir.Close()
		return nil, err
	}
	return w, nil
}

// openDir opens a directory without following any link.
func openDir(path string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("open the log's directory %s: there is a symbolic link on the way", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open the log's directory %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
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
	if err := w.follow(); err != nil {
		return err
	}
	if w.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := w.f.Write(line)
	w.size += int64(n)
	if err != nil {
		w.torn = n > 0 && !w.cut(n) || n == 0 && w.torn
		return fmt.Errorf("write log %s: %w", w.path, cause(err))
	}
	w.torn = false
	if w.max > 0 && w.size >= w.max {
		w.rotate()
	}
	return nil
}

// cut takes the beginning of a line back that a full disk left at the end of
// the log. It fails if another session has written behind it.
func (w *Writer) cut(n int) bool {
	end, err := w.f.Seek(0, io.SeekCurrent) // after appending: the end of what was written
	if err != nil {
		return false
	}
	st, err := w.f.Stat()
	return err == nil && st.Size() == end && w.f.Truncate(end-int64(n)) == nil
}

// follow opens the log anew if it was renamed or removed (logrotate).
func (w *Writer) follow() error {
	if w.f != nil {
		if st, same := w.named(); same {
			w.size = st.Size
			return nil
		}
		w.f.Close()
		w.f, w.torn = nil, false
	}
	return w.open()
}

// named reports whether the log's name still leads to the open file.
func (w *Writer) named() (open unix.Stat_t, same bool) {
	var byName unix.Stat_t
	same = unix.Fstatat(int(w.dir.Fd()), filepath.Base(w.path), &byName, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		unix.Fstat(int(w.f.Fd()), &open) == nil && byName.Ino == open.Ino && byName.Dev == open.Dev
	return open, same
}

// Reopen closes and opens the log, for SIGHUP.
func (w *Writer) Reopen() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.f != nil {
		w.f.Close()
		w.f, w.torn = nil, false
	}
	return w.open()
}

// keep is how many rotated logs --log-max leaves.
const keep = 5

func (w *Writer) rotate() {
	if _, same := w.named(); !same {
		return // another session has just done it
	}
	base := filepath.Base(w.path)
	d := int(w.dir.Fd())
	for i := keep - 1; i >= 1; i-- {
		for _, ext := range []string{"", ".gz"} {
			_ = unix.Renameat(d, fmt.Sprintf("%s.%d%s", base, i, ext), d, fmt.Sprintf("%s.%d%s", base, i+1, ext))
		}
	}
	if unix.Renameat(d, base, d, base+".1") == nil {
		w.f.Close()
		w.f = nil
		_ = w.open() // a failure shows at the next record
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
