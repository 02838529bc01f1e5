package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/repo"
)

func (p *program) migrateCommand() *cobra.Command {
	var to int64
	c := command.New("migrate", "Migrate the database schema to the newest or another version",
		func(c *cobra.Command, _ []string) error { return p.migrate(c.Context(), to) })
	c.Long = "Migrates the schema of the database at FORGERUN_DATABASE_URL to the newest version, or up or down to another one. " +
		"Several processes may run it at once."
	c.Flags().Int64Var(&to, "to", -1, "schema `version` to go to, up or down; -1 is the newest")
	return c
}

func (p *program) migrate(ctx context.Context, to int64) error {
	if newest := repo.NewestSchema(); to < -1 || to > newest {
		return command.Usagef("forgerun migrate: unknown schema version %d: this program supports 0 (none) to %d.", to, newest)
	}
	cfg, err := LoadConfig("migrate", p.getenv)
	if err != nil {
		return &command.Exit{Code: command.WrongUsage, Err: err}
	}
	if err := repo.Migrate(ctx, cfg.DatabaseURL, to); err != nil {
		return err
	}
	now, err := repo.Inspect(ctx, cfg.DatabaseURL)
	if err != nil {
		return fmt.Errorf("the schema was migrated, but its version could not be read: Postgres %w", err)
	}
	_, _ = fmt.Fprintf(p.stdout, "The schema is at version %d.\n", now.SchemaVersion)
	return nil
}

var configRoles = []string{"api", "worker", "deliverer", "dev", "migrate", "rotate-signing-key"}

func roleOf(args []string, getenv func(string) string) string {
	switch {
	case len(args) > 0:
		return args[0]
	case getenv("FORGERUN_DATABASE_URL") == "":
		return "dev" // the only role that runs without it
	}
	return "api"
}

func (p *program) configCommand() *cobra.Command {
	all := false
	c := &cobra.Command{
		Use: "config [ROLE]", Short: "Print the effective configuration of a role, with secrets masked",
		ValidArgs: configRoles, Args: command.Only(configRoles...),
		Long: "Prints the environment variables of ROLE with their effective values, in groups. Variables that have their default\n" +
			"values are printed only with --all. Secrets are masked. The default ROLE is api if FORGERUN_DATABASE_URL is set,\n" +
			"otherwise dev.",
		RunE: func(_ *cobra.Command, args []string) error {
			role := roleOf(args, p.getenv)
			var cfg Config
			cfg.Print(p.stdout, term.Of(p.stdout, p.getenv), role, all, p.getenv)
			if _, err := LoadConfig(role, p.getenv); err != nil {
				return &command.Exit{Code: command.WrongUsage, Err: err}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also show variables that have their defaults")
	return c
}
