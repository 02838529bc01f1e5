package repo

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
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
func (l *Leases) Renew(ctx context.Context, worker job.ID, lease time.Duration) ([]job.ClaimID, error) {
	var held []job.ClaimID
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
		held, err = rowsIn(ctx, conn, pgx.RowToStructByPos[job.ClaimID],
			`SELECT job_id, attempt, fence FROM jobs WHERE worker_id = $1`, uuid(worker))
		return err
	})
	return held, err
}

// Held reads the jobs of those of the leases that the worker still has.
func (l *Leases) Held(ctx context.Context, worker job.ID, claims []job.ClaimID) (held []job.Held, err error) {
	err = l.with(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		ids, attempts, fences := claimColumns(claims)
		held, err = rowsIn(ctx, conn, scanHeld, statement("readHeld"), uuid(worker), ids, attempts, fences)
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

// heldColumns are named like the members of job.Held.
const heldColumns = `job_id, client_id, request_id, coalesce(correlation_id, '') AS correlation_id,
  coalesce(traceparent, '') AS traceparent, attempt, fence, state, work_kind, max_attempts, auto_retry,
  definition -> 'retry' AS retry, lease_expiries`

var scanHeld = pgx.RowToStructByName[job.Held]

// Orphans marks workers dead whose lease has ended, then answers with at most
// limit jobs that no living worker holds. The guard of every later write is
// the job's fence, so a stale answer harms nothing.
func (s *Store) Orphans(ctx context.Context, limit int) ([]job.Held, error) {
	if err := s.exec(ctx, "mark dead", statement("markDeadWorkers")); err != nil {
		return nil, err
	}
	return queryRows(ctx, s, scanHeld, statement("orphanedJobs"), limit)
}

// pauseColumns is the one column list of a pause, named like the members of job.Pause.
const pauseColumns = `pause_id AS id, scope, target, mode, operator, reason, created_at`

var scanPause = pgx.RowToStructByName[job.Pause]

// AddPause stores a pause, which holds for claims in all processes from then on. One of the same scope, target and mode is given
// as it is; added is false then. CodeRequestNotFound: there is no such worker. CodeConflict: there are job.MaxPauses.
func (s *Store) AddPause(ctx context.Context, p job.Pause) (_ job.Pause, added bool, err error) {
	if p.Scope == job.PauseWorker {
		alive, err := queryValue[bool](ctx, s, statement("workerAlive"), p.Target)
		switch {
		case err != nil:
			return job.Pause{}, false, err
		case !alive:
			return job.Pause{}, false, job.Errorf(job.CodeRequestNotFound, "No worker with this id is alive.")
		}
	}
	stored, added, err := first(queryRowsAs(ctx, s, "pause", scanPause, statement("insertPause"),
		uuid(p.ID), string(p.Scope), p.Target, string(p.Mode), p.Operator, p.Reason, job.MaxPauses))
	if err != nil || added {
		return stored, added, err
	}
	many := job.Errorf(job.CodeConflict, "There are %d pauses, and no more may be there: resume some first.", job.MaxPauses)
	stored, err = queryOne(ctx, s, many, scanPause, statement("findPause"), string(p.Scope), p.Target, string(p.Mode))
	return stored, false, err
}

// Pauses gives all that hold now, the oldest first.
func (s *Store) Pauses(ctx context.Context) (job.Pauses, error) {
	return queryRows(ctx, s, scanPause, statement("listPauses"))
}

// RemovePause ends a pause, and gives it.
func (s *Store) RemovePause(ctx context.Context, id job.ID) (job.Pause, error) {
	removed, found, err := first(queryRowsAs(ctx, s, "pause", scanPause, statement("deletePause"), uuid(id)))
	if err == nil && !found {
		err = job.Errorf(job.CodeRequestNotFound, "No pause with this id was found.")
	}
	return removed, err
}

// ResumePaused looks at the jobs after the given one that were put aside, at most limit, and makes those due that may go on. It
// answers with their tasks, and with the last job that it looked at; zero when it came to the end.
func (s *Store) ResumePaused(ctx context.Context, after job.ID, limit int) (tasks []job.Task, last job.ID, err error) {
	type aside struct {
		ID     job.ID
		MayRun bool // no pause stops it any more
	}
	looked, err := queryRows(ctx, s, pgx.RowToStructByPos[aside], statement("jobsAside"), [16]byte(after), limit)
	if err != nil || len(looked) == 0 {
		return nil, job.ID{}, err
	}
	var free []pgtype.UUID
	for _, a := range looked {
		if a.MayRun {
			free = append(free, uuid(a.ID))
		}
	}
	if len(looked) == limit {
		last = looked[limit-1].ID
	}
	if len(free) == 0 {
		return nil, last, nil
	}
	tasks, err = queryRowsAs(ctx, s, "resume paused", scanTask, statement("resumeJobs"), free)
	return tasks, last, err
}
