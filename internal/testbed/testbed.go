// Package testbed implements the commands of the test bed. They judge clients of ForgeRun or of any HTTP API, put a proxy with
// faults in front of an API, and search for faults that break a client. The package calls ForgeRun only over HTTP.
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
