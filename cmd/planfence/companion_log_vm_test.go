//go:build vm

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/blocklog"
)

// testFlood: a million refusals and an odd one in the middle, while the
// companion does not get to read: the ring overflows, the totals are exact.
func testFlood(t *testing.T) {
	const n = 1_000_000
	dir := tree(t)
	l := start(t, dir, "--quiet")
	pid := l.cmd.Process.Pid
	must(t, unix.Kill(pid, unix.SIGSTOP))
	l.send("flood", fmt.Sprint(n), "out/f", "out/odd")
	answer := l.answer()
	must(t, unix.Kill(pid, unix.SIGCONT))
	if answer != fmt.Sprint(n) {
		t.Fatalf("the flood: %s", answer)
	}
	eventually(t, "the loss is told", func() bool { return kinds(records(t, l.log()), "lost") > 0 })
	s := statusFor(t, l.name)
	got := map[string]uint64{}
	for _, x := range s.Totals {
		got[x.Op+" "+x.Reason] = x.Count
	}
	if len(got) != 2 || got["open scope"] != n || got["mkdir scope"] != 1 {
		t.Errorf("totals: %v", got)
	}
	l.end()
	all := records(t, l.log())
	checkTold(t, all)
	if end := all[len(all)-1]; end.Blocks != n+1 || end.Lost == 0 {
		t.Errorf("the end tells %d blocks, %d lost", end.Blocks, end.Lost)
	}
	if size(dir+"/out/f") != 0 || size(dir+"/out/odd") != -1 {
		t.Error("the flood changed something")
	}
	out, _ := exec.Command(planfence, "report", "--plan", dir+"/.claude/plan.json", "--git=false").Output()
	if !strings.HasPrefix(string(out), "INDETERMINATE") {
		t.Errorf("the report of a run that lost records: %s", out)
	}
}

// tryRun starts a session that must not start.
func tryRun(t *testing.T, u *account, dir string, flags ...string) string {
	t.Helper()
	canary := filepath.Join(dir, "in", "canary")
	cmd := u.command(t.Context(), append(append([]string{"sudo", "-n", planfence, "run", "--task", "T1"}, flags...), "--", "touch", canary)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 125 || !strings.Contains(string(out), "hint: ") {
		t.Errorf("run %v: exit status %d, %v: %s", flags, code, err, out)
	}
	if size(canary) != -1 {
		t.Errorf("run %v: the command was started", flags)
	}
	return string(out)
}

// testLogOpening: a log is opened through no link, not as another thing than a
// file, and not where the fenced user could put something in its place.
func testLogOpening(t *testing.T) {
	dev := users[1]
	dir := "/home/dev/opening"
	must(t, os.CopyFS(dir, os.DirFS(tree(t))))
	victim := "/root/victim"
	must(t, os.WriteFile(victim, []byte("mine"), 0o600))
	must(t, os.MkdirAll("/home/dev/logs", 0o755))
	must(t, os.MkdirAll("/var/log/planfence", 0o755))
	must(t, os.Symlink(victim, dir+"/.claude/link"))
	must(t, os.Symlink("/root/none", dir+"/.claude/dangling"))
	must(t, unix.Mkfifo(dir+"/.claude/fifo", 0o644))
	must(t, os.Mkdir(dir+"/.claude/dir", 0o755))
	must(t, os.Link(dir+"/in/f", dir+"/.claude/linked"))
	mustRun(t, "chown", "-R", "dev:dev", dir, "/home/dev/logs")
	for file, want := range map[string]string{
		".claude/link": "it is a symbolic link", ".claude/dangling": "it is a symbolic link", ".claude/fifo": "open the log", ".claude/dir": "is a directory",
		".claude/linked": "it has 2 hard links", "/home/dev/logs/x.log": "user dev can replace /home/dev/logs", "/tmp/x.log": "user dev can replace /tmp",
		"in/x.log": "user dev can replace", "missing/x.log": "no such file",
	} {
		if text := tryRun(t, dev, dir, "--log", file); !strings.Contains(text, want) && !strings.Contains(text, strings.Replace(want, "open the log", "open log", 1)) {
			t.Errorf("--log %s: %s, want %s", file, text, want)
		}
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "mine" || size("/root/none") != -1 {
		t.Errorf("what the links lead to: %q, %v", b, err)
	}
	// A file system that cannot be written is an error at the start.
	must(t, os.MkdirAll("/mnt/ro", 0o755))
	mustRun(t, "mount", "-t", "tmpfs", "-o", "ro,mode=755", "none", "/mnt/ro")
	defer mustRun(t, "umount", "/mnt/ro")
	if text := tryRun(t, dev, dir, "--log", "/mnt/ro/x.log"); !strings.Contains(text, "read-only file system") {
		t.Errorf("an unwritable log: %s", text)
	}
	// Where only root can write, and in the project's root, it is taken.
	for _, file := range []string{"/var/log/planfence/x.log", dir + "/x.log"} {
		cmd := dev.command(t.Context(), "sudo", "-n", planfence, "run", "--quiet", "--task", "T1", "--log", file, "--", "sh", "-c", "echo x >> out/f; mv "+file+" "+file+".old; echo x >> "+file)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		all := records(t, file)
		if kinds(all, "session-end") != 1 || kinds(all, "block") < 1 || size(file+".old") != -1 {
			t.Errorf("--log %s: %d records: %s", file, len(all), out)
		}
	}
}

// testRotation: a log that is renamed, truncated, or grows past its bound loses
// no record.
func testRotation(t *testing.T) {
	dir := tree(t)
	l := start(t, dir, "--quiet", "--log-max", "60000")
	log := l.log()
	follow := exec.Command(planfence, "tail", "-f", "-n", "-1", "--json", log)
	seen := &lines{}
	follow.Stdout, follow.Stderr = seen, seen
	must(t, follow.Start())
	written := func(n int) func() bool { return func() bool { return kinds(records(t, log), "block") == n } }
	told := func(n int) func() bool {
		return func() bool { return strings.Count(seen.String(), `"kind":"block"`) == n }
	}
	total := 0
	block := func(what string) {
		t.Helper()
		total++
		l.want(refused, "mkdir", fmt.Sprintf("out/d%d", total))
		eventually(t, what+": the record is written", written(total))
		eventually(t, what+": tail -f shows it", told(total))
	}
	block("before")
	must(t, os.Rename(log, log+".1"))
	block("renamed")
	must(t, os.Rename(log+".1", log+".2"))
	must(t, os.Rename(log, log+".1"))
	must(t, unix.Kill(l.cmd.Process.Pid, unix.SIGHUP))
	eventually(t, "SIGHUP makes a new log", func() bool { return size(log) == 0 })
	block("SIGHUP")
	mustRun(t, "gzip", log+".1")
	block("compressed")
	// copytruncate
	mustRun(t, "cp", log, log+".3")
	must(t, os.Truncate(log, 0))
	block("truncated")
	// --log-max
	l.want("ok", "spread", "400", dir+"/out")
	total += 400
	eventually(t, "all are in the log and its rotated files", written(total))
	eventually(t, "tail -f shows all", told(total))
	l.end()
	all, err := filepath.Glob(log + "*")
	must(t, err)
	for _, f := range all {
		if size(f) > 61_000 {
			t.Errorf("%s has %d bytes", f, size(f))
		}
	}
	if len(all) < 5 {
		t.Errorf("rotated files: %v", all)
	}
	must(t, follow.Process.Signal(unix.SIGINT))
	if err := follow.Wait(); err != nil {
		t.Errorf("tail -f ends on SIGINT with %v", err)
	}
}

// testFullDisk: a full disk stops the log, not the fence. The operator is told
// once; what could not be written is counted and told later.
func testFullDisk(t *testing.T) {
	dir := tree(t)
	small := "/mnt/small"
	must(t, os.MkdirAll(small, 0o755))
	mustRun(t, "mount", "-t", "tmpfs", "-o", "size=64k", "none", small)
	defer func() { _ = exec.Command("umount", "-l", small).Run() }()
	l := start(t, dir, "--quiet", "--log", small+"/x.log")
	log := small + "/x.log"
	l.want(refused, "write", "out/f")
	eventually(t, "there is a record", func() bool { return kinds(records(t, log), "block") == 1 })
	fill, err := os.Create(small + "/fill")
	must(t, err)
	for {
		if _, err := fill.Write(make([]byte, 512)); err != nil {
			break
		}
	}
	must(t, fill.Close())
	l.want("ok", "spread", "300", dir+"/out")
	l.want("ok", "write", "in/f")
	eventually(t, "the operator is told", func() bool { return strings.Contains(l.text.String(), "no space left on device") })
	// Until every refusal is written or counted; with room again the rest would fill the disk once more.
	written := func() (n uint64) {
		_, _ = blocklog.ReadAll(log, func(r *blocklog.Record) {
			if r.Kind == "block" {
				n += r.Count
			}
		})
		return n
	}
	eventually(t, "the state counts", func() bool { n := l.state().Unwritten; return n > 100 && n+written() == 301 })
	if b, err := os.ReadFile(log); err != nil || len(b) == 0 || b[len(b)-1] != '\n' {
		t.Errorf("the log has half a line: %v", err)
	}
	must(t, os.Remove(small+"/fill"))
	l.want(refused, "mkdir", "out/later")
	eventually(t, "it goes on", func() bool {
		return kinds(records(t, log), "lost") > 0 && strings.Contains(l.text.String(), "the log can be written again")
	})
	l.end()
	if n := strings.Count(l.text.String(), "blocks are not recorded"); n != 1 {
		t.Errorf("the operator is told %d times: %s", n, l.text)
	}
	all := records(t, log)
	checkTold(t, all)
	if end := all[len(all)-1]; end.Blocks != 302 {
		t.Errorf("the end tells %d blocks, want 302", end.Blocks)
	}
}

// testStreams: --log - writes lines to stdout and none to a file; --log journald
// sends fields to the journal's socket.
func testStreams(t *testing.T) {
	dir := tree(t)
	cmd := exec.Command(planfence, "run", "--quiet", "--log", "-", "--", "sh", "-c", "echo x > out/f; exit 3")
	cmd.Dir = dir
	out, _ := cmd.Output()
	var kindsSeen []string
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		r, err := blocklog.Parse([]byte(line))
		if err != nil {
			t.Errorf("stdout has %q: %v", line, err)
			continue
		}
		kindsSeen = append(kindsSeen, r.Kind+" "+r.Rel)
	}
	if s := strings.Join(kindsSeen, ", "); s != "session-start , block out/f, session-end " || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("exit status %d, stdout has %s", cmd.ProcessState.ExitCode(), s)
	}
	if size(dir+"/.claude/blocked.log") != -1 {
		t.Error("there is a file as well")
	}
	// A reader that goes away ends nothing.
	sh := exec.Command("bash", "-c", planfence+` run --log - -- sh -c 'sleep 0.3; echo x >> in/f; echo x > out/f; exit 4' | head -1; echo ${PIPESTATUS[0]}`)
	sh.Dir = dir
	if out, err := sh.Output(); err != nil || !strings.HasSuffix(string(out), "\n4\n") || size(dir+"/in/f") != 2 {
		t.Errorf("without a reader: %v: %s", err, out)
	}

	tryRun(t, users[0], dir, "--log", "journald") // nothing listens
	must(t, os.MkdirAll("/run/systemd/journal", 0o755))
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "/run/systemd/journal/socket", Net: "unixgram"})
	must(t, err)
	var mu sync.Mutex
	var got []string
	go func() {
		buf := make([]byte, 1<<20)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			mu.Lock()
			got = append(got, string(buf[:n]))
			mu.Unlock()
		}
	}()
	cmd = exec.Command(planfence, "run", "--quiet", "--log", "journald", "--", "sh", "-c", "echo x > out/f")
	cmd.Dir = dir
	if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), "Permission denied") {
		t.Errorf("the session: %s", out)
	}
	must(t, c.Close())
	must(t, os.Remove("/run/systemd/journal/socket"))
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 3 {
		t.Fatalf("the journal got %d entries: %q", len(got), got)
	}
	for _, want := range []string{"MESSAGE=blocked open out/f (task T1: scope) by sh[", "PRIORITY=4", "SYSLOG_IDENTIFIER=planfence", "PLANFENCE_OP=open", "PLANFENCE_REL=out/f", "PLANFENCE_TASK=T1", "PLANFENCE_REASON=scope"} {
		if !strings.Contains(got[1], want) {
			t.Errorf("the journal's entry lacks %s: %q", want, got[1])
		}
	}
}

// testMetrics: what --metrics serves, where, and what it costs.
func testMetrics(t *testing.T) {
	dir := tree(t)
	l := start(t, dir, "--quiet", "--metrics", "9464")
	l.want(refused, "write", "out/f")
	l.want(refused, "write", "b/g")
	l.want(refused, "mkdir", "out/d")
	get := func() string {
		r, err := http.Get("http://127.0.0.1:9464/metrics")
		must(t, err)
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		must(t, err)
		return string(b)
	}
	for _, want := range []string{
		`planfence_blocks_total{op="open",reason="scope",task="T1",verdict="block"} 2`, `planfence_blocks_total{op="mkdir",reason="scope",task="T1",verdict="block"} 1`,
		`planfence_kernel_refusals_total{op="open",reason="scope",verdict="block"} 2`, "planfence_lost_records_total 0", "planfence_sync_age_seconds ", "planfence_sessions 2", `session="` + l.name + `"`,
	} {
		eventually(t, "metrics have "+want, func() bool { return strings.Contains(get(), want) })
	}
	out := mustRun(t, "ss", "-tlnH")
	if !strings.Contains(out, "127.0.0.1:9464") || strings.Contains(out, "0.0.0.0:9464") || strings.Contains(out, "*:9464") {
		t.Errorf("it listens on %s", out)
	}
	if text := tryRun(t, users[0], dir, "--metrics", "9464"); !strings.Contains(text, "address already in use") {
		t.Errorf("an address that is taken: %s", text)
	}
	tryRun(t, users[0], dir, "--metrics", "example.org:80")
	for range 20 { // answers, switches and events have to fit as well
		get()
	}
	for i := range 6 {
		id := []string{"T2", "T1"}[i%2]
		replace(t, dir+"/.claude/active-task", id+"\n")
		eventually(t, "task "+id+" is in force", func() bool { return l.state().Task == id })
		l.want("ok", "spread", "200", dir+"/out")
	}
	const most = 30 << 10 // KiB
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.cmd.Process.Pid))
	must(t, err)
	var rss, anon, ring int
	for _, line := range strings.Split(string(b), "\n") {
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &rss)
		_, _ = fmt.Sscanf(line, "RssAnon: %d kB", &anon)
	}
	_, after, _ := strings.Cut(mappings(l.cmd.Process.Pid), "anon_inode:bpf-map ")
	_, _ = fmt.Sscan(after, &ring)
	t.Logf("resident: %d KiB, %d of them not of files, %d of the ring, whose pages are mapped twice", rss, anon, ring)
	rss -= ring / 2
	if rss == 0 || rss > most {
		t.Errorf("the companion has %d KiB resident, at most %d: %s", rss, most, mappings(l.cmd.Process.Pid))
	}
	l.end()
	if _, err := http.Get("http://127.0.0.1:9464/metrics"); err == nil {
		t.Error("it serves after the session's end")
	}
}

// mappings lists what a process has resident, mapping by mapping.
func mappings(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return err.Error()
	}
	var out []string
	name := ""
	for _, line := range strings.Split(string(b), "\n") {
		w := strings.Fields(line)
		switch {
		case len(w) >= 5 && strings.Contains(w[0], "-"):
			name = w[1] + " " + strings.Join(w[5:], " ")
		case len(w) == 3 && w[0] == "Rss:" && len(w[1]) > 2:
			out = append(out, name+" "+w[1])
		}
	}
	return strings.Join(out, ", ")
}
