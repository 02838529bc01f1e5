package cli

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/session"
)

func openCommand(s *session.Session) *cobra.Command {
	printOnly := false
	c := s.ForOperators(&cobra.Command{
		Use: "open", Short: "Open the console in the browser", Args: command.Exactly(0),
		Long: "Opens the console of the admin listener in the browser: the program BROWSER, or what the system uses. The console asks for\n" +
			"the operator's token itself: it is not in the address.",
		RunE: func(c *cobra.Command, _ []string) error {
			admin, err := s.Operator()
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintln(s.Stdout, s.Style().Link(admin.Console(), admin.Console()))
			if printOnly {
				return nil
			}
			program := browser(s.Getenv)
			start := exec.CommandContext(c.Context(), program, admin.Console())
			start.Stderr, start.Env = s.Stderr, os.Environ()
			if err := start.Run(); err != nil {
				return fmt.Errorf("the browser could not be started by %s: %w: open the address above", program, err)
			}
			return nil
		},
	})
	c.Flags().BoolVar(&printOnly, "print", false, "only print the address")
	return c
}

func browser(getenv func(string) string) string {
	if program := getenv("BROWSER"); program != "" {
		return program
	}
	if runtime.GOOS == "darwin" {
		return "open"
	}
	return "xdg-open"
}
