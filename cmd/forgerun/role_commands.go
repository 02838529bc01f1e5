package main

import (
	"context"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/term"
)

// startRole starts the parts of a role. `failed` receives a fatal error of the running role; the channel may be nil.
type startRole func(*process, context.Context) (failed <-chan error, err error)

func (p *program) roleCommand(role, short string, start startRole) *cobra.Command {
	c := &cobra.Command{
		Use: role, Short: short,
		Long: short + "." +
			"\n\nConfigured by the environment: see 'forgerun config " + role + "'.\n" +
			"After SIGTERM the process finishes its work and stops; a second SIGTERM stops it immediately.",
		Args: command.Exactly(0),
	}
	port, admin := 0, 0
	if role == "api" {
		c.Flags().IntVar(&port, "port", 0, "port `number` of the API, overrides the port in FORGERUN_HTTP_ADDR")
	}
	c.Flags().IntVar(&admin, "admin-port", 0, "port `number` of the admin listener, overrides the port in FORGERUN_ADMIN_ADDR")
	c.RunE = func(c *cobra.Command, _ []string) error {
		getenv := p.getenv
		p := *p
		p.getenv = func(name string) string {
			switch value := getenv(name); {
			case name == "FORGERUN_HTTP_ADDR" && c.Flags().Changed("port"):
				return withPort(value, port)
			case name == "FORGERUN_ADMIN_ADDR" && c.Flags().Changed("admin-port"):
				return withPort(value, admin)
			default:
				return value
			}
		}
		return p.runRole(c.Context(), role, func(ctx context.Context, cfg Config) error { return p.serve(ctx, cfg, role, start) })
	}
	return c
}

// withPort replaces the port of an address. Without a host, it uses 127.0.0.1.
func withPort(address string, port int) string {
	host, _, err := net.SplitHostPort(address)
	if address == "" || err != nil {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

func (p *program) runRole(ctx context.Context, role string, run func(context.Context, Config) error) error {
	cfg, err := LoadConfig(role, p.getenv)
	if err != nil {
		return &command.Exit{Code: command.WrongUsage, Err: err}
	}
	if term.IsTerminal(p.stdout) { // use colors and redrawn lines only if both outputs are terminals
		cfg.Screen = term.Of(p.stderr, p.getenv)
	}
	// Without this call, a write to a pipe without a reader would end the process with SIGPIPE. Unlike signal.Ignore, the call does not affect
	// child processes.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return run(ctx, cfg)
}

// serve runs a role until ctx ends. If ctx ends during the start, serve returns nil.
func (p *program) serve(ctx context.Context, cfg Config, role string, start startRole) error {
	running, err := open(cfg, role, unknownVariables(p.environ), p.stderr)
	if err != nil {
		return err
	}
	defer running.close()
	failed, err := start(running, ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	select {
	case <-ctx.Done():
		running.log.Info("stopping")
		return nil
	case err := <-failed:
		return err
	}
}
