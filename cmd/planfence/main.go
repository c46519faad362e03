// Command planfence runs an AI agent or a CI job inside a fence: a kernel-level
// check that refuses every write outside the scope of the active task.
package main

import (
	"os"
	"runtime"

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
	os.Exit(execute(os.Args[1:], &env{stdout: os.Stdout, stderr: os.Stderr, stdin: os.Stdin, getenv: os.Getenv}))
}
