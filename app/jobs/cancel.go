package jobs

import (
	"context"
	"log/slog"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Cancel cancels a job. It does not change a final job.
func (s *Service) Cancel(ctx context.Context, client, id job.ID) (change job.Change, err error) {
	ctx, span := app.BeginSpan(ctx, telemetry.SpanCancel, client)
	defer func() { app.EndSpan(span, id, change.State, err) }()
	change, before, err := s.Store.Cancel(ctx, client, id)
	if err != nil || before == nil {
		return change, err
	}
	describe(ctx, span, before, change.Attempt)
	telemetry.Link(span, before.TraceParent)
	app.AfterCommit(ctx, func() { s.finishCancel(ctx, before, change) })
	return change, nil
}

// canceledAtOnce limits the jobs of one call of CancelClient. 1000 jobs take some seconds.
const canceledAtOnce = 1000

// CancelClient cancels unfinished jobs of a client. `more` is true if the client may still have unfinished jobs.
func (s *Service) CancelClient(ctx context.Context, client job.ID) (canceled int, more bool, err error) {
	unfinished, err := s.Store.UnfinishedJobs(ctx, client, canceledAtOnce)
	if err != nil {
		return 0, false, err
	}
	canceled, err = s.cancelAll(ctx, client, unfinished)
	return canceled, len(unfinished) == canceledAtOnce, err
}

func (s *Service) cancelAll(ctx context.Context, client job.ID, jobs []job.ID) (int, error) {
	canceled, err := s.Store.CancelAll(ctx, client, jobs)
	app.AfterCommit(ctx, func() {
		for _, c := range canceled {
			s.finishCancel(ctx, c.Before, c.Change)
		}
	})
	return len(canceled), err
}

// FinishErasure cancels the unfinished jobs of an erasure step. It ignores jobs that are gone or have ended. After the commit, it removes
// the tasks of the step's jobs and deliveries.
func (s *Service) FinishErasure(ctx context.Context, client job.ID, step job.ErasureStep, tasks app.Tasks) error {
	app.AfterCommit(ctx, func() {
		tasks.RemoveDeliveries(step.Deliveries...)
		for _, t := range step.Tasks { // the relay may have enqueued a canceled job again
			tasks.Remove(t)
		}
	})
	for _, id := range step.Unfinished {
		_, err := s.Cancel(ctx, client, id)
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

func (s *Service) finishCancel(ctx context.Context, before *job.Job, change job.Change) {
	if before.State.Held() {
		s.Queue.SignalCancel(before.ID)
	} else {
		s.Queue.Remove(job.Task{JobID: before.ID, Attempt: change.Attempt, Dispatch: change.Dispatch})
	}
	s.Metrics.WasCanceled(ctx, before, change)
	app.LogTransition(ctx, s.Log, "cancel", before, before.State, job.Canceled, slog.Int("attempt", change.Attempt))
	app.Publish(s.Queue, before, job.Notification{ClientID: before.ClientID, JobID: before.ID, Attempt: change.Attempt, Ended: true})
	s.Completer.Touch(before.BatchID)
}
