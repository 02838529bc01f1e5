package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

type claimRequest struct {
	worker, job job.ID
	attempt     int
}

// Claim claims the attempt for the worker. The job must wait for this attempt and be due, and the worker must be alive. If the worker
// already has the claim, Claim returns the claim again, because an earlier answer may have been lost. A repeated answer does not say
// whether the attempt already runs. The worker must keep track of that. If the attempt cannot be claimed, the claim is nil, and NotClaimed
// is the reason.
func (s *Store) Claim(ctx context.Context, worker, id job.ID, attempt int) (*job.Claim, job.NotClaimed, error) {
	done, err := s.step(ctx, step{operation: claimStep, job: id, claim: &claimRequest{worker, id, attempt}})
	return done.claim, done.not, err
}

// Start moves a claimed job to RUNNING if its worker is alive, and returns the time of the change. If the job was started before and the
// answer was lost, Start returns that answer. If the claim is no longer current, Start returns job.ErrStale and writes nothing.
func (s *Store) Start(ctx context.Context, claim job.ClaimID) (time.Time, error) {
	done, err := s.step(ctx, step{operation: startStep, job: claim.JobID, start: &claim})
	return done.started, err
}

func collectClaims(rows pgx.Rows) (map[job.ID]*job.Claim, error) {
	claims, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*job.Claim, error) {
		var c job.Claim
		err := scanJob(row, &c.Job, &c.WasCreated, &c.Fence, &c.QueuedAt)
		c.JobID, c.Attempt = c.Job.ID, c.Job.Attempt
		return &c, err
	})
	return pg.ByID(claims, func(c *job.Claim) job.ID { return c.JobID }), err
}

func claimColumns(claims []job.ClaimID) (ids []pgtype.UUID, attempts []int, fences []int64) {
	return pg.Column(claims, func(c job.ClaimID) pgtype.UUID { return pg.UUID(c.JobID) }),
		pg.Column(claims, func(c job.ClaimID) int { return c.Attempt }),
		pg.Column(claims, func(c job.ClaimID) int64 { return c.Fence })
}

// Release moves ASSIGNED jobs with an expired lease back to QUEUED (API contract, section 12). Each job becomes due after its time in
// `waits`. Release returns the tasks to enqueue, and skips claims that are no longer current.
func (s *Store) Release(ctx context.Context, claims []job.ClaimID, waits []time.Duration) ([]job.Task, error) {
	ids, attempts, fences := claimColumns(claims)
	return pg.QueryAs(ctx, s.db, "release", scanTask, statement("releaseJobs"), ids, attempts, fences, waits)
}

var scanTask = pgx.RowToStructByName[job.Task]

// Emit adds event.emitted to the log of a running job. `before` is the number of events that the attempt emitted earlier. If a call is
// repeated after a lost answer, this number prevents a second event. Emit returns job.ErrStale and writes nothing if the claim is no longer
// current.
func (s *Store) Emit(ctx context.Context, c job.ClaimID, before int, e job.Emission) error {
	id := pg.EventIDs(1)[0]
	for {
		rows, err := pg.QueryAs(ctx, s.db, "emit", pgx.RowTo[*bool], statement("emitEvent"),
			pg.UUID(c.JobID), c.Attempt, c.Fence, before, id, emission{e.Name, e.Data}, e.At)
		switch {
		case err != nil:
			return err
		case len(rows) == 0:
			return job.ErrStale
		case rows[0] != nil:
			return nil
		}
	}
}

// Finish ends an attempt. One statement (stepJobs) writes the final state, events, report and result. With RetryWait, it also queues the
// next attempt. The trigger events_delivered writes the deliveries of these events in the same transaction. Finish returns job.ErrStale and
// writes nothing if the claim is no longer current.
func (s *Store) Finish(ctx context.Context, f job.Finish) (job.Finished, error) {
	if f.State != job.Succeeded && f.State != job.Failed {
		return job.Finished{}, &job.Error{Code: job.CodeInternal, Detail: "The data could not be stored.",
			Cause: fmt.Errorf("an attempt cannot end in the state %s", f.State)}
	}
	done, err := s.step(ctx, step{operation: finishStep, job: f.JobID, finish: &f})
	return done.finished, err
}

func (r *stepRow) finished(f *job.Finish) job.Finished {
	done := job.Finished{
		ClaimID: f.ClaimID, ClientID: r.client, BatchID: r.batch,
		State: f.State, WorkKind: r.kind, Duration: time.Duration(pg.Deref(r.ms)) * time.Millisecond,
	}
	if r.retryAt != nil {
		done.State = job.Queued
		done.Next = &job.Task{JobID: f.JobID, Attempt: f.Attempt + 1, RunAt: *r.retryAt, TraceParent: r.traceparent,
			ClientID: r.client, WorkKind: r.kind, Reason: f.Failure.Reason}
	}
	return done
}

type emission struct {
	Name string          `json:"name"`
	Data json.RawMessage `json:"data"`
}

func (s *Store) stepArguments(steps []step) ([]any, error) {
	n := len(steps)
	ids, workers := make([]pgtype.UUID, n), make([]pgtype.UUID, n)
	attempts, fences, nexts := make([]int, n), make([]int64, n), make([]string, n)
	ends := make([]job.Finish, n) // empty for claims and starts
	for i, st := range steps {
		var claim job.ClaimID
		switch {
		case st.claim != nil:
			claim, nexts[i] = job.ClaimID{JobID: st.claim.job, Attempt: st.claim.attempt}, string(job.Assigned)
			workers[i] = pg.UUID(st.claim.worker)
		case st.start != nil:
			claim, nexts[i] = *st.start, string(job.Running)
		default:
			ends[i] = *st.finish
			claim, nexts[i] = st.finish.ClaimID, string(st.finish.State)
		}
		ids[i], attempts[i], fences[i] = pg.UUID(claim.JobID), claim.Attempt, claim.Fence
	}
	ended, err := endColumns(ends)
	if err != nil {
		return nil, err
	}
	return append(append([]any{ids, attempts, nexts, fences, workers, pg.EventIDs(n)}, ended...), resultTTL), nil
}

// resultTTL is how long results are kept (API contract, section 15).
const resultTTL = 24 * time.Hour

func endColumns(ends []job.Finish) ([]any, error) {
	emits, err := pg.JSONColumn(ends, func(f job.Finish) (emission, bool) {
		if f.Emit == nil {
			return emission{}, false
		}
		return emission{f.Emit.Name, f.Emit.Data}, true
	})
	if err != nil {
		return nil, err
	}
	failures := pg.Column(ends, func(f job.Finish) job.Failure { return pg.Deref(f.Failure) })
	mediaTypes, sums, bodies := make([]*string, len(ends)), make([][]byte, len(ends)), make([][]byte, len(ends))
	for i, f := range ends {
		if r := f.Result; r != nil {
			mediaTypes[i], sums[i], bodies[i] = &r.MediaType, r.SHA256[:], r.Body
		}
	}
	type fail = job.Failure
	return []any{
		pg.Column(failures, func(f fail) *string { return pg.Nullable(string(f.Reason)) }),
		pg.Column(failures, func(f fail) *string { return pg.Nullable(string(f.Code)) }),
		pg.Column(failures, func(f fail) pgtype.Bool { return pgtype.Bool{Bool: f.Retryable, Valid: f.Code != ""} }),
		pg.Column(failures, func(f fail) *int { return pg.Nullable(f.RetryAfter) }),
		pg.Column(failures, func(f fail) *string { return pg.Nullable(string(f.Stage)) }),
		pg.Column(failures, func(f fail) *string { return pg.Nullable(f.Detail) }),
		pg.Column(ends, func(f job.Finish) *time.Duration { return f.RetryWait }),
		pg.Column(ends, func(f job.Finish) bool { return f.Exhausted }),
		emits,
		mediaTypes, sums, bodies,
		pg.Column(ends, func(f job.Finish) *time.Time { return f.EndedAt }),
	}, nil
}

type stepRow struct {
	id, client, batch job.ID
	at                time.Time
	claim             *job.Claim // nil for starts and finishes
	kind              job.Kind
	ms                *int64
	retryAt           *time.Time
	traceparent       string
}

func collectSteps(rows pgx.Rows) (map[job.ID]*stepRow, error) {
	all, err := pgx.CollectRows(rows, scanStep)
	return pg.ByID(all, func(r *stepRow) job.ID { return r.id }), err
}

// scanStep reads stepColumns only for a claim.
func scanStep(row pgx.CollectableRow) (*stepRow, error) {
	var r stepRow
	var c job.Claim
	leading := []any{
		nil, &r.id, &r.client, &r.batch, &r.kind, &r.traceparent, &r.at, &r.ms, &r.retryAt,
		&c.WasCreated, &c.Fence, &c.QueuedAt,
	}
	if job.State(row.RawValues()[0]) != job.Assigned {
		return &r, row.Scan(append(leading, make([]any, len(row.RawValues())-len(leading))...)...)
	}
	err := scanJob(row, &c.Job, leading...)
	c.JobID, c.Attempt = c.Job.ID, c.Job.Attempt
	r.claim = &c
	return &r, err
}
