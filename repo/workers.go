package repo

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

var (
	readHeld        = statement("readHeld")
	markDeadWorkers = statement("markDeadWorkers")
	orphanedJobs    = statement("orphanedJobs")
)

// Leases keeps the lease of one worker process alive. It has a connection of
// its own, so that a full pool cannot make the lease expire.
type Leases struct {
	store *Store
	mu    sync.Mutex
	own   ownConn
}

// NewLeases makes the lease side of a worker.
func (s *Store) NewLeases() *Leases {
	return &Leases{store: s, own: ownConn{config: s.probe.own.config}}
}

// Register makes a worker known and alive for the length of a lease.
func (l *Leases) Register(ctx context.Context, worker job.ID, name string, concurrency int, lease time.Duration) error {
	return l.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `INSERT INTO workers (worker_id, name, concurrency, state, expires_at)
			VALUES ($1, $2, $3, 'ALIVE', pg_catalog.clock_timestamp() + $4::interval)`, uuid(worker), name, concurrency, lease)
		return err
	})
}

// Renew extends the lease of a worker that is alive and answers with the leases
// of the jobs that storage says it holds: not more, since there may be
// thousands and this is asked for with every heartbeat. job.ErrWorkerDead: the
// lease had ended; all that it held belongs to others now.
func (l *Leases) Renew(ctx context.Context, worker job.ID, lease time.Duration) ([]job.Lease, error) {
	var held []job.Lease
	err := l.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, `UPDATE workers
			SET heartbeat_at = pg_catalog.clock_timestamp(), expires_at = pg_catalog.clock_timestamp() + $2::interval
			WHERE worker_id = $1 AND state = 'ALIVE' AND expires_at > pg_catalog.clock_timestamp()`, uuid(worker), lease)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return job.ErrWorkerDead
		}
		rows, err := conn.Query(ctx, `SELECT job_id, attempt, fence FROM jobs WHERE worker_id = $1`, uuid(worker))
		if err != nil {
			return err
		}
		var h job.Lease
		_, err = pgx.ForEachRow(rows, []any{scanID(&h.JobID), &h.Attempt, &h.Fence}, func() error {
			held = append(held, h)
			return nil
		})
		return err
	})
	return held, err
}

// Held reads the jobs of those of the leases that the worker still has.
func (l *Leases) Held(ctx context.Context, worker job.ID, leases []job.Lease) ([]job.Held, error) {
	var held []job.Held
	err := l.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		ids, attempts, fences := leaseColumns(leases)
		rows, err := conn.Query(ctx, readHeld, uuid(worker), ids, attempts, fences)
		if err != nil {
			return err
		}
		held, err = pgx.CollectRows(rows, scanHeld)
		return err
	})
	return held, err
}

// Retire ends a worker's lease at a clean shutdown. Jobs that it still holds
// are found by the rescuer at once.
func (l *Leases) Retire(ctx context.Context, worker job.ID) error {
	return l.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `UPDATE workers SET state = 'STOPPED', expires_at = pg_catalog.clock_timestamp()
			WHERE worker_id = $1`, uuid(worker))
		return err
	})
}

// Close closes the connection.
func (l *Leases) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own.drop()
}

func (l *Leases) with(ctx context.Context, use func(context.Context, *pgx.Conn) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := l.store.bound(ctx)
	defer cancel()
	conn, err := l.own.open(ctx)
	if err == nil {
		err = use(ctx, conn)
	}
	if err == nil || isKnown(err) {
		return err
	}
	l.own.drop()
	return l.store.failed("heartbeat", err)
}

const heldColumns = `job_id, client_id, request_id, coalesce(correlation_id, ''), coalesce(traceparent, '') AS traceparent,
  attempt, fence, state, work_kind, max_attempts, auto_retry, definition -> 'retry', lease_expiries`

func scanHeld(row pgx.CollectableRow) (h job.Held, err error) {
	return h, row.Scan(scanID(&h.JobID), scanID(&h.ClientID), &h.RequestID, &h.CorrelationID, &h.TraceParent,
		&h.Attempt, &h.Fence, &h.State, &h.WorkKind, &h.MaxAttempts, &h.AutoRetry, &h.Retry, &h.LeaseExpiries)
}

// Orphans marks workers dead whose lease has ended, then answers with at most
// limit jobs that no living worker holds. The guard of every later write is
// the job's fence, so a stale answer harms nothing.
func (s *Store) Orphans(ctx context.Context, limit int) ([]job.Held, error) {
	if err := s.exec(ctx, "mark dead", markDeadWorkers); err != nil {
		return nil, err
	}
	return queryRows(ctx, s, scanHeld, orphanedJobs, limit)
}
