// Package commands is the command line of the simulator, which runs scenarios against a service and judges the service. It submits jobs
// only over HTTP, as an external client. It has its own catalogue of work kinds, so that an error in the service's catalogue is noticed.
package commands

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
	"github.com/forgerun/forgerun/internal/simulator/trial"
	"github.com/forgerun/forgerun/internal/stack"
)

const exitCodes = `
Exit codes:
  0  the service behaved as expected
  1  it did not: an invariant was broken, an expectation not met, or a work kind behaved
     differently; or a check could not be made. The output says which and why
  2  nothing could be judged: no service, wrong URL or key, bad flags or scenario, or
     INCONCLUSIVE: the service accepted too few submissions (see expect.accepted)
  130  interrupted: nothing was judged`

// Commands returns the commands "demo" and "simulate".
func Commands(p command.Program) []*cobra.Command {
	return append(command.Unbroken(demoCommand(p)), simulateCommand(p))
}

func simulateCommand(p command.Program) *cobra.Command {
	c := &cobra.Command{
		Use: "simulate", Short: "Play scenarios against a service, inject faults, and judge the service",
		Long: "Plays scenarios against a service, scales its workers, injects faults, " +
			"and checks whether the service kept its guarantees.\n" + exitCodes,
		Example: "  forgerun simulate run steady\n" +
			"  forgerun simulate run soak --duration 2m --workers 1..4 --chaos kill=10s,flush=30s,cut=1s\n" +
			"  forgerun simulate run tour --url http://127.0.0.1:8080",
	}
	command.Group(c)
	c.AddCommand(command.Unbroken(runCommand(p), scenariosCommand(p))...)
	return c
}

const demoHelp = `Plays the scenario "tour": it starts its own ForgeRun, with its own Postgres
and Redis on free loopback ports, submits one job of each of the 31 work kinds at
1/50 of the catalogue's durations, restarts the service around the due time of
SCHEDULED_LATE_RECOVERY, prints the table and stops everything. Webhooks are
received by the demo itself on loopback. FORGERUN_ variables are not passed on.

It is the same as "forgerun simulate run tour" without other flags.`

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

func scenariosCommand(p command.Program) *cobra.Command {
	stdout := p.Stdout
	schema := false
	c := &cobra.Command{
		Use: "scenarios [NAME]", Short: "List the ready-made scenarios, or print one", Args: command.Between(0, 1),
		Long: "Lists the ready-made scenarios, or prints the file of one of them as a\n" +
			"start for your own. With --schema it prints the JSON Schema of such\n" +
			"files, which editors use to complete and check them.",
		Example: `  forgerun simulate scenarios
  forgerun simulate scenarios steady > mine.yaml
  forgerun simulate scenarios --schema > scenario.schema.json`,
		ValidArgs: scenario.Names(),
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case schema:
				_, _ = stdout.Write(scenario.Schema())
				return nil
			case len(args) == 0:
				return listScenarios(stdout)
			}
			text, err := scenario.Text(args[0])
			if err != nil {
				return fmt.Errorf("unknown scenario %q; use one of %s", args[0], strings.Join(scenario.Names(), ", "))
			}
			_, _ = stdout.Write(text)
			return nil
		},
	}
	c.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of scenario files")
	return c
}

func listScenarios(stdout io.Writer) error {
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, name := range scenario.Names() {
		s, err := scenario.Load(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%s\n", name, s.Description)
	}
	return table.Flush()
}
