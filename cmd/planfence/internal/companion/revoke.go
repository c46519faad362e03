package companion

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/policy"
	"planfence/loader"
)

// A switch of scope revokes descriptors that were opened under the old one: the
// programs that judge each write are attached first, and detached when two
// looks in a row have found no such descriptor.
const (
	revokeEvery = 500 * time.Millisecond
	revokeLooks = 2
)

// revoking marks a session for which revocation is pending, for other sessions
// that share the programs.
func (c *Companion) revoking() string { return filepath.Join(StateDir(c.name), "revoking") }

// revoke begins a revocation. It is called after each change of scope.
func (c *Companion) revoke() {
	if c.Audit {
		return // nothing is refused
	}
	unlock, err := loader.Lock()
	if err == nil {
		defer unlock()
		if err = os.WriteFile(c.revoking(), nil, 0o600); err == nil {
			err = c.fence.Revoke()
		}
	}
	if err != nil {
		c.Warn(fmt.Sprintf("descriptors opened under the old scope are not revoked: %v", err))
		return
	}
	select {
	case c.pending <- struct{}{}:
	default:
	}
}

// Revoker ends revocations when they are no longer needed, until ctx ends.
func (c *Companion) Revoker(ctx context.Context) {
	clean := 0
	var tick *time.Ticker
	var looks <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			if tick != nil {
				tick.Stop()
			}
			return
		case <-c.pending:
			clean = 0
			if tick == nil {
				tick = time.NewTicker(revokeEvery)
				looks = tick.C
			}
			continue
		case <-looks:
		}
		stale, maps := c.leftovers()
		c.mu.Lock()
		changed := len(maps) != len(c.mappings)
		c.mappings = maps
		c.mu.Unlock()
		if changed {
			c.saveState()
		}
		if clean++; stale {
			clean = 0
		}
		if clean < revokeLooks {
			continue
		}
		tick.Stop()
		tick, looks = nil, nil
		c.unrevoke()
	}
}

func (c *Companion) unrevoke() {
	unlock, err := loader.Lock()
	if err != nil {
		return
	}
	defer unlock()
	os.Remove(c.revoking())
	others, _ := filepath.Glob(filepath.Join(loader.StateDir, "sessions", "*", "revoking"))
	for _, o := range others {
		if Alive(filepath.Base(filepath.Dir(o))) {
			return // another session's revocation is pending
		}
	}
	if err := c.fence.Unrevoke(); err != nil {
		c.Warn(fmt.Sprintf("end the revocation: %v", err))
	}
}

// leftovers looks through the session's processes for writable descriptors, and
// shared writable mappings, of files that the scope in force does not allow.
// What it cannot see counts as a leftover.
func (c *Companion) leftovers() (stale bool, mappings []string) {
	all, err := c.fence.Members()
	if err != nil {
		return true, nil
	}
	c.mu.Lock()
	pol := c.policy
	c.mu.Unlock()
	if pol.Table == nil || pol.Kind == policy.Idle {
		return false, nil
	}
	seen := map[int]bool{}
	for _, m := range all[c.session.ID] {
		if c.staleThread(pol, m) {
			stale = true
		}
		if !seen[m.PID] {
			seen[m.PID] = true
			mappings = append(mappings, c.staleMappings(pol, m.PID)...)
		}
	}
	return stale, mappings
}

func (c *Companion) staleThread(pol *policy.Policy, m loader.Member) bool {
	dir := fmt.Sprintf("/proc/%d/task/%d/fd", m.PID, m.TID)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false // it has ended
	}
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err != nil {
			continue
		}
		if strings.HasPrefix(to, "anon_inode:[io_uring") {
			return true // it may hold registered files that are not listed
		}
		if !strings.HasPrefix(to, "/") || !writable(fmt.Sprintf("/proc/%d/task/%d/fdinfo/%s", m.PID, m.TID, fd.Name())) {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(filepath.Join(dir, fd.Name()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if !pol.Allowed(c.Config.Root, strings.TrimSuffix(to, " (deleted)"), policy.Self) && !c.isStdio(&st) {
			return true
		}
	}
	return false
}

func (c *Companion) isStdio(st *unix.Stat_t) bool {
	for _, f := range c.Stdio {
		var own unix.Stat_t
		if unix.Fstat(int(f.Fd()), &own) == nil && own.Dev == st.Dev && own.Ino == st.Ino {
			return true
		}
	}
	return false
}

// writable reads a descriptor's flags, proc_pid_fdinfo(5).
func writable(fdinfo string) bool {
	b, err := os.ReadFile(fdinfo)
	if err != nil {
		return false
	}
	for _, line := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, "flags:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(v), 8, 64)
			return err != nil || n&unix.O_ACCMODE != unix.O_RDONLY
		}
	}
	return true
}

func (c *Companion) staleMappings(pol *policy.Policy, pid int) (out []string) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		// address perms offset dev inode path, proc_pid_maps(5)
		w := strings.Fields(sc.Text())
		if len(w) < 6 || len(w[1]) < 4 || w[1][1] != 'w' || w[1][3] != 's' || !strings.HasPrefix(w[5], "/") {
			continue
		}
		path := sc.Text()[strings.Index(sc.Text(), w[5]):]
		if strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/memfd:") || strings.HasPrefix(path, "/SYSV") {
			continue
		}
		if !pol.Allowed(c.Config.Root, strings.TrimSuffix(path, " (deleted)"), policy.Self) {
			out = append(out, fmt.Sprintf("%d %s", pid, path))
		}
	}
	return out
}
