// Package erasures removes clients with all that belongs to them. The Service begins and
// shows erasures; the Runner, in the process that leads the maintenance, does them a part at
// a time. The store decides in which order it removes rows; app/jobs cancels the jobs.
package erasures

import (
	"context"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// Service begins and shows erasures.
type Service struct {
	store *repo.Store
	log   *slog.Logger
}

// New makes a Service.
func New(store *repo.Store, log *slog.Logger) *Service { return &Service{store, log} }

// Begin stores the erasure of a client, which the maintenance leader does. A repetition
// returns the erasure that is under way.
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

// Erasures lists erasures, the newest first, and returns where the list goes on.
func (s *Service) Erasures(ctx context.Context, after job.ID, limit int) ([]*job.Erasure, job.ID, error) {
	return s.store.Erasures(ctx, after, limit)
}

func logErasure(ctx context.Context, log *slog.Logger, message, action string, e *job.Erasure) {
	log.InfoContext(ctx, message, "action", action, "request_id", e.RequestID, "erasure_id", e.ID.String(), "client_id", e.ClientID.String(),
		"operator", e.Operator)
}

// roundTime bounds the time of a round for one erasure, so that each has its turn.
const roundTime = time.Second

// Runner does the erasures. It keeps no state of its own: another leader goes on where it stopped.
type Runner struct {
	store *repo.Store
	jobs  *jobs.Service
	tasks app.Tasks
	log   *slog.Logger
}

// NewRunner makes a Runner.
func NewRunner(store *repo.Store, jobs *jobs.Service, tasks app.Tasks, log *slog.Logger) *Runner {
	return &Runner{store, jobs, tasks, log}
}

// Round does parts of each open erasure for a while. An erasure that fails does not delay the others.
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

// advance does parts of an erasure. After each part it rests for as long as the part took.
func (r *Runner) advance(ctx context.Context, leading func() bool, id job.ID) error {
	for began := time.Now(); leading() && time.Since(began) < roundTime; {
		part := time.Now()
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
		if !step.Progress || !app.Sleep(ctx, time.Since(part)) {
			return nil
		}
	}
	return nil
}

// cancel cancels the unfinished jobs. It ignores jobs that are gone or have ended meanwhile.
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
