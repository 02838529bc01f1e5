// Package schedules submits jobs by timetables. The Service creates, changes and triggers schedules. The Runner in the leader process
// submits due jobs through app/jobs.
package schedules

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/internal/timetable"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// Service has the use cases of schedules. The embedded Store reads schedules. In the Store's methods, the zero client id means all
// clients.
type Service struct {
	*repo.Store
	jobs *jobs.Service
	most int // maximum schedules of a client
	log  *slog.Logger
}

// New returns a Service.
func New(store *repo.Store, jobs *jobs.Service, most int, log *slog.Logger) *Service {
	return &Service{store, jobs, most, log}
}

// Create stores a schedule.
func (s *Service) Create(ctx context.Context, r job.ScheduleRequest) (*job.Schedule, error) {
	violations := r.Violations
	if len(violations) == 0 { // the other checks need a request that was decoded without errors
		found, err := s.checkJob(ctx, r.Job)
		if err != nil {
			return nil, err
		}
		violations = append(checkTimes(&r.Schedule), found...)
	}
	if len(violations) > 0 {
		return nil, r.Refusal(violations)
	}
	r.Schedule.ID, r.Schedule.Job = app.NewID(), job.ScheduledJobOf(r.Job)
	created, err := s.Store.InsertSchedule(ctx, r.Schedule, s.most, func(sched *job.Schedule) error {
		return beginFrom(sched, sched.CreatedAt)
	})
	if err == nil {
		app.AfterCommit(ctx, func() { s.logChange(ctx, "schedule created", "create_schedule", created) })
	}
	return created, err
}

func (s *Service) checkJob(ctx context.Context, r job.Request) ([]job.Violation, error) {
	violations, err := s.jobs.CheckScheduled(ctx, r)
	for i := range violations {
		violations[i].Pointer = "/job" + violations[i].Pointer
	}
	return violations, err
}

func checkTimes(s *job.Schedule) (violations []job.Violation) {
	add := func(pointer, detail string) {
		violations = append(violations, job.Violation{Pointer: pointer, Detail: detail})
	}
	switch {
	case s.Cron == "" && s.Interval == 0:
		add("", "A schedule needs cron or interval.")
	case s.Cron != "" && s.Interval != 0:
		add("/interval", "A schedule takes cron or interval, not both.")
	case s.Interval != 0 && s.TimeZone != "":
		add("/time_zone", "Only cron takes a time zone.")
	case s.Interval != 0 && s.Jitter > s.Interval:
		add("/jitter", "The jitter must not be longer than the interval.")
	}
	if s.StartAt != nil && s.EndAt != nil && s.EndAt.Before(*s.StartAt) {
		add("/end_at", "end_at must not be before start_at.")
	}
	return violations
}

var errNever = job.Invalid(job.Violation{Pointer: "", Detail: "The schedule would never run: cron matches no time in the next " +
	"five years, or none before end_at."})

// beginFrom sets the first due time after now. If the clock was set back, the first due time comes after the latest due time that has a
// job.
func beginFrom(s *job.Schedule, now time.Time) error {
	times, err := timetable.New(s.Timetable, s.Anchor())
	if err != nil {
		return err
	}
	s.DueAt, s.LookAt, s.Retrying = nil, nil, false
	if s.Paused {
		return nil
	}
	from := now
	if s.LastDueAt != nil && s.LastDueAt.After(now) {
		from = *s.LastDueAt
	}
	next, ok := times.After(from)
	if !ok {
		return errNever
	}
	look := begin(s, next)
	s.DueAt, s.LookAt = &next, &look
	if s.Pending != nil {
		s.LookAt = &now
	}
	return nil
}

// Change changes a schedule of the client. A new timetable applies to future due times.
func (s *Service) Change(ctx context.Context, client, id job.ID, p job.SchedulePatch) (*job.Schedule, error) {
	violations := p.Violations
	if p.Job != nil && len(violations) == 0 {
		found, err := s.checkJob(ctx, *p.Job)
		if err != nil {
			return nil, err
		}
		violations = append(violations, found...)
	}
	changed, err := s.Store.ChangeSchedule(ctx, client, id, func(sched *job.Schedule, now time.Time) error {
		if len(violations) == 0 {
			p.Apply(sched)
			violations = checkTimes(sched)
		}
		if len(violations) > 0 {
			return job.ScheduleRequest{Unlisted: p.Unlisted, Malformed: p.Malformed}.Refusal(violations)
		}
		if !p.Times {
			return nil
		}
		return beginFrom(sched, now)
	})
	if err == nil {
		app.AfterCommit(ctx, func() { s.logChange(ctx, "schedule changed", "change_schedule", changed) })
	}
	return changed, err
}

// SetPaused pauses or resumes a schedule. Due times during the pause are skipped.
func (s *Service) SetPaused(ctx context.Context, client, id job.ID, paused bool) (*job.Schedule, error) {
	changed, err := s.Store.ChangeSchedule(ctx, client, id, func(sched *job.Schedule, now time.Time) error {
		if sched.Paused == paused {
			return nil
		}
		sched.Paused = paused
		err := beginFrom(sched, now)
		if errors.Is(err, errNever) { // no due time is left
			err = nil
			if sched.Pending != nil {
				sched.LookAt = &now
			}
		}
		return err
	})
	if err == nil {
		message, action := "schedule resumed", "resume_schedule"
		if paused {
			message, action = "schedule paused", "pause_schedule"
		}
		app.AfterCommit(ctx, func() { s.logChange(ctx, message, action, changed) })
	}
	return changed, err
}

// Delete deletes a schedule of the client. Its jobs remain.
func (s *Service) Delete(ctx context.Context, client, id job.ID) error {
	err := s.Store.DeleteSchedule(ctx, client, id)
	if err == nil {
		app.AfterCommit(ctx, func() {
			s.logChange(ctx, "schedule deleted", "delete_schedule", &job.Schedule{ID: id, ClientID: client})
		})
	}
	return err
}

// Trigger submits a job of a schedule now, even if the schedule is paused. It does not change the due times. Until the job ends, it counts
// as a running job for the overlap policy.
func (s *Service) Trigger(ctx context.Context, client, id job.ID, now time.Time, requestID string) (*job.Job, error) {
	sched, err := s.Store.Schedule(ctx, client, id)
	if err != nil {
		return nil, err
	}
	r := sched.Request(now)
	r.RequestID = requestID
	return s.jobs.Trigger(ctx, id, r)
}

func (s *Service) logChange(ctx context.Context, message, action string, sched *job.Schedule) {
	s.log.LogAttrs(ctx, slog.LevelInfo, message, slog.String("action", action), slog.String("schedule_id", sched.ID.String()),
		slog.String("client_id", sched.ClientID.String()))
}
