package companion

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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

// revoke attaches the programs of a revocation. It is called before a change of
// scope; [Companion.revoked] after it.
func (c *Companion) revoke() {
	if c.Audit {
		return // nothing is refused
	}
	unlock, err := loader.Lock()
	if err == nil {
		defer unlock()
		c.switching.Store(true)
		if err = os.WriteFile(c.revoking(), nil, 0o600); err == nil {
			err = c.fence.Revoke()
		}
	}
	if err != nil {
		c.Warn(fmt.Sprintf("descriptors opened under the old scope are not revoked: %v", err))
	}
}

// revoked has the [Companion.Revoker] look, by the scope now in force, for what is
// left of the old one. Looks made before would find nothing, and end the revocation.
func (c *Companion) revoked() {
	if c.Audit {
		return
	}
	c.switching.Store(false)
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
	if c.switching.Load() {
		return // a switch has begun, and asks for looks when it is made
	}
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
			open, more := c.staleMappings(pol, m.PID)
			mappings = append(mappings, open...)
			stale = stale || more
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

// mapping is one of a process's, as proc_pid_smaps(5) has it.
type mapping struct {
	path     string
	writable bool // shared, and written through without being asked again
	maybe    bool // shared, and can be made writable by mprotect(2)
}

// sharedMappings reads the shared mappings of named files that are, or can be made,
// writable.
func sharedMappings(smaps io.Reader) (out []mapping) {
	sc := bufio.NewScanner(smaps)
	sc.Buffer(nil, 64<<10) // a path has at most 4 x PATH_MAX bytes, escaped
	path, shared, wr := "", false, false
	for sc.Scan() {
		line := sc.Text()
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		if !strings.HasSuffix(w[0], ":") { // address perms offset dev inode path
			path, shared = "", len(w) >= 6 && len(w[1]) == 4 && w[1][3] == 's' && strings.HasPrefix(w[5], "/")
			if shared {
				wr = w[1][1] == 'w'
				path = line[strings.Index(line, w[5]):]
			}
			continue
		}
		if w[0] != "VmFlags:" || !shared || strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/memfd:") || strings.HasPrefix(path, "/SYSV") {
			continue
		}
		if maybe := slices.Contains(w[1:], "mw"); wr || maybe {
			out = append(out, mapping{path, wr, maybe && !wr})
		}
	}
	return out
}

// staleMappings returns the mappings of a process that can still be written through
// out of scope, and whether some could be made so if nobody asked.
func (c *Companion) staleMappings(pol *policy.Policy, pid int) (out []string, more bool) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return nil, false // it has ended
	}
	defer f.Close()
	for _, m := range sharedMappings(f) {
		if pol.Allowed(c.Config.Root, strings.TrimSuffix(m.path, " (deleted)"), policy.Self) {
			continue
		}
		if m.writable {
			out = append(out, fmt.Sprintf("%d %s", pid, m.path))
		}
		more = more || m.maybe
	}
	return out, more
}
