package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

const scenariosHelp = `Usage: simulator scenarios [NAME] [--schema]

Lists the ready-made scenarios, or prints one of them as the file that it is: a
beginning for one of your own. With --schema it prints the JSON Schema of such
files, which editors use to complete and check them.

Examples:
  simulator scenarios
  simulator scenarios steady > mine.yaml
  simulator scenarios --schema > scenario.schema.json
`

func runScenarios(args []string, stdout, stderr io.Writer) int {
	name := ""
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	fs := flag.NewFlagSet("scenarios", flag.ContinueOnError)
	schema := fs.Bool("schema", false, "print the JSON Schema of scenario files")
	if code, done := parse(fs, scenariosHelp, args, stdout, stderr); done {
		return code
	}
	switch {
	case *schema:
		_, _ = stdout.Write(scenario.Schema())
		return exitOK
	case name != "":
		text, err := scenario.Text(name)
		if err != nil {
			return unusable(stderr, fmt.Errorf("there is no ready-made scenario %q, only %s", name, strings.Join(scenario.Names(), ", ")))
		}
		_, _ = stdout.Write(text)
		return exitOK
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, name := range scenario.Names() {
		s, err := scenario.Load(name)
		if err != nil {
			return unusable(stderr, err)
		}
		fmt.Fprintf(table, "%s\t%s\n", name, s.Description)
	}
	_ = table.Flush()
	return exitOK
}
