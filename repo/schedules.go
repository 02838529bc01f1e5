package repo

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

var (
	lockClientsSchedules = statement("lockClientsSchedules")
	countSchedules       = statement("countSchedules")
	insertSchedule       = statement("insertSchedule")
	readSchedule         = statement("readSchedule")
	lockSchedule         = statement("lockSchedule")
	updateSchedule       = statement("updateSchedule")
	deleteSchedule       = statement("deleteSchedule")
	listSchedules        = statement("listSchedules")
	listAllSchedules     = statement("listAllSchedules")
)

var errScheduleNotFound = job.Errorf(job.CodeScheduleMissing, "No schedule with this id was found.")

// scheduleColumns is the one column list of a schedule, read by scanSchedule.
const scheduleColumns = `schedules.schedule_id, schedules.client_id, schedules.name, coalesce(schedules.cron, ''), schedules.time_zone,
  coalesce(schedules.interval_ms, 0), schedules.jitter_ms, schedules.start_at, schedules.end_at, schedules.overlap, schedules.catch_up,
  schedules.catch_up_max, schedules.job, schedules.language, schedules.request_id, schedules.paused, schedules.created_at,
  schedules.updated_at, schedules.version, schedules.due_at, schedules.look_at, schedules.pending_for, schedules.retrying,
  schedules.runs, schedules.missed, schedules.skipped, schedules.last_due_at, schedules.last_job_id, schedules.last_error`

// scanSchedule reads a row of leading columns and scheduleColumns.
func scanSchedule(row pgx.CollectableRow, s *job.Schedule, leading ...any) error {
	var interval, jitter int64
	var work, failed []byte
	err := row.Scan(append(leading, scanID(&s.ID), scanID(&s.ClientID), &s.Name, &s.Cron, &s.TimeZone,
		&interval, &jitter, &s.StartAt, &s.EndAt, &s.Overlap, &s.CatchUp,
		&s.CatchUpMax, &work, &s.Language, &s.RequestID, &s.Paused, &s.CreatedAt,
		&s.UpdatedAt, &s.Version, &s.DueAt, &s.LookAt, &s.Pending, &s.Retrying,
		&s.Runs, &s.Missed, &s.Skipped, &s.LastDueAt, scanID(&s.LastJobID), &failed)...)
	if err != nil {
		return err
	}
	s.Interval, s.Jitter = time.Duration(interval)*time.Millisecond, time.Duration(jitter)*time.Millisecond
	if failed != nil {
		s.LastError = &job.ScheduleError{}
		if err := json.Unmarshal(failed, s.LastError); err != nil {
			return err
		}
	}
	return json.Unmarshal(work, &s.Job)
}

func scanOneSchedule(row pgx.CollectableRow) (*job.Schedule, error) {
	var s job.Schedule
	return &s, scanSchedule(row, &s)
}

// definitionArgs are the arguments from @name to @look_at.
func definitionArgs(s *job.Schedule, work []byte) []any {
	return []any{
		s.Name, nullable(s.Cron), s.TimeZone, nullable(s.Interval.Milliseconds()), s.Jitter.Milliseconds(), s.StartAt, s.EndAt,
		string(s.Overlap), string(s.CatchUp), s.CatchUpMax, work, s.Language, s.Paused, s.DueAt, s.LookAt,
	}
}

// InsertSchedule stores a schedule, unless its client has so many already. begin is
// given its time of creation, and says when it is due first. It returns only after the
// commit, unless that is Once's.
func (s *Store) InsertSchedule(ctx context.Context, sched job.Schedule, most int, begin func(*job.Schedule) error) (
	added *job.Schedule, err error,
) {
	work, err := json.Marshal(sched.Job)
	if err != nil {
		return nil, err
	}
	err = s.inTx(ctx, "schedules", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockClientsSchedules, sched.ClientID.String()); err != nil {
			return err
		}
		var has int
		if err := tx.QueryRow(ctx, countSchedules, uuid(sched.ClientID)).Scan(&has, &sched.CreatedAt); err != nil {
			return err
		}
		if has >= most {
			return job.Errorf(job.CodeConflict, "There are %d schedules already, which is the most that a client may have. Delete one first.", has)
		}
		if err := begin(&sched); err != nil {
			return err
		}
		args := append([]any{uuid(sched.ID), uuid(sched.ClientID), sched.RequestID, sched.CreatedAt}, definitionArgs(&sched, work)...)
		found, err := rowsIn(ctx, tx, scanOneSchedule, insertSchedule, args...)
		if err == nil {
			added = found[0]
		}
		return err
	})
	return added, err
}

// Schedule reads a schedule of a client; with the zero client, anybody's.
func (s *Store) Schedule(ctx context.Context, client, id job.ID) (*job.Schedule, error) {
	found, ok, err := queryFirst(ctx, s, scanOneSchedule, readSchedule, uuid(id), uuid(client))
	if err == nil && !ok {
		err = errScheduleNotFound
	}
	return found, err
}

// ChangeSchedule has change change a schedule of a client, or with the zero client
// anybody's, and gives it as it is then. Nothing else changes it meanwhile.
func (s *Store) ChangeSchedule(ctx context.Context, client, id job.ID, change func(s *job.Schedule, now time.Time) error) (
	changed *job.Schedule, err error,
) {
	err = s.inTx(ctx, "schedules", func(ctx context.Context, tx pgx.Tx) error {
		var now time.Time
		found, err := rowsIn(ctx, tx, func(row pgx.CollectableRow) (*job.Schedule, error) {
			var s job.Schedule
			return &s, scanSchedule(row, &s, &now)
		}, lockSchedule, uuid(id), uuid(client))
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return errScheduleNotFound
		}
		sched := found[0]
		if err := change(sched, now); err != nil {
			return err
		}
		work, err := json.Marshal(sched.Job)
		if err != nil {
			return err
		}
		args := append(append([]any{uuid(id)}, definitionArgs(sched, work)...), sched.Pending, sched.Retrying)
		if found, err = rowsIn(ctx, tx, scanOneSchedule, updateSchedule, args...); err == nil {
			changed = found[0]
		}
		return err
	})
	return changed, err
}

// DeleteSchedule removes a schedule of a client. Its jobs stay.
func (s *Store) DeleteSchedule(ctx context.Context, client, id job.ID) error {
	n, err := s.change(ctx, "schedules", deleteSchedule, uuid(id), uuid(client))
	if err == nil && n == 0 {
		err = errScheduleNotFound
	}
	return err
}

// Schedules lists the schedules of a client, the newest first; with the zero client,
// all. It answers where the list goes on, the zero id at its end.
func (s *Store) Schedules(ctx context.Context, client job.ID, q job.ScheduleQuery) (list []*job.Schedule, next job.ID, err error) {
	before := q.After
	if before.IsZero() {
		_, before = idRange(job.Query{})
	}
	if client.IsZero() {
		list, err = queryRows(ctx, s, scanOneSchedule, listAllSchedules, [16]byte(before), q.Limit+1)
	} else {
		list, err = queryRows(ctx, s, scanOneSchedule, listSchedules, uuid(client), [16]byte(before), q.Limit+1)
	}
	if len(list) > q.Limit {
		list = list[:q.Limit]
		next = list[q.Limit-1].ID
	}
	return list, next, err
}

// insertRunsOf stores the jobs of runs.
func (s *Store) insertRunsOf(ctx context.Context, db querier, jobs []job.Job) error {
	items := make([]insertion, len(jobs))
	for i, j := range jobs {
		items[i] = insertion{Submission: job.Submission{Job: j}, at: j.CreatedAt}
	}
	answers, err := s.insertWith(ctx, db, insertRuns, items,
		column(jobs, func(j job.Job) pgtype.UUID { return uuid(j.ScheduleID) }),
		column(jobs, func(j job.Job) *time.Time { return j.ScheduledFor }))
	for _, a := range answers {
		if err == nil {
			err = a.err
		}
	}
	return err
}

// InsertRun stores the job of a run that is not of the timetable. It returns only after
// the commit, unless that is Once's.
func (s *Store) InsertRun(ctx context.Context, j job.Job) error {
	return s.inTx(ctx, "schedules", func(ctx context.Context, tx pgx.Tx) error {
		return s.insertRunsOf(ctx, tx, []job.Job{j})
	})
}
