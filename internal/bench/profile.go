package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// profileTo says what the whole path is made of: CPU profiles of both processes,
// what Postgres did, and how the cores were shared.
func profileTo(dir string) func(context.Context, *lab) ([]figure, error) {
	return func(ctx context.Context, l *lab) ([]figure, error) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		return nil, l.phase(ctx, l.o, l.startForgeRun, func(d *database, sys system) error {
			if _, err := d.conn.Exec(ctx, "CREATE EXTENSION pg_stat_statements; SELECT pg_stat_statements_reset()"); err != nil {
				return err
			}
			return withWorker(sys, func(worker *program) error { return l.profile(ctx, dir, d, sys, worker) })
		})
	}
}

func (l *lab) profile(ctx context.Context, dir string, d *database, sys system, worker *program) error {
	var group sync.WaitGroup
	var failures [2]error
	for i, p := range []struct {
		program *program
		name    string
	}{{sys.api, "api"}, {worker, "worker"}} {
		group.Go(func() {
			pause(ctx, warmup(l.o))
			failures[i] = saveProfile(ctx, p.program, l.o.duration, filepath.Join(dir, p.name+".pprof"))
		})
	}
	path, err := l.sustained(ctx, l.o, d, sys, worker)
	group.Wait()
	if err := errors.Join(err, failures[0], failures[1]); err != nil {
		return err
	}
	summary := fmt.Sprintf("finished %.0f/s, CPU %.3f s per 1,000 jobs; %v", path.finished, path.cpu(), path.usage)
	l.say("%s", summary)
	statements, err := topStatements(ctx, d.conn)
	if err != nil {
		return err
	}
	l.say("written to %s: api.pprof, worker.pprof (go tool pprof -top FILE), postgres.txt, shares.txt", dir)
	return errors.Join(os.WriteFile(filepath.Join(dir, "shares.txt"), []byte(summary+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "postgres.txt"), []byte(statements), 0o644))
}

// saveProfile asks a program's admin listener for a CPU profile.
func saveProfile(ctx context.Context, p *program, d time.Duration, path string) error {
	address, err := p.await(adminListening)
	if err != nil {
		return err
	}
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, max(1, int(d/time.Second)))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("profile: %s: %s", response.Status, content)
	}
	return os.WriteFile(path, content, 0o644)
}

// topStatements are those of this database in which Postgres spent most of
// its time.
func topStatements(ctx context.Context, conn *pgx.Conn) (string, error) {
	rows, err := conn.Query(ctx, `SELECT total_exec_time, calls, mean_exec_time, rows, shared_blks_hit + shared_blks_read, wal_bytes::float8, query
		FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
		ORDER BY total_exec_time DESC LIMIT 25`)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	_, _ = fmt.Fprintln(&b, "total ms | calls | mean ms | rows | blocks | WAL kB | statement")
	var total, mean, wal float64
	var calls, count, blocks int64
	var query string
	_, err = pgx.ForEachRow(rows, []any{&total, &calls, &mean, &count, &blocks, &wal, &query}, func() error {
		_, _ = fmt.Fprintf(&b, "%.0f | %d | %.3f | %d | %d | %.0f | %s\n", total, calls, mean, count, blocks, wal/1024, strings.Join(strings.Fields(query), " "))
		return nil
	})
	return b.String(), err
}
