package loader

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Outcome of a check: it holds, it does not, or it could not be told.
type Outcome string

// Outcomes.
const (
	Yes     Outcome = "yes"
	No      Outcome = "no"
	Unknown Outcome = "unknown"
)

// Check is one row of what [Doctor] finds.
type Check struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail,omitempty"` // what was seen, or why it could not be told
	Remedy  string  `json:"remedy,omitempty"` // for a failing row
	Needed  bool    `json:"needed"`           // without it no fence holds
}

// Doctor looks at what this machine offers. It changes nothing that lasts: the
// trial program is loaded, attached for a moment, and closed.
func Doctor() []Check {
	k := ReadKernel()
	var out []Check
	add := func(c Check) { out = append(out, c) }

	arch := Check{Name: "architecture", Outcome: Yes, Detail: runtime.GOARCH, Needed: true}
	if !Arch() {
		arch.Outcome, arch.Remedy = No, "use amd64 or arm64: others have no trampolines for these programs"
	}
	add(arch)
	kernel := Check{Name: "kernel", Outcome: Yes, Detail: k.Release, Needed: true}
	if k.older(6, 1) {
		kernel.Outcome, kernel.Remedy = No, "use Linux 6.1 or later"
	} else if runtime.GOARCH == "arm64" && k.older(6, 4) {
		kernel.Outcome, kernel.Remedy = No, arm64Hint
	}
	add(kernel)
	add(capabilities())
	add(seccompCheck())
	spec, berr := btf.LoadKernelSpec()
	b := Check{Name: "btf", Outcome: Yes, Needed: true}
	if berr != nil {
		b.Outcome, b.Detail, b.Remedy = No, berr.Error(), "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as the distributions' are"
	}
	add(b)
	add(hasFunc(spec, "bpf lsm compiled in", "bpf_lsm_file_open", "CONFIG_BPF_LSM=y", false))
	add(hasFunc(spec, "path hooks", "security_path_mkdir", "CONFIG_SECURITY_PATH=y", true))
	add(activeList(k))
	pre := Check{Name: "preemption", Outcome: Yes, Detail: k.Preemption}
	if k.Preemption == "" {
		pre.Outcome, pre.Detail = Unknown, "chosen at boot, and /sys/kernel/debug/sched/preempt cannot be read"
	}
	add(pre)
	lock := Check{Name: "lockdown", Outcome: Yes, Detail: k.Lockdown}
	switch k.Lockdown {
	case "":
		lock.Outcome, lock.Detail = Unknown, "securityfs cannot be read, or the kernel has no lockdown"
	case "confidentiality":
		lock.Outcome, lock.Needed, lock.Remedy = No, true, lockdownHint
	}
	add(lock)
	add(bpffsCheck())
	load, attach := trial()
	add(load)
	add(attach)
	mode := Check{Name: "attach mode", Outcome: Yes, Needed: true}
	m, err := k.Choose(Auto)
	if err != nil {
		mode.Outcome, mode.Detail = No, err.Error()
		var p *Problem
		if errors.As(err, &p) {
			mode.Remedy = p.Hint
		}
		if k.Modules == nil {
			mode.Outcome = Unknown
		}
	} else {
		mode.Detail = string(m)
	}
	add(mode)
	others := Check{Name: "other builds", Outcome: Yes, Detail: "none pinned"}
	if os.Geteuid() != 0 {
		others.Outcome, others.Detail = Unknown, "not root: the pins cannot be listed"
	} else if o := Others(); len(o) > 0 {
		others.Detail = strings.Join(o, ", ") + ": left alone"
	}
	add(others)
	return out
}

func capabilities() Check {
	c := Check{Name: "capabilities", Outcome: Yes, Needed: true}
	var missing []string
	for _, x := range []struct {
		name string
		n    int
	}{{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN}, {"CAP_BPF", unix.CAP_BPF}, {"CAP_PERFMON", unix.CAP_PERFMON}} {
		if !capable(x.n) {
			missing = append(missing, x.name)
		}
	}
	if len(missing) > 0 {
		c.Outcome, c.Detail = No, "missing "+strings.Join(missing, ", ")
		c.Remedy = strings.Replace(privilegesHint, "…", "doctor", 1)
	}
	return c
}

func seccompCheck() Check {
	c := Check{Name: "seccomp", Outcome: Yes, Detail: "no filter"}
	if seccomp() {
		c.Outcome, c.Detail = Unknown, "a filter stands over this process; the trial shows whether it matters"
	}
	return c
}

func hasFunc(spec *btf.Spec, name, fn, option string, needed bool) Check {
	c := Check{Name: name, Outcome: Yes, Needed: needed}
	if spec == nil {
		c.Outcome, c.Detail = Unknown, "no BTF to look it up in"
		return c
	}
	var f *btf.Func
	if err := spec.TypeByName(fn, &f); err != nil {
		c.Outcome, c.Detail, c.Remedy = No, "the kernel has no function "+fn, "use a kernel built with "+option
	}
	return c
}

func activeList(k Kernel) Check {
	c := Check{Name: "bpf in the active list", Outcome: Yes, Detail: strings.Join(k.Modules, ",")}
	switch {
	case k.Modules == nil:
		c.Outcome, c.Detail = Unknown, "/sys/kernel/security/lsm cannot be read"
	case !k.has("bpf"):
		c.Outcome, c.Remedy = No, "boot with "+k.lsmWay()+" (fmod_ret programs serve where preemption is voluntary)"
	}
	return c
}

func bpffsCheck() Check {
	c := Check{Name: "bpffs", Outcome: Yes, Detail: "/sys/fs/bpf"}
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/bpf", &st); err != nil || st.Type != unix.BPF_FS_MAGIC {
		c.Detail = "not mounted on /sys/fs/bpf: run mounts one below " + StateDir
	}
	return c
}

// trial loads the smallest LSM program and attaches it for a moment.
func trial() (load, attach Check) {
	load = Check{Name: "trial load", Outcome: Yes, Needed: true}
	attach = Check{Name: "trial attach", Outcome: Unknown, Detail: "nothing was loaded", Needed: true}
	p, err := ebpf.NewProgram(trialSpec())
	if err != nil {
		load.Outcome, load.Detail = No, lastLine(err)
		var pr *Problem
		if errors.As(preflightError(err), &pr) {
			load.Remedy = pr.Hint
		}
		return load, attach
	}
	defer p.Close()
	l, err := link.AttachLSM(link.LSMOptions{Program: p})
	if err != nil {
		attach.Outcome, attach.Detail = No, lastLine(err)
		var pr *Problem
		if errors.As(preflightError(fmt.Errorf("attach: %w", err)), &pr) {
			attach.Remedy = pr.Hint
		}
		return load, attach
	}
	l.Close()
	attach.Outcome, attach.Detail = Yes, ""
	return load, attach
}

func lastLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return lines[len(lines)-1]
}
