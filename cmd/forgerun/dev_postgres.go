package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/internal/devstack/pgfetch"
)

// Fetch says whether dev may get what the machine lacks, and where from.
type Fetch struct {
	Allowed bool
	URL     string
}

// fetchVariables are those of what dev fetches.
func (c *Config) fetchVariables() []variable {
	return []variable{
		{name: "FORGERUN_DEV_FETCH", fallback: "false",
			help: "whether dev fetches a private copy of Postgres where none is installed", parse: boolean(&c.Fetch.Allowed)},
		{name: "FORGERUN_DEV_FETCH_URL", fallback: pgfetch.Central, help: "where from: Maven Central, or a mirror of it",
			parse: publicURL(&c.Fetch.URL)},
	}
}

// startOwnPostgres starts dev's own server: with the machine's programs, with a copy that was fetched before, or with
// one that is fetched now if that was asked for.
func startOwnPostgres(ctx context.Context, cfg *Config, log *slog.Logger) (*devstack.Postgres, error) {
	copied := pgfetch.Source{Dir: programsDir(cfg), Repository: cfg.Fetch.URL, Logger: log}
	options := devstack.PostgresOptions{Dir: filepath.Join(cfg.DataDir, "postgres"), Programs: copied.Programs(), Logger: log}
	postgres, err := devstack.StartPostgres(ctx, options)
	if !errors.Is(err, devstack.ErrNotInstalled) {
		return postgres, err
	}
	if !cfg.Fetch.Allowed {
		return nil, fmt.Errorf("%w\nWithout installing it: FORGERUN_DEV_FETCH=true forgerun dev, which fetches a private copy of "+
			"Postgres %s (about 15 MB) into %s; or have FORGERUN_DATABASE_URL name a server", err, pgfetch.Version, copied.Dir)
	}
	if options.Programs, err = copied.Fetch(ctx); err != nil {
		return nil, err
	}
	return devstack.StartPostgres(ctx, options)
}

// programsDir is the folder of fetched programs. For root it is not the data folder, which may be below one that only
// root can enter: the server runs as another user.
func programsDir(cfg *Config) string {
	if os.Geteuid() == 0 {
		return "/var/lib/forgerun/programs"
	}
	return filepath.Join(cfg.DataDir, "programs")
}
