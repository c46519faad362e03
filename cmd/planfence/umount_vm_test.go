//go:build vm

package main_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestVMUmount: a session keeps no file system busy below which it may write
// nothing, so the operator can unmount it, and what lies there afterwards is
// still refused.
func TestVMUmount(t *testing.T) {
	dir, at := t.TempDir(), t.TempDir()
	for _, d := range []string{".claude", "src"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	plan := `{"tasks": [{"id": "T1", "scope": ["src/"]}]}`
	if err := os.WriteFile(filepath.Join(dir, ".claude/plan.json"), []byte(plan), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "none", at).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	mounted := true
	defer func() {
		if mounted {
			_ = exec.Command("umount", "-l", at).Run()
		}
	}()
	var stderr bytes.Buffer
	// Started, it writes in scope and waits for a line; then it tries the mount point.
	cmd := exec.Command("/usr/local/bin/planfence", "run", "--quiet", "--task", "T1", "--profile", "none", "--", "sh", "-c",
		`echo x > src/ready; read line; echo no > "$0/f"`, at)
	cmd.Dir = dir
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		if b, err := os.ReadFile(filepath.Join(dir, "src/ready")); err == nil && len(b) > 0 {
			break
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("the session did not begin: %s", &stderr)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
		t.Errorf("umount while a session runs: %v: %s", err, out)
	} else {
		mounted = false
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the write at the mount point was not refused")
	}
	if _, err := os.Stat(filepath.Join(at, "f")); !os.IsNotExist(err) {
		t.Errorf("the file at the mount point: %v, want none", err)
	}
}
