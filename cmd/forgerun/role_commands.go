package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/term"
)

// startRole runs a role until its context ends.
type startRole func(ctx context.Context, cfg Config, unknown []string, stdout, stderr io.Writer) error

// roleCommand is a role that the environment alone configures.
func (p *program) roleCommand(role, short string, start startRole) *cobra.Command {
	return &cobra.Command{
		Use: role, Short: short,
		Long: short + ".\n\nConfigured by the environment: see 'forgerun config " + role + "'. SIGTERM drains it, a second one ends it at once.",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			if c.HasAvailableSubCommands() {
				if err := command.Unknown(c, args[0]); strings.Contains(err.Error(), "did you mean") {
					return err
				}
			}
			return takesNothing(role, args)
		},
		RunE: func(c *cobra.Command, _ []string) error { return p.runRole(c.Context(), role, start, nil) },
	}
}

func takesNothing(role string, args []string) error {
	return command.Usagef("forgerun %s takes no arguments, but got %q; it is configured by the environment.", role, strings.Join(args, " "))
}

// runRole reads the configuration, which change may adapt, and runs the role until ctx ends.
func (p *program) runRole(ctx context.Context, role string, start startRole, change func(*Config)) error {
	cfg, err := LoadConfig(role, p.getenv)
	if err != nil {
		return &command.Exit{Code: command.WrongUsage, Err: err}
	}
	if term.IsTerminal(p.stdout) { // both are, or what is drawn again would stand in a file
		cfg.Screen = term.Of(p.stderr, p.getenv)
	}
	if change != nil {
		change(&cfg)
	}
	// Notify, so that a write to a pipe whose reader died is an error and not the end. Children do not
	// inherit it, which they would if it were ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return start(ctx, cfg, unknownVariables(p.environ), p.stdout, p.stderr)
}
