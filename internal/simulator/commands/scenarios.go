package commands

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

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
