// Package erasures removes clients with all of their data. The Service starts erasures. The Runner, in the leader process, removes the
// data in parts.
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

// Service starts erasures; the embedded Store reads them.
type Service struct {
	*repo.Store
	log *slog.Logger
}

// New returns a Service.
func New(store *repo.Store, log *slog.Logger) *Service { return &Service{store, log} }

// Begin stores the erasure of a client. The leader carries it out. If an erasure of the client is in progress, Begin returns it.
func (s *Service) Begin(ctx context.Context, r job.ErasureRequest) (*job.Erasure, error) {
	e, begun, err := s.BeginErasure(ctx, app.NewID(), r)
	if err == nil && begun {
		logErasure(ctx, s.log, "erasure accepted", "begin_erasure", e)
	}
	return e, err
}

func logErasure(ctx context.Context, log *slog.Logger, message, action string, e *job.Erasure) {
	log.InfoContext(ctx, message, "action", action, "request_id", e.RequestID, "erasure_id", e.ID.String(), "client_id", e.ClientID.String(),
		"operator", e.Operator)
}

// roundTime limits the time per erasure in a round, so one erasure cannot delay the others.
const roundTime = time.Second

// Runner carries out the erasures. If the leader changes, the next leader continues from the stored progress.
type Runner struct {
	store *repo.Store
	jobs  *jobs.Service
	tasks app.Tasks
	log   *slog.Logger
}

// NewRunner returns a Runner.
func NewRunner(store *repo.Store, jobs *jobs.Service, tasks app.Tasks, log *slog.Logger) *Runner {
	return &Runner{store, jobs, tasks, log}
}

// Round works on each open erasure for at most roundTime. An erasure that fails does not delay the others.
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
			r.log.WarnContext(ctx, "erasure makes no progress", "action", "erase", "erasure_id", e.ID.String(), app.ErrorFields(err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

// advance erases parts of one client. It pauses after each part for as long as the part took.
func (r *Runner) advance(ctx context.Context, leading func() bool, id job.ID) error {
	for began := time.Now(); leading() && time.Since(began) < roundTime; {
		part := time.Now()
		step, err := r.store.EraseStep(ctx, id)
		if err != nil || step.Erasure == nil {
			return err
		}
		if err := r.jobs.FinishErasure(ctx, step.Erasure.ClientID, step, r.tasks); err != nil {
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
