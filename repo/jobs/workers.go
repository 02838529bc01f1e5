package jobs

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// Leases keeps the lease of one worker process alive. It has its own connection, so it can renew the lease even if the connection pool is
// exhausted.
type Leases struct {
	store *Store
	mu    sync.Mutex
	own   pg.OwnConn
}

// NewLeases makes the Leases of a worker.
func (s *Store) NewLeases() *Leases {
	return &Leases{store: s, own: s.db.NewOwnConn()}
}

// Register stores a living worker. Its lease ends after the duration `lease`.
func (l *Leases) Register(ctx context.Context, worker job.ID, name string, concurrency int, lease time.Duration) error {
	return l.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statement("registerWorker"), pg.UUID(worker), name, concurrency, lease)
		return err
	})
}

// Renew extends the lease of a living worker. It returns the ids of the claims that the database stores for this worker. Renew does not
// read the jobs, because a worker calls Renew often and can have thousands of claims. If the lease has expired, Renew returns
// job.ErrWorkerDead. Other workers then take over the worker's jobs.
func (l *Leases) Renew(ctx context.Context, worker job.ID, lease time.Duration) ([]job.ClaimID, error) {
	var held []job.ClaimID
	err := l.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, statement("renewWorker"), pg.UUID(worker), lease)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return job.ErrWorkerDead
		}
		held, err = pg.RowsIn(ctx, conn, pgx.RowToStructByPos[job.ClaimID], statement("claimsOfWorker"), pg.UUID(worker))
		return err
	})
	return held, err
}

// Held reads the jobs of `claims`, except jobs that the worker no longer holds.
func (l *Leases) Held(ctx context.Context, worker job.ID, claims []job.ClaimID) (held []job.Held, err error) {
	err = l.with(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		ids, attempts, fences := claimColumns(claims)
		held, err = pg.RowsIn(ctx, conn, scanHeld, statement("readHeld"), pg.UUID(worker), ids, attempts, fences)
		return err
	})
	return held, err
}

// Retire ends a worker's lease at a clean shutdown. Store.Orphans can then return the worker's remaining jobs immediately.
func (l *Leases) Retire(ctx context.Context, worker job.ID) error {
	return l.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statement("retireWorker"), pg.UUID(worker))
		return err
	})
}

// Close closes the connection. The next call of another method opens a new one.
func (l *Leases) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own.Drop()
}

func (l *Leases) with(ctx context.Context, use func(context.Context, *pgx.Conn) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := l.store.db.Bound(ctx)
	defer cancel()
	conn, err := l.own.Open(ctx)
	if err == nil {
		err = use(ctx, conn)
	}
	if err == nil || pg.IsKnown(err) {
		return err
	}
	l.own.Drop()
	return l.store.db.Failed("heartbeat", err)
}

var scanHeld = pgx.RowToStructByName[job.Held]

// Orphans marks workers with an ended lease as dead, then returns at most `limit` jobs that dead or stopped workers hold. A returned job
// may have changed meanwhile. This does no harm, because every later write checks the job's fence.
func (s *Store) Orphans(ctx context.Context, limit int) ([]job.Held, error) {
	if err := s.db.Exec(ctx, "mark dead", statement("markDeadWorkers")); err != nil {
		return nil, err
	}
	return pg.Query(ctx, s.db, scanHeld, statement("orphanedJobs"), limit)
}
