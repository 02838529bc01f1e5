package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Database is one of Postgres.
type Database struct {
	URL  string
	Key  string // API key of the client that owns its jobs; "": none yet
	Conn *pgx.Conn
}

// WithDatabase has a new one while it is used, and an empty Redis.
func (l *Lab) WithDatabase(ctx context.Context, use func(*Database) error) error {
	name := "bench_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	err := errors.Join(l.admin(ctx, "CREATE DATABASE "+name), l.Servers.Redis.Do(ctx, "FLUSHALL"))
	if err != nil {
		return err
	}
	d := &Database{URL: l.Servers.Postgres.URLOf(name)}
	if d.Conn, err = pgx.Connect(ctx, d.URL); err != nil {
		return err
	}
	err = use(d)
	ctx = context.WithoutCancel(ctx)
	return errors.Join(err, d.Conn.Close(ctx), l.admin(ctx, "DROP DATABASE "+name+" WITH (FORCE)"))
}

// admin runs a statement outside the databases of the experiments.
func (l *Lab) admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, l.Servers.Postgres.URL())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// Number reads one number from the database.
func (d *Database) Number(ctx context.Context, sql string, args ...any) (n float64, err error) {
	err = d.Conn.QueryRow(ctx, "SELECT ("+sql+")::float8", args...).Scan(&n)
	return n, err
}

// AllFinished waits until so many jobs that were created since a moment have their reports. It gives up when
// nothing has changed for a minute, and says which jobs are missing.
func (d *Database) AllFinished(ctx context.Context, since time.Time, accepted int) error {
	var before float64
	for changed := time.Now(); ; {
		asked := time.Now()
		finished, err := d.Number(ctx, `SELECT count(*) FROM jobs JOIN reports USING (job_id)
			WHERE jobs.finished_at >= $1 AND jobs.created_at >= $1`, since)
		switch {
		case err != nil || int(finished) == accepted:
			return err
		case int(finished) > accepted || time.Since(changed) > time.Minute:
			return fmt.Errorf("%.0f of %d accepted jobs have finished, of all jobs: %s", finished, accepted, d.jobs(ctx, since))
		case finished > before:
			before, changed = finished, asked
		}
		Pause(ctx, rest(time.Since(asked), 20*time.Millisecond))
	}
}

// jobs describes the database's jobs by state and by whether they were created since a moment, with an example of each.
func (d *Database) jobs(ctx context.Context, since time.Time) (s string) {
	err := d.Conn.QueryRow(ctx, `SELECT coalesce(string_agg(format('%s %s, %s', n, state, example), E'\n'), 'none') FROM (
		SELECT count(*) AS n, state, min(to_json(jobs)::text) AS example FROM jobs GROUP BY state, created_at >= $1) AS groups`,
		since).Scan(&s)
	if err != nil {
		return err.Error()
	}
	return s
}
