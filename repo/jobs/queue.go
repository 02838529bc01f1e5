package jobs

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// QueueDue moves at most `limit` due jobs from CREATED to QUEUED, the earliest first. The returned jobs have only identity, callback,
// trace, due time, time of the change to QUEUED, and a part of the definition. This part has the values for the event job.queued.
// Definition is nil if the stored definition is missing or damaged.
func (s *Store) QueueDue(ctx context.Context, limit int) ([]job.Job, error) {
	return pg.QueryAs(ctx, s.db, "schedule", func(row pgx.CollectableRow) (j job.Job, err error) {
		var d job.Definition
		var readable bool
		err = pg.ScanRow(row, &j.ID, &j.ClientID, &j.RequestID, &j.CorrelationID, &j.Callback, &j.TraceParent,
			&j.WorkKind, &d.WorkKind, &readable, &d.DurationMS, &d.ExpectedOutcome, &j.ExecutionAt, &j.UpdatedAt)
		if readable {
			j.Definition = &d
		}
		return j, err
	}, statement("queueDue"), limit, pg.EventIDs(limit))
}

// Waiting returns at most `limit` due jobs that no worker has claimed, in the order of their due times, beginning after the cursor. It
// skips jobs that were stored less than `age` ago.
func (s *Store) Waiting(ctx context.Context, after job.QueueCursor, age time.Duration, limit int) ([]job.Task, error) {
	return pg.Query(ctx, s.db, scanTask, statement("waitingJobs"), after.RunAt, [16]byte(after.JobID), age, limit)
}

// ResumeThrottled counts resumed jobs only among the sweepLook oldest due jobs.
const sweepLook = 20_000

// ResumeThrottled makes at most `limit` throttled jobs due again and returns their tasks. For each client, it stops as soon as `most`
// jobs are held by workers or resumed.
func (s *Store) ResumeThrottled(ctx context.Context, most, limit int) ([]job.Task, error) {
	return pg.QueryAs(ctx, s.db, "resume throttled", scanTask, statement("resumeThrottled"), most, sweepLook, limit)
}

// AnyDue reports whether a due job is still CREATED.
func (s *Store) AnyDue(ctx context.Context) (bool, error) {
	return pg.QueryValue[bool](ctx, s.db, statement("anyDue"))
}
