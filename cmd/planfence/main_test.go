package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"planfence/loader"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"planfence": main})
}

// TestScripts runs the command lines in testdata, each a user's view of one command.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("NO_COLOR", "1")
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("TZ", "UTC")
			e.Setenv("ACTIVE_TASK", "")
			e.Setenv("PLANFENCE_SESSION", "")
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			case "enforces": // the kernel loads and attaches the programs
				for _, c := range loader.Doctor() {
					if c.Needed && c.Outcome == loader.No {
						return false, nil
					}
				}
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("no condition %s", cond)
		},
	})
}
