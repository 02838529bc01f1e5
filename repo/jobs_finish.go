package repo

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

var finishJobs = statement("finishJobs")

// Finish ends an attempt: final state, outcome, events, report and result in
// one statement, and with RetryWait the next attempt as well. The trigger
// events_delivered writes the deliveries of these events in the same transaction.
// job.ErrStale: the claim is no longer current and nothing was written.
func (s *Store) Finish(ctx context.Context, f job.Finish) (job.Finished, error) {
	done, err := s.step(ctx, step{finish: &f})
	return done.finished, err
}

func (s *Store) finishArguments(ends []job.Finish) ([]any, error) {
	emits, err := jsonColumn(ends, func(f job.Finish) (emission, bool) {
		if f.Emit == nil {
			return emission{}, false
		}
		return emission{f.Emit.Name, f.Emit.Data}, true
	})
	if err != nil {
		return nil, err
	}
	leases := column(ends, func(f job.Finish) job.Lease { return f.Lease })
	ids, attempts, fences := leaseColumns(leases)
	failures := column(ends, func(f job.Finish) job.Failure {
		if f.Failure == nil {
			return job.Failure{}
		}
		return *f.Failure
	})
	mediaTypes, sums, bodies := make([]*string, len(ends)), make([][]byte, len(ends)), make([][]byte, len(ends))
	for i, f := range ends {
		if r := f.Result; r != nil {
			mediaTypes[i], sums[i], bodies[i] = &r.MediaType, r.SHA256[:], r.Body
		}
	}
	type fail = job.Failure
	return []any{
		ids, attempts, fences,
		column(ends, func(f job.Finish) string { return string(f.State) }),
		column(failures, func(f fail) *string { return nullable(string(f.Reason)) }),
		column(failures, func(f fail) *string { return nullable(string(f.Code)) }),
		column(failures, func(f fail) pgtype.Bool { return pgtype.Bool{Bool: f.Retryable, Valid: f.Code != ""} }),
		column(failures, func(f fail) *int { return nullable(f.RetryAfter) }),
		column(failures, func(f fail) *string { return nullable(string(f.Stage)) }),
		column(failures, func(f fail) *string { return nullable(f.Detail) }),
		column(ends, func(f job.Finish) *time.Duration { return f.RetryWait }),
		column(ends, func(f job.Finish) bool { return f.Exhausted }),
		emits,
		mediaTypes, sums, bodies,
		s.cfg.ResultTTL, eventIDs(len(ends)),
	}, nil
}

// finishedRow is what finishJobs answers with.
type finishedRow struct {
	client, batch job.ID
	kind          job.Kind
	ms            int64
	retryAt       *time.Time
	traceparent   string
}

func collectFinished(rows pgx.Rows) (map[job.ID]finishedRow, error) {
	return collectByID(rows, nil, func(r *finishedRow) []any {
		return []any{scanID(&r.client), scanID(&r.batch), &r.kind, &r.ms, &r.retryAt, &r.traceparent}
	})
}

// of is the answer to the finish that the row belongs to.
func (r finishedRow) of(f *job.Finish) job.Finished {
	done := job.Finished{
		Lease: f.Lease, ClientID: r.client, BatchID: r.batch,
		State: f.State, WorkKind: r.kind, Duration: time.Duration(r.ms) * time.Millisecond,
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
