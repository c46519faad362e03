package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	settleTime = 30 * time.Second // of the guest: it costs no real time
	warmUp     = 400              // calls
	perRound   = 40               // calls between two looks at the clock
	rounds     = 30
)

func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// count returns the instructions of one call: the least of all rounds, which is
// the one without an interrupt.
func count(r row) (int64, error) {
	n, warm := rounds, warmUp
	if r.rounds != 0 {
		n, warm = r.rounds, 20
	}
	for range warm {
		if err := r.do(); err != nil {
			return 0, fmt.Errorf("%s: %w", r.name, err)
		}
	}
	best := int64(math.MaxInt64)
	for range n {
		t := now()
		for range perRound {
			if err := r.do(); err != nil {
				return 0, fmt.Errorf("%s: %w", r.name, err)
			}
		}
		best = min(best, (now()-t)/perRound)
	}
	return best, nil
}

func forkExec() error {
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	if err != nil {
		return err
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil {
		return err
	}
	if ws.ExitStatus() != 0 {
		return fmt.Errorf("exit status %d", ws.ExitStatus())
	}
	return nil
}

// measureMain runs the rows in this process and prints results.
func measureMain(args []string) error {
	fs := flag.NewFlagSet("measure", flag.ContinueOnError)
	column := fs.String("column", "off", "")
	scope := fs.String("scope", "dir", "")
	only := fs.String("rows", "", "only rows that begin with one of these, separated by |")
	refused := fs.Bool("refused", false, "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	switch *column {
	case "landlock":
		if err := landlock(root + "/src"); err != nil {
			return err
		}
	case "apparmor":
		if b, err := os.ReadFile("/proc/self/attr/current"); err != nil || !strings.HasPrefix(string(b), profileName) {
			return fmt.Errorf("not under the AppArmor profile: %q %w", b, err)
		}
	}
	var rows []row
	for _, d := range depths {
		rows = append(rows, depthRows(d, *refused)...)
	}
	flat, err := flatRows()
	if err != nil {
		return err
	}
	rows = append(rows, flat...)
	if *only != "" {
		rows = slices.DeleteFunc(rows, func(r row) bool {
			return !slices.ContainsFunc(strings.Split(*only, "|"), func(p string) bool { return strings.HasPrefix(r.name, p) })
		})
	}
	time.Sleep(settleTime)
	// The guest as a whole is warmed up by the rows themselves, once unseen.
	for _, r := range rows {
		for range 10 {
			if err := r.do(); err != nil {
				return fmt.Errorf("%s under %s: %w", r.name, *column, err)
			}
		}
	}
	time.Sleep(settleTime)
	for _, r := range rows {
		v, err := count(r)
		if err != nil {
			return fmt.Errorf("%s: %w", *column, err)
		}
		if err := emit(os.Stdout, Result{r.name, *scope, *column, v, "instructions"}); err != nil {
			return err
		}
	}
	return nil
}
