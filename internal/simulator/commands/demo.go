package commands

import (
	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/simulator/trial"
	"github.com/forgerun/forgerun/internal/stack"
)

const demoHelp = `Plays the scenario "tour": it starts its own ForgeRun, with its own Postgres
and Redis on free loopback ports, submits one job of each of the 31 work kinds at
1/50 of the catalogue's durations, restarts the service around the due time of
SCHEDULED_LATE_RECOVERY, prints the table and stops everything. Webhooks are
received by the demo itself on loopback. FORGERUN_ variables are not passed on.

It is the same as "forgerun simulate run tour" without other flags.`

// demoCommand plays the scenario tour.
func demoCommand(p command.Program) *cobra.Command {
	f := &runFlags{Options: trial.Options{ReceiverAddr: anyPort, Lease: defaultLease, Sample: defaultSample}}
	c := &cobra.Command{
		Use: "demo", Short: "Start a service, run a job of each kind, and stop it", Long: demoHelp,
		Args: command.Exactly(0),
		Example: `  forgerun demo
  forgerun demo --forgerun ./bin/forgerun`,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if f.Binary, err = stack.FindForgerun(f.Binary); err != nil {
				return command.Usagef("%w", err)
			}
			if err := f.load("tour"); err != nil {
				return err
			}
			return command.Code(f.play(c.Context(), p, c.CommandPath()))
		},
	}
	c.Flags().StringVar(&f.Binary, "forgerun", "", "`path` of the forgerun binary (default: this one)")
	c.Flags().StringVar(&f.Out, "out", "", "`folder` for the report (default: .forgerun/runs/tour-TIME)")
	return c
}
