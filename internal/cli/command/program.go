package command

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/term"
)

// Program has the arguments and outputs of the running program.
type Program struct {
	Arguments      []string // as typed
	Stdout, Stderr io.Writer
}

// Unusable prints why the command could not do its work, and returns the exit code WrongUsage.
func (p Program) Unusable(err error) int {
	for i, line := range strings.Split(err.Error(), "\n") { // one line per mistake
		if i == 0 {
			line = "forgerun: " + line
		}
		fmt.Fprintln(p.Stderr, term.Masked(line))
	}
	return WrongUsage
}

// Unbroken makes commands ignore SIGPIPE. Writes to a closed pipe then return an error. For example, if head ends first in "forgerun demo
// | head", demo can still stop its child processes.
func Unbroken(commands ...*cobra.Command) []*cobra.Command {
	for _, c := range commands {
		c.PreRun = func(*cobra.Command, []string) {
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		}
	}
	return commands
}
