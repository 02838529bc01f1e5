// Package commands is the command line of the simulator: it plays scenarios and judges clients. It is an outside client of ForgeRun: it
// uses only HTTP and has its own copy of the work-kind catalogue, so that it does not repeat the service's mistakes.
package commands

import (
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
	exitDifferent   = 1   // the service behaved differently than it should
	exitUnusable    = 2   // nothing could be judged: service away, wrong key, bad flags, too few submissions accepted
	exitInterrupted = 130 // Ctrl-C
)

const exitCodes = `
Exit codes:
  0  the service behaved as expected
  1  it did not: a broken invariant, an unmet expectation, a work kind that behaved
     differently, or a check that could not be made; the output says which and why
  2  nothing could be judged: no service, wrong URL or key, bad flags or scenario, or
     INCONCLUSIVE: too few submissions accepted (expect.accepted of the scenario)
  130  interrupted: nothing was judged`

// Program describes the forgerun program to these commands.
type Program struct {
	Arguments      []string // as typed
	Stdout, Stderr io.Writer
}

// Judge returns the commands about clients, and the demo.
func (p Program) Judge() []*cobra.Command {
	return unbroken(p.verdictCommand(), p.searchCommand(), p.proxyCommand(), p.demoCommand())
}

// Simulator returns the command with those about the service.
func (p Program) Simulator() *cobra.Command {
	c := &cobra.Command{
		Use: "simulate", Short: "Play scenarios against a service, inject faults, and judge the service",
		Long: "Plays scenarios against a service, scales its workers, injects faults, and judges if the service kept its promises.\n" + exitCodes,
		Example: "  forgerun simulate run steady\n" +
			"  forgerun simulate run soak --duration 2m --workers 1..4 --chaos kill=10s,flush=30s,cut=1s\n" +
			"  forgerun simulate run tour --url http://127.0.0.1:8080",
	}
	command.Group(c)
	c.AddCommand(unbroken(p.runCommand(), p.scenariosCommand())...)
	return c
}

// unbroken lets commands continue after their reader has gone: a closed pipe (demo | head) must not kill the process before it has
// stopped its child. Writes fail instead.
func unbroken(commands ...*cobra.Command) []*cobra.Command {
	for _, c := range commands {
		c.PreRun = func(*cobra.Command, []string) {
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		}
	}
	return commands
}

// Unusable prints in one sentence why nothing could be judged.
func (p Program) Unusable(err error) int {
	for i, line := range strings.Split(err.Error(), "\n") { // a scenario may have several mistakes
		if i == 0 {
			line = "forgerun: " + line
		}
		fmt.Fprintln(p.Stderr, judge.Printable(line))
	}
	return exitUnusable
}

// versionLine returns the program and its version, for reports.
func versionLine() string { return version.Get().Line("forgerun") }
