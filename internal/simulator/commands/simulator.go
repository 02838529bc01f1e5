package commands

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/version"
)

// Simulator is the program of that name: it never exits the process and reads no global but the clock and the environment that its
// children inherit.
func Simulator(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p := Program{Name: "simulator", Simulate: "simulator", Arguments: args, Stdout: stdout, Stderr: stderr}
	root := &cobra.Command{
		Use:   "simulator",
		Short: "A client of ForgeRun that plays scenarios, breaks things, and judges",
		Long: "simulator is a client of ForgeRun: it plays scenarios against a service, scales\n" +
			"its workers, breaks things, and judges whether every promise was kept.\n" +
			"forgerun has the same commands.\n" + exitCodes,
		Version: version.Get().Line("simulator"),
		Example: `  simulator run steady
  simulator run soak --duration 2m --workers 1..4 --chaos kill=10s,flush=30s,cut=1s
  simulator run mine.yaml --url http://127.0.0.1:8080 --key frk_...
  simulator demo
  simulator verdict --profile flaky-network -- go test ./...
  simulator tour --url https://forgerun.example.com --key frk_... --timeout 30m`,
	}
	root.AddCommand(p.play()...)
	root.AddCommand(p.Judge()...)
	root.AddCommand(&cobra.Command{Use: "version", Short: "Print the version", Args: command.Exactly(0),
		Run: func(*cobra.Command, []string) { fmt.Fprint(stdout, version.Get().Text("simulator")) }})
	root.AddCommand(command.Man(root, version.Number()))
	code, err := command.Execute(ctx, root, "", args, stdout, stderr)
	if err != nil {
		return p.Unusable(err)
	}
	return code
}
