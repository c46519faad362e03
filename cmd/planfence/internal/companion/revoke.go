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

// leftoverRounds bounds how often one look begins again because processes ended
// while it went on.
const leftoverRounds = 8

// leftovers looks through the session's processes for writable descriptors, and
// shared writable mappings, of files that the scope in force does not allow.
// What it cannot see counts as a leftover: a process that ended meanwhile may have
// passed on what it held, and names in another mount namespace say nothing.
func (c *Companion) leftovers() (stale bool, mappings []string) {
	c.mu.Lock()
	pol := c.policy
	c.mu.Unlock()
	if pol.Table == nil {
		return false, nil
	}
	l := &look{c: c, pol: pol, mounts: ownMounts(), threads: map[loader.Member]bool{}, processes: map[int]bool{}}
	for range leftoverRounds {
		all, err := c.fence.Members()
		if err != nil {
			return true, l.mappings
		}
		l.ended = false
		for _, m := range all[c.session.ID] {
			l.member(m)
		}
		// Who came meanwhile has nothing that those seen did not have, if none has ended unseen.
		if !l.ended {
			return l.stale, l.mappings
		}
	}
	return true, l.mappings
}

// look is one look for what is left of an earlier scope.
type look struct {
	c         *Companion
	pol       *policy.Policy
	mounts    map[string]bool        // ids of the mounts of this namespace
	threads   map[loader.Member]bool // seen
	processes map[int]bool           // whose mappings were seen

	ended    bool // a process ended before it was seen, in this round
	stale    bool
	mappings []string
}

func (l *look) member(m loader.Member) {
	if l.threads[m] {
		return
	}
	if err := l.thread(m); err != nil {
		l.ended = true // gone, or as good as
		return
	}
	l.threads[m] = true
	if l.processes[m.PID] {
		return
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", m.PID))
	if err != nil {
		l.ended = true
		return
	}
	defer f.Close()
	l.processes[m.PID] = true
	for _, mp := range sharedMappings(f) {
		if l.apart(m) || !l.allowed(mp.path) {
			if mp.writable {
				l.mappings = append(l.mappings, fmt.Sprintf("%d %s", m.PID, mp.path))
			}
			l.stale = l.stale || mp.maybe
		}
	}
}

// apart: what paths the member's files have says nothing here.
func (l *look) apart(m loader.Member) bool { return m.MountNS != l.c.session.MountNS }

func (l *look) allowed(path string) bool {
	return l.pol.Allowed(l.c.Config.Root, strings.TrimSuffix(path, " (deleted)"), policy.Self)
}

// thread looks at one thread's descriptors; an error means that it could not.
func (l *look) thread(m loader.Member) error {
	dir := fmt.Sprintf("/proc/%d/task/%d", m.PID, m.TID)
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return err
	}
	// Registered files are not listed, and neither is what a call that waits will bring, or has in hand.
	if m.IOUring || inFlight(dir) {
		l.stale = true
	}
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
		if err != nil {
			if _, gone := os.Stat(dir); gone != nil {
				return gone
			}
			continue // closed meanwhile
		}
		if !strings.HasPrefix(to, "/") {
			continue
		}
		info, err := os.ReadFile(filepath.Join(dir, "fdinfo", fd.Name()))
		if err != nil {
			if _, gone := os.Stat(dir); gone != nil {
				return gone
			}
			continue
		}
		flags, mount := descriptor(string(info))
		if flags&unix.O_ACCMODE == unix.O_RDONLY {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(filepath.Join(dir, "fd", fd.Name()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || l.c.isStdio(&st) {
			continue
		}
		if l.apart(m) || !l.mounts[mount] || !l.allowed(to) || st.Nlink > 1 && !l.c.Hardlinks {
			l.stale = true
		}
	}
	return nil
}

// inFlight reports whether a thread waits in a call that opens or writes a file:
// what it was allowed to do before the switch it has not done yet. See
// proc_pid_syscall(5); dir is the thread's directory in /proc.
func inFlight(dir string) bool {
	b, err := os.ReadFile(dir + "/syscall")
	if err != nil {
		return true
	}
	number, _, _ := strings.Cut(string(b), " ")
	n, err := strconv.Atoi(strings.TrimSpace(number))
	return err == nil && slices.Contains(writingCalls, n) // else it runs, and is seen by the next look
}

// ownMounts returns the ids of the mounts in this mount namespace.
func ownMounts() map[string]bool {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	ids := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		id, _, _ := strings.Cut(line, " ")
		ids[id] = true
	}
	return ids
}

// descriptor reads a descriptor's flags and the id of its mount, proc_pid_fdinfo(5).
// What cannot be read counts as open for writing, on no mount.
func descriptor(fdinfo string) (flags uint64, mount string) {
	flags = unix.O_RDWR
	for line := range strings.Lines(fdinfo) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "flags":
			if n, err := strconv.ParseUint(value, 8, 64); err == nil {
				flags = n
			}
		case "mnt_id":
			mount = value
		}
	}
	return flags, mount
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
