package jobs

import (
	"context"
	"slices"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// RunStore stores the job of a run that is not of the timetable.
type RunStore interface {
	InsertRun(ctx context.Context, j job.Job) error
}

// Scheduled submits the jobs of schedules by the rules of single submissions: the same
// checks, limits, tasks and metrics. Not for use by two goroutines.
type Scheduled struct {
	s      *Service
	store  RunStore
	proven map[job.ID]origins // of the clients of this round
}

// NewScheduled makes it of a Service that has a Capacity.
func NewScheduled(s *Service, store RunStore) *Scheduled { return &Scheduled{s: s, store: store} }

// Check gives everything that is wrong with the request for the job of a schedule.
func (x *Scheduled) Check(ctx context.Context, r job.Request) ([]job.Violation, error) {
	if r.Type == job.Deferred {
		return append(r.Violations, job.Violation{Pointer: "/type", Detail: "The schedule says when its jobs run: their type must be " +
			"EXECUTE or EMIT_EVENT."}), nil
	}
	proven, err := x.s.provenOf(ctx, r.ClientID, r.Callback != "")
	if err != nil {
		return nil, err
	}
	now := x.s.cfg.Clock()
	return slices.Concat(x.s.check(r, now), x.s.checkNow(r, now, proven)), nil
}

// Begin begins a round.
func (x *Scheduled) Begin() { x.proven = map[job.ID]origins{} }

// Prepare makes the job of a run, which is to be stored by the caller, and takes room
// for it. done says whether it was, with storage's error; an error is why it must not be.
func (x *Scheduled) Prepare(ctx context.Context, schedule job.ID, r job.Request) (j job.Job, done func(stored bool, err error), err error) {
	proven, known := x.proven[r.ClientID]
	if !known && r.Callback != "" {
		if proven, err = x.s.provenOf(ctx, r.ClientID, true); err != nil {
			return job.Job{}, nil, err
		}
		x.proven[r.ClientID] = proven
	}
	return x.prepare(ctx, schedule, r, proven)
}

func (x *Scheduled) prepare(
	ctx context.Context, schedule job.ID, r job.Request, proven origins,
) (j job.Job, done func(stored bool, err error), err error) {
	if most := x.s.cfg.MaxAttempts; r.Retry != nil && r.Retry.MaxAttempts > most {
		clamped := *r.Retry // the limit was lowered after the schedule was stored
		clamped.MaxAttempts, r.Retry = most, &clamped
	}
	now := x.s.cfg.Clock()
	violations := slices.Concat(x.s.check(r, now), x.s.checkNow(r, now, proven))
	if len(violations) == 0 {
		j, violations = x.s.define(r)
	}
	if len(violations) > 0 {
		return job.Job{}, nil, r.Refusal(violations)
	}
	if refusal := x.s.drained(&j); refusal != nil {
		return job.Job{}, nil, refusal
	}
	if err := x.s.weigh(ctx, r.ClientID, j); err != nil {
		return job.Job{}, nil, err
	}
	room, err := x.s.deps.Capacity.reserve(ctx, r.ClientID, loadOf(nil))
	if err != nil {
		return job.Job{}, nil, err
	}
	j.ScheduleID, j.Lease = schedule, room.leased()
	return j, func(stored bool, err error) { room.end(ctx, stored, err) }, nil
}

// Stored enqueues jobs that were stored, and publishes them.
func (x *Scheduled) Stored(ctx context.Context, stored []job.Job) {
	x.s.enqueueAll(ctx, stored)()
	for i := range stored {
		x.s.accepted(ctx, &stored[i], job.Queued)
		app.Publish(x.s.deps.Queue, &stored[i], app.NotificationOf(&stored[i]))
	}
}

// Trigger submits a job of a schedule that is not of its timetable.
func (x *Scheduled) Trigger(ctx context.Context, schedule job.ID, r job.Request) (*job.Job, error) {
	proven, err := x.s.provenOf(ctx, r.ClientID, r.Callback != "")
	if err != nil {
		return nil, err
	}
	j, done, err := x.prepare(ctx, schedule, r, proven)
	if err != nil {
		return nil, err
	}
	err = x.store.InsertRun(ctx, j)
	done(err == nil, err)
	if err != nil {
		return nil, err
	}
	app.AfterCommit(ctx, func() { x.Stored(ctx, []job.Job{j}) })
	return &j, nil
}
