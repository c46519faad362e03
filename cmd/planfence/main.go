// Command planfence runs an AI agent or a CI job inside a fence: a kernel-level
// check that refuses every write outside the scope of the active task.

//go:build !gendocs

package main

import (
	"os"
	"runtime"

	"planfence/cmd/planfence/internal/companion"
	"planfence/cmd/planfence/internal/launch"
)

func init() {
	if os.Args[0] == launch.Name {
		runtime.LockOSThread() // the main goroutine stays on the main thread: see launch.Shim
	}
}

func main() {
	if os.Args[0] == launch.Name {
		launch.Shim()
	}
	if os.Args[0] == companion.KeeperName && len(os.Args) == 2 {
		if companion.Keep(os.Args[1]) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(execute(os.Args[1:], &env{stdout: os.Stdout, stderr: os.Stderr, stdin: os.Stdin, getenv: os.Getenv}))
}
