package worker

import (
	"errors"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// A stale or early task is not an error.
func endAssign(span trace.Span, t job.Task, worker job.ID, c *job.Claim, err error) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.Attempt.Int(t.Attempt))
	if c == nil {
		if early := (*job.TaskEarly)(nil); errors.Is(err, job.ErrTaskStale) || errors.As(err, &early) {
			err = nil
		}
		app.EndSpan(span, t.JobID, "", err)
		return
	}
	span.SetAttributes(telemetry.WorkerID.String(worker.String()))
	app.Describe(span, &c.Job, c.Attempt)
	app.EndSpan(span, t.JobID, job.Assigned, nil)
}

// The span is an error if the work crashed, or if it stopped without an outcome, such as after a lost lease. Other failures and cancels
// are no errors of the span.
func endRun(span trace.Span, f job.Finish, stopped error) {
	if !span.IsRecording() {
		return
	}
	state, err := f.State, error(nil)
	switch {
	case f.Failure != nil:
		span.SetAttributes(telemetry.ErrorCode.String(string(f.Failure.Code)))
		if crashed(f.Failure.Reason) {
			err = errors.New(f.Failure.Detail)
		}
	case state != "":
	case errors.Is(stopped, errCanceled):
		state = job.Canceled
		span.AddEvent("canceled")
	default:
		err = stopped
	}
	if state != "" {
		span.SetAttributes(telemetry.State.String(string(state)))
	}
	telemetry.End(span, err)
}

func crashed(r job.Reason) bool {
	return r == job.DefinitionInvalid || r == job.OutputInvalid || r == job.WorkPanicked
}
