package loader

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Kernel is what decides the attach mode. Empty fields could not be told.
type Kernel struct {
	Release    string   // uname -r
	Version    string   // uname -v
	Modules    []string // the active list of security modules, in order
	Preemption string   // none, voluntary, lazy, full, rt
	Lockdown   string   // none, integrity, confidentiality
	CmdlineLSM string   // the boot parameter lsm=, if given
}

// ReadKernel looks at the running kernel. As root it mounts securityfs and
// debugfs for a moment where they are not mounted.
func ReadKernel() Kernel {
	var k Kernel
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		k.Release = unix.ByteSliceToString(u.Release[:])
		k.Version = unix.ByteSliceToString(u.Version[:])
	}
	if b, err := readMounted("securityfs", "/sys/kernel/security", "lsm"); err == nil {
		k.Modules = strings.FieldsFunc(string(b), func(r rune) bool { return r == ',' || r == '\n' })
	}
	if b, err := readMounted("securityfs", "/sys/kernel/security", "lockdown"); err == nil {
		k.Lockdown = bracketed(string(b), '[', ']')
	}
	if b, err := readMounted("debugfs", "/sys/kernel/debug", "sched/preempt"); err == nil {
		k.Preemption = bracketed(string(b), '(', ')')
	}
	if k.Preemption == "" {
		k.Preemption = preemptionOf(k.Version)
	}
	if b, err := os.ReadFile("/proc/cmdline"); err == nil {
		for _, f := range strings.Fields(string(b)) {
			if v, ok := strings.CutPrefix(f, "lsm="); ok {
				k.CmdlineLSM = v
			}
		}
	}
	return k
}

// preemptionOf reads the build's version string, kernel/Makefile and
// scripts/mkcompile_h: it names the model unless that is chosen at boot.
func preemptionOf(version string) string {
	switch {
	case strings.Contains(version, "PREEMPT_RT"):
		return "rt"
	case strings.Contains(version, "PREEMPT_DYNAMIC"):
		return "" // chosen at boot
	case strings.Contains(version, "PREEMPT_LAZY"):
		return "lazy"
	case strings.Contains(version, "PREEMPT"):
		return "full"
	}
	return "voluntary" // or none: the same here
}

func bracketed(s string, open, closing byte) string {
	i := strings.IndexByte(s, open)
	j := strings.IndexByte(s, closing)
	if i < 0 || j < i {
		return ""
	}
	return s[i+1 : j]
}

// readMounted reads a file of a pseudo file system from its usual place, or
// from a mount made for the purpose.
func readMounted(fstype, usual, name string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(usual, name))
	if err == nil || os.Geteuid() != 0 {
		return b, err
	}
	if err := os.MkdirAll(StateDir, 0o755); err != nil {
		return nil, err
	}
	dir, merr := os.MkdirTemp(StateDir, fstype)
	if merr != nil {
		return nil, err
	}
	defer os.Remove(dir)
	if merr := unix.Mount(fstype, dir, fstype, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); merr != nil {
		return nil, err
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	return os.ReadFile(filepath.Join(dir, name))
}

func (k Kernel) has(module string) bool {
	for _, m := range k.Modules {
		if m == module {
			return true
		}
	}
	return false
}

// lsmWay is the boot parameter that would put bpf into the active list.
func (k Kernel) lsmWay() string {
	list := "landlock,lockdown,yama,apparmor"
	if len(k.Modules) > 0 {
		var keep []string
		for _, m := range k.Modules {
			if m != "capability" { // always there, never listed in lsm=
				keep = append(keep, m)
			}
		}
		list = strings.Join(keep, ",")
	}
	return "lsm=" + list + ",bpf"
}

// older reports whether the release is older than major.minor.
func (k Kernel) older(major, minor int) bool {
	parts := strings.SplitN(k.Release, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(strings.TrimRight(parts[1], "-+abcdefghijklmnopqrstuvwxyz"))
	if err1 != nil || err2 != nil {
		return false
	}
	return a < major || a == major && b < minor
}

// Choose returns the attach mode that this kernel can hold, or why none.
func (k Kernel) Choose(want Mode) (Mode, error) {
	fully := k.Preemption == "full" || k.Preemption == "rt"
	if k.older(6, 2) && fully {
		return "", &Problem{fmt.Errorf("%w: Linux %s with preempt=%s skips programs of either kind under load",
			ErrUnsupported, k.Release, k.Preemption), "boot with preempt=voluntary, or use Linux 6.12 or later"}
	}
	if want == LSM || (want == Auto || want == "") && k.has("bpf") {
		if k.Modules != nil && !k.has("bpf") {
			return "", &Problem{fmt.Errorf("%w: bpf is not in the active list of security modules (%s)",
				ErrUnsupported, strings.Join(k.Modules, ",")),
				"boot with " + k.lsmWay() + ", or use --attach fmod_ret where preemption is voluntary"}
		}
		return LSM, nil
	}
	switch k.Preemption {
	case "none", "voluntary":
		return FmodRet, nil
	case "":
		return "", &Problem{fmt.Errorf("%w: bpf is not in the active list of security modules, and the preemption model could not be told",
			ErrUnsupported), "boot with " + k.lsmWay() + ", or mount debugfs so that /sys/kernel/debug/sched/preempt can be read"}
	}
	return "", &Problem{fmt.Errorf("%w: bpf is not in the active list of security modules, and with preempt=%s tracing programs are skipped under load",
		ErrUnsupported, k.Preemption), "boot with " + k.lsmWay() + ", or with preempt=voluntary"}
}

const (
	lockdownHint = "boot with lockdown=integrity, or without secure boot's confidentiality policy"
	arm64Hint    = "use Linux 6.4 or later on arm64"
)

// privilegesHint names what a container needs as docker and podman take it.
const privilegesHint = "run it as root: sudo planfence …; start a container with --privileged, or with " +
	"--cap-add SYS_ADMIN --cap-add BPF --cap-add PERFMON --security-opt seccomp=unconfined --security-opt apparmor=unconfined"

// preflightError finds the cause behind a failure of the kernel to load or
// attach: the system call comes first, and only then the question why.
func preflightError(err error) error {
	if err == nil {
		return nil
	}
	var p *Problem
	if errors.As(err, &p) {
		return err
	}
	hint := func(cause, hint string) error {
		return &Problem{fmt.Errorf("%w: %s: %w", ErrUnsupported, cause, err), hint}
	}
	if !capable(unix.CAP_SYS_ADMIN) && !capable(unix.CAP_BPF) {
		return hint("no privileges to load BPF programs", privilegesHint)
	}
	if _, serr := os.Stat("/sys/kernel/btf/vmlinux"); errors.Is(serr, os.ErrNotExist) {
		return hint("the kernel has no BTF (/sys/kernel/btf/vmlinux)", "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as the distributions' are")
	}
	k := ReadKernel()
	if k.Lockdown == "confidentiality" {
		return hint("kernel lockdown is in confidentiality mode", lockdownHint)
	}
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		return hint("the kernel's verifier refuses the programs", "report it with the output of planfence doctor and uname -a; Linux 6.1 to 7.2 are tried")
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		if seccomp() {
			return hint("a seccomp filter stands over this process", "start the container with --privileged, or with --security-opt seccomp=unconfined")
		}
		if !trialLoad() {
			return hint("this kernel refuses to load LSM and tracing programs, also for root", "use a stock distribution kernel, on the host or in a virtual machine; planfence doctor shows what was tried")
		}
		return hint("permission denied", "run planfence doctor for the cause")
	}
	if runtime.GOARCH == "arm64" && k.older(6, 4) {
		return hint("this kernel cannot attach programs to its functions on arm64", arm64Hint)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) {
		return hint("the kernel does not know this kind of program", "use Linux 6.1 or later with CONFIG_BPF_LSM=y and CONFIG_SECURITY_PATH=y")
	}
	if errors.Is(err, unix.E2BIG) {
		return hint("too many programs are attached to one of the hooks (at most 38)", "end other sessions or security agents: planfence status, bpftool link")
	}
	return err
}

// trialLoad reports whether the smallest LSM program loads.
func trialLoad() bool {
	p, err := ebpf.NewProgram(trialSpec())
	if err != nil {
		return false
	}
	p.Close()
	return true
}

// capable reports whether the effective set has the capability.
func capable(c int) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return false
	}
	return data[c/32].Effective&(1<<(c%32)) != 0
}

// seccomp reports whether a filter stands over this process.
func seccomp() bool {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for _, line := range bytes.Split(b, []byte("\n")) {
		if v, ok := bytes.CutPrefix(line, []byte("Seccomp:")); ok {
			return strings.TrimSpace(string(v)) == "2"
		}
	}
	return false
}

// Arch reports whether the programs run on this architecture.
func Arch() bool { return runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64" }
