package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The tree: ROOT/src is in scope, ROOT/out is not. A file at depth n has n
// names below the root.
const (
	root     = "/root/p"
	fileName = "file.md"
	newName  = "new.md"
	dirName  = "dir.md"
)

var depths = []int{2, 7, 20}

// dirAt returns the directory of the files at a depth, below src or out.
func dirAt(top string, depth int) string {
	p := filepath.Join(root, top)
	for i := 2; i < depth; i++ {
		p += fmt.Sprintf("/d%d", i)
	}
	return p
}

// row is one operation, done and undone, with its verdict looked at.
type row struct {
	name   string
	rounds int // of perRound calls; 0: the usual number
	do     func() error
}

var errPassed = errors.New("it was not refused")

// call makes a system call whose arguments were made ready before: nothing is
// allocated between two looks at the clock.
func call(nr, a, b, c, d uintptr) (uintptr, error) {
	v, _, e := unix.RawSyscall6(nr, a, b, c, d, 0, 0)
	if e != 0 {
		return 0, e
	}
	return v, nil
}

// cwd is AT_FDCWD as the kernel takes it; all paths are absolute.
const cwd = ^uintptr(99)

// held keeps the paths of the calls alive.
var held []*byte

func cstring(s string) uintptr {
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		panic(err) // a path with a NUL: ours have none
	}
	held = append(held, p)
	return uintptr(unsafe.Pointer(p))
}

func openClose(path string, flags int) func() error {
	p := cstring(path)
	return func() error {
		fd, err := call(unix.SYS_OPENAT, cwd, p, uintptr(flags), 0o644)
		if err != nil {
			return err
		}
		_, err = call(unix.SYS_CLOSE, fd, 0, 0, 0)
		return err
	}
}

func refusedOpen(path string) func() error {
	p := cstring(path)
	return func() error {
		_, err := call(unix.SYS_OPENAT, cwd, p, unix.O_WRONLY, 0)
		if err == nil {
			return errPassed
		}
		if err != unix.EACCES {
			return err
		}
		return nil
	}
}

// depthRows are the operations at one depth. refused: there is something to refuse.
func depthRows(depth int, refused bool) []row {
	dir := dirAt("src", depth)
	file, fresh, sub := dir+"/"+fileName, dir+"/"+newName, dir+"/"+dirName
	at := func(s string) string { return fmt.Sprintf("%s, depth %d", s, depth) }
	pf, pn, ps := cstring(file), cstring(fresh), cstring(sub)
	create := openClose(fresh, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	st := new(unix.Stat_t)
	rows := []row{
		{name: at("open for reading"), do: openClose(file, unix.O_RDONLY)},
		{name: at("open for writing"), do: openClose(file, unix.O_WRONLY)},
		{name: at("create and unlink"), do: func() error {
			if err := create(); err != nil {
				return err
			}
			_, err := call(unix.SYS_UNLINKAT, cwd, pn, 0, 0)
			return err
		}},
		{name: at("rename, two"), do: func() error {
			if _, err := call(unix.SYS_RENAMEAT2, cwd, pf, cwd, pn); err != nil {
				return err
			}
			_, err := call(unix.SYS_RENAMEAT2, cwd, pn, cwd, pf)
			return err
		}},
		{name: at("mkdir and rmdir"), do: func() error {
			if _, err := call(unix.SYS_MKDIRAT, cwd, ps, 0o755, 0); err != nil {
				return err
			}
			_, err := call(unix.SYS_UNLINKAT, cwd, ps, unix.AT_REMOVEDIR, 0)
			return err
		}},
		{name: at("stat"), do: func() error {
			_, err := call(unix.SYS_NEWFSTATAT, cwd, pf, uintptr(unsafe.Pointer(st)), 0)
			return err
		}},
	}
	if refused {
		rows = append(rows, row{name: at("refused open"), do: refusedOpen(dirAt("out", depth) + "/" + fileName)})
	}
	return rows
}

// flatRows do not depend on depth.
func flatRows() ([]row, error) {
	fd, err := unix.Open(dirAt("src", 2)+"/"+fileName, unix.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	held = append(held, &buf[0])
	at := uintptr(unsafe.Pointer(&buf[0]))
	return []row{
		{name: "write of 4 KiB", do: func() error {
			_, err := call(unix.SYS_PWRITE64, uintptr(fd), at, 4096, 0)
			return err
		}},
		{name: "read of 4 KiB", do: func() error {
			_, err := call(unix.SYS_PREAD64, uintptr(fd), at, 4096, 0)
			return err
		}},
		{name: "fork and exec", rounds: 8, do: forkExec},
	}, nil
}
