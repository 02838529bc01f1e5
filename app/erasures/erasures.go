// Package erasures removes clients with all that belongs to them. The use cases begin and
// show erasures; the Runner, in the process that leads the maintenance, does them a part at
// a time. In which order what is removed is decided in storage, jobs are canceled where
// single jobs are.
package erasures

import (
	"context"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// Store is what the use cases need of storage.
type Store interface {
	// BeginErasure gives the erasure that is under way if there is one.
	BeginErasure(ctx context.Context, id job.ID, r job.ErasureRequest) (e *job.Erasure, begun bool, err error)
	Erasure(ctx context.Context, id job.ID) (*job.Erasure, error)
	Erasures(ctx context.Context, after job.ID, limit int) (list []*job.Erasure, next job.ID, err error)
}

// Service is the use cases of erasures.
type Service struct {
	store Store
	log   *slog.Logger
}

// New makes the use cases.
func New(store Store, log *slog.Logger) *Service { return &Service{store, log} }

// Begin stores the erasure of a client, which the maintenance leader does. A
// repetition gives the erasure that is under way.
func (s *Service) Begin(ctx context.Context, r job.ErasureRequest) (*job.Erasure, error) {
	e, begun, err := s.store.BeginErasure(ctx, app.NewID(), r)
	if err == nil && begun {
		logErasure(ctx, s.log, "erasure accepted", "begin_erasure", e)
	}
	return e, err
}

// Erasure reads an erasure.
func (s *Service) Erasure(ctx context.Context, id job.ID) (*job.Erasure, error) {
	return s.store.Erasure(ctx, id)
}

// Erasures lists erasures, the newest first, and says where to go on.
func (s *Service) Erasures(ctx context.Context, after job.ID, limit int) ([]*job.Erasure, job.ID, error) {
	return s.store.Erasures(ctx, after, limit)
}

func logErasure(ctx context.Context, log *slog.Logger, message, action string, e *job.Erasure) {
	log.InfoContext(ctx, message, "action", action, "request_id", e.RequestID, "erasure_id", e.ID.String(), "client_id", e.ClientID.String(),
		"operator", e.Operator)
}

// WorkStore is what the Runner needs of storage.
type WorkStore interface {
	OpenErasures(ctx context.Context) ([]*job.Erasure, error)
	// EraseStep does the next part of an erasure. Its Erasure is nil if another process does.
	EraseStep(ctx context.Context, id job.ID) (job.ErasureStep, error)
}

// Canceler cancels jobs, as their clients do.
type Canceler interface {
	Cancel(ctx context.Context, client, id job.ID) (job.Change, error)
}

// Tasks are the tasks of jobs and deliveries in the queue.
type Tasks interface {
	Remove(t job.Task)
	RemoveDeliveries(ids ...job.ID)
}

// roundTime bounds what one round does for one erasure, so that each has its turn.
const roundTime = time.Second

// Runner does the erasures, one part after the other. All that it knows of them is in
// storage.
type Runner struct {
	store WorkStore
	jobs  Canceler
	tasks Tasks
	clock app.Clock
	log   *slog.Logger
}

// NewRunner makes a runner; the clock is time.Now if nil.
func NewRunner(store WorkStore, jobs Canceler, tasks Tasks, clock app.Clock, log *slog.Logger) *Runner {
	if clock == nil {
		clock = time.Now
	}
	return &Runner{store, jobs, tasks, clock, log}
}

// Round does parts of each open erasure for a while. An erasure that fails does not keep
// the others.
func (r *Runner) Round(ctx context.Context, leading func() bool) error {
	open, err := r.store.OpenErasures(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, e := range open {
		if !leading() {
			return failed
		}
		if err := r.advance(ctx, leading, e.ID); err != nil {
			failed = err
			r.log.WarnContext(ctx, "erasure does not get on", "action", "erase", "erasure_id", e.ID.String(), app.ErrorFields(err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

// advance does parts of an erasure, and rests after each for as long as it took.
func (r *Runner) advance(ctx context.Context, leading func() bool, id job.ID) error {
	for began := r.clock(); leading() && r.clock().Sub(began) < roundTime; {
		part := r.clock()
		step, err := r.store.EraseStep(ctx, id)
		if err != nil || step.Erasure == nil {
			return err
		}
		r.tasks.RemoveDeliveries(step.Deliveries...)
		for _, t := range step.Tasks { // once more: the relay may have enqueued the job while it was canceled
			r.tasks.Remove(t)
		}
		if err := r.cancel(ctx, step); err != nil {
			return err
		}
		if step.Erasure.State() == job.ErasureDone {
			logErasure(ctx, r.log, "client erased", "finish_erasure", step.Erasure)
			return nil
		}
		if !step.Progress || !app.Sleep(ctx, r.clock().Sub(part)) {
			return nil
		}
	}
	return nil
}

// cancel cancels jobs. One that is gone, or has ended, is as it should be.
func (r *Runner) cancel(ctx context.Context, step job.ErasureStep) error {
	for _, id := range step.Unfinished {
		_, err := r.jobs.Cancel(ctx, step.Erasure.ClientID, id)
		switch job.CodeOf(err) {
		case job.CodeJobNotFound, job.CodeJobGone, job.CodeConflict:
		default:
			if err != nil {
				return err
			}
		}
	}
	return nil
}
