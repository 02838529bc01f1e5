package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/internal/work"
	"github.com/forgerun/forgerun/job"
)

// Jobs that are there before anything is measured are written by SQL, as the
// service would have left them: valid by every constraint, with their events,
// reports and results, and no delivery, since nobody asked for one. What differs
// is the layout: rows that were never updated, in order of their time.

// seedLimit makes experiments smaller; 0: they are as large as their targets say.
var seedLimit int

func seedFlags(flags *flag.FlagSet) {
	flags.IntVar(&seedLimit, "rows", 0, "seed no more than so many `jobs` in an experiment (default as many as its target says)")
}

// seeded is how many jobs an experiment seeds of those that its target names.
func seeded(jobs int) int {
	if seedLimit > 0 {
		return min(seedLimit, jobs)
	}
	return jobs
}

// How far a seeded job has come: the number of its events.
const (
	seedCreated   = 1
	seedQueued    = 2
	seedSucceeded = 5
)

// seeding says which jobs are to be written.
type seeding struct {
	jobs        int
	stage       int
	from, to    time.Time // created, evenly spread
	clients     []uuid.UUID
	executionAt *time.Time // DEFERRED; nil: EXECUTE
}

const (
	seedChunk       = 10_000 // jobs of one transaction
	seedConnections = 4
	seedClients     = 200
	seedDays        = 29 // finished jobs are kept for 30
)

// seedFinishedJobs writes jobs that succeeded over the last weeks. Each 200th is
// the given client's. Results older than a day have lost their bodies.
func seedFinishedJobs(ctx context.Context, d *database, client uuid.UUID, jobs int) error {
	clients := []uuid.UUID{client}
	for len(clients) < seedClients {
		clients = append(clients, uuid.Must(uuid.NewV7()))
	}
	now := time.Now()
	return seed(ctx, d, seeding{jobs: jobs, stage: seedSucceeded, clients: clients, from: now.Add(-seedDays * 24 * time.Hour), to: now.Add(-time.Minute)})
}

// seedQueuedJobs writes jobs of one client that wait to be run, all due; none is
// in Redis.
func seedQueuedJobs(ctx context.Context, d *database, client uuid.UUID, jobs int) error {
	now := time.Now()
	return seed(ctx, d, seeding{jobs: jobs, stage: seedQueued, clients: []uuid.UUID{client}, from: now.Add(-time.Hour), to: now.Add(-time.Minute)})
}

// seedScheduledJobs writes DEFERRED jobs of one client that are due at one moment.
func seedScheduledJobs(ctx context.Context, d *database, client uuid.UUID, jobs int, at time.Time) error {
	now := time.Now()
	return seed(ctx, d, seeding{jobs: jobs, stage: seedCreated, clients: []uuid.UUID{client}, from: now.Add(-time.Hour), to: now, executionAt: &at})
}

// insertSeed writes the jobs numbered $1 to $2. Their labels in the streams of
// events are those of this transaction.
const insertSeed = `
WITH made AS MATERIALIZED (
  SELECT uuid7(at) AS job_id, ($5::uuid[])[1 + n % cardinality($5::uuid[])] AS client_id, at, at + interval '3 ms' AS started,
    at + interval '5 ms' AS finished, pg_current_xact_id() AS tx
  FROM (SELECT n, $3::timestamptz + n * $4::interval AS at FROM generate_series($1::int, $2::int) AS n) AS moments
), added AS (
  INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, outcome, max_attempts, auto_retry, event_seq, event_tx, fence,
    created_at, updated_at, execution_at, run_at, queued_at, assigned_at, started_at, finished_at, language, request_id)
  SELECT job_id, client_id, CASE WHEN $7::timestamptz IS NULL THEN 'EXECUTE' ELSE 'DEFERRED' END, $8::text, $9::jsonb,
    CASE $6::int WHEN 1 THEN 'CREATED' WHEN 2 THEN 'QUEUED' ELSE 'SUCCEEDED' END, CASE WHEN $6 > 2 THEN 'SUCCESS' END,
    4, false, $6::int, tx, CASE WHEN $6 > 2 THEN 1 ELSE 0 END,
    at, CASE WHEN $6 > 2 THEN finished ELSE at END, $7, coalesce($7, at), CASE WHEN $6 > 1 THEN at END,
    CASE WHEN $6 > 2 THEN started END, CASE WHEN $6 > 2 THEN started END, CASE WHEN $6 > 2 THEN finished END, 'en', job_id::text
  FROM made
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data, called_back)
  SELECT job_id, client_id, e.seq, uuid7(e.at), e.name, e.prev, e.next, 1, e.at, tx, (SELECT event_data($8, $9)), false
  FROM made CROSS JOIN LATERAL (VALUES (1, 'job.created', NULL, 'CREATED', at), (2, 'job.queued', 'CREATED', 'QUEUED', at),
    (3, 'job.assigned', 'QUEUED', 'ASSIGNED', started), (4, 'job.running', 'ASSIGNED', 'RUNNING', started),
    (5, 'job.succeeded', 'RUNNING', 'SUCCEEDED', finished)) AS e(seq, name, prev, next, at)
  WHERE e.seq <= $6
), report AS (
  INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq, worker_id)
  SELECT job_id, 1, 'SUCCESS', started, finished, 2, 5, $13 FROM made WHERE $6 > 2
)
INSERT INTO results (job_id, attempt, media_type, size, sha256, expires_at, body)
SELECT job_id, 1, $10, length($11::bytea), $12, finished + interval '1 day', CASE WHEN finished + interval '1 day' > now() THEN $11 END
FROM made WHERE $6 > 2`

// seed writes the jobs over several connections, and leaves the tables as they
// are after a vacuum and a checkpoint.
func seed(ctx context.Context, d *database, s seeding) error {
	definition, result, err := seedWork(ctx)
	if err != nil {
		return err
	}
	worker := uuid.Must(uuid.NewV7())
	step := s.to.Sub(s.from) / time.Duration(max(1, s.jobs))
	var next atomic.Int64 // the first number of the next chunk
	chunks := func(conn *pgx.Conn) error {
		for {
			first := int(next.Add(seedChunk)) - seedChunk
			if first >= s.jobs {
				return nil
			}
			_, err := conn.Exec(ctx, insertSeed, first, min(first+seedChunk, s.jobs)-1, s.from, step, s.clients, s.stage, s.executionAt,
				job.PayloadSmall, definition, result.MediaType, result.Body, result.SHA256[:], worker)
			if err != nil {
				return fmt.Errorf("seeding: %w", err)
			}
		}
	}
	if err := overConnections(ctx, d.url, seedConnections, chunks); err != nil {
		return err
	}
	return settle(ctx, d, s.clients)
}

// seedWork is what all seeded jobs do, and what comes of it.
func seedWork(ctx context.Context) ([]byte, *job.Result, error) {
	definition, err := catalogue.Define(job.Execute, job.PayloadSmall, time.Now(), nil)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := json.Marshal(definition)
	if err != nil {
		return nil, nil, err
	}
	result, err := work.New(work.Config{Limit: time.Second}).Run(ctx, definition, 1, nil)
	return encoded, result, err
}

// overConnections runs the same on several connections whose commits need not be
// durable and which fire no triggers.
func overConnections(ctx context.Context, url string, n int, run func(*pgx.Conn) error) error {
	failures := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			failures[i] = func() error {
				conn, err := pgx.Connect(ctx, url)
				if err != nil {
					return err
				}
				defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
				if _, err := conn.Exec(ctx, "SET session_replication_role = replica; SET synchronous_commit = off; SET jit = off"); err != nil {
					return err
				}
				return run(conn)
			}()
		})
	}
	group.Wait()
	return errors.Join(failures...)
}

// settle makes the clients known and ends the seeding: its statistics are there,
// and neither a vacuum nor the disk has anything left to do about it.
func settle(ctx context.Context, d *database, clients []uuid.UUID) error {
	if _, err := d.conn.Exec(ctx, "INSERT INTO clients (client_id) SELECT unnest($1::uuid[]) ON CONFLICT DO NOTHING", clients); err != nil {
		return err
	}
	for _, sql := range []string{"VACUUM ANALYZE jobs, events, reports, results, clients", "CHECKPOINT"} {
		if _, err := d.conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// clientOf finds the client of an API key.
func clientOf(ctx context.Context, d *database, key string) (client uuid.UUID, err error) {
	err = d.conn.QueryRow(ctx, "SELECT client_id FROM api_keys WHERE starts_with($1, 'frk_' || key_id || '_')", key).Scan(&client)
	return client, err
}

// needDisk reports an error if there is less room than that for the files of the
// temporary servers.
func needDisk(bytes uint64) error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(os.TempDir(), &disk); err != nil {
		return err
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < bytes {
		return fmt.Errorf("this needs %d GB of disk in %s, and %d GB are free; -rows takes fewer jobs", bytes>>30+1, os.TempDir(), free>>30)
	}
	return nil
}
