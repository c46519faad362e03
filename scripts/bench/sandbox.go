package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"planfence/loader"
)

// landlock allows this thread, and what it starts, to write below dir alone.
func landlock(dir string) error {
	attr := struct{ fs uint64 }{unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE}
	rules, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), 8, 0)
	if e == unix.EINVAL { // 6.1 does not know truncation
		attr.fs &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
		rules, _, e = unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), 8, 0)
	}
	if e != 0 {
		return fmt.Errorf("landlock_create_ruleset: %w", e)
	}
	for path, access := range map[string]uint64{dir: attr.fs, "/dev/null": unix.LANDLOCK_ACCESS_FS_WRITE_FILE} {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		rule := struct {
			access uint64
			fd     int32
		}{access, int32(fd)}
		if _, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, rules, 1, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); e != 0 {
			return fmt.Errorf("landlock_add_rule %s: %w", path, e)
		}
		unix.Close(fd)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0); e != 0 {
		return fmt.Errorf("landlock_restrict_self: %w", e)
	}
	return nil
}

const profileName = "planfence-bench"

// The equivalent AppArmor profile: everything may be read, executed and done, but
// written is src alone.
const profile = `abi <abi/4.0>,
profile ` + profileName + ` {
  capability, network, signal, ptrace, unix, mount, userns,
  /** rix,
  ` + root + `/src/{,**} rwkl,
  ` + workRoot + `/src/{,**} rwkl,
  /dev/null rw,
  /tmp/{,**} rwkl,
}
`

// loadProfile loads the AppArmor profile; an error says why there is none.
func loadProfile() error {
	if b, err := os.ReadFile("/sys/module/apparmor/parameters/enabled"); err != nil || b[0] != 'Y' {
		return fmt.Errorf("the kernel has no AppArmor")
	}
	_ = os.MkdirAll("/sys/kernel/security", 0o755)
	if _, err := os.Stat("/sys/kernel/security/apparmor"); err != nil {
		if err := unix.Mount("securityfs", "/sys/kernel/security", "securityfs", 0, ""); err != nil {
			return fmt.Errorf("mount securityfs: %w", err)
		}
	}
	file := "/root/bench.apparmor"
	if err := os.WriteFile(file, []byte(profile), 0o644); err != nil {
		return err
	}
	out, err := exec.Command("apparmor_parser", "-r", "-K", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("apparmor_parser: %w: %s", err, out)
	}
	return nil
}

// underProfile becomes the program args under the AppArmor profile.
func underProfile(args []string) error {
	if err := os.WriteFile("/proc/self/attr/exec", []byte("exec "+profileName), 0); err != nil {
		return fmt.Errorf("change the AppArmor profile: %w", err)
	}
	return syscall.Exec(args[0], args, os.Environ())
}

// emptyPrograms attaches a program that does nothing to every hook that the
// fence has: the least that any BPF LSM costs. The returned function detaches.
func emptyPrograms() (func(), error) {
	spec, err := loader.Spec(loader.LSM)
	if err != nil {
		return nil, err
	}
	var links []link.Link
	done := func() {
		for _, l := range links {
			l.Close()
		}
	}
	for name, p := range spec.Programs {
		if p.Type != ebpf.LSM || loader.OnDemand(name) {
			continue
		}
		verdict := int32(0)
		if p.AttachTo == "fs_context_parse_param" {
			verdict = -519 // -ENOPARAM: the hook's default
		}
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "empty", Type: ebpf.LSM, AttachType: ebpf.AttachLSMMac,
			AttachTo: p.AttachTo, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()}})
		if err != nil {
			done()
			return nil, fmt.Errorf("load an empty program for %s: %w", p.AttachTo, err)
		}
		l, err := link.AttachLSM(link.LSMOptions{Program: prog})
		prog.Close()
		if err != nil {
			done()
			return nil, fmt.Errorf("attach an empty program to %s: %w", p.AttachTo, err)
		}
		links = append(links, l)
	}
	return done, nil
}
