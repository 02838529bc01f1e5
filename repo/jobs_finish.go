package repo

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/forgerun/forgerun/job"
)

// Finish ends an attempt: final state, outcome, events, report and result in
// one statement (stepJobs), and with RetryWait the next attempt as well. The trigger
// events_delivered writes the deliveries of these events in the same transaction.
// job.ErrStale: the claim is no longer current and nothing was written.
func (s *Store) Finish(ctx context.Context, f job.Finish) (job.Finished, error) {
	if f.State != job.Succeeded && f.State != job.Failed {
		return job.Finished{}, &job.Error{Code: job.CodeInternal, Detail: "The data could not be stored.",
			Cause: fmt.Errorf("an attempt does not end %s", f.State)}
	}
	done, err := s.step(ctx, step{finish: &f})
	return done.finished, err
}

// finished is the answer to the finish that the row belongs to.
func (r *steppedRow) finished(f *job.Finish) job.Finished {
	done := job.Finished{
		Lease: f.Lease, ClientID: r.client, BatchID: r.batch,
		State: f.State, WorkKind: r.kind, Duration: time.Duration(deref(r.ms)) * time.Millisecond,
	}
	if r.retryAt != nil {
		done.State = job.Queued
		done.Next = &job.Task{JobID: f.JobID, Attempt: f.Attempt + 1, RunAt: *r.retryAt, TraceParent: r.traceparent}
	}
	return done
}

// emission is the data of event.emitted: the client's name and data.
type emission struct {
	Name string          `json:"name"`
	Data json.RawMessage `json:"data"`
}

func finishBytes(f job.Finish) int {
	if f.Result == nil {
		return 512
	}
	return len(f.Result.Body) + 512
}
