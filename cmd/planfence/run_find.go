package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"planfence/cmd/planfence/internal/launch"
)

// findCommand finds the executable in the command's own PATH.
func findCommand(name string, who *identity) (string, error) {
	path := who.getenv(os.Getenv)("PATH")
	notExec := func(p string, err error) error {
		return &exitError{code: launch.ExitNotExecable, err: fmt.Errorf("run %s: %w", p, err), hint: "it is there, but cannot be executed"}
	}
	if strings.Contains(name, "/") {
		switch err := executable(name); {
		case err == nil:
			return filepath.Abs(name)
		case errors.Is(err, fs.ErrNotExist):
			return "", &exitError{code: launch.ExitNotFound, err: fmt.Errorf("run %s: no such file", name), hint: "give the path of a program"}
		default:
			return "", notExec(name, err)
		}
	}
	var denied error
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		p := filepath.Join(dir, name)
		err := executable(p)
		if err == nil {
			return filepath.Abs(p)
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			denied = notExec(p, err)
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", &exitError{code: launch.ExitNotFound, err: fmt.Errorf("run %s: not found in PATH (%s)", name, path), hint: "give the program's full path"}
}

func executable(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return cause(err)
	}
	if st.IsDir() {
		return syscall.EISDIR
	}
	if st.Mode()&0o111 == 0 {
		return fs.ErrPermission
	}
	return nil
}
