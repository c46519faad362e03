package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxLinks is the kernel's MAXSYMLINKS: one more is ELOOP.
const maxLinks = 40

// errUnreachable is the reason why the kernel finds nothing at a path.
var errUnreachable = errors.New("cannot be reached")

// followsLast reports whether an operation acts on what the last name leads to. The
// others act on the name.
func followsLast(op string) bool {
	switch op {
	case "unlink", "rmdir", "rename", "rename-dir", "symlink", "link", "mknod", "mkdir", "remove":
		return false
	}
	return true
}

// resolve follows links and ".." as the kernel would, on the way to a path of
// which any part may not exist yet. A path that ends in a slash means what its
// last name leads to. The result is absolute and clean. It is an errUnreachable
// where the kernel would not get there.
func resolve(path string, op string) (string, error) {
	if path == "" {
		return "", errors.New("check a path: it is empty")
	}
	follow := followsLast(op) || strings.HasSuffix(path, "/") || strings.HasSuffix(path, "/.")
	abs := path
	if !filepath.IsAbs(abs) {
		cwd, err := os.Getwd()
		if err != nil {
			return "", fmt.Errorf("find the working directory: %w", err)
		}
		abs = cwd + "/" + path
	}
	at, links := "/", 0
	for todo := pathNames(abs); len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		if len(todo) == 0 && !follow || isDescriptor(next) {
			at = next
			continue
		}
		to, err := os.Readlink(next)
		switch {
		case err == nil:
			if links++; links > maxLinks {
				return "", fmt.Errorf("%w: too many symbolic links", errUnreachable)
			}
			if filepath.IsAbs(to) {
				at = "/"
			}
			todo = append(pathNames(to), todo...)
		case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
			at = next // no link, or not there yet
		default:
			return "", fmt.Errorf("%w: %s: %w", errUnreachable, next, cause(err))
		}
	}
	return at, nil
}

// pathNames splits a path, leaving out what does not lead anywhere.
func pathNames(path string) []string {
	var out []string
	for n := range strings.SplitSeq(path, "/") {
		if n != "" && n != "." {
			out = append(out, n)
		}
	}
	return out
}

// isDescriptor reports whether a path is an entry such as /proc/17/fd/1, which
// is not followed by its text.
func isDescriptor(path string) bool {
	rest, ok := strings.CutPrefix(path, "/proc/")
	if !ok {
		return false
	}
	n := pathNames(rest)
	return len(n) == 3 && n[1] == "fd" || len(n) == 5 && n[1] == "task" && n[3] == "fd"
}

// alwaysWritable says why a path may be written to whatever the task, "" if
// there is no such reason. device tells a device that may not be, by its type.
func alwaysWritable(path, op string) (why string, device bool) {
	if strings.HasPrefix(path, fmt.Sprintf("/proc/%d/", os.Getpid())) {
		if isDescriptor(path) {
			return "a descriptor: what it was opened on decides", false
		}
		return "a process's own entry in /proc", false
	}
	switch op {
	case "write", "open", "create", "truncate":
	default:
		return "", false
	}
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return "", false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		return "", true
	case unix.S_IFCHR:
		if harmlessDevice(unix.Major(st.Rdev), unix.Minor(st.Rdev)) {
			return "a device that is always writable", false
		}
		return "", true
	}
	return "", false
}

// harmlessDevice has the devices that the programs let through: null, zero,
// full, random, urandom, tty, ptmx and pseudo terminals.
func harmlessDevice(major, minor uint32) bool {
	switch {
	case major == 1:
		return minor == 3 || minor == 5 || minor == 7 || minor == 8 || minor == 9
	case major == 5:
		return minor == 0 || minor == 2
	}
	return major >= 136 && major <= 143
}
