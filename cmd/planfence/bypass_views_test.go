//go:build vm

package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// apart runs f in a mount namespace of its own, with a user namespace unless
// the process is root; the mounts stay as they are (shared) or are made private.
func apart(s site, private bool, part string, args ...string) error {
	c := exec.Command("/proc/self/exe", append([]string{s.D}, args...)...)
	c.Env = append(os.Environ(), bypassEnv+"=part:"+part)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if !s.Root0 {
		c.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if private {
		c.Env = append(c.Env, "PLANFENCE_PRIVATE=1")
	}
	b, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", part, err, b)
	}
	return nil
}

// parts are what runs in such a namespace; d is the site's directory.
var parts = map[string]func(d string, args []string) error{
	"bind": func(d string, _ []string) error {
		return errors.Join(unix.Mount(d+"/out", d+"/in/mnt", "", unix.MS_BIND, ""), scrawl(d+"/in/mnt/f"))
	},
	"bind-create": func(d string, _ []string) error {
		return errors.Join(unix.Mount(d+"/out", d+"/in/mnt", "", unix.MS_BIND, ""), fresh(d+"/in/mnt/new"))
	},
	"bind-over": func(d string, _ []string) error { // shows in everybody's namespace if it propagates
		return unix.Mount(d+"/in", d+"/out", "", unix.MS_BIND, "")
	},
	"bind-file": func(d string, _ []string) error {
		return errors.Join(unix.Mount(d+"/out/f", d+"/in/f", "", unix.MS_BIND, ""), scrawl(d+"/in/f"))
	},
	"move-mount": func(d string, _ []string) error {
		fd, err := unix.OpenTree(unix.AT_FDCWD, d+"/out", unix.OPEN_TREE_CLONE)
		if err != nil {
			return err
		}
		return errors.Join(unix.MoveMount(fd, "", unix.AT_FDCWD, d+"/in/mnt", unix.MOVE_MOUNT_F_EMPTY_PATH), scrawl(d+"/in/mnt/f"))
	},
	"open-tree": func(d string, _ []string) error {
		fd, err := unix.OpenTree(unix.AT_FDCWD, d+"/out", unix.OPEN_TREE_CLONE)
		if err != nil {
			return err
		}
		return scrawl(fdPath(fd) + "/f")
	},
	"chroot": func(d string, _ []string) error {
		return errors.Join(unix.Chroot(d+"/out"), os.Chdir("/"), scrawl("/f"))
	},
	"overlay": func(d string, _ []string) error {
		o := "lowerdir=" + layers(d) + ",upperdir=" + d + "/out,workdir=" + d + "/in/work,userxattr"
		return errors.Join(unix.Mount("o", d+"/in/mnt", "overlay", 0, o), fresh(d+"/in/mnt/new"))
	},
	"overlay-work": func(d string, _ []string) error {
		o := "lowerdir=" + layers(d) + ",upperdir=" + d + "/in/up,workdir=" + d + "/out,userxattr"
		return unix.Mount("o", d+"/in/mnt", "overlay", 0, o)
	},
	"overlay-api": func(d string, _ []string) error {
		fs, err := unix.Fsopen("overlay", 0)
		if err != nil {
			return err
		}
		for k, v := range map[string]string{"lowerdir": layers(d), "upperdir": d + "/out", "workdir": d + "/in/work"} {
			if err := unix.FsconfigSetString(fs, k, v); err != nil {
				return err
			}
		}
		_ = unix.FsconfigSetFlag(fs, "userxattr")
		if err := unix.FsconfigCreate(fs); err != nil {
			return err
		}
		m, err := unix.Fsmount(fs, 0, 0)
		if err != nil {
			return err
		}
		return fresh(fdPath(m) + "/new")
	},
	"tmpfs": func(d string, _ []string) error {
		return errors.Join(unix.Mount("t", d+"/in/mnt", "tmpfs", 0, ""), os.MkdirAll(d+"/in/mnt/a/b", 0o755),
			fresh(d+"/in/mnt/a/b/c"), os.Rename(d+"/in/mnt/a", d+"/in/mnt/z"), os.Remove(d+"/in/mnt/z/b/c"))
	},
	"second-mount": func(d string, args []string) error {
		if err := unix.Mount(args[0], d+"/in/mnt", "ext4", 0, ""); err != nil {
			return err
		}
		return scrawl(d + "/in/mnt" + d + "/out/f")
	},
	"remount": func(d string, _ []string) error {
		return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_NODIRATIME|unix.MS_NOATIME, "commit=9")
	},
	"umount": func(d string, _ []string) error { return unix.Unmount(d+"/out/sub", unix.MNT_DETACH) },
	"kernel-fs": func(d string, args []string) error {
		if err := unix.Mount("x", d+"/in/mnt", args[0], 0, ""); err != nil {
			return err
		}
		if args[1] == "mkdir" {
			err := os.Mkdir(d+"/in/mnt/planfence-test", 0o755)
			_ = os.Remove(d + "/in/mnt/planfence-test")
			return err
		}
		return withFd(d+"/in/mnt/"+args[1], unix.O_WRONLY, func(int) error { return nil })
	},
	"cwd": func(d string, _ []string) error {
		if err := os.Chdir(d + "/out"); err != nil {
			return err
		}
		fmt.Println("here")
		_, _ = os.Stdin.Read(make([]byte, 1))
		return nil
	},
}

// layers makes what an overlay needs beside the directory that it is aimed at.
func layers(d string) string {
	for _, n := range []string{"/in/low", "/in/up", "/in/work"} {
		_ = os.Mkdir(d+n, 0o755)
	}
	return d + "/in/low"
}

func part(name string) int {
	runtime.LockOSThread()
	if os.Getenv("PLANFENCE_PRIVATE") != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	if err := parts[name](os.Args[1], os.Args[2:]); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// beside starts a part that waits, and calls f with its pid.
func beside(s site, flags uintptr, f func(pid int) error) error {
	c := exec.Command("/proc/self/exe", s.D)
	c.Env = append(os.Environ(), bypassEnv+"=part:cwd")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer func() { in.Close(); _ = c.Wait() }()
	if _, err := out.Read(make([]byte, 8)); err != nil {
		return err
	}
	return f(c.Process.Pid)
}

func ns(name string, private bool) func(s site) error {
	return func(s site) error { return apart(s, private, name) }
}

// rootDevice is what / is mounted from.
func rootDevice() string {
	var st unix.Stat_t
	if err := unix.Stat("/", &st); err != nil {
		return err.Error()
	}
	to, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return err.Error()
	}
	return "/dev/" + filepath.Base(to)
}

// views reach the same file by another way.
func views() []attack {
	reopen := func(flags int) func(s site) error {
		return func(s site) error {
			return withFd(s.Out+"/f", flags, func(fd int) error { return scrawl(fdPath(fd)) })
		}
	}
	how := func(resolve uint64) func(s site) error {
		return func(s site) error {
			_ = exists(s.Out + "/sub/f") // into the cache, for RESOLVE_CACHED
			return withFd(s.Out, unix.O_RDONLY|unix.O_DIRECTORY, func(dir int) error {
				fd, err := unix.Openat2(dir, "sub/f", &unix.OpenHow{Flags: unix.O_WRONLY, Resolve: resolve})
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				return scrawlFd(fd)
			})
		}
	}
	return []attack{
		{name: "bind-mount", try: ns("bind", true)},
		{name: "bind-mount-create", try: ns("bind-create", true)},
		{name: "bind-mount-file", try: ns("bind-file", true)},
		{name: "bind-mount-shared", root: true, try: ns("bind-over", false)},
		{name: "open-tree", try: ns("open-tree", true)},
		{name: "move-mount", try: ns("move-mount", true)},
		{name: "move-mount-shared", root: true, keeps: true, try: ns("move-mount", false)},
		{name: "chroot", try: ns("chroot", true)},
		{name: "overlay-upper", ext4: true, try: ns("overlay", true)},
		{name: "overlay-work", ext4: true, try: ns("overlay-work", true)},
		{name: "overlay-upper-api", ext4: true, try: ns("overlay-api", true)},
		{name: "second-mount", root: true, ext4: true,
			try: func(s site) error { return apart(s, true, "second-mount", rootDevice()) }},
		{name: "remount-fs", root: true, keeps: true, try: ns("remount", true)},
		{name: "tmpfs-own", twin: ns("tmpfs", true), keeps: true, // legal, and the same in the shared namespace is not
			try: func(s site) error {
				if !s.Root0 {
					return refusedHere(s)
				}
				if err := unix.Mount("t", s.In+"/mnt", "tmpfs", 0, ""); err != nil {
					return err
				}
				return unix.Unmount(s.In+"/mnt", unix.MNT_DETACH)
			}},
		{name: "nsenter", root: true, try: func(s site) error {
			return beside(s, unix.CLONE_NEWNS, func(pid int) error {
				return exec.Command("nsenter", "-t", fmt.Sprint(pid), "-m", "sh", "-c", "echo x >> "+s.Out+"/f").Run()
			})
		}},
		{name: "proc-self-root", try: func(s site) error { return scrawl("/proc/self/root" + s.Out + "/f") }},
		{name: "proc-pid-cwd", try: func(s site) error {
			return beside(s, 0, func(pid int) error { return scrawl(fmt.Sprintf("/proc/%d/cwd/f", pid)) })
		}},
		{name: "reopen-reading", try: reopen(unix.O_RDONLY)},
		{name: "reopen-path", try: reopen(unix.O_PATH)},
		{name: "dirfd", try: func(s site) error {
			return withFd(s.Out, unix.O_PATH|unix.O_DIRECTORY, func(dir int) error {
				fd, err := unix.Openat(dir, "f", unix.O_WRONLY|unix.O_TRUNC, 0)
				if err != nil {
					return err
				}
				return errors.Join(scrawlFd(fd), unix.Close(fd))
			})
		}},
		{name: "openat2-beneath", try: how(unix.RESOLVE_BENEATH)},
		{name: "openat2-in-root", try: how(unix.RESOLVE_IN_ROOT)},
		{name: "openat2-no-xdev", try: how(unix.RESOLVE_NO_XDEV)},
		{name: "openat2-no-symlinks", try: how(unix.RESOLVE_NO_SYMLINKS)},
		{name: "openat2-no-magiclinks", try: how(unix.RESOLVE_NO_MAGICLINKS)},
		{name: "openat2-cached", try: how(0x20)},
		{name: "handle", root: true, ext4: true, try: func(s site) error { return byHandle(s.Out + "/f") }},
		{name: "map-files", root: true, try: mapFiles},
	}
}

// refusedHere is what a try of an attack that only root can make answers for others.
func refusedHere(s site) error {
	if s.Fenced {
		return unix.EPERM
	}
	return nil
}

func byHandle(path string) error {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err != nil {
		return err
	}
	return withFd("/work", unix.O_RDONLY, func(mnt int) error {
		fd, err := unix.OpenByHandleAt(mnt, h, unix.O_WRONLY|unix.O_APPEND)
		if err != nil {
			return err
		}
		return errors.Join(scrawlFd(fd), unix.Close(fd))
	})
}

// mapFiles opens the file behind a mapping of its own for writing.
func mapFiles(s site) error {
	return withFd(s.Out+"/f", unix.O_RDONLY, func(fd int) error {
		m, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		defer unix.Munmap(m)
		at := uintptr(unsafe.Pointer(&m[0]))
		return scrawl(fmt.Sprintf("/proc/self/map_files/%x-%x", at, at+4096))
	})
}
