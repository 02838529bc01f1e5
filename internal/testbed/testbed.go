// Package testbed implements the commands of the test bed. They judge clients of ForgeRun or of another HTTP API, and search for faults
// that break a client. One command runs a proxy that injects faults into an API's traffic. The package calls ForgeRun only over HTTP.
package testbed

import (
	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
)

const (
	exitOK          = command.Succeeded
	exitDifferent   = command.Failed      // the client broke a rule
	exitUnusable    = command.WrongUsage  // nothing could be judged
	exitInterrupted = command.Interrupted // Ctrl-C
)

// Commands returns the commands of the test bed.
func Commands(p command.Program) []*cobra.Command {
	return command.Unbroken(verdictCommand(p), searchCommand(p), proxyCommand(p))
}
