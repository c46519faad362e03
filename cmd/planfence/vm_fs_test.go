//go:build vm

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fileSystem is a kind of file system that sessions run on.
type fileSystem struct {
	name string
	// mount mounts a new one on dir, or makes dir ready; image is a file of its own.
	mount []string
	// layered: what the tests make is moved below and mounted as the lower layer.
	layered bool
}

var fileSystems = []fileSystem{
	{name: "ext4", mount: []string{"truncate -s 256M @image", "mkfs.ext4 -q @image", "mount -o loop @image @dir"}},
	{name: "tmpfs", mount: []string{"mount -t tmpfs none @dir"}},
	// The project lies in a subvolume: for root below the mounted one, for dev it is what is mounted.
	{name: "btrfs", mount: []string{"truncate -s 256M @image", "mkfs.btrfs -q @image", "mount -o loop @image @dir",
		"btrfs -q subvolume create @dir/root", "btrfs -q subvolume create @dir/vol", "mkdir @dir/dev",
		"mount -o subvol=vol @image.loop @dir/dev"}},
	{name: "xfs", mount: []string{"truncate -s 320M @image", "mkfs.xfs -q @image", "mount -o loop @image @dir"}},
	{name: "overlay", layered: true},
}

// fsBase is where the file systems are mounted.
const fsBase = "/mnt/fs"

// mounted makes the file system ready and returns a directory for each user.
func (f *fileSystem) mounted(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(fsBase, f.name)
	must(t, os.MkdirAll(dir, 0o755))
	image := "/var/tmp/" + f.name + ".img"
	for _, line := range f.mount {
		line = strings.ReplaceAll(line, "@dir", dir)
		if strings.Contains(line, "@image.loop") {
			line = strings.ReplaceAll(line, "@image.loop", loopOf(t, image))
		}
		mustRun(t, strings.Fields(strings.ReplaceAll(line, "@image", image))...)
	}
	for _, u := range users {
		d := filepath.Join(dir, u.name)
		must(t, os.MkdirAll(d, 0o755))
		must(t, os.Chown(d, u.uid, u.uid))
	}
	return dir
}

func loopOf(t *testing.T, image string) string {
	t.Helper()
	out := mustRun(t, "losetup", "-n", "-O", "NAME", "-j", image)
	return strings.TrimSpace(out)
}

// layer turns dir into an overlay over what it holds now. The files of every
// second act are copied up: of even ones, or of odd ones. With redirect_dir a
// directory of the lower layer can be renamed.
func layer(t *testing.T, dir string, odd int) {
	t.Helper()
	lower := dir + ".lower"
	must(t, os.Rename(dir, lower))
	for _, d := range []string{dir, dir + ".upper", dir + ".work"} {
		must(t, os.Mkdir(d, 0o755))
	}
	mustRun(t, "mount", "-t", "overlay", "overlay", "-o", fmt.Sprintf("redirect_dir=on,lowerdir=%s,upperdir=%s.upper,workdir=%s.work", lower, dir, dir), dir)
	for _, s := range []side{inside, outside} {
		ents, err := os.ReadDir(filepath.Join(dir, "p", string(s)))
		must(t, err)
		for i, e := range ents {
			if f := filepath.Join(dir, "p", string(s), e.Name(), "f"); i%2 == odd {
				if _, err := os.Stat(f); err == nil {
					must(t, os.Chmod(f, 0o644))
				}
			}
		}
	}
}

// checkUpper checks that the upper layer has nothing in the project's directory
// out but what layer copied up, and what an act copies up before it is refused.
func checkUpper(dir string, odd int, list []act) error {
	may := map[string]bool{"beside": true}
	for _, a := range list {
		if a.copiesUp {
			may[a.dir] = true
		}
	}
	lower, err := os.ReadDir(dir + ".lower/p/out")
	if err != nil {
		return err
	}
	for i, e := range lower {
		if i%2 == odd {
			may[e.Name()] = true
		}
	}
	upper, err := os.ReadDir(dir + ".upper/p/out")
	for _, e := range upper {
		if !may[e.Name()] {
			return fmt.Errorf("out/%s was copied up", e.Name())
		}
	}
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustRun runs a command that has to succeed and returns what it printed.
func mustRun(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}
