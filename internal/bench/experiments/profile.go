package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
)

// ProfileTo writes what the whole path is made of: CPU profiles of both processes,
// the statements of Postgres, and how the cores were shared.
func ProfileTo(dir string) func(context.Context, *lab.Lab) ([]figures.Figure, error) {
	return func(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		return nil, l.Phase(ctx, l.Options, l.StartService, func(d *lab.Database, sys lab.System) error {
			if _, err := d.Conn.Exec(ctx, "CREATE EXTENSION pg_stat_statements; SELECT pg_stat_statements_reset()"); err != nil {
				return err
			}
			return lab.WithWorker(sys, func(worker *lab.Program) error { return profile(ctx, l, dir, d, sys, worker) })
		})
	}
}

func profile(ctx context.Context, l *lab.Lab, dir string, d *lab.Database, sys lab.System, worker *lab.Program) error {
	var group errgroup.Group
	for name, program := range map[string]*lab.Program{"api": sys.API, "worker": worker} {
		group.Go(func() error {
			lab.Pause(ctx, l.Options.Warmup())
			return saveProfile(ctx, program, l.Options.Duration, filepath.Join(dir, name+".pprof"))
		})
	}
	path, err := l.Sustained(ctx, l.Options, d, sys, worker)
	if err := errors.Join(err, group.Wait()); err != nil {
		return err
	}
	summary := fmt.Sprintf("finished %.0f/s, CPU %.3f s per 1,000 jobs; %v", path.Finished, path.CPU(), path.Usage)
	l.Printf("%s", summary)
	statements, err := topStatements(ctx, d.Conn)
	if err != nil {
		return err
	}
	l.Printf("written to %s: api.pprof, worker.pprof (go tool pprof -top FILE), postgres.txt, shares.txt", dir)
	return errors.Join(os.WriteFile(filepath.Join(dir, "shares.txt"), []byte(summary+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "postgres.txt"), []byte(statements), 0o644))
}

// saveProfile asks a program's admin listener for a CPU profile.
func saveProfile(ctx context.Context, p *lab.Program, d time.Duration, path string) error {
	address, err := p.Logged(ctx, adminListening)
	if err != nil {
		return err
	}
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, max(1, int(d/time.Second)))
	content, _, err := get(ctx, url, nil)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

// topStatements are those of this database in which Postgres spent most of
// its time.
func topStatements(ctx context.Context, conn *pgx.Conn) (string, error) {
	rows, err := conn.Query(ctx, `SELECT concat_ws(' | ', round(total_exec_time::numeric), calls, round(mean_exec_time::numeric, 3), rows,
			shared_blks_hit + shared_blks_read, round(wal_bytes / 1024), regexp_replace(btrim(query), '\s+', ' ', 'g'))
		FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
		ORDER BY total_exec_time DESC LIMIT 25`)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return "total ms | calls | mean ms | rows | blocks | WAL kB | statement\n" + strings.Join(lines, "\n") + "\n", err
}
