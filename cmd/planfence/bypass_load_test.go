//go:build vm

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The load test: fenced writers while unfenced processes move the very
// directories about that they are judged by, many short-lived processes, and
// many sessions that start at once.

// loadMain writes in the fence: ROOT SECONDS. ROOT/t/one and ROOT/t/two are sites.
func loadMain(arg string) {
	root, secs, _ := strings.Cut(arg, ":")
	n, err := strconv.Atoi(secs)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	b, _ := json.Marshal(loadThreads(root, time.Duration(n)*time.Second))
	fmt.Println(string(b))
}

// loadThreads writes with four threads, in scope and outside in turn.
func loadThreads(root string, d time.Duration) raceTally {
	var tally raceTally
	var stop atomic.Bool
	var mu sync.Mutex
	var wg sync.WaitGroup
	write := func(path string, flags int) error {
		fd, err := unix.Open(path, unix.O_WRONLY|flags, 0o644)
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, []byte("x"))
		_ = unix.Close(fd)
		return err
	}
	for t := range 4 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				site := root + "/t/" + []string{"one", "two"}[(i+t)%2]
				// What is in scope is so under each name that it has in turn. A name may be
				// missing for a moment; it is never refused.
				own := fmt.Sprintf("%s/in/w%d", site, t)
				for _, err := range []error{
					write(own, unix.O_CREAT), write(site+"/in/sub/f", 0), unix.Rename(own, own+"-2"), unix.Unlink(own + "-2"),
				} {
					atomic.AddUint64(&tally.Legal, 1)
					if err == unix.EACCES || err == unix.EPERM {
						if atomic.AddUint64(&tally.Refused, 1) == 1 {
							mu.Lock()
							tally.First = "refused " + own
							mu.Unlock()
						}
					}
				}
				for what, err := range map[string]error{
					"write":  write(site+"/out/f", 0),
					"below":  write(site+"/out/sub/f", unix.O_TRUNC),
					"link":   write(site+"/in/swap/f", 0), // in turn a link to in/sub and to out/sub
					"create": write(fmt.Sprintf("%s/out/n%d", site, t), unix.O_CREAT),
				} {
					atomic.AddUint64(&tally.Opens, 1)
					if err == nil && what != "link" {
						if atomic.AddUint64(&tally.Through, 1) == 1 {
							mu.Lock()
							tally.First = what + " through in " + site
							mu.Unlock()
						}
					}
				}
			}
		})
	}
	time.Sleep(d) // this is how long it lasts, not a wait for anything
	stop.Store(true)
	wg.Wait()
	return tally
}

const loadSeconds = 60

// TestBypassLoad: nothing gets through and nothing legal is refused while unfenced
// processes exchange the directories that lie on the way.
func TestBypassLoad(t *testing.T) {
	shareMounts(t)
	hold(t)
	root := "/work/load"
	b := newBench(t, root, 0)
	one, two := b.site(&attack{name: "one"}), b.site(&attack{name: "two"})
	for _, s := range []site{one, two} {
		b.file(s.In+"/sub/f", "keep\n")
		if err := os.Symlink("sub", s.In+"/swap"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../out/sub", s.Out+"/swap"); err != nil { // read as in/swap it leads to out/sub
			t.Fatal(err)
		}
	}
	text := func(s site) string {
		var all []string
		_ = filepath.WalkDir(s.Out, func(path string, _ os.DirEntry, _ error) error {
			b, _ := os.ReadFile(path)
			all = append(all, fmt.Sprintf("%s %q", strings.TrimPrefix(path, s.Out), b))
			return nil
		})
		return strings.Join(all, "\n")
	}
	before := text(one) + text(two)
	var stop atomic.Bool
	var moves atomic.Uint64
	var wg sync.WaitGroup
	exchange := func(x, y string) {
		wg.Go(func() {
			for !stop.Load() {
				if err := unix.Renameat2(unix.AT_FDCWD, x, unix.AT_FDCWD, y, unix.RENAME_EXCHANGE); err != nil {
					t.Errorf("exchange %s and %s: %v", x, y, err)
					return
				}
				moves.Add(1)
				time.Sleep(time.Millisecond) // else the writers starve on the kernel's rename lock
			}
		})
	}
	exchange(root+"/t/one", root+"/t/two") // directories between the root and the scope
	wg.Go(func() {                         // and links, within either
		for !stop.Load() {
			for _, s := range []site{one, two} {
				if unix.Renameat2(unix.AT_FDCWD, s.In+"/swap", unix.AT_FDCWD, s.Out+"/swap", unix.RENAME_EXCHANGE) == nil {
					moves.Add(1)
				}
			}
			time.Sleep(time.Millisecond)
		}
	})
	out, _ := fencedRun(t, root, 0, fmt.Sprintf("load:%s:%d", root, loadSeconds), "--task", "T")
	stop.Store(true)
	wg.Wait()
	var tally raceTally
	if err := json.Unmarshal([]byte(out), &tally); err != nil {
		t.Fatalf("the session: %v: %s", err, out)
	}
	t.Logf("%+v, %d moves", tally, moves.Load())
	if tally.Through != 0 || tally.Refused != 0 {
		t.Errorf("%d of %d got through, %d of %d legal ones were refused; first: %s", tally.Through, tally.Opens, tally.Refused, tally.Legal, tally.First)
	}
	if tally.Opens < 1000 || tally.Legal < 1000 || moves.Load() < 1000 {
		t.Errorf("too few tries to mean anything: %+v, %d moves", tally, moves.Load())
	}
	// The links were swapped; put them in the order of the start.
	for _, s := range []site{one, two} {
		if to, _ := os.Readlink(s.In + "/swap"); to != "sub" {
			if err := unix.Renameat2(unix.AT_FDCWD, s.In+"/swap", unix.AT_FDCWD, s.Out+"/swap", unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
			}
		}
	}
	if d := diff(before, text(one)+text(two)); d != "" {
		t.Errorf("changed outside the scope:\n%s", d)
	}
	if free := loadThreads(root, 200*time.Millisecond); free.Through == 0 { // the control
		t.Errorf("the control did not work: %+v", free)
	}
}

// TestBypassShortLived: a thousand processes, each with one write outside.
func TestBypassShortLived(t *testing.T) {
	shareMounts(t)
	hold(t)
	b := newBench(t, "/work/short", 0)
	s := b.site(&attack{name: "r"})
	before := digest(s)
	const script = `cd t/r
n=0
while [ $n -lt 1000 ]; do
	n=$((n + 1))
	(echo x > out/f) 2>/dev/null && echo through
	(echo x > in/f) || echo refused
done
echo tried $n
`
	if got := fencedScript(t, b.root, script); strings.TrimSpace(got) != "tried 1000" {
		t.Errorf("it says %s", got)
	}
	if d := diff(before, digest(s)); d != "" {
		t.Errorf("changed outside the scope:\n%s", d)
	}
}
