package main

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/term"
	local "github.com/forgerun/forgerun/internal/stack"
)

func (p *program) devCommand() *cobra.Command {
	var asked chaos
	verbose, fetch := false, ""
	c := &cobra.Command{
		Use: "dev", Short: "Everything in one process, with its own Postgres and Redis",
		Long: "Everything in one process, with its own Postgres and Redis. With --chaos the roles run as\n" +
			"processes of their own, behind a port that survives them, and faults are done to them and to\n" +
			"their stores. Configured by the environment: see 'forgerun config dev'.\n\n" +
			"It logs a line for each job that ends and for each warning. In a terminal ? shows the addresses again.\n\nFaults:\n" + faultList(),
		Example: "  forgerun dev\n  forgerun dev --chaos kill=10s,flush=30s --seed 7",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return command.Usagef("forgerun dev does not know %q (forgerun dev --help)", strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return p.dev(c.Context(), asked, verbose, fetch) },
	}
	c.Flags().StringVar(&asked.asked, "chaos", "", "`faults` with the mean time between two of a kind, such as kill=10s,flush=30s")
	c.Flags().Uint64Var(&asked.seed, "seed", 1, "`number` that the times and targets of faults are drawn by")
	c.Flags().BoolVar(&verbose, "verbose", false, "log everything, as text, and not only the ends of jobs and warnings")
	c.Flags().StringVar(&fetch, "fetch", "",
		"fetch a private copy of Postgres where none is installed, from Maven Central or a mirror at `url`")
	c.Flags().Lookup("fetch").NoOptDefVal = local.MavenCentral
	return c
}

func (p *program) dev(ctx context.Context, asked chaos, verbose bool, fetch string) (err error) {
	if err := publicURL(&fetch)(fetch); err != nil {
		return command.Usagef("--fetch %q: %v", fetch, err)
	}
	if asked.faults, err = local.ParseChaos(asked.asked); err != nil {
		return &command.Exit{Code: command.WrongUsage, Err: err}
	}
	if asked.asked == "" {
		return p.runRole(ctx, "dev", runDev, func(cfg *Config) {
			cfg.FetchFrom = fetch
			if verbose && cfg.LogFormat == shortFormat {
				cfg.LogFormat = "text"
			}
			if cfg.Screen.Terminal && term.IsTerminal(os.Stdin) {
				cfg.Keys = os.Stdin
			}
		})
	}
	disturbed := func(ctx context.Context, cfg Config, _ []string, stdout, stderr io.Writer) error {
		return asked.run(ctx, cfg, p.environ, stdout, stderr)
	}
	return p.runRole(ctx, "dev", disturbed, nil)
}
