//go:build vm

package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// devicesMain prints the device nodes of a directory that the fence refuses to open
// for writing. The kernel asks before the driver: others may fail as they like.
func devicesMain(dir string) {
	names, err := os.ReadDir(dir)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for _, n := range names {
		err := withFd(filepath.Join(dir, n.Name()), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY, func(int) error { return nil })
		if errors.Is(err, unix.EACCES) {
			fmt.Println(n.Name())
		}
	}
}

// TestBypassDevices: the kernel and check close the same devices, whatever the scope
// says of the path at which they are.
func TestBypassDevices(t *testing.T) {
	shareMounts(t)
	hold(t)
	b := newBench(t, "/work/devices", 0)
	s := b.site(&attack{name: "r"})
	dir := s.In + "/dev"
	b.mkdir(dir)
	node := func(kind, major, minor uint32) {
		path := fmt.Sprintf("%s/%d-%d", dir, major, minor)
		if kind == unix.S_IFBLK {
			path += "-block"
		}
		if err := unix.Mknod(path, kind|0o666, int(unix.Mkdev(major, minor))); err != nil {
			t.Fatal(err)
		}
	}
	for minor := range uint32(16) {
		node(unix.S_IFCHR, 1, minor) // memory
		node(unix.S_IFCHR, 5, minor) // terminals
		node(unix.S_IFBLK, 1, minor)
	}
	for _, d := range [][2]uint32{{2, 0}, {3, 0}, {4, 64}, {13, 0}, {21, 0}, {89, 0}, {90, 0}, {108, 0}, {135, 0}, {136, 0}, {143, 255}, {144, 0}, {200, 1}, {254, 0}} {
		node(unix.S_IFCHR, d[0], d[1])
	}
	out, _ := fencedRun(t, b.root, 0, "devices:"+dir, "--task", "T")
	kernel := strings.Fields(out)
	var check []string
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		c := exec.Command(planfence, "check", "--json", "--task", "T", filepath.Join(dir, n.Name()))
		c.Dir = b.root
		text, _ := c.Output()
		var r struct{ Verdict string }
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if r.Verdict != "allow" {
			check = append(check, n.Name())
		}
	}
	if !slices.Equal(kernel, check) {
		t.Errorf("the kernel refuses\n%s\ncheck refuses\n%s", strings.Join(kernel, " "), strings.Join(check, " "))
	}
	for _, name := range []string{"1-3", "1-5", "1-7", "1-8", "1-9", "5-0", "5-2", "136-0"} {
		if slices.Contains(kernel, name) {
			t.Errorf("%s is refused", name)
		}
	}
	for _, name := range []string{"1-1", "1-11", "5-1", "10-237", "254-0", "1-0-block"} {
		if !slices.Contains(kernel, name) && exists(filepath.Join(dir, name)) {
			t.Errorf("%s is open", name)
		}
	}
}
