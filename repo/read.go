package repo

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// jobColumns is the one column list of a job, read by scanJob.
const jobColumns = `jobs.job_id, jobs.client_id, jobs.batch_id, jobs.type, jobs.work_kind, jobs.definition, jobs.params,
  jobs.state, coalesce(jobs.outcome, ''), jobs.attempt, jobs.max_attempts, jobs.auto_retry, jobs.event_seq,
  jobs.created_at, jobs.updated_at, jobs.execution_at, jobs.run_at, jobs.started_at, jobs.finished_at,
  jobs.failure_reason, jobs.failure_code, jobs.failure_retryable, jobs.failure_retry_after, jobs.failure_stage, jobs.failure_detail,
  coalesce(jobs.callback, ''), coalesce(jobs.correlation_id, ''), coalesce(jobs.traceparent, ''), jobs.language, jobs.request_id`

// scanJob reads a row of leading columns and jobColumns. A definition that
// cannot be read becomes nil: the job can be looked at, but not run.
func scanJob(row pgx.CollectableRow, j *job.Job, leading ...any) error {
	var definition, params []byte
	var f failureScanner
	err := row.Scan(append(leading, scanID(&j.ID), scanID(&j.ClientID), scanID(&j.BatchID), &j.Type, &j.WorkKind, &definition, &params,
		&j.State, &j.Outcome, &j.Attempt, &j.MaxAttempts, &j.AutoRetry, &j.EventSeq,
		&j.CreatedAt, &j.UpdatedAt, &j.ExecutionAt, &j.RunAt, &j.StartedAt, &j.FinishedAt,
		&f.reason, &f.code, &f.retryable, &f.retryAfter, &f.stage, &f.detail,
		&j.Callback, &j.CorrelationID, &j.TraceParent, &j.Language, &j.RequestID)...)
	if err != nil {
		return err
	}
	j.Params, j.Failure, j.Definition = params, f.failure(), decodeDefinition(definition)
	return nil
}

func decodeDefinition(encoded []byte) *job.Definition {
	var d job.Definition
	if json.Unmarshal(encoded, &d) != nil {
		return nil
	}
	return &d
}

// failureScanner reads the six failure columns, which are null together.
type failureScanner struct {
	reason, code, stage, detail *string
	retryable                   *bool
	retryAfter                  *int
}

func (f failureScanner) failure() *job.Failure {
	if f.code == nil {
		return nil
	}
	return &job.Failure{
		Reason: job.Reason(deref(f.reason)), Code: job.Code(*f.code), Stage: job.Stage(deref(f.stage)),
		Retryable: deref(f.retryable), RetryAfter: deref(f.retryAfter), Detail: deref(f.detail),
	}
}

func deref[V any](p *V) V {
	if p == nil {
		var zero V
		return zero
	}
	return *p
}

// Job reads a client's job. Another client's job is not found, and neither is
// one that never existed; a deleted one of the client's own is gone.
func (s *Store) Job(ctx context.Context, client, id job.ID) (*job.Job, error) {
	found, err := queryRows(ctx, s, func(row pgx.CollectableRow) (*job.Job, error) {
		var j job.Job
		var mediaType *string
		var size *int
		var sum []byte
		var expires *time.Time
		var removed bool
		err := scanJob(row, &j, &mediaType, &size, &sum, &expires, &removed)
		if mediaType != nil {
			j.Result = &job.ResultInfo{MediaType: *mediaType, Size: *size, ExpiresAt: *expires, Removed: removed}
			copy(j.Result.SHA256[:], sum)
		}
		return &j, err
	}, `SELECT results.media_type, results.size, results.sha256, results.expires_at, results.body IS NULL, `+jobColumns+`
		FROM jobs LEFT JOIN results ON results.job_id = jobs.job_id WHERE jobs.job_id = $1 AND jobs.client_id = $2`, uuid(id), uuid(client))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, s.missing(ctx, client, id)
	}
	return found[0], nil
}

// missing tells a job that is gone from one that never was the client's.
func (s *Store) missing(ctx context.Context, client, id job.ID) error {
	at, err := queryRows(ctx, s, pgx.RowTo[time.Time],
		`SELECT expired_at FROM tombstones WHERE job_id = $1 AND client_id = $2`, uuid(id), uuid(client))
	if err != nil {
		return err
	}
	if len(at) > 0 {
		return &job.Error{Code: job.CodeJobGone, Detail: "The job was removed at " + at[0].Format(time.RFC3339) + ".", ExpiredAt: &at[0]}
	}
	return errNotFound
}

// Report reads the report of one finished attempt, or with attempt 0 of the
// latest one. Report and events are read in one snapshot.
func (s *Store) Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error) {
	found, err := queryRows(ctx, s, func(row pgx.CollectableRow) (*job.Report, error) {
		r := job.Report{Origin: job.Origin{JobID: id}}
		var ms int64
		var f failureScanner
		var events []byte
		err := row.Scan(&r.Number, &r.Outcome, &r.StartedAt, &r.FinishedAt, &ms,
			&f.reason, &f.code, &f.retryable, &f.retryAfter, &f.stage, &f.detail,
			&r.CreatedAt, &r.CorrelationID, &r.Language, &events)
		if err != nil {
			return nil, err
		}
		r.State, r.Duration, r.Failure = stateOf(r.Outcome), time.Duration(ms)*time.Millisecond, f.failure()
		r.Events, err = decodeEvents(id, events)
		return &r, err
	}, `SELECT r.attempt, r.outcome, r.started_at, r.finished_at, r.duration_ms,
		r.failure_reason, r.failure_code, r.failure_retryable, r.failure_retry_after, r.failure_stage, r.failure_detail,
		j.created_at, coalesce(j.correlation_id, ''), j.language,
		(SELECT json_agg(json_build_array(e.event_id, e.seq, e.event_name, coalesce(e.prev_state, ''), coalesce(e.next_state, ''), e.attempt,
			to_char(e.occurred_at, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), e.data) ORDER BY e.seq)
			FROM events e WHERE e.job_id = r.job_id AND e.seq <= r.event_seq)
		FROM reports r JOIN jobs j ON j.job_id = r.job_id
		WHERE r.job_id = $1 AND j.client_id = $2 AND ($3 = 0 OR r.attempt = $3) ORDER BY r.attempt DESC LIMIT 1`,
		uuid(id), uuid(client), attempt)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		return found[0], nil
	}
	if _, err := s.look(ctx, client, id); err != nil {
		return nil, err
	}
	return nil, job.Errorf(job.CodeJobNotFound, "The job has no report of such an attempt; one exists once the attempt has ended.")
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

// decodeEvents reads the array of arrays that Report selects.
func decodeEvents(id job.ID, encoded []byte) ([]job.Event, error) {
	var rows [][]json.RawMessage
	if err := json.Unmarshal(encoded, &rows); err != nil {
		return nil, err
	}
	events := make([]job.Event, len(rows))
	for i, row := range rows {
		e := job.Event{JobID: id, Data: row[7]}
		var at job.Time
		for n, target := range []any{&e.ID, &e.Seq, &e.Name, &e.Prev, &e.Next, &e.Attempt, &at} {
			if err := json.Unmarshal(row[n], target); err != nil {
				return nil, err
			}
		}
		e.At = time.Time(at)
		events[i] = e
	}
	return events, nil
}
