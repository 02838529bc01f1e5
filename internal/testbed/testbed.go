// Package testbed is the command side of the test bed: it judges clients of ForgeRun or of any HTTP API, puts a proxy with faults before
// an API, and searches for the faults that break a client. It is an outside client of ForgeRun.
package testbed

import (
	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
)

// The exit codes.
const (
	exitOK          = command.Succeeded
	exitDifferent   = command.Failed      // the client broke a rule
	exitUnusable    = command.WrongUsage  // nothing could be judged
	exitInterrupted = command.Interrupted // Ctrl-C
)

// Commands returns the commands about clients.
func Commands(p command.Program) []*cobra.Command {
	return command.Unbroken(verdictCommand(p), searchCommand(p), proxyCommand(p))
}
