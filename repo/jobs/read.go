package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// scanJob sets a damaged definition to nil: the job can be read, but not run.
func scanJob(row pgx.CollectableRow, j *job.Job, leading ...any) error {
	var definition, params []byte
	var f job.Failure
	err := pg.ScanRow(row, append(leading, &j.ID, &j.ClientID, &j.BatchID, &j.Type, &j.WorkKind, &definition, &params,
		&j.State, &j.Outcome, &j.Attempt, &j.MaxAttempts, &j.AutoRetry, &j.EventSeq,
		&j.CreatedAt, &j.UpdatedAt, &j.ExecutionAt, &j.RunAt, &j.StartedAt, &j.FinishedAt,
		&f.Reason, &f.Code, &f.Retryable, &f.RetryAfter, &f.Stage, &f.Detail,
		&j.Callback, &j.CorrelationID, &j.TraceParent, &j.Language, &j.RequestID,
		&j.ScheduleID, &j.ScheduledFor)...)
	if err != nil {
		return err
	}
	j.Params, j.Failure, j.Definition = params, failureOf(f), decodeDefinition(definition)
	return nil
}

func decodeDefinition(encoded []byte) *job.Definition {
	var d job.Definition
	if json.Unmarshal(encoded, &d) != nil {
		return nil
	}
	return &d
}

func failureOf(f job.Failure) *job.Failure {
	if f.Code == "" {
		return nil
	}
	return &f
}

// AttemptScanner reads attemptColumns. The columns of a missing job or report are null.
type AttemptScanner struct {
	origin   job.Origin
	attempt  job.Attempt
	failure  job.Failure
	duration string
	failures []byte // planned failures of a CUSTOM job
}

// Columns returns the destinations of the columns.
func (s *AttemptScanner) Columns() []any {
	o, a, f := &s.origin, &s.attempt, &s.failure
	return []any{
		&o.CreatedAt, &o.CorrelationID, &o.Language, &o.Scenario.WorkKind, &s.duration, &o.Scenario.ExpectedOutcome, &s.failures,
		&a.Number, &a.Outcome, &a.StartedAt, &a.FinishedAt,
		&f.Reason, &f.Code, &f.Retryable, &f.RetryAfter, &f.Stage, &f.Detail,
	}
}

// Of returns the job's origin and its attempt from the scanned columns.
func (s *AttemptScanner) Of(id job.ID) (job.Origin, job.Attempt) {
	s.origin.JobID = id
	s.origin.Scenario.DurationMS, _ = strconv.ParseInt(s.duration, 10, 64) // 0 if the definition is damaged
	if s.failures != nil {
		_ = json.Unmarshal(s.failures, &s.origin.Failures) // keeps the readable part of a damaged definition
	}
	s.attempt.State, s.attempt.Failure = stateOf(s.attempt.Outcome), failureOf(s.failure)
	return s.origin, s.attempt
}

// Job reads a client's job. For another client's job it returns ErrNotFound, as for a job that never existed. For a deleted job of the
// client, it returns job.CodeJobGone.
func (s *Store) Job(ctx context.Context, client, id job.ID) (*job.Job, error) {
	j, found, err := pg.QueryFirst(ctx, s.db, func(row pgx.CollectableRow) (*job.Job, error) {
		var j job.Job
		var r job.ResultInfo
		var sum []byte
		err := scanJob(row, &j, &r.MediaType, &r.Size, &sum, &r.ExpiresAt, &r.Removed)
		if copy(r.SHA256[:], sum) > 0 {
			j.Result = &r
		}
		return &j, err
	}, statement("readJob"), pg.UUID(id), pg.UUID(client))
	if err == nil && !found {
		err = s.Missing(ctx, client, id)
	}
	return j, err
}

// Missing returns the error for a job that is gone or not the client's.
func (s *Store) Missing(ctx context.Context, client, id job.ID) error {
	at, found, err := pg.QueryFirst(ctx, s.db, pgx.RowTo[time.Time],
		`SELECT expired_at FROM tombstones WHERE job_id = $1 AND client_id = $2`, pg.UUID(id), pg.UUID(client))
	switch {
	case err != nil:
		return err
	case !found:
		return ErrNotFound
	}
	return &job.Error{Code: job.CodeJobGone, Detail: "The job was removed at " + at.Format(time.RFC3339) + ".", ExpiredAt: &at}
}

// Report reads the report of the finished attempt `attempt`. With 0, it reads the latest report. It reads the report and its events in
// one snapshot.
func (s *Store) Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error) {
	report, found, err := s.report(ctx, client, id, attempt)
	if err != nil || found {
		return report, err
	}
	now, err := s.Look(ctx, client, id)
	switch {
	case err != nil:
		return nil, err
	case attempt > now.Attempt:
		return nil, job.Errorf(job.CodeJobNotFound, "The job has no attempt %d; its latest one is attempt %d.", attempt, now.Attempt)
	case max(attempt, 1) == now.Attempt && !now.State.Final():
		return nil, job.Errorf(job.CodeJobNotFinished, "The job is %s: attempt %d has not ended, and has no report yet.", now.State, now.Attempt)
	}
	report, found, err = s.report(ctx, client, id, attempt) // the attempt ended after the first read
	if err == nil && !found {
		err = job.Errorf(job.CodeJobNotFound, "The job has no report of this attempt.")
	}
	return report, err
}

func (s *Store) report(ctx context.Context, client, id job.ID, attempt int) (report *job.Report, found bool, err error) {
	return pg.QueryFirst(ctx, s.db, func(row pgx.CollectableRow) (*job.Report, error) {
		var r job.Report
		var a AttemptScanner
		var ms int64
		err := pg.ScanRow(row, append(a.Columns(), &ms, &r.Events)...)
		r.Origin, r.Attempt = a.Of(id)
		r.Duration = time.Duration(ms) * time.Millisecond
		return &r, err
	}, statement("readReport"), pg.UUID(id), pg.UUID(client), attempt)
}

func stateOf(o job.Outcome) job.State {
	switch o {
	case job.OutcomeSuccess:
		return job.Succeeded
	case job.OutcomeFailed:
		return job.Failed
	default:
		return job.Canceled
	}
}

// Attempts reads the attempts of a client's job in one snapshot, from the first to the current one. Finished attempts come from their
// reports. An unfinished job has one more attempt, without a report.
func (s *Store) Attempts(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error) {
	var origin job.Origin
	attempts, err := pg.Query(ctx, s.db, func(row pgx.CollectableRow) (a job.Attempt, err error) {
		var read AttemptScanner
		var state job.State
		err = pg.ScanRow(row, append(read.Columns(), &state)...)
		if origin, a = read.Of(id); a.Outcome == "" {
			a.State = state
		}
		return a, err
	}, statement("readAttempts"), pg.UUID(id), pg.UUID(client))
	if err == nil && len(attempts) == 0 { // every job has an attempt
		err = s.Missing(ctx, client, id)
	}
	return origin, attempts, err
}

// Result returns the result of a client's job. It checks the digest of the result first. An expired result is gone, even before the cleaner
// removes it.
func (s *Store) Result(ctx context.Context, client, id job.ID) (*job.StoredResult, error) {
	type stored struct {
		job.StoredResult
		state job.State
		kept  bool
	}
	r, found, err := pg.QueryFirst(ctx, s.db, func(row pgx.CollectableRow) (r stored, err error) {
		var sum []byte
		err = pg.ScanRow(row, &r.state, &r.MediaType, &sum, &r.ExpiresAt, &r.kept, &r.Body)
		copy(r.SHA256[:], sum)
		return r, err
	}, statement("readResult"), pg.UUID(id), pg.UUID(client))
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, s.Missing(ctx, client, id)
	case r.ExpiresAt.IsZero():
		return nil, noResult(r.state)
	case !r.kept:
		at := r.ExpiresAt
		return nil, &job.Error{Code: job.CodeResultGone, Detail: "The result expired at " + at.Format(time.RFC3339) + ".", ExpiredAt: &at}
	case sha256.Sum256(r.Body) != r.SHA256:
		s.damaged.Inc()
		return nil, &job.Error{Code: job.CodeInternal, Detail: "The stored result is damaged: its bytes do not match their digest.",
			Cause: errors.New("damaged result of job " + id.String())}
	}
	return &r.StoredResult, nil
}

func noResult(state job.State) error {
	switch state {
	case job.Succeeded:
		return job.Errorf(job.CodeResultNotFound, "The job SUCCEEDED, but its work produced no result.")
	case job.Failed:
		return job.Errorf(job.CodeResultNotFound, "The job FAILED, so it has no result; its report says why it failed.")
	case job.Canceled:
		return job.Errorf(job.CodeResultNotFound, "The job was CANCELED, so it has no result.")
	}
	return job.Errorf(job.CodeJobNotFinished,
		"The job is %s, so it has no result yet. It has one if it succeeds and its work produces one.", state)
}

// Jobs lists a client's jobs, the newest first by id, without Params and Definition. A call reads at most 20,000 jobs, so a page can have
// fewer jobs than its limit.
func (s *Store) Jobs(ctx context.Context, client job.ID, q job.Query) (job.Page, error) {
	list := statement("listByClient")
	switch {
	case !q.BatchID.IsZero():
		list = statement("listByBatch")
	case !q.ScheduleID.IsZero():
		list = statement("listBySchedule")
	}
	from, to := pg.IDRange(q)
	rows, err := pg.Query(ctx, s.db, func(row pgx.CollectableRow) (l pg.Listed[*job.Job, job.ID], err error) {
		l.Item = &job.Job{}
		err = scanJob(row, l.Item, &l.Last, &l.Wanted)
		l.Place = l.Item.ID
		return l, err
	}, list, pg.UUID(client), pg.UUID(q.BatchID), pg.UUID(q.ScheduleID), [16]byte(to), [16]byte(from),
		pg.Nullable(string(q.State)), pg.Nullable(string(q.Type)), pg.Nullable(string(q.WorkKind)), pg.Nullable(q.CorrelationID),
		q.CreatedAfter, q.CreatedBefore, q.Limit+1)
	jobs, next := pg.OnePage(rows, q.Limit)
	return job.Page{Jobs: jobs, Next: next}, err
}
