package main

import "github.com/spf13/cobra"

func commands(e *env) []*cobra.Command {
	return []*cobra.Command{
		newRun(e), newTask(e), newCheck(e), newLint(e), newPlan(e), newStatus(e), newStop(e), newTail(e), newReport(e), newProfiles(e), newHook(e), newAudit(e), newInit(e), newDoctor(e), newVersion(e),
	}
}
