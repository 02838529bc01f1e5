package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	local "github.com/forgerun/forgerun/internal/stack"
)

// startOwnPostgres starts dev's own server: with the machine's programs, with a copy that was fetched before, or with
// one that is fetched now if that was asked for.
func startOwnPostgres(ctx context.Context, cfg *Config, log *slog.Logger) (*local.Postgres, error) {
	copied := local.PostgresCopy{Dir: programsDir(cfg), Repository: cfg.FetchFrom, Logger: log}
	options := local.ServerOptions{Dir: filepath.Join(cfg.DataDir, "postgres"), Programs: copied.Programs(), Logger: log}
	postgres, err := local.StartPostgres(ctx, options)
	if !errors.Is(err, local.ErrNotInstalled) {
		return postgres, err
	}
	if cfg.FetchFrom == "" {
		return nil, fmt.Errorf("%w\nWithout installing it: forgerun dev --fetch, which fetches a private copy of "+
			"Postgres %s (about 15 MB) into %s; or have FORGERUN_DATABASE_URL name a server", err, local.FetchedVersion, copied.Dir)
	}
	if options.Programs, err = copied.Fetch(ctx); err != nil {
		return nil, err
	}
	return local.StartPostgres(ctx, options)
}

// programsDir is the folder of fetched programs. For root it is not the data folder, which may be below one that only
// root can enter: the server runs as another user.
func programsDir(cfg *Config) string {
	if os.Geteuid() == 0 {
		return "/var/lib/forgerun/programs"
	}
	return filepath.Join(cfg.DataDir, "programs")
}
