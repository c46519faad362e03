//go:build vm

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// companionWord makes the test binary the command of a session: it does what the
// lines of its input say and answers each with a line.
const companionWord = "vm-companion"

func init() {
	if len(os.Args) != 2 || os.Args[1] != companionWord {
		return
	}
	if err := obey(); err != nil {
		fmt.Fprintf(os.Stderr, "driver: %v\n", err)
		os.Exit(99)
	}
	os.Exit(0)
}

// obey reads orders: a verb and paths without white space.
func obey() error {
	fmt.Println(os.Getenv("PLANFENCE_SESSION"))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		w := strings.Fields(in.Text())
		var answer string
		switch w[0] {
		case "write":
			answer = done(appendTo(w[1]))
		case "mkdir":
			answer = done(os.Mkdir(w[1], 0o755))
		case "try": // until the file can be written or no longer, and when that was
			answer = try(w[1], w[2] == "ok")
		case "flood":
			n, err := strconv.Atoi(w[1])
			if err != nil {
				return err
			}
			answer = flood(n, w[2], w[3])
		case "spread": // so many different paths
			n, err := strconv.Atoi(w[1])
			if err != nil {
				return err
			}
			answer = spread(n, w[2])
		case "writers":
			answer = writers(w[1])
		case "children": // leaves a process behind that writes as long as it can
			answer = done(leaveWriter(w[1]))
		default:
			return fmt.Errorf("no order %q", w[0])
		}
		if _, err := fmt.Println(answer); err != nil {
			return err
		}
	}
	return in.Err()
}

func done(err error) string {
	if s := errnoName(err); s != "" {
		return s
	}
	return "ok"
}

func appendTo(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Close())
}

// try opens a file until it can, or cannot, be written; the answer is the time
// in nanoseconds.
func try(path string, ok bool) string {
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		err := openClose(path, unix.O_WRONLY)
		now := time.Now()
		if (err == nil) == ok {
			return strconv.FormatInt(now.UnixNano(), 10)
		}
		if err != nil && errnoName(err) != refused {
			return err.Error()
		}
		time.Sleep(time.Millisecond) // between looks: it shares the processor with the companion
	}
	return "never"
}

// flood tries to write one path n times, and once in the middle to make a
// directory.
func flood(n int, path, odd string) string {
	refusals := 0
	for i := range n {
		if i == n/2 {
			if err := unix.Mkdir(odd, 0o755); err != unix.EACCES {
				return fmt.Sprintf("mkdir: %v", err)
			}
		}
		fd, err := unix.Open(path, unix.O_WRONLY, 0)
		if err == nil {
			unix.Close(fd)
			return fmt.Sprintf("open %d passed", i)
		}
		if err != unix.EACCES {
			return fmt.Sprintf("open %d: %v", i, err)
		}
		refusals++
	}
	return fmt.Sprint(refusals)
}

func spread(n int, dir string) string {
	for i := range n {
		if err := unix.Mknod(fmt.Sprintf("%s/%05d", dir, i), unix.S_IFREG|0o644, 0); err != unix.EACCES {
			return fmt.Sprintf("mknod %d: %v", i, err)
		}
	}
	return "ok"
}

// pace is a writer's pause: the switches share the processor with four of them.
const pace = 2 * time.Millisecond

// writers writes with four threads until there is a file stop: two where every
// scope allows it, two where none does. The answer counts what they did and says
// what should not have been.
func writers(root string) string {
	var inside, outside atomic.Int64
	var wg sync.WaitGroup
	wrong := make(chan string, 4)
	stopped := func() bool { return unix.Access(root+"/both/stop", unix.F_OK) == nil }
	for id := range 2 {
		wg.Go(func() { // saves a file as editors do
			file := fmt.Sprintf("%s/both/f%d", root, id)
			for n := 0; !stopped(); n++ {
				text := fmt.Appendf(nil, "%d %d\n", id, n)
				err := errors.Join(os.WriteFile(file+".new", text, 0o644), os.Rename(file+".new", file), os.Chmod(file, 0o600), appendTo(file))
				if err != nil {
					wrong <- "inside: " + err.Error()
					return
				}
				inside.Add(4)
				time.Sleep(pace)
			}
		})
		wg.Go(func() {
			for n := 0; !stopped(); n++ {
				for what, err := range map[string]error{
					"create":         unix.Mknod(fmt.Sprintf("%s/never/n%d", root, n), unix.S_IFREG|0o644, 0),
					"open":           openClose(root+"/never/f", unix.O_WRONLY),
					"excluded":       openClose(root+"/both/no/f", unix.O_WRONLY),
					"from a to b":    os.Rename(root+"/a/f", root+"/b/f"), // either scope has one of the two
					"from b to a":    os.Rename(root+"/b/g", root+"/a/g"),
					"link of a in b": os.Link(root+"/a/f", root+"/b/h"),
				} {
					if errnoName(err) != refused {
						wrong <- fmt.Sprintf("outside: %s: %v", what, err)
						return
					}
					outside.Add(1)
				}
				time.Sleep(pace)
			}
		})
	}
	wg.Wait()
	select {
	case w := <-wrong:
		return w
	default:
		return fmt.Sprintf("ok %d %d", inside.Load(), outside.Load())
	}
}

// leaveWriter starts a process that goes on without this one: four times a
// second it tries all files in a directory, and writes those it may.
func leaveWriter(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := os.StartProcess(self, []string{self, strayWord, dir}, &os.ProcAttr{Dir: "/", Files: []*os.File{nil, nil, nil}, Sys: setsid})
	if err != nil {
		return err
	}
	return p.Release()
}

// strayWord makes the test binary a process that was left behind.
const strayWord = "vm-stray"

func init() {
	if len(os.Args) != 3 || os.Args[1] != strayWord {
		return
	}
	for {
		for _, n := range []string{"in", "out"} {
			_ = appendTo(filepath.Join(os.Args[2], n, "stray"))
		}
		time.Sleep(50 * time.Millisecond) // it goes on until it is killed
	}
}
