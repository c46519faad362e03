package main

import (
	"bytes"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// identity is who the command runs as.
type identity struct {
	name     string
	uid, gid int
	groups   []int
	home     string
	shell    string
	change   bool     // it differs from the process's own
	env      []string // the caller's environment, if sudo hid it
	extra    []string // of --env-file
}

// own gives a new file the owner of the directory it lies in, when root made it.
func own(f *os.File, dir string) {
	if os.Geteuid() != 0 {
		return
	}
	if st, err := os.Stat(dir); err == nil {
		if s, ok := st.Sys().(*syscall.Stat_t); ok {
			_ = f.Chown(int(s.Uid), int(s.Gid))
		}
	}
}

// whoRuns decides the command's identity: --user, else the caller of sudo, else
// the process's own.
func whoRuns(flag string, getenv func(string) string) (*identity, error) {
	if flag != "" {
		if os.Geteuid() != 0 {
			return nil, hinted(fmt.Errorf("--user %s: only root may choose", flag), "run it with sudo")
		}
		return lookUp(flag)
	}
	if sudo := getenv("SUDO_UID"); sudo != "" && os.Geteuid() == 0 {
		pid := sudoParent()
		if pid == 0 {
			// Root set the variable itself, or inherited it: it could become anybody anyway,
			// but nothing says that a person asked for that user.
			return current(), nil
		}
		id, err := lookUp(sudo)
		if err != nil {
			return nil, err
		}
		id.env = throughSudo(environ(pid), os.Environ())
		return id, nil
	}
	return current(), nil
}

func current() *identity {
	id := &identity{uid: os.Getuid(), gid: os.Getgid(), home: os.Getenv("HOME")}
	if u, err := user.LookupId(strconv.Itoa(id.uid)); err == nil {
		id.name = u.Username
		if id.home == "" {
			id.home = u.HomeDir
		}
	}
	return id
}

// lookUp finds a user by name or number.
func lookUp(who string) (*identity, error) {
	u, err := user.Lookup(who)
	if err != nil {
		if u, err = user.LookupId(who); err != nil {
			return nil, hinted(fmt.Errorf("no user %s: %w", who, err), "--user takes a name or a uid of this machine")
		}
	}
	id := &identity{name: u.Username, home: u.HomeDir, change: true, shell: "/bin/sh"}
	if id.uid, err = strconv.Atoi(u.Uid); err != nil {
		return nil, fmt.Errorf("uid of %s: %w", who, err)
	}
	if id.gid, err = strconv.Atoi(u.Gid); err != nil {
		return nil, fmt.Errorf("gid of %s: %w", who, err)
	}
	gids, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of %s: %w", who, err)
	}
	for _, g := range gids {
		n, err := strconv.Atoi(g)
		if err == nil {
			id.groups = append(id.groups, n)
		}
	}
	if s := shellOf(u.Username); s != "" {
		id.shell = s
	}
	return id, nil
}

func shellOf(name string) string {
	b, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Split(line, ":")
		if len(f) == 7 && f[0] == name {
			return f[6]
		}
	}
	return ""
}

// sudoParent returns the pid of the sudo above this process, 0 if there is none.
func sudoParent() int {
	pid := os.Getppid()
	for range 8 {
		if pid <= 1 {
			return 0
		}
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil {
			if base := filepath.Base(exe); base == "sudo" || base == "sudo.ws" || base == "sudo-rs" {
				if st, err := os.Stat(exe); err == nil {
					if s, ok := st.Sys().(*syscall.Stat_t); ok && s.Uid == 0 && st.Mode()&os.ModeSetuid != 0 {
						return pid
					}
				}
			}
		}
		if pid = parentOf(pid); pid == 0 {
			return 0
		}
	}
	return 0
}

func parentOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}

// environ returns the environment that the caller gave to sudo.
func environ(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil
	}
	var out []string
	for _, v := range strings.Split(string(b), "\x00") {
		if strings.Contains(v, "=") {
			out = append(out, v)
		}
	}
	return out
}

// sudoSets are the variables that sudo sets by itself.
var sudoSets = map[string]bool{
	"PATH": true, "HOME": true, "MAIL": true, "LOGNAME": true, "USER": true, "USERNAME": true, "SHELL": true, "TERM": true,
}

// throughSudo is the caller's environment with what was set on the way, as in
// sudo NAME=VALUE planfence run.
func throughSudo(caller, now []string) []string {
	if caller == nil {
		return nil
	}
	out := slices.Clone(caller)
	for _, kv := range now {
		name, _, _ := strings.Cut(kv, "=")
		if sudoSets[name] || strings.HasPrefix(name, "SUDO_") {
			continue
		}
		out = setEnv(out, kv)
	}
	return out
}

// setEnv sets NAME=VALUE in an environment.
func setEnv(env []string, kv string) []string {
	name, _, _ := strings.Cut(kv, "=")
	env = slices.DeleteFunc(env, func(old string) bool { return strings.HasPrefix(old, name+"=") })
	return append(env, kv)
}

// getenv looks a variable up in the environment that the command gets.
func (id *identity) getenv(own func(string) string) func(string) string {
	return func(name string) string {
		for _, kv := range slices.Concat(id.extra, id.env) {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v
			}
		}
		if id.env == nil {
			return own(name)
		}
		return ""
	}
}

// environment returns what the command gets: the caller's own where sudo hid
// it, with the identity's HOME, USER, LOGNAME and SHELL and the private
// temporary directory.
func (id *identity) environment(tmp string) []string {
	base := os.Environ()
	if id.env != nil {
		base = id.env
	}
	base = slices.Clone(base)
	for _, kv := range id.extra {
		base = setEnv(base, kv)
	}
	set := map[string]string{"TMPDIR": tmp, "TMP": tmp, "TEMP": tmp, "TMPPREFIX": filepath.Join(tmp, "zsh"),
		"TMUX_TMPDIR": tmp}
	drop := map[string]bool{}
	if id.change {
		set["HOME"], set["USER"], set["LOGNAME"], set["SHELL"] = id.home, id.name, id.name, id.shell
		for _, v := range []string{"SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND", "SUDO_HOME", "MAIL"} {
			drop[v] = true
		}
	}
	var out []string
	for _, kv := range base {
		k, _, _ := strings.Cut(kv, "=")
		if _, ours := set[k]; !ours && !drop[k] {
			out = append(out, kv)
		}
	}
	for _, k := range []string{"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TMP", "TEMP", "TMPPREFIX", "TMUX_TMPDIR"} {
		if v, ok := set[k]; ok {
			out = append(out, k+"="+v)
		}
	}
	return out
}
