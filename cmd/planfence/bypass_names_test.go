//go:build vm

package main_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scrawl writes a byte through an open of its own.
func scrawl(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("x")
	return err
}

func scrawlFd(fd int) error {
	_, err := unix.Write(fd, []byte("x"))
	return err
}

// fresh writes a new file.
func fresh(path string) error {
	return os.WriteFile(path, []byte("new\n"), 0o644)
}

func renameat2(from, to string, flags uint) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
}

// fdPath is the magic link of a descriptor.
func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// withFd opens a path and calls f.
func withFd(path string, flags int, f func(fd int) error) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return f(fd)
}

// twoNames are the operations that have two names, and links.
func twoNames() []attack {
	return []attack{
		{name: "rename-out", try: func(s site) error { return os.Rename(s.In+"/f", s.Out+"/new") },
			twin: func(s site) error { return errors.Join(fresh(s.In+"/a"), os.Rename(s.In+"/a", s.In+"/b")) }},
		{name: "rename-in", try: func(s site) error { return os.Rename(s.Out+"/f", s.In+"/new") }},
		{name: "rename-over", try: func(s site) error { return os.Rename(s.In+"/f", s.Out+"/f") },
			twin: func(s site) error {
				return errors.Join(fresh(s.In+"/a"), fresh(s.In+"/b"), os.Rename(s.In+"/a", s.In+"/b"))
			}},
		{name: "rename-exchange", try: func(s site) error { return renameat2(s.In+"/f", s.Out+"/f", unix.RENAME_EXCHANGE) },
			twin: func(s site) error {
				return errors.Join(fresh(s.In+"/a"), renameat2(s.In+"/a", s.In+"/sub", unix.RENAME_EXCHANGE),
					renameat2(s.In+"/a", s.In+"/sub", unix.RENAME_EXCHANGE))
			}},
		{name: "rename-exchange-dirs", try: func(s site) error { return renameat2(s.In+"/sub", s.Out+"/sub", unix.RENAME_EXCHANGE) }},
		{name: "rename-whiteout", root: true, ext4: true,
			try: func(s site) error { return renameat2(s.Out+"/f", s.In+"/w", unix.RENAME_WHITEOUT) }},
		{name: "rename-ancestor", try: func(s site) error { return os.Rename(s.D, s.D+"-moved") }},
		{name: "rename-scope", try: func(s site) error { return os.Rename(s.In, s.D+"/moved") }},
		{name: "rename-dir-in", try: func(s site) error { return os.Rename(s.Out+"/sub", s.In+"/new") }},
		{name: "rename-dir-glob", // a directory whose own name a pattern matches takes along what is below it
			try: func(s site) error { return os.Rename(s.D+"/g/n.md", s.D+"/g/m.md") },
			twin: func(s site) error {
				return errors.Join(fresh(s.D+"/g/a.md"), os.Rename(s.D+"/g/a.md", s.D+"/g/b.md"), os.Remove(s.D+"/g/b.md"))
			}},
		{name: "rename-root", keeps: true, try: func(s site) error {
			if err := os.Rename(s.Root, s.Root+"-moved"); err != nil {
				return err
			}
			return os.Rename(s.Root+"-moved", s.Root)
		}},
		{name: "link-in", try: func(s site) error {
			return errors.Join(os.Link(s.Out+"/f", s.In+"/h"), scrawl(s.In+"/h"))
		}, twin: func(s site) error {
			return errors.Join(fresh(s.In+"/a"), os.Link(s.In+"/a", s.In+"/sub/a"), scrawl(s.In+"/a"), scrawl(s.In+"/sub/a"))
		}},
		{name: "link-out", try: func(s site) error { return os.Link(s.In+"/f", s.Out+"/h") }},
		{name: "link-by-fd", try: func(s site) error {
			return withFd(s.Out+"/f", unix.O_PATH, func(fd int) error {
				return unix.Linkat(unix.AT_FDCWD, fdPath(fd), unix.AT_FDCWD, s.In+"/h", unix.AT_SYMLINK_FOLLOW)
			})
		}},
		{name: "link-empty-path", root: true, try: func(s site) error {
			return withFd(s.Out+"/f", unix.O_PATH, func(fd int) error {
				return unix.Linkat(fd, "", unix.AT_FDCWD, s.In+"/h", unix.AT_EMPTY_PATH)
			})
		}},
		{name: "tmpfile-link-out", tmpfile: true, try: func(s site) error { return unnamed(s.In, s.Out+"/new") },
			twin: func(s site) error { return unnamed(s.In, s.In+"/made") }},
		{name: "tmpfile-outside", tmpfile: true, try: func(s site) error { return unnamed(s.Out, s.Out+"/new") }},
		{name: "symlink-end", try: func(s site) error {
			return errors.Join(os.Symlink(s.Out+"/f", s.In+"/s"), scrawl(s.In+"/s"))
		}, twin: func(s site) error { return errors.Join(os.Symlink("f", s.In+"/s2"), scrawl(s.In+"/s2")) }},
		{name: "symlink-middle", try: func(s site) error {
			return errors.Join(os.Symlink("../out", s.In+"/s"), scrawl(s.In+"/s/sub/f"))
		}},
		{name: "symlink-dangling", try: func(s site) error {
			return errors.Join(os.Symlink("../out/new", s.In+"/s"), fresh(s.In+"/s"))
		}},
		{name: "symlink-create", try: func(s site) error { return os.Symlink("f", s.Out+"/new") }},
		{name: "symlink-race", try: symlinkRace},
		{name: "dir-race", try: dirRace},
		{name: "hardlink-before", // a name in scope that was there before the session
			setup: func(s site) error { return os.Link(s.Out+"/f", s.In+"/h") },
			try:   func(s site) error { return scrawl(s.In + "/h") }},
		{name: "hardlink-metadata",
			setup: func(s site) error { return os.Link(s.Out+"/f", s.In+"/h") },
			try:   func(s site) error { return os.Chmod(s.In+"/h", 0o600) }},
		{name: "hardlink-truncate",
			setup: func(s site) error { return os.Link(s.Out+"/f", s.In+"/h") },
			try:   func(s site) error { return unix.Truncate(s.In+"/h", 0) }},
	}
}

// unnamed makes a file without a name in dir and links it at path.
func unnamed(dir, path string) error {
	return withFd(dir, unix.O_TMPFILE|unix.O_WRONLY, func(fd int) error {
		return errors.Join(scrawlFd(fd), unix.Linkat(unix.AT_FDCWD, fdPath(fd), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW))
	})
}

// raceFor is how long a race is run at most; unfenced it is won at once.
const raceFor = time.Second

// symlinkRace swaps a file for a link while it is being opened.
func symlinkRace(s site) error {
	a, l := s.In+"/a", s.In+"/l"
	if err := errors.Join(fresh(a), os.Symlink(s.Out+"/f", l)); err != nil {
		return err
	}
	return race(func() { _ = renameat2(a, l, unix.RENAME_EXCHANGE) }, func() bool {
		return withFd(a, unix.O_WRONLY|unix.O_APPEND, func(fd int) error {
			to, _ := os.Readlink(fdPath(fd))
			if strings.HasPrefix(to, s.In) {
				return errors.New("not this time")
			}
			return scrawlFd(fd)
		}) == nil
	})
}

// dirRace swaps a directory for a link to one outside, while a path through it is being opened.
func dirRace(s site) error {
	a, l := s.In+"/a", s.In+"/l"
	if err := errors.Join(os.Mkdir(a, 0o755), os.Symlink(s.Out, l)); err != nil {
		return err
	}
	return race(func() { _ = renameat2(a, l, unix.RENAME_EXCHANGE) }, func() bool { return fresh(a+"/x") == nil && exists(s.Out+"/x") })
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// race runs a beside b until b succeeds or time is up.
func race(a func(), b func() bool) error {
	var done atomic.Bool
	go func() {
		for !done.Load() {
			a()
		}
	}()
	defer done.Store(true)
	for end := time.Now().Add(raceFor); time.Now().Before(end); {
		if b() {
			return nil
		}
	}
	return errors.New("the race was lost each time")
}

// ioctl with a pointer to a number.
func ioctl(fd int, cmd uintptr, arg *uint32) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), cmd, uintptr(unsafe.Pointer(arg))); e != 0 {
		return e
	}
	return nil
}
