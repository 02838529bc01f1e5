package repo

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

var (
	queueDueInTime = statement("queueDue", "{{moment}}", dueMoment)
)

// Lead takes or keeps the lease of the one maintenance leader, on Postgres'
// clock, and reports whether holder has it now. From another holder it is taken when
// it has run out for at least vacant; a lease of 0 is kept, but open to be taken. One
// that would last longer than any does was taken when Postgres' clock was ahead, and
// is free: who lives has renewed it since. A row and not an advisory lock: a paused
// process would keep the lock.
func (s *Store) Lead(ctx context.Context, holder job.ID, lease, vacant time.Duration) (bool, error) {
	n, err := s.change(ctx, "lead", `UPDATE maintenance_state
		SET leader_id = $1, leader_expires_at = pg_catalog.clock_timestamp() + $2::interval
		WHERE leader_id = $1 OR leader_expires_at <= pg_catalog.clock_timestamp() - $3::interval
			OR leader_expires_at > pg_catalog.clock_timestamp() + $2::interval + $4::interval`, uuid(holder), lease, vacant, sureExcess)
	return n == 1, err
}

// sureExcess is how much longer than that of whoever asks no leader's lease is.
const sureExcess = time.Minute

// Resign gives the leader's lease up at once.
func (s *Store) Resign(ctx context.Context, holder job.ID) error {
	return s.exec(ctx, "resign", `UPDATE maintenance_state SET leader_id = NULL, leader_expires_at = '-infinity' WHERE leader_id = $1`,
		uuid(holder))
}

// Epoch reads the dispatch epoch and the run id of the Redis server that it
// was opened for.
func (s *Store) Epoch(ctx context.Context) (epoch int64, redisRunID string, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	err = s.pool.QueryRow(ctx, `SELECT epoch, redis_run_id FROM maintenance_state`).Scan(&epoch, &redisRunID)
	if err != nil {
		return 0, "", s.failed("epoch", err)
	}
	return epoch, redisRunID, nil
}

// RaiseEpoch opens a new dispatch epoch: every waiting job will be dispatched
// anew. It does nothing if the epoch is not current any more.
func (s *Store) RaiseEpoch(ctx context.Context, current int64, redisRunID string) error {
	return s.exec(ctx, "raise epoch", `UPDATE maintenance_state SET epoch = epoch + 1, redis_run_id = $2 WHERE epoch = $1`, current,
		redisRunID)
}

// QueueDue moves at most limit jobs whose time has come from CREATED to
// QUEUED, the earliest first, and answers with them: their identity, callback and
// trace, the time that had come and that of the change, and of the definition what
// the event tells, not more; nil of one that is missing or damaged. A time that
// was missed is due at once (section 10).
func (s *Store) QueueDue(ctx context.Context, limit int) ([]job.Job, error) {
	text := statement("queueDue")
	if s.cfg.Clock != nil {
		text = queueDueInTime
	}
	return queryRowsAs(ctx, s, "schedule", func(row pgx.CollectableRow) (j job.Job, err error) {
		var told job.Definition
		var readable bool
		err = scanRow(row, &j.ID, &j.ClientID, &j.RequestID, &j.CorrelationID, &j.Callback, &j.TraceParent,
			&j.WorkKind, &told.WorkKind, &readable, &told.DurationMS, &told.ExpectedOutcome, &j.ExecutionAt, &j.UpdatedAt)
		if readable {
			j.Definition = &told
		}
		return j, err
	}, text, limit, eventIDs(limit))
}

// Waiting finds at most limit waiting jobs after the given cursor whose time
// comes within ahead, in order of their time; with a negative ahead those whose
// time came so long ago.
func (s *Store) Waiting(ctx context.Context, after job.QueueCursor, ahead time.Duration, limit int) ([]job.Task, error) {
	return queryRows(ctx, s, scanTask, statement("waitingJobs"), after.RunAt, [16]byte(after.JobID), ahead, limit)
}

// ResumeThrottled makes throttled jobs due again, at most limit: as many of each client as fit beside what it holds, so
// that it holds no more than most. Among the looked oldest jobs that are due, it sees
// which it resumed before. It answers with the tasks to dispatch.
func (s *Store) ResumeThrottled(ctx context.Context, most, looked, limit int) ([]job.Task, error) {
	return queryRowsAs(ctx, s, "resume throttled", scanTask, statement("resumeThrottled"), most, looked, limit)
}

// Redispatch raises the dispatch count of tasks whose id is used, and
// answers with the tasks to enqueue instead. A job that went on meanwhile has
// none.
func (s *Store) Redispatch(ctx context.Context, tasks []job.Task) ([]job.Task, error) {
	return queryRows(ctx, s, scanTask, statement("redispatchJobs"),
		column(tasks, func(t job.Task) pgtype.UUID { return uuid(t.JobID) }),
		column(tasks, func(t job.Task) int { return t.Attempt }),
		column(tasks, func(t job.Task) int { return t.Dispatch }))
}

// Load counts what there is to do, but no further than limit each: jobs that
// are not final, and of these the ones in QUEUED.
func (s *Store) Load(ctx context.Context, limit int) (job.Load, error) {
	return queryOne(ctx, s, nil, pgx.RowToStructByPos[job.Load], statement("countLoad"), limit+1)
}

// LoadByClient is Load of each client that has more than few jobs.
func (s *Store) LoadByClient(ctx context.Context, limit, few int) (map[job.ID]job.Load, error) {
	return queryByID(ctx, s, func(l *job.Load) []any { return []any{&l.Active, &l.Queued} }, statement("countLoadByClient"), limit+1, few)
}

// CountDue counts the jobs that wait and are due, but no further than limit. It
// reads the index jobs_waiting.
func (s *Store) CountDue(ctx context.Context, limit int) (int, error) {
	return queryValue[int](ctx, s, statement("countDue"), limit)
}

// LiveWorkers counts workers whose lease has not ended.
func (s *Store) LiveWorkers(ctx context.Context) (int, error) {
	return queryValue[int](ctx, s, `SELECT count(*)::int FROM workers WHERE state = 'ALIVE' AND expires_at > pg_catalog.clock_timestamp()`)
}

// Backlog counts what there is to do and who is there to do it, in one moment.
// It looks at no more than limit rows of each kind, and locks nothing. Of more
// jobs that wait than that, too few are counted as QUEUED. The oldest delivery is
// the oldest one of the first 10,000 endpoints that have any.
func (s *Store) Backlog(ctx context.Context, limit int) (job.Backlog, error) {
	return queryOne(ctx, s, nil, func(row pgx.CollectableRow) (b job.Backlog, err error) {
		var created, waiting, assigned, running int
		err = row.Scan(&created, &waiting, &assigned, &running, &b.OldestDue, &b.Epoch, &b.Workers, &b.Slots,
			&b.Deliveries, &b.OldestDelivery, &b.DisabledWebhooks)
		b.Jobs = map[job.State]int{job.Created: created, job.Queued: max(0, waiting-created), job.Assigned: assigned, job.Running: running}
		return b, err
	}, statement("readBacklog"), [16]byte{}, [16]byte{}, maxLookedEndpoints, limit)
}

// How long things are kept (section 15). Events, reports and results go with their jobs.
const (
	resultTTL         = 24 * time.Hour
	keysKept          = 90 * 24 * time.Hour // revoked or expired API keys, for audit; and what operators did
	tombstonesKept    = 90 * 24 * time.Hour // what is left of removed jobs
	unusedClientsKept = 30 * 24 * time.Hour
)

// deadWorkersKept is how long the row of a dead worker stays to be looked at.
const deadWorkersKept = time.Hour

// batchesOutlive is how much longer batches are kept than their events:
// such an event is nothing without its batch.
const batchesOutlive = time.Hour

// Clean removes at most limit rows of each kind whose time is over, and
// reports whether a kind may have more. Every statement skips rows that
// another transaction has locked. A kind that cannot be removed does not keep the others.
func (s *Store) Clean(ctx context.Context, limit int) (more bool, err error) {
	keep := s.cfg.RetentionJobs
	var errs []error
	for _, step := range []struct {
		sql  string
		keep time.Duration
	}{
		{statement("cleanDeliveries"), keep}, // before their jobs
		{statement("cleanJobs"), keep},
		{statement("cleanClientDeliveries"), keep}, // before their events
		{statement("cleanClientEvents"), keep},     // before their batches
		{statement("cleanBatches"), keep + batchesOutlive},
		{statement("cleanLogs"), keep}, // before their webhooks
		{statement("cleanWebhooks"), keep},
		{statement("cleanSigningKeys"), 0},
		{statement("cleanResults"), 0},
		{statement("cleanIdempotencyKeys"), 0},
		{statement("cleanTombstones"), tombstonesKept},
		{statement("cleanBulkItems"), bulksKept}, // before their operations
		{statement("cleanBulks"), bulksKept},
		{statement("cleanKeys"), keysKept},
		{statement("cleanAudit"), keysKept},
		{statement("cleanWorkers"), deadWorkersKept},
		{statement("cleanPauses"), 0},
		{statement("cleanHistory"), historyKept},
	} {
		n, err := s.change(ctx, "clean", step.sql, step.keep, limit)
		errs = append(errs, err)
		more = more || n >= limit
		if ctx.Err() != nil {
			return more, errors.Join(errs...)
		}
	}
	moreUnused, err := s.cleanClients(ctx, limit)
	return more || moreUnused, errors.Join(append(errs, err)...)
}

// UnpublishedOutcomes gives at most limit outcomes that are to be appended to
// the outcome stream, the oldest first. Only processes with Config.OutcomeStream
// write any.
func (s *Store) UnpublishedOutcomes(ctx context.Context, limit int) ([]job.OutcomeMessage, error) {
	return queryRows(ctx, s, func(row pgx.CollectableRow) (m job.OutcomeMessage, err error) {
		var a attemptScanner
		err = scanRow(row, append([]any{&m.JobID}, a.columns()...)...)
		m.Origin, m.Ended = a.of(m.JobID)
		m.Attempt = m.Ended.Number
		return m, err
	}, statement("unpublishedOutcomes"), limit)
}

// MarkPublished notes that outcomes are in the stream.
func (s *Store) MarkPublished(ctx context.Context, messages []job.OutcomeMessage) error {
	return s.exec(ctx, "publish", statement("markPublished"),
		column(messages, func(m job.OutcomeMessage) pgtype.UUID { return uuid(m.JobID) }),
		column(messages, func(m job.OutcomeMessage) int { return m.Attempt }))
}

// outcomesAtOnce is how many outcomes one statement marks or removes.
const outcomesAtOnce = 5000

// RepublishOutcomes has everything published again that is still there, after
// the stream may have lost some, and gives their number.
func (s *Store) RepublishOutcomes(ctx context.Context) (n int, err error) {
	type round struct{ Found, Changed int }
	for {
		r, err := queryRows(ctx, s, pgx.RowToStructByPos[round], statement("republishOutcomes"), outcomesAtOnce)
		if err != nil || r[0].Found == 0 {
			return n, err
		}
		n += r[0].Changed
	}
}

// RemovePublished removes outcomes that were published longer than minAge ago.
// The stream may lose what it was given last: the caller knows that it
// still has what is that old.
func (s *Store) RemovePublished(ctx context.Context, minAge time.Duration) error {
	for {
		n, err := s.change(ctx, "publish", statement("removePublished"), minAge, outcomesAtOnce)
		if err != nil || n < outcomesAtOnce {
			return err
		}
	}
}
