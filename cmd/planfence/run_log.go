package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/blocklog"
)

// openLog opens where records go.
func (s *fenced) openLog() (blocklog.Sink, error) {
	switch s.flags.log {
	case "-":
		s.cfg.Log, s.logTo = "", "stdout"
		return &blocklog.Stream{W: s.env.stdout}, nil
	case "journald":
		s.cfg.Log, s.logTo = "", "journald"
		w, err := blocklog.NewJournal()
		if err != nil {
			return nil, hinted(err, "choose a file with --log FILE, or --log - for stdout; a file of that name is --log ./journald")
		}
		return w, nil
	}
	s.logTo = "file"
	if s.flags.log != "" {
		path, err := filepath.Abs(s.flags.log)
		if err != nil {
			return nil, fmt.Errorf("find the log: %w", err)
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return nil, hinted(fmt.Errorf("open the log %s: %w", path, cause(err)), "make its directory first, or choose another with --log")
		}
		s.cfg.Log = filepath.Join(dir, filepath.Base(path))
	}
	dir := filepath.Dir(s.cfg.Log)
	if !onTheWay(s.cfg.Root, filepath.Dir(s.cfg.Plan), dir) {
		if at, err := s.who.swappable(dir); err != nil || at != "" {
			if err == nil {
				err = fmt.Errorf("user %s can replace %s", s.who.name, at)
			}
			return nil, hinted(fmt.Errorf("open the log %s: %w", s.cfg.Log, err),
				"a log lies beside the plan, in the project's root, or where only root can write; or choose --log - or --log journald")
		}
	}
	uid, gid := 0, 0
	if st, err := os.Stat(dir); err == nil {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			uid, gid = int(sys.Uid), int(sys.Gid)
		}
	}
	w, err := blocklog.Open(s.cfg.Log, uid, gid, s.flags.logMax)
	if err != nil {
		return nil, hinted(err, "choose another log with --log FILE, or --log - for stdout")
	}
	return w, nil
}

// onTheWay reports whether a directory lies on the way from the root to the
// plan's directory, ends included: the fence keeps those from being moved away.
func onTheWay(root, planDir, dir string) bool {
	within := func(dir, base string) bool {
		return dir == base || strings.HasPrefix(dir, strings.TrimSuffix(base, "/")+"/")
	}
	if !within(planDir, root) {
		return dir == planDir
	}
	return within(planDir, dir) && within(dir, root)
}

// swappable returns the first directory on the way to dir, dir included, in
// which the user could put another file or directory in the place of one; "" if
// there is none. Root can everywhere: of a session that runs as root the fence
// asks whether the log's own path is kept.
func (w *identity) swappable(dir string) (string, error) {
	if w.uid == 0 {
		return "", nil
	}
	for d := dir; ; d = filepath.Dir(d) {
		var st unix.Stat_t
		if err := unix.Lstat(d, &st); err != nil {
			return "", fmt.Errorf("look at %s: %w", d, err)
		}
		_, acl := unix.Lgetxattr(d, "system.posix_acl_access", nil)
		group := int(st.Gid) == w.gid || slices.Contains(w.groups, int(st.Gid)) || acl == nil
		writable := st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && group
		// In a sticky directory others' directories stay where they are, but any name can be taken.
		stays := st.Mode&unix.S_ISVTX != 0 && st.Uid == 0 && d != dir
		if int(st.Uid) == w.uid || writable && !stays {
			return d, nil
		}
		if d == "/" {
			return "", nil
		}
	}
}
