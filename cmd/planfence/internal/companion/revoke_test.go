package companion

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSharedMappings looks at this process's own mappings, as the kernel tells them.
func TestSharedMappings(t *testing.T) {
	dir := t.TempDir()
	open := func(name string, flags, prot, kind int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(path, flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		m, err := unix.Mmap(fd, 0, 4, prot, kind)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(m) })
		return path
	}
	want := []mapping{
		{open("written to", unix.O_RDWR, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED), true, false},
		{open("could be", unix.O_RDWR, unix.PROT_READ, unix.MAP_SHARED), false, true},
	}
	open("private", unix.O_RDWR, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	open("for reading", unix.O_RDONLY, unix.PROT_READ, unix.MAP_SHARED)
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got []mapping
	for _, m := range sharedMappings(f) {
		if strings.HasPrefix(m.path, dir) {
			got = append(got, m)
		}
	}
	slices.SortFunc(got, func(a, b mapping) int { return -strings.Compare(a.path, b.path) })
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
