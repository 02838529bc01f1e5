package jobs

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

var errScheduleNotFound = job.Errorf(job.CodeScheduleMissing, "No schedule with this id was found.")

var scanSchedule = pgx.RowToAddrOfStructByName[job.Schedule]

// definitionArgs returns the arguments from @name to @look_at of insertSchedule and updateSchedule.
func definitionArgs(s *job.Schedule) []any {
	return []any{
		s.Name, pg.Nullable(s.Cron), s.TimeZone, pg.Nullable(s.Interval.Milliseconds()), s.Jitter.Milliseconds(), s.StartAt, s.EndAt,
		string(s.Overlap), string(s.CatchUp), s.CatchUpMax, s.Job, s.Language, s.Paused, s.DueAt, s.LookAt,
	}
}

// InsertSchedule stores a schedule, unless its client has reached the limit. The function `begin` gets the schedule with its time of
// creation, and sets its first due time. InsertSchedule returns after the commit, but a call inside Store.Once returns before Once commits.
func (s *Store) InsertSchedule(ctx context.Context, sched job.Schedule, most int, begin func(*job.Schedule) error) (
	added *job.Schedule, err error,
) {
	err = s.db.InTx(ctx, "schedules", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statement("lockClientsSchedules"), sched.ClientID.String()); err != nil {
			return err
		}
		var has int
		if err := tx.QueryRow(ctx, statement("countSchedules"), pg.UUID(sched.ClientID)).Scan(&has, &sched.CreatedAt); err != nil {
			return err
		}
		if has >= most {
			return job.Errorf(job.CodeConflict, "This client has %d schedules, which is the maximum. Delete one first.", has)
		}
		if err := begin(&sched); err != nil {
			return err
		}
		args := append([]any{pg.UUID(sched.ID), pg.UUID(sched.ClientID), sched.RequestID, sched.CreatedAt}, definitionArgs(&sched)...)
		added, _, err = pg.First(pg.RowsIn(ctx, tx, scanSchedule, statement("insertSchedule"), args...))
		return err
	})
	return added, err
}

// Schedule reads a schedule of a client. If `client` is zero, the schedule may belong to any client.
func (s *Store) Schedule(ctx context.Context, client, id job.ID) (*job.Schedule, error) {
	return pg.QueryOne(ctx, s.db, errScheduleNotFound, scanSchedule, statement("readSchedule"), pg.UUID(id), pg.UUID(client))
}

// ChangeSchedule locks a schedule, calls `change` with it, and stores and returns the changed schedule. If `client` is zero, the schedule
// may belong to any client.
func (s *Store) ChangeSchedule(ctx context.Context, client, id job.ID, change func(s *job.Schedule, now time.Time) error) (
	changed *job.Schedule, err error,
) {
	err = s.db.InTx(ctx, "schedules", func(ctx context.Context, tx pgx.Tx) error {
		type locked struct {
			job.Schedule
			Now time.Time
		}
		sched, found, err := pg.First(pg.RowsIn(ctx, tx, pgx.RowToStructByName[locked], statement("lockSchedule"), pg.UUID(id), pg.UUID(client)))
		if err != nil {
			return err
		}
		if !found {
			return errScheduleNotFound
		}
		if err := change(&sched.Schedule, sched.Now); err != nil {
			return err
		}
		args := append(append([]any{pg.UUID(id)}, definitionArgs(&sched.Schedule)...), sched.Pending, sched.Retrying)
		changed, _, err = pg.First(pg.RowsIn(ctx, tx, scanSchedule, statement("updateSchedule"), args...))
		return err
	})
	return changed, err
}

// DeleteSchedule removes a client's schedule, but not its jobs.
func (s *Store) DeleteSchedule(ctx context.Context, client, id job.ID) error {
	n, err := s.db.Change(ctx, "schedules", statement("deleteSchedule"), pg.UUID(id), pg.UUID(client))
	if err == nil && n == 0 {
		err = errScheduleNotFound
	}
	return err
}

// Schedules lists the schedules of a client, the newest first. If `client` is zero, it lists the schedules of all clients. It returns the
// id to continue after, zero at the end.
func (s *Store) Schedules(ctx context.Context, client job.ID, q job.ScheduleQuery) (list []*job.Schedule, next job.ID, err error) {
	id, before := func(s *job.Schedule) job.ID { return s.ID }, [16]byte(pg.AfterOf(q.After))
	if client.IsZero() {
		return pg.QueryPage(ctx, s.db, q.Limit, id, scanSchedule, statement("listAllSchedules"), before, q.Limit+1)
	}
	return pg.QueryPage(ctx, s.db, q.Limit, id, scanSchedule, statement("listSchedules"), pg.UUID(client), before, q.Limit+1)
}

func (s *Store) insertRunsOf(ctx context.Context, db pg.Conn, jobs []job.Job) error {
	items := make([]insertion, len(jobs))
	for i, j := range jobs {
		items[i] = insertion{Submission: job.Submission{Job: j}, at: j.CreatedAt}
	}
	answers, err := s.insertJobs(ctx, db, items)
	for _, a := range answers {
		if err == nil {
			err = a.Err
		}
	}
	return err
}

// InsertRun stores the job of a run that a client or an operator triggered. Such a run has no due time. InsertRun returns after the commit,
// but a call inside Store.Once returns before Once commits.
func (s *Store) InsertRun(ctx context.Context, j job.Job) error {
	return s.db.InTx(ctx, "schedules", func(ctx context.Context, tx pgx.Tx) error {
		return s.insertRunsOf(ctx, tx, []job.Job{j})
	})
}

// NextLook returns the time until the next check of a schedule. `any` is false if no schedule needs a check.
func (s *Store) NextLook(ctx context.Context) (wait time.Duration, any bool, err error) {
	return pg.QueryFirst(ctx, s.db, pgx.RowTo[time.Duration], statement("nextLook"))
}

// DueSchedules returns at most `limit` schedules that must be checked now. The result alternates between clients, so that one client
// cannot delay the others.
func (s *Store) DueSchedules(ctx context.Context, limit int) ([]job.DueSchedule, error) {
	return pg.QueryAs(ctx, s.db, "schedules", pgx.RowToStructByName[job.DueSchedule], statement("dueSchedules"), limit)
}

// AdvanceSchedules writes the progress and the new jobs of schedules in one commit, and returns the schedules that it advanced. It skips
// schedules that have changed since they were read, and schedules that another transaction has locked.
func (s *Store) AdvanceSchedules(ctx context.Context, steps []job.ScheduleStep) (advanced map[job.ID]bool, err error) {
	type step = job.ScheduleStep
	failures, err := pg.JSONColumn(steps, func(x step) (*job.ScheduleError, bool) { return x.LastError, x.LastError != nil })
	if err != nil {
		return nil, err
	}
	advanced = make(map[job.ID]bool, len(steps))
	err = s.db.InTx(ctx, "schedules", func(ctx context.Context, tx pgx.Tx) error {
		done, err := pg.RowsIn(ctx, tx, pg.RowToID, statement("advanceSchedules"),
			pg.Column(steps, func(x step) pgtype.UUID { return pg.UUID(x.ID) }),
			pg.Column(steps, func(x step) int64 { return x.Version }),
			pg.Column(steps, func(x step) *time.Time { return x.DueAt }),
			pg.Column(steps, func(x step) *time.Time { return x.LookAt }),
			pg.Column(steps, func(x step) *time.Time { return x.Pending }),
			pg.Column(steps, func(x step) bool { return x.Retrying }),
			pg.Column(steps, func(x step) int64 { return x.Runs }),
			pg.Column(steps, func(x step) int64 { return x.Missed }),
			pg.Column(steps, func(x step) int64 { return x.Skipped }),
			pg.Column(steps, func(x step) *time.Time { return x.LastDueAt }),
			pg.Column(steps, func(x step) pgtype.UUID { return pg.UUID(x.LastJobID) }),
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

// DeferSchedules postpones the next check of schedules that have not changed since they were read.
func (s *Store) DeferSchedules(ctx context.Context, due []job.DueSchedule, wait time.Duration) error {
	return s.db.Exec(ctx, "schedules", statement("deferSchedules"),
		pg.Column(due, func(d job.DueSchedule) pgtype.UUID { return pg.UUID(d.ID) }),
		pg.Column(due, func(d job.DueSchedule) int64 { return d.Version }), wait)
}
