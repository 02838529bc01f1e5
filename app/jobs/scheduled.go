package jobs

import (
	"context"
	"slices"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// Scheduled submits the jobs of schedules by the rules of single submissions, with the same checks, limits, tasks and metrics.
type Scheduled struct {
	s      *Service
	proven map[job.ID]origins // origins of clients in this round; only used by the goroutine of Begin and Prepare
}

// NewScheduled returns a Scheduled.
func NewScheduled(s *Service) *Scheduled { return &Scheduled{s: s} }

// Check returns the violations of the job request of a schedule.
func (x *Scheduled) Check(ctx context.Context, r job.Request) ([]job.Violation, error) {
	if r.Type == job.Deferred {
		return append(r.Violations, job.Violation{Pointer: "/type", Detail: "The schedule sets when its jobs run: their type must " +
			"be EXECUTE or EMIT_EVENT."}), nil
	}
	proven, err := x.s.provenOrigins(ctx, r.ClientID, r.Callback != "")
	if err != nil {
		return nil, err
	}
	_, invalid, untimely := x.s.define(r, x.s.cfg.Clock(), proven)
	return slices.Concat(invalid, untimely), nil
}

// Run is the job of a run with its reserved room.
type Run struct {
	Job  job.Job
	room *reservation
}

// Begin starts a round: it forgets the proven origins.
func (x *Scheduled) Begin() { x.proven = map[job.ID]origins{} }

// Prepare builds the job of a run and reserves room for it. The caller stores the job and calls Finish.
func (x *Scheduled) Prepare(ctx context.Context, schedule job.ID, r job.Request) (Run, error) {
	proven, known := x.proven[r.ClientID]
	if !known && r.Callback != "" {
		var err error
		if proven, err = x.s.provenOrigins(ctx, r.ClientID, true); err != nil {
			return Run{}, err
		}
		x.proven[r.ClientID] = proven
	}
	return x.prepare(ctx, schedule, r, proven)
}

func (x *Scheduled) prepare(ctx context.Context, schedule job.ID, r job.Request, proven origins) (Run, error) {
	if most := x.s.cfg.MaxAttempts; r.Retry != nil && r.Retry.MaxAttempts > most {
		clamped := *r.Retry // the limit was lowered after the schedule was stored
		clamped.MaxAttempts, r.Retry = most, &clamped
	}
	j, invalid, untimely := x.s.define(r, x.s.cfg.Clock(), proven)
	if violations := slices.Concat(invalid, untimely); len(violations) > 0 {
		return Run{}, r.Refusal(violations)
	}
	j.ScheduleID = schedule
	jobs := []job.Job{j}
	room, err := x.s.admit(ctx, r.ClientID, jobs)
	return Run{jobs[0], room}, err
}

// Finish releases the room of runs that were not stored. It enqueues, counts and publishes the stored jobs. err is the error of storage.
func (x *Scheduled) Finish(ctx context.Context, runs []Run, stored bool, err error) {
	for i := range runs {
		runs[i].room.end(ctx, stored, err)
	}
	if !stored {
		return
	}
	app.AfterCommit(ctx, func() {
		for i := range runs {
			j := &runs[i].Job
			x.s.Queue.Enqueue(firstTask(ctx, j))
			x.s.recordSubmitted(ctx, j, job.Queued)
			app.Publish(x.s.Queue, j, app.NotificationOf(j))
		}
	})
}

// Trigger submits a job of a schedule outside its timetable.
func (x *Scheduled) Trigger(ctx context.Context, schedule job.ID, r job.Request) (*job.Job, error) {
	proven, err := x.s.provenOrigins(ctx, r.ClientID, r.Callback != "")
	if err != nil {
		return nil, err
	}
	run, err := x.prepare(ctx, schedule, r, proven)
	if err != nil {
		return nil, err
	}
	err = x.s.Store.InsertRun(ctx, run.Job)
	x.Finish(ctx, []Run{run}, err == nil, err)
	if err != nil {
		return nil, err
	}
	return &run.Job, nil
}
