package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"planfence/loader"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "devel"

func newVersion(e *env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of planfence and of its BPF programs",
		Example: "  planfence version\n  planfence version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return json.NewEncoder(e.stdout).Encode(map[string]string{
					"version": version, "programs": loader.Build(), "go": runtime.Version(), "arch": runtime.GOARCH})
			}
			_, err := fmt.Fprintf(e.stdout, "planfence %s (programs %s, %s, %s)\n", version, loader.Build(), runtime.Version(), runtime.GOARCH)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
