package repo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

var (
	nextLook           = statement("nextLook")
	dueSchedules       = statement("dueSchedules")
	dueSchedulesInTime = statement("dueSchedules", "{{jumped}}", jumpedTo)
	advanceSchedules   = statement("advanceSchedules")
	deferSchedules     = statement("deferSchedules")
)

// jumpedTo is until when due times were jumped over by the clock of a test bed: to where it was moved last, or to now if
// it does not run at the rate of Postgres' clock.
const jumpedTo = `(SELECT CASE WHEN rate = 1 AND NOT frozen THEN service_at ELSE now() END FROM testbed_clock ORDER BY number DESC LIMIT 1)`

// NextLook gives how long it is until a schedule is to be looked at; false if there is none.
func (s *Store) NextLook(ctx context.Context) (wait time.Duration, any bool, err error) {
	return queryFirst(ctx, s, pgx.RowTo[time.Duration], nextLook)
}

// DueSchedules gives at most limit schedules that are to be looked at, the earliest first.
func (s *Store) DueSchedules(ctx context.Context, limit int) ([]job.DueSchedule, error) {
	text := dueSchedules
	if s.cfg.Clock != nil {
		text = dueSchedulesInTime
	}
	return queryRowsAs(ctx, s, "schedules", func(row pgx.CollectableRow) (d job.DueSchedule, err error) {
		return d, scanSchedule(row, &d.Schedule, &d.Now, &d.Busy, &d.Jumped)
	}, text, limit)
}

// AdvanceSchedules writes steps with their jobs in one commit, and says of which: a
// schedule that was changed since it was read, or is being changed, stays as it is and
// gets no job.
func (s *Store) AdvanceSchedules(ctx context.Context, steps []job.ScheduleStep) (advanced map[job.ID]bool, err error) {
	type step = job.ScheduleStep
	failures, err := jsonColumn(steps, func(x step) (*job.ScheduleError, bool) { return x.LastError, x.LastError != nil })
	if err != nil {
		return nil, err
	}
	advanced = make(map[job.ID]bool, len(steps))
	err = s.inTx(ctx, "schedules", func(ctx context.Context, tx pgx.Tx) error {
		done, err := rowsIn(ctx, tx, rowToID, advanceSchedules,
			column(steps, func(x step) pgtype.UUID { return uuid(x.ID) }),
			column(steps, func(x step) int64 { return x.Version }),
			column(steps, func(x step) *time.Time { return x.DueAt }),
			column(steps, func(x step) *time.Time { return x.LookAt }),
			column(steps, func(x step) *time.Time { return x.Pending }),
			column(steps, func(x step) bool { return x.Retrying }),
			column(steps, func(x step) int64 { return x.Runs }),
			column(steps, func(x step) int64 { return x.Missed }),
			column(steps, func(x step) int64 { return x.Skipped }),
			column(steps, func(x step) *time.Time { return x.LastDueAt }),
			column(steps, func(x step) pgtype.UUID { return uuid(x.LastJobID) }),
			failures)
		if err != nil {
			return err
		}
		for _, id := range done {
			advanced[id] = true
		}
		var jobs []job.Job
		for _, x := range steps {
			if advanced[x.ID] {
				jobs = append(jobs, x.Jobs...)
			}
		}
		if len(jobs) == 0 {
			return nil
		}
		return s.insertRunsOf(ctx, tx, jobs)
	})
	if err != nil {
		return nil, err
	}
	return advanced, nil
}

// DeferSchedules has schedules that are as they were read looked at again after a wait.
func (s *Store) DeferSchedules(ctx context.Context, due []job.DueSchedule, wait time.Duration) error {
	return s.exec(ctx, "schedules", deferSchedules,
		column(due, func(d job.DueSchedule) pgtype.UUID { return uuid(d.ID) }),
		column(due, func(d job.DueSchedule) int64 { return d.Version }), wait)
}
