package companion

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/policy"
	"planfence/loader"
	"planfence/plan"
)

// mount is a line of /proc/self/mountinfo, proc_pid_mountinfo(5).
type mount struct {
	dev   uint32 // major << 20 | minor, as the kernel's s_dev
	root  string // of the mount within its file system
	point string
	fs    string
}

func mounts() ([]mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	var out []mount
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		sep := -1
		for i, w := range f {
			if w == "-" {
				sep = i
				break
			}
		}
		if len(f) < 6 || sep < 0 || sep+1 >= len(f) {
			continue
		}
		var major, minor uint32
		if _, err := fmt.Sscanf(f[2], "%d:%d", &major, &minor); err != nil {
			continue
		}
		out = append(out, mount{major<<20 | minor, unescape(f[3]), unescape(f[4]), f[sep+1]})
	}
	return out, sc.Err()
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// openAnchor opens a directory, or a file that is a mount of its own, so that
// the fence can ask about it. Opening must not block nor act.
func openAnchor(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
}

// remote file systems may hang: not touched without need.
var remote = map[string]bool{"nfs": true, "nfs4": true, "cifs": true, "smb3": true, "fuse": true, "9p": true, "ceph": true}

// anchors opens the root and the root of every mount below which the policy
// allows or decides anything.
func anchors(root string, pol *policy.Policy) (loader.Anchor, []loader.Anchor, error) {
	dir, err := openAnchor(root)
	if err != nil {
		return loader.Anchor{}, nil, fmt.Errorf("open the project root: %w", err)
	}
	r := loader.Anchor{Path: root, Dir: dir, Start: pol.Start(root, root)}
	var out, dead []loader.Anchor
	fail := func(err error) (loader.Anchor, []loader.Anchor, error) {
		closeAnchors(append(out, r))
		return loader.Anchor{}, nil, err
	}
	ms, err := mounts()
	if err != nil {
		return fail(err)
	}
	seen := map[string]bool{root: true}
	for _, m := range ms {
		if seen[m.point] || m.fs == "autofs" {
			continue
		}
		seen[m.point] = true
		start := pol.Start(root, m.point)
		// All, with no task: allowed with or without an anchor.
		if start == plan.All && pol.Kind == policy.Idle {
			continue
		}
		// Dead: refused either way; an anchor gives its records a better path and reason.
		// With no task it is needed: what lies under no anchor is allowed then.
		if start == plan.Dead && pol.Kind != policy.Idle && (m.root != "/" || remote[m.fs]) {
			continue
		}
		f, err := openAnchor(m.point)
		if err != nil {
			continue // hidden by another mount, or gone: what lies there is refused
		}
		a := loader.Anchor{Path: m.point, Dir: f, Start: start}
		if start == plan.Dead {
			dead = append(dead, a)
		} else {
			out = append(out, a)
		}
	}
	for i, a := range dead {
		if len(out) >= loader.MaxAnchors {
			closeAnchors(dead[i:])
			break
		}
		out = append(out, a)
	}
	return r, out, nil
}

func closeAnchors(as []loader.Anchor) {
	for _, a := range as {
		a.Dir.Close()
	}
}

// locate finds an absolute path for an object that lies under no anchor: below
// a mount of its file system, the deepest that contains it. Where the companion's
// mount namespace shows none, as with a file of the host reached from inside a
// container, it is the path from the file system's root, and fs names that file
// system: MAJOR:MINOR.
func locate(ms []mount, p loader.Path) (path, fs string) {
	best, at := "", -1
	for _, m := range ms {
		if m.dev != p.Dev {
			continue
		}
		rest, ok := p.Below, m.root == "/"
		if !ok {
			rest, ok = strings.CutPrefix(p.Below, m.root)
			ok = ok && (rest == "" || rest[0] == '/')
		}
		if ok && len(m.root) > at {
			best, at = filepath.Clean(m.point+"/"+rest), len(m.root)
		}
	}
	if at < 0 {
		return p.Below, fmt.Sprintf("%d:%d", p.Dev>>20, p.Dev&(1<<20-1))
	}
	return best, ""
}

// MountPoints lists the mount points of this mount namespace.
func MountPoints() ([]string, error) {
	ms, err := mounts()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range ms {
		out = append(out, m.point)
	}
	return out, nil
}
