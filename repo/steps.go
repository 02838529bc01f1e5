package repo

import (
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// stepArguments are the parameters of stepJobs: an array for each column of its input.
func (s *Store) stepArguments(steps []step) ([]any, error) {
	n := len(steps)
	ids, workers := make([]pgtype.UUID, n), make([]pgtype.UUID, n)
	attempts, fences, nexts := make([]int, n), make([]int64, n), make([]string, n)
	ends := make([]job.Finish, n) // empty for claims and starts
	for i, st := range steps {
		var lease job.Lease
		switch {
		case st.claim != nil:
			lease, nexts[i] = job.Lease{JobID: st.claim.job, Attempt: st.claim.attempt}, string(job.Assigned)
			workers[i] = uuid(st.claim.worker)
		case st.start != nil:
			lease, nexts[i] = *st.start, string(job.Running)
		default:
			ends[i] = *st.finish
			lease, nexts[i] = st.finish.Lease, string(st.finish.State)
		}
		ids[i], attempts[i], fences[i] = uuid(lease.JobID), lease.Attempt, lease.Fence
	}
	ended, err := endColumns(ends)
	if err != nil {
		return nil, err
	}
	return append(append([]any{ids, attempts, nexts, fences, workers, eventIDs(n)}, ended...), resultTTL), nil
}

// endColumns are those that only a finish has.
func endColumns(ends []job.Finish) ([]any, error) {
	emits, err := jsonColumn(ends, func(f job.Finish) (emission, bool) {
		if f.Emit == nil {
			return emission{}, false
		}
		return emission{f.Emit.Name, f.Emit.Data}, true
	})
	if err != nil {
		return nil, err
	}
	failures := column(ends, func(f job.Finish) job.Failure { return deref(f.Failure) })
	mediaTypes, sums, bodies := make([]*string, len(ends)), make([][]byte, len(ends)), make([][]byte, len(ends))
	for i, f := range ends {
		if r := f.Result; r != nil {
			mediaTypes[i], sums[i], bodies[i] = &r.MediaType, r.SHA256[:], r.Body
		}
	}
	type fail = job.Failure
	return []any{
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
		column(ends, func(f job.Finish) *time.Time { return f.EndedAt }),
	}, nil
}

// steppedRow is what stepJobs answers with.
type steppedRow struct {
	id, client, batch job.ID
	at                time.Time
	claim             *job.Claim // of a claim
	kind              job.Kind
	ms                *int64
	retryAt           *time.Time
	traceparent       string
}

// steppedColumns are jobColumns, with what a client sent only where a claim needs it.
var steppedColumns = strings.NewReplacer(
	"jobs.definition", "CASE s.next WHEN 'ASSIGNED' THEN jobs.definition END",
	"jobs.params", "CASE s.next WHEN 'ASSIGNED' THEN jobs.params END",
).Replace(jobColumns)

func collectSteps(rows pgx.Rows) (map[job.ID]*steppedRow, error) {
	defer rows.Close()
	found := map[job.ID]*steppedRow{}
	for rows.Next() {
		row, err := scanStep(rows)
		if err != nil {
			return nil, err
		}
		found[row.id] = row
	}
	return found, rows.Err()
}

// scanStep reads a row of stepJobs: steppedColumns only of a claim.
func scanStep(rows pgx.Rows) (*steppedRow, error) {
	var r steppedRow
	var c job.Claim
	leading := []any{
		nil, scanID(&r.id), scanID(&r.client), scanID(&r.batch), &r.kind, &r.traceparent, &r.at, &r.ms, &r.retryAt,
		&c.WasCreated, &c.Fence, &c.QueuedAt,
	}
	if job.State(rows.RawValues()[0]) != job.Assigned {
		return &r, rows.Scan(append(leading, make([]any, len(rows.RawValues())-len(leading))...)...)
	}
	err := scanJob(rows, &c.Job, leading...)
	c.JobID, c.Attempt = c.Job.ID, c.Job.Attempt
	r.claim = &c
	return &r, err
}
