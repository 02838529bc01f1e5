// Command simulator is an outside client of ForgeRun. It knows the service
// through HTTP alone and carries its own copy of the work-kind catalogue, so
// that what it says about the service is a judgement and not an echo.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/version"
)

// The exit codes.
const (
	exitOK          = 0
	exitDifferent   = 1   // the service did something else than it should
	exitUnusable    = 2   // nothing could be judged: service away, wrong key, bad flags
	exitInterrupted = 130 // Ctrl-C
)

func main() {
	// A closed pipe (simulator demo | head) must not kill the process before
	// it has stopped its child; the writes fail instead.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const exitCodes = `
Exit codes:
  0  everything was as it should be
  1  it was not: a broken invariant, an unmet expectation, a work kind that behaved
     differently, or something that could not be judged; the output says what and why
  2  nothing could be judged: service away, wrong URL or key, bad flags or scenario
  130  interrupted: nothing was judged`

// run is the whole program: it never exits the process and reads no global
// but the clock and the environment that its children inherit.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "simulator",
		Short: "A client of ForgeRun that plays scenarios, breaks things, and judges",
		Long: "simulator is a client of ForgeRun: it plays scenarios against a service, scales\n" +
			"its workers, breaks things, and judges whether every promise was kept.\n" + exitCodes,
		Version: versionLine(),
		Example: `  simulator run steady
  simulator run soak --duration 2m --workers 1..4 --chaos kill=10s,flush=30s,cut=1s
  simulator run mine.yaml --url http://127.0.0.1:8080 --key frk_...
  simulator demo
  simulator verdict --profile flaky-network -- go test ./...
  simulator tour --url https://forgerun.example.com --key frk_... --timeout 30m`,
	}
	root.AddCommand(
		runCommand(args, stdout, stderr), scenariosCommand(stdout), tourCommand(stdout, stderr), demoCommand(stdout, stderr),
		verdictCommand(stdout, stderr),
		&cobra.Command{Use: "version", Short: "Print the version", Args: command.Exactly(0),
			Run: func(*cobra.Command, []string) { fmt.Fprint(stdout, version.Get().Text("simulator")) }},
	)
	root.AddCommand(command.Man(root, version.Number()))
	code, err := command.Execute(ctx, root, args, stdout, stderr)
	if err != nil {
		return unusable(stderr, err)
	}
	return code
}

// unusable says in one sentence why nothing could be judged.
func unusable(stderr io.Writer, err error) int {
	for i, line := range strings.Split(err.Error(), "\n") { // a scenario may have several mistakes
		if i == 0 {
			line = "simulator: " + line
		}
		fmt.Fprintln(stderr, judge.Printable(line))
	}
	return exitUnusable
}

// versionLine names the program and its version, for reports.
func versionLine() string { return version.Get().Line("simulator") }
