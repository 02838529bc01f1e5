// Package commands is the command line of the simulator: it plays scenarios against a service and judges the service. It is an outside
// client of ForgeRun: it uses only HTTP and has its own copy of the work-kind catalogue, so that it does not repeat the service's mistakes.
package commands

import (
	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/version"
)

// The exit codes.
const (
	exitOK          = command.Succeeded
	exitDifferent   = command.Failed      // the service behaved differently than it should
	exitUnusable    = command.WrongUsage  // nothing could be judged: service away, wrong key, bad flags, too few submissions accepted
	exitInterrupted = command.Interrupted // Ctrl-C
)

const exitCodes = `
Exit codes:
  0  the service behaved as expected
  1  it did not: a broken invariant, an unmet expectation, a work kind that behaved
     differently, or a check that could not be made; the output says which and why
  2  nothing could be judged: no service, wrong URL or key, bad flags or scenario, or
     INCONCLUSIVE: too few submissions accepted (expect.accepted of the scenario)
  130  interrupted: nothing was judged`

// Commands returns the demo and the command "simulate".
func Commands(p command.Program) []*cobra.Command {
	return append(command.Unbroken(demoCommand(p)), simulateCommand(p))
}

// simulateCommand returns the command with those about the service.
func simulateCommand(p command.Program) *cobra.Command {
	c := &cobra.Command{
		Use: "simulate", Short: "Play scenarios against a service, inject faults, and judge the service",
		Long: "Plays scenarios against a service, scales its workers, injects faults, and judges if the service kept its promises.\n" + exitCodes,
		Example: "  forgerun simulate run steady\n" +
			"  forgerun simulate run soak --duration 2m --workers 1..4 --chaos kill=10s,flush=30s,cut=1s\n" +
			"  forgerun simulate run tour --url http://127.0.0.1:8080",
	}
	command.Group(c)
	c.AddCommand(command.Unbroken(runCommand(p), scenariosCommand(p))...)
	return c
}

// versionLine returns the program and its version, for reports.
func versionLine() string { return version.Get().Line("forgerun") }
