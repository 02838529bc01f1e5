// Package scale measures the service with many rows in its tables, many jobs at once
// and more load than it can take.
package scale

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/work"
	"github.com/forgerun/forgerun/job"
)

// Jobs that are there before anything is measured are written by SQL, as the service
// would have left them, with their events, reports and results. What differs is the
// layout: rows that were never updated, in order of their time.

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
	from, to    time.Duration // created so long ago, evenly spread
	clients     []uuid.UUID   // nil: the database's
	executionAt *time.Time    // DEFERRED; nil: EXECUTE
}

const (
	seedChunk       = 10_000 // jobs of one transaction
	seedConnections = 4
	seedClients     = 200
	seedDays        = 29      // finished jobs are kept for 30
	bytesOfQueued   = 2000    // in tables and indexes, of one seeded job
	bytesOfFinished = 3500    // with its result
	spareDisk       = 6 << 30 // for the WAL and whatever is measured
)

// seedFinishedJobs writes jobs that succeeded over the last weeks. Each 200th is
// the given client's. Results older than a day have lost their bodies.
func seedFinishedJobs(ctx context.Context, d *lab.Database, jobs int) error {
	clients := []uuid.UUID{d.Client}
	for len(clients) < seedClients {
		clients = append(clients, uuid.Must(uuid.NewV7()))
	}
	return seed(ctx, d, seeding{jobs: jobs, stage: seedSucceeded, clients: clients, from: seedDays * 24 * time.Hour, to: time.Minute})
}

// seedQueuedJobs writes jobs of one client that wait to be run, all due; none is
// in Redis.
func seedQueuedJobs(ctx context.Context, d *lab.Database, jobs int) error {
	return seed(ctx, d, seeding{jobs: jobs, stage: seedQueued, from: time.Hour, to: time.Minute})
}

// seedScheduledJobs writes DEFERRED jobs of one client that are due at one moment.
func seedScheduledJobs(ctx context.Context, d *lab.Database, jobs int, at time.Time) error {
	return seed(ctx, d, seeding{jobs: jobs, stage: seedCreated, from: time.Hour, executionAt: &at})
}

// insertSeed writes the jobs numbered $1 to $2. Their transaction ids in the streams of
// events are that of this transaction.
//
//go:embed seed.sql
var insertSeed string

// seed writes the jobs over several connections, and leaves the tables as they
// are after a vacuum and a checkpoint.
func seed(ctx context.Context, d *lab.Database, s seeding) error {
	definition, result, err := seedWork(ctx)
	if err != nil {
		return err
	}
	if s.clients == nil {
		s.clients = []uuid.UUID{d.Client}
	}
	worker, from := uuid.Must(uuid.NewV7()), time.Now().Add(-s.from)
	step := (s.from - s.to) / time.Duration(max(1, s.jobs))
	var next atomic.Int64 // the first number of the next chunk
	chunks := func(ctx context.Context, conn *pgx.Conn) error {
		for {
			first := int(next.Add(seedChunk)) - seedChunk
			if first >= s.jobs {
				return nil
			}
			_, err := conn.Exec(ctx, insertSeed, first, min(first+seedChunk, s.jobs)-1, from, step, s.clients, s.stage, s.executionAt,
				job.PayloadSmall, definition, result.MediaType, result.Body, result.SHA256[:], worker)
			if err != nil {
				return fmt.Errorf("seeding: %w", err)
			}
		}
	}
	if err := overConnections(ctx, d.URL, seedConnections, chunks); err != nil {
		return err
	}
	return finishSeeding(ctx, d, s.clients)
}

// seedWork is what all seeded jobs do, and what comes of it.
func seedWork(ctx context.Context) (job.Definition, *job.Result, error) {
	definition, err := lab.Catalogue.Define(job.Execute, job.PayloadSmall, time.Now(), nil)
	if err != nil {
		return definition, nil, err
	}
	result, err := work.New(work.Config{Limit: time.Second}).Run(ctx, definition, 1, job.Observer{})
	return definition, result, err
}

// overConnections runs the same on several connections whose commits need not be
// durable and which fire no triggers.
func overConnections(ctx context.Context, url string, n int, run func(context.Context, *pgx.Conn) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for range n {
		group.Go(func() error {
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
			if _, err := conn.Exec(ctx, "SET session_replication_role = replica; SET synchronous_commit = off; SET jit = off"); err != nil {
				return err
			}
			return run(ctx, conn)
		})
	}
	return group.Wait()
}

// finishSeeding inserts the clients and leaves nothing to do for vacuum, statistics
// and checkpoints.
func finishSeeding(ctx context.Context, d *lab.Database, clients []uuid.UUID) error {
	_, err := d.Conn.Exec(ctx, "INSERT INTO clients (client_id) SELECT unnest($1::uuid[]) ON CONFLICT DO NOTHING", clients)
	if err != nil {
		return err
	}
	for _, sql := range []string{"VACUUM ANALYZE jobs, events, reports, results, clients", "CHECKPOINT"} {
		if _, err := d.Conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
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
