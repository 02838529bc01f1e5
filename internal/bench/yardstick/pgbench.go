package yardstick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/job"
)

// submissionRows writes the rows of a submission, with the same columns and sizes, in the
// fastest way that is still one transaction for one job. Keys are in order of time, as
// the service's; the rest of what the service computes is constant.
const submissionRows = `WITH new AS (
  INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, max_attempts, auto_retry, event_seq, event_tx,
    created_at, updated_at, run_at, queued_at, language, request_id)
  SELECT uuid7(at), '%[1]s', 'EXECUTE', 'PAYLOAD_SMALL', '%[2]s', 'QUEUED', 4, false, 2, pg_current_xact_id(),
    at, at, at, at, 'en', '%[3]s' FROM clock_timestamp() AS at
  RETURNING job_id, client_id, event_tx, created_at
)
INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data)
SELECT job_id, client_id, seq, gen_random_uuid(), name, prev, next, 1, created_at, event_tx, '%[4]s'
FROM new CROSS JOIN (VALUES (1, 'job.created', NULL, 'CREATED'), (2, 'job.queued', 'CREATED', 'QUEUED')) AS e(seq, name, prev, next);
`

// Pgbench gives how many of these transactions a second Postgres takes by itself.
func Pgbench(ctx context.Context, l *lab.Lab) (rate float64, err error) {
	program, err := findPgbench(l.Servers.Postgres.PID())
	if err != nil {
		return 0, err
	}
	d, err := l.NewDatabase(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Drop(context.WithoutCancel(ctx), d)) }()
	client := uuid.New()
	if _, err := d.Conn.Exec(ctx, "INSERT INTO clients (client_id) VALUES ($1)", client); err != nil {
		return 0, err
	}
	script, err := pgbenchScript(client)
	if err != nil {
		return 0, err
	}
	path := filepath.Join(l.Dir, "submission.sql")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		return 0, err
	}
	seconds := max(1, int(l.Options.Duration/time.Second))
	run := exec.CommandContext(ctx, program, "-n", "-M", "prepared", "-c", "64", "-j", "2", "-T", strconv.Itoa(seconds), "-f", path)
	run.Env = append(os.Environ(), libpqEnv(d.Conn.Config())...)
	out, err := run.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, out[:min(len(out), 2000)])
	}
	return pgbenchRate(string(out))
}

// pgbenchScript writes the rows of a PAYLOAD_SMALL job. In JSON a colon must not
// touch what follows it: pgbench would take that for the name of a variable.
func pgbenchScript(client uuid.UUID) (string, error) {
	definition, err := lab.Catalogue.Define(job.Execute, "PAYLOAD_SMALL", time.Now(), nil)
	if err != nil {
		return "", err
	}
	defined, err := json.MarshalIndent(definition, "", " ")
	if err != nil {
		return "", err
	}
	data, err := json.MarshalIndent(map[string]any{
		"work_kind": definition.WorkKind, "duration_ms": definition.DurationMS, "expected_outcome": definition.ExpectedOutcome,
	}, "", " ")
	return fmt.Sprintf(submissionRows, client, defined, uuid.New(), data), err
}

var tps = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)

func pgbenchRate(out string) (float64, error) {
	found := tps.FindStringSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("pgbench printed no rate: %s", out)
	}
	return strconv.ParseFloat(found[1], 64)
}

// libpqEnv says how to connect; the password stays off the command line.
func libpqEnv(c *pgx.ConnConfig) []string {
	host, port := "PGHOST="+c.Host, fmt.Sprint("PGPORT=", c.Port)
	return []string{host, port, "PGUSER=" + c.User, "PGPASSWORD=" + c.Password, "PGDATABASE=" + c.Database}
}

// findPgbench looks beside the server process, and then where a shell looks.
func findPgbench(server int) (string, error) {
	if path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", server)); err == nil {
		beside := filepath.Join(filepath.Dir(strings.TrimSuffix(path, " (deleted)")), "pgbench")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	return exec.LookPath("pgbench")
}
