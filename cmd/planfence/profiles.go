package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"planfence/cmd/planfence/internal/policy"
)

func newProfiles(e *env) *cobra.Command {
	var asJSON, paths bool
	c := &cobra.Command{
		Use:   "profiles",
		Short: "List the profiles: what programs may write for their own state",
		Long: `profiles lists the named sets of paths that run --profile opens. Without
--profile one is chosen by the command's name; --profile none opens nothing.`,
		Example: "  planfence profiles\n  planfence profiles --paths",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				enc := json.NewEncoder(e.stdout)
				enc.SetIndent("", "  ")
				return enc.Encode(policy.Profiles())
			}
			w := tabwriter.NewWriter(e.stdout, 0, 8, 2, ' ', 0)
			for _, p := range policy.Profiles() {
				fmt.Fprintf(w, "%s\t%s\n", p.Name, p.About)
				if len(p.Commands) > 0 {
					fmt.Fprintf(w, "\tchosen by: %s\n", strings.Join(p.Commands, " "))
				}
				if len(p.With) > 0 {
					fmt.Fprintf(w, "\tbrings: %s\n", strings.Join(p.With, " "))
				}
				if paths {
					for _, path := range p.Paths {
						fmt.Fprintf(w, "\t%s\n", path)
					}
				}
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&paths, "paths", false, "print each profile's paths too")
	return c
}
