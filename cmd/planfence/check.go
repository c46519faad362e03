package main

import (
	"github.com/spf13/cobra"
)

func newCheck(e *env) *cobra.Command {
	return &cobra.Command{Use: "check"}
}
