// Command simulator is an outside client of ForgeRun. It knows the service
// through HTTP alone and carries its own copy of the work-kind catalogue, so
// that what it says about the service is a judgement and not an echo.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/forgerun/forgerun/internal/simulator/judge"
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
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const usage = `simulator is a client of ForgeRun: it plays scenarios against a service, scales
its workers, breaks things, and judges whether every promise was kept.

Usage:
  simulator run SCENARIO [flags]         play a scenario, judge it, write a report
  simulator scenarios [NAME]             list the ready-made scenarios, or print one
  simulator tour --url URL [--key KEY]   judge a running service, one job of each work kind
  simulator demo [flags]                 start a service of its own, tour it, stop it
  simulator verdict [flags] -- COMMAND   tell whether a client of yours is right
  simulator version                      print the version
  simulator COMMAND --help               flags and details of a command

Examples:
  simulator run steady
  simulator run soak --duration 2m --workers 1..4 --chaos kill=10s,flush=30s,cut=1s
  simulator run mine.yaml --url http://127.0.0.1:8080 --key frk_...
  simulator demo
  simulator verdict --profile flaky-network -- go test ./...
  simulator tour --url https://forgerun.example.com --key frk_... --timeout 30m

Exit codes:
  0  everything was as it should be
  1  it was not: a broken invariant, an unmet expectation, a work kind that behaved
     differently, or something that could not be judged; the output says what and why
  2  nothing could be judged: service away, wrong URL or key, bad flags or scenario
  130  interrupted: nothing was judged
`

// run is the whole program: it never exits the process and reads no global
// but the clock and, for demo, the environment that its child inherits.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch command {
	case "tour":
		return runTour(ctx, args, stdout, stderr)
	case "demo":
		return runDemo(ctx, args, getenv, stdout, stderr)
	case "run":
		return runScenario(ctx, args, stdout, stderr)
	case "verdict":
		return runVerdict(ctx, args, stdout, stderr)
	case "scenarios":
		return runScenarios(args, stdout, stderr)
	case "version", "--version", "-version":
		fmt.Fprintln(stdout, versionLine())
		return exitOK
	case "help", "--help", "-help", "-h":
		fmt.Fprint(stdout, usage)
		return exitOK
	case "":
		fmt.Fprint(stderr, usage)
		return exitUnusable
	default:
		return unusable(stderr, fmt.Errorf(
			"there is no command %q: use run, scenarios, tour, demo, verdict or version (simulator --help)", command))
	}
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

// parse reads flags. done reports that the command ends here with the given
// code: help was asked for, or the flags are wrong.
func parse(fs *flag.FlagSet, help string, args []string, stdout, stderr io.Writer) (code int, done bool) {
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, help, "\nFlags:\n")
		fs.SetOutput(stdout)
		fs.PrintDefaults()
		return exitOK, true
	case err == nil && fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err != nil {
		return unusable(stderr, fmt.Errorf("%w (simulator %s --help)", err, fs.Name())), true
	}
	return 0, false
}

// version is set by the linker in a release build.
var version string

// versionLine names the program's version, from the linker or else as the Go
// tool recorded it.
func versionLine() string {
	number := version
	if info, ok := debug.ReadBuildInfo(); ok && number == "" {
		number = info.Main.Version
	}
	if number == "" {
		number = "(devel)"
	}
	return fmt.Sprintf("simulator %s (%s)", number, runtime.Version())
}
