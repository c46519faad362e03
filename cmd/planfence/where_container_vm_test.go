//go:build vm

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// container is a place in which planfence runs as root of a container: a root on
// overlayfs, the project on another file system, mounted where the container sees
// it.
type container struct {
	name string
	work string   // the project, outside the container
	bind []string // OUTSIDE:INSIDE, instead of work on ctWork
	env  []string // beside PATH and HOME
}

// ctWork is where containers see the project.
const ctWork = "/builds/group/project"

// containerScript is run in a container. It starts a session that writes inside
// and outside the scope, and, in a mount namespace of the session's own, a file of
// the host that the container does not see.
const containerScript = `set -e
	cd ` + ctWork + `
	! mountpoint -q /sys/fs/bpf; ! mountpoint -q /sys/kernel/security
	planfence run --quiet --task T1 -- sh -c '
		echo mine > in/f
		echo no > out/f; echo no > /etc/planfence-no; echo tmp > $TMPDIR/t
		dev=$(ls /dev/nvme0n*p1)
		unshare -m sh -c "busybox mount -t ext4 $dev /mnt && echo no > /mnt/root/planfence-no" || true
		echo id $(id -u) pid $$' 2>&1
	planfence tail | sed "s/^/tail: /"
	planfence status > /dev/null`

// bundle writes an OCI bundle with every capability and no filter: what docker run
// --privileged gives.
func bundle(t *testing.T, c *container, command []string) {
	t.Helper()
	dir := filepath.Dir(c.work)
	must(t, os.MkdirAll(dir, 0o755))
	cmd := exec.Command("crun", "spec")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("crun spec: %v: %s", err, out)
	}
	var spec map[string]any
	b, err := os.ReadFile(dir + "/config.json")
	must(t, err)
	must(t, json.Unmarshal(b, &spec))
	process, linux := spec["process"].(map[string]any), spec["linux"].(map[string]any)
	process["terminal"], process["args"] = false, command
	env := append([]string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}, c.env...)
	if !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }) {
		env = append(env, "HOME=/root")
	}
	process["env"] = env
	spec["root"] = map[string]any{"path": c.overlay(t), "readonly": false}
	spec["hostname"] = c.name
	mounts := spec["mounts"].([]any)
	binds := c.bind
	if binds == nil {
		binds = []string{c.work + ":" + ctWork}
	}
	for _, b := range binds {
		from, to, _ := strings.Cut(b, ":")
		mounts = append(mounts, map[string]any{"destination": to, "type": "bind", "source": from, "options": []string{"rbind", "rw"}})
	}
	var all []string
	for _, name := range capabilityNames {
		all = append(all, "CAP_"+name)
	}
	process["capabilities"] = map[string]any{"bounding": all, "effective": all, "permitted": all}
	process["noNewPrivileges"] = false
	delete(linux, "maskedPaths")
	delete(linux, "readonlyPaths")
	linux["resources"] = map[string]any{"devices": []any{map[string]any{"allow": true, "access": "rwm"}}}
	mounts = append(mounts, map[string]any{"destination": "/dev", "type": "bind", "source": "/dev", "options": []string{"rbind"}})
	spec["mounts"] = mounts
	b, err = json.Marshal(spec)
	must(t, err)
	must(t, os.WriteFile(dir+"/config.json", b, 0o644))
}

var capabilityNames = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
	LINUX_IMMUTABLE NET_BIND_SERVICE NET_ADMIN NET_RAW IPC_LOCK SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT
	SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE SETFCAP MAC_OVERRIDE
	MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND PERFMON BPF CHECKPOINT_RESTORE`)

// overlay mounts the machine's own root below a layer of the container's, on a
// file system other than the project's.
func (c *container) overlay(t *testing.T) string {
	t.Helper()
	dir := "/run/ct/" + c.name
	for _, d := range []string{"upper", "work", "root"} {
		must(t, os.MkdirAll(dir+"/"+d, 0o755))
	}
	must(t, unix.Mount("overlay", dir+"/root", "overlay", 0, "lowerdir=/,upperdir="+dir+"/upper,workdir="+dir+"/work"))
	t.Cleanup(func() { _ = unix.Unmount(dir+"/root", unix.MNT_DETACH) })
	return dir + "/root"
}

// project makes the project of a container.
func (c *container) project(t *testing.T, base string) {
	t.Helper()
	c.work = filepath.Join(base, c.name, "work")
	for _, d := range []string{".claude", "in", "out"} {
		must(t, os.MkdirAll(filepath.Join(c.work, d), 0o755))
	}
	must(t, os.WriteFile(c.work+"/.claude/plan.json", []byte(planText), 0o644))
}

func testWhereContainers(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	mustRun(t, "modprobe", "overlay")
	base := t.TempDir()
	// With crun and podman at the same time, beside a session of the host.
	t.Run("at once", func(t *testing.T) {
		t.Run("killed", func(t *testing.T) {
			t.Parallel()
			testContainerKilled(ctx, t, base)
		})
		t.Run("unprivileged", func(t *testing.T) {
			t.Parallel()
			testContainerUnprivileged(ctx, t, base)
		})
		for _, name := range []string{"crun", "podman"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := &container{name: "in-" + name}
				c.project(t, base)
				var cmd *exec.Cmd
				if name == "podman" {
					cmd = exec.CommandContext(ctx, "podman", "run", "--rm", "--privileged", "--network=none", "--hostname="+c.name,
						"-v", c.work+":"+ctWork, "--rootfs", c.overlay(t), "bash", "-c", containerScript)
				} else {
					cmd = c.crun(ctx, t, containerScript)
				}
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				count(t, "in a container of "+name, checkContainer(t, c, string(out)))
			})
		}
	})
}

// crun prepares a privileged container of crun that runs a script.
func (c *container) crun(ctx context.Context, t *testing.T, script string) *exec.Cmd {
	t.Helper()
	bundle(t, c, []string{"bash", "-c", script})
	return exec.CommandContext(ctx, "crun", "--cgroup-manager=disabled", "run", "--bundle", filepath.Dir(c.work), c.name)
}

// checkContainer checks files and log of a container's session from outside.
func checkContainer(t *testing.T, c *container, out string) error {
	b, err := os.ReadFile(c.work + "/in/f")
	if err != nil || string(b) != "mine\n" {
		return fmt.Errorf("in/f: %q, %v\n%s", b, err, out)
	}
	for _, f := range []string{c.work + "/out/f", "/run/ct/" + c.name + "/root/etc/planfence-no", "/root/planfence-no"} {
		if _, err := os.Lstat(f); err == nil {
			return fmt.Errorf("%s was written\n%s", f, out)
		}
	}
	log := readLog(t, c.work+"/.claude/blocked.log")
	if log.start.Host != c.name || log.start.PIDNS == 0 {
		return fmt.Errorf("session-start: host %q, pid namespace %d", log.start.Host, log.start.PIDNS)
	}
	want := map[string]string{ctWork + "/out/f": "", "/etc/planfence-no": "", "/root/planfence-no": "on the host"}
	for _, r := range log.blocks {
		where, ok := want[r.Path]
		if !ok || (where == "") != (r.FS == "") {
			return fmt.Errorf("record %s of file system %q\n%s", r.show(), r.FS, out)
		}
		if r.PID == r.NSPID {
			return fmt.Errorf("record %s: pid %d is the same in the container", r.show(), r.PID)
		}
		delete(want, r.Path)
	}
	if len(want) > 0 {
		return fmt.Errorf("no records of %v\n%s", want, out)
	}
	for _, s := range []string{"id 0 pid ", "tail: ", "out/f"} {
		if !strings.Contains(out, s) {
			return fmt.Errorf("no %q in %s", s, out)
		}
	}
	return nil
}

// loadedPrograms counts the programs of planfence that the kernel holds.
func loadedPrograms(t *testing.T) int {
	t.Helper()
	return strings.Count(mustRun(t, "bpftool", "prog", "list"), "name path_mkdir")
}

// testContainerKilled kills a container's first process while a session runs in it.
func testContainerKilled(ctx context.Context, t *testing.T, base string) {
	c := &container{name: "killed"}
	c.project(t, base)
	cmd := c.crun(ctx, t, "cd "+ctWork+" && planfence run --quiet --task T1 -- sh -c 'echo up > in/up; sleep 1000 & sleep 1000'")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	for {
		if b, err := os.ReadFile(c.work + "/in/up"); err == nil && len(b) > 0 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the session did not begin: %s", &out)
		}
		time.Sleep(20 * time.Millisecond)
	}
	// Whatever is fenced in it now dies with the container's first process; the
	// caller sees that no programs are left.
	mustRun(t, "crun", "kill", c.name, "KILL")
	_ = cmd.Wait()
	eventually(t, "no process is left", func() bool {
		out, _ := exec.Command("pgrep", "-f", "sleep 1000").Output()
		return len(out) == 0
	})
	count(t, "a container that is killed", nil)
}

func testContainerUnprivileged(ctx context.Context, t *testing.T, base string) {
	c := &container{name: "plain"}
	c.project(t, base)
	root := c.overlay(t)
	run := func(flags ...string) (string, error) {
		args := append([]string{"run", "--rm", "--network=none", "-w", ctWork, "-v", c.work + ":" + ctWork}, flags...)
		args = append(args, "--rootfs", root, "planfence", "run", "--quiet", "--task", "T1", "--", "sh", "-c",
			// Here planfence is the container's first process, which gets the orphans.
			"echo x > in/g; echo x > out/g; (sleep 0.1 & sleep 0.1 &); sleep 2; echo zombies $(ps -A -o stat= | grep -c ^Z)")
		out, err := exec.CommandContext(ctx, "podman", args...).CombinedOutput()
		return string(out), err
	}
	out, err := run()
	if err == nil || !strings.Contains(out, "hint: ") || !strings.Contains(out, "--privileged") || !strings.Contains(out, "--cap-add") {
		t.Errorf("an unprivileged container: %v\n%s", err, out)
	}
	if _, err := os.Lstat(c.work + "/in/g"); err == nil {
		t.Error("an unprivileged container started the command")
	}
	// The flags that the hint names are enough.
	flags := hintedFlags(out)
	out, _ = run(flags...)
	if _, err := os.Lstat(c.work + "/in/g"); err != nil {
		t.Errorf("with %q: %v\n%s", flags, err, out)
	}
	if !strings.Contains(out, "zombies 0\n") || strings.Contains(out, "stay fenced") {
		t.Errorf("orphans are not reaped: %s", out)
	}
	if _, err := os.Lstat(c.work + "/out/g"); err == nil {
		t.Errorf("with %q the fence does not hold\n%s", flags, out)
	}
	count(t, "an unprivileged container", nil)
}

// hintedFlags returns the flags that a hint names beside --privileged.
func hintedFlags(out string) (flags []string) {
	_, hint, _ := strings.Cut(out, "hint: ")
	hint, _, _ = strings.Cut(hint, "\n")
	words := strings.Fields(hint)
	for i, w := range words {
		if (w == "--cap-add" || w == "--security-opt") && i+1 < len(words) {
			flags = append(flags, w, strings.TrimRight(words[i+1], ",;"))
		}
	}
	return flags
}
