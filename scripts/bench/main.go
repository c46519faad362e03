// Command bench counts what the fence costs, in instructions of the guest of
// scripts/vm --icount, where a nanosecond is an instruction. scripts/bench/run
// starts it; see its --help.
//
// One run, one table: every column is the same binary doing the same calls on
// the same tree, once without a fence, once beside one, once inside, once under
// Landlock and once under AppArmor. Each call's verdict is looked at inside the
// loop, so a row that is fast because it failed does not exist.
package main

import (
	"fmt"
	"os"
)

// arm64 and amd64 alike: nothing here knows the machine.
func main() {
	cmds := map[string]func([]string) error{
		"guest": guest, "measure": measureMain, "work": workMain, "refuse": refuseMain,
		"first": firstMain, "wait": waitMain, "probe": probeMain, "confined": underProfile, "report": reportMain, "compare": compareMain,
	}
	if len(os.Args) < 2 || cmds[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: scripts/bench/run, which starts this")
		os.Exit(2)
	}
	if err := cmds[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
