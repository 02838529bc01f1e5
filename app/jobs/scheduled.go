package jobs

import (
	"context"
	"slices"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// CheckScheduled returns the violations in a schedule's job request. The request must be a valid submission, and its type must not be
// DEFERRED.
func (s *Service) CheckScheduled(ctx context.Context, r job.Request) ([]job.Violation, error) {
	if r.Type == job.Deferred {
		return append(r.Violations, job.Violation{Pointer: "/type", Detail: "The schedule sets when its jobs run: their type must " +
			"be EXECUTE or EMIT_EVENT."}), nil
	}
	proven, err := s.provenOrigins(ctx, r.ClientID, r.Callback != "")
	if err != nil {
		return nil, err
	}
	_, invalid, untimely := s.define(r, s.cfg.Clock(), proven)
	return slices.Concat(invalid, untimely), nil
}

// Run is a schedule's job that is not stored yet, with the capacity reserved for the job.
type Run struct {
	Job  job.Job
	room *reservation
}

// Origins caches the allowed callback origins of each client, for several calls of PrepareRun.
type Origins map[job.ID]origins

// PrepareRun builds the job for one run of a schedule, and reserves capacity for it. The caller stores the job and calls FinishRuns.
func (s *Service) PrepareRun(ctx context.Context, schedule job.ID, r job.Request, known Origins) (run Run, err error) {
	proven, read := known[r.ClientID]
	if !read && r.Callback != "" {
		if proven, err = s.provenOrigins(ctx, r.ClientID, true); err != nil {
			return Run{}, err
		}
		known[r.ClientID] = proven
	}
	if most := s.cfg.MaxAttempts; r.Retry != nil && r.Retry.MaxAttempts > most {
		clamped := *r.Retry // MaxAttempts was lowered after the schedule was stored
		clamped.MaxAttempts, r.Retry = most, &clamped
	}
	j, invalid, untimely := s.define(r, s.cfg.Clock(), proven)
	if violations := slices.Concat(invalid, untimely); len(violations) > 0 {
		return Run{}, r.Refusal(violations)
	}
	j.ScheduleID = schedule
	jobs := []job.Job{j}
	room, err := s.admit(ctx, r.ClientID, jobs)
	return Run{jobs[0], room}, err
}

// FinishRuns releases the reserved capacity if `stored` is false. Otherwise it enqueues and publishes the jobs. err is the error of the
// write, or nil.
func (s *Service) FinishRuns(ctx context.Context, runs []Run, stored bool, err error) {
	for i := range runs {
		runs[i].room.end(ctx, stored, err)
	}
	if !stored {
		return
	}
	app.AfterCommit(ctx, func() {
		for i := range runs {
			j := &runs[i].Job
			s.Queue.Enqueue(firstTask(ctx, j))
			s.recordSubmitted(ctx, j, job.Queued)
			app.Publish(s.Queue, j, app.NotificationOf(j))
		}
	})
}

// Trigger submits a job of a schedule outside its timetable.
func (s *Service) Trigger(ctx context.Context, schedule job.ID, r job.Request) (*job.Job, error) {
	run, err := s.PrepareRun(ctx, schedule, r, Origins{})
	if err != nil {
		return nil, err
	}
	err = s.Store.InsertRun(ctx, run.Job)
	s.FinishRuns(ctx, []Run{run}, err == nil, err)
	if err != nil {
		return nil, err
	}
	return &run.Job, nil
}
