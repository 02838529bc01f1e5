package repo

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

var (
	readJob      = statement("readJob")
	readAttempts = statement("readAttempts")
	readReport   = statement("readReport")
	readResult   = statement("readResult")
)

// jobColumns is the one column list of a job, read by scanJob.
const jobColumns = `jobs.job_id, jobs.client_id, jobs.batch_id, jobs.type, jobs.work_kind, jobs.definition, jobs.params,
  jobs.state, coalesce(jobs.outcome, ''), jobs.attempt, jobs.max_attempts, jobs.auto_retry, jobs.event_seq,
  jobs.created_at, jobs.updated_at, jobs.execution_at, jobs.run_at, jobs.started_at, jobs.finished_at,
  jobs.failure_reason, jobs.failure_code, jobs.failure_retryable, jobs.failure_retry_after, jobs.failure_stage, jobs.failure_detail,
  coalesce(jobs.callback, ''), coalesce(jobs.correlation_id, ''), coalesce(jobs.traceparent, ''), jobs.language, jobs.request_id,
  jobs.schedule_id, jobs.scheduled_for`

// scanJob reads a row of leading columns and jobColumns. A definition that
// cannot be read becomes nil: the job can be looked at, but not run.
func scanJob(row pgx.CollectableRow, j *job.Job, leading ...any) error {
	var definition, params []byte
	var f failureScanner
	err := row.Scan(append(leading, scanID(&j.ID), scanID(&j.ClientID), scanID(&j.BatchID), &j.Type, &j.WorkKind, &definition, &params,
		&j.State, &j.Outcome, &j.Attempt, &j.MaxAttempts, &j.AutoRetry, &j.EventSeq,
		&j.CreatedAt, &j.UpdatedAt, &j.ExecutionAt, &j.RunAt, &j.StartedAt, &j.FinishedAt,
		&f.reason, &f.code, &f.retryable, &f.retryAfter, &f.stage, &f.detail,
		&j.Callback, &j.CorrelationID, &j.TraceParent, &j.Language, &j.RequestID,
		scanID(&j.ScheduleID), &j.ScheduledFor)...)
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

// scenarioColumns are what outcome documents say of the scenario of a job j. They
// are text: a damaged definition must not fail the statement.
const scenarioColumns = `j.work_kind, j.definition ->> 'duration_ms' AS duration_ms,
  j.definition ->> 'expected_outcome' AS expected_outcome, j.definition #> '{behavior,failures}' AS planned_failures`

// scenarioScanner reads scenarioColumns, which are null where there is no job.
type scenarioScanner struct {
	kind, duration, expected *string
	failures                 []byte // of a CUSTOM job
}

func (s *scenarioScanner) columns() []any {
	return []any{&s.kind, &s.duration, &s.expected, &s.failures}
}

func (s *scenarioScanner) scenario() job.Scenario {
	ms, _ := strconv.ParseInt(deref(s.duration), 10, 64) // 0, which is left out, of a damaged one
	return job.Scenario{WorkKind: job.Kind(deref(s.kind)), DurationMS: ms, ExpectedOutcome: deref(s.expected)}
}

// planned gives the failures that the request for a CUSTOM job has, nil for other jobs.
func (s *scenarioScanner) planned() (failures []job.PlannedFailure) {
	if s.failures != nil {
		_ = json.Unmarshal(s.failures, &failures) // of a damaged definition what can be read
	}
	return failures
}

// Job reads a client's job. Another client's job is not found, and neither is
// one that never existed; a deleted one of the client's own is gone.
func (s *Store) Job(ctx context.Context, client, id job.ID) (*job.Job, error) {
	j, found, err := queryFirst(ctx, s, func(row pgx.CollectableRow) (*job.Job, error) {
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
	}, readJob, uuid(id), uuid(client))
	if err == nil && !found {
		err = s.missing(ctx, client, id)
	}
	return j, err
}

// missing is the error for a job that is gone, or never was the client's.
func (s *Store) missing(ctx context.Context, client, id job.ID) error {
	at, found, err := queryFirst(ctx, s, pgx.RowTo[time.Time],
		`SELECT expired_at FROM tombstones WHERE job_id = $1 AND client_id = $2`, uuid(id), uuid(client))
	switch {
	case err != nil:
		return err
	case !found:
		return errNotFound
	}
	return &job.Error{Code: job.CodeJobGone, Detail: "The job was removed at " + at.Format(time.RFC3339) + ".", ExpiredAt: &at}
}

// Report reads the report of one finished attempt, or with attempt 0 of the
// latest one. Report and events are read in one snapshot.
func (s *Store) Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error) {
	report, found, err := s.report(ctx, client, id, attempt)
	if err != nil || found {
		return report, err
	}
	now, err := s.look(ctx, client, id)
	switch {
	case err != nil:
		return nil, err
	case attempt > now.Attempt:
		return nil, job.Errorf(job.CodeJobNotFound, "The job has no attempt %d; its latest one is attempt %d.", attempt, now.Attempt)
	case max(attempt, 1) == now.Attempt && !now.State.Final():
		return nil, job.Errorf(job.CodeJobNotFinished, "The job is %s: attempt %d has not ended, and has no report yet.", now.State, now.Attempt)
	}
	report, found, err = s.report(ctx, client, id, attempt) // it ended in between
	if err == nil && !found {
		err = job.Errorf(job.CodeJobNotFound, "The job has no such report.")
	}
	return report, err
}

// report is Report, where a report that is not there is not found.
func (s *Store) report(ctx context.Context, client, id job.ID, attempt int) (report *job.Report, found bool, err error) {
	return queryFirst(ctx, s, func(row pgx.CollectableRow) (*job.Report, error) {
		r := job.Report{Origin: job.Origin{JobID: id}}
		var ms int64
		var f failureScanner
		var scenario scenarioScanner
		var events []byte
		err := row.Scan(append(scenario.columns(), &r.Number, &r.Outcome, &r.StartedAt, &r.FinishedAt, &ms,
			&f.reason, &f.code, &f.retryable, &f.retryAfter, &f.stage, &f.detail,
			&r.CreatedAt, &r.CorrelationID, &r.Language, &events)...)
		if err != nil {
			return nil, err
		}
		r.State, r.Duration, r.Failure = stateOf(r.Outcome), time.Duration(ms)*time.Millisecond, f.failure()
		r.Scenario, r.Origin.Failures = scenario.scenario(), scenario.planned()
		r.Events, err = decodeEvents(id, events)
		return &r, err
	}, readReport, uuid(id), uuid(client), attempt)
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

// Attempts reads the attempts of a client's job, from the first one to the
// current one, in one snapshot. A finished attempt is what its report says; a
// job that is not final has one more, which has no report yet.
func (s *Store) Attempts(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error) {
	origin := job.Origin{JobID: id}
	attempts, err := queryRows(ctx, s, func(row pgx.CollectableRow) (a job.Attempt, err error) {
		var f failureScanner
		var scenario scenarioScanner
		err = row.Scan(append(scenario.columns(), &origin.CreatedAt, &origin.CorrelationID, &origin.Language,
			&a.Number, &a.State, &a.Outcome, &a.StartedAt, &a.FinishedAt,
			&f.reason, &f.code, &f.retryable, &f.retryAfter, &f.stage, &f.detail)...)
		origin.Scenario, origin.Failures = scenario.scenario(), scenario.planned()
		if a.Outcome != "" {
			a.State = stateOf(a.Outcome)
		}
		a.Failure = f.failure()
		return a, err
	}, readAttempts, uuid(id), uuid(client))
	if err != nil {
		return job.Origin{}, nil, err
	}
	if len(attempts) == 0 { // every job has an attempt
		return job.Origin{}, nil, s.missing(ctx, client, id)
	}
	return origin, attempts, nil
}

// Result reads the result of a client's job, until it expires: afterwards it
// is gone, whether the cleaner has removed the body yet or not.
func (s *Store) Result(ctx context.Context, client, id job.ID) (*job.StoredResult, error) {
	type stored struct {
		job.StoredResult
		state        job.State
		exists, kept bool
	}
	r, found, err := queryFirst(ctx, s, func(row pgx.CollectableRow) (r stored, err error) {
		var mediaType *string
		var sum []byte
		var expires *time.Time
		err = row.Scan(&r.state, &mediaType, &sum, &expires, &r.kept, &r.Body)
		r.exists, r.MediaType, r.ExpiresAt = expires != nil, deref(mediaType), deref(expires)
		copy(r.SHA256[:], sum)
		return r, err
	}, readResult, uuid(id), uuid(client))
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, s.missing(ctx, client, id)
	case !r.exists:
		return nil, noResult(r.state)
	case !r.kept:
		at := r.ExpiresAt
		return nil, &job.Error{Code: job.CodeResultGone, Detail: "The result expired at " + at.Format(time.RFC3339) + ".", ExpiredAt: &at}
	}
	return &r.StoredResult, nil
}

// noResult says why a job in this state has no result.
func noResult(state job.State) error {
	switch state {
	case job.Succeeded:
		return job.Errorf(job.CodeResultNotFound, "The job SUCCEEDED, and its work has no result.")
	case job.Failed:
		return job.Errorf(job.CodeResultNotFound, "The job FAILED, and so it has no result; its report says why it failed.")
	case job.Canceled:
		return job.Errorf(job.CodeResultNotFound, "The job was CANCELED, and so it has no result.")
	}
	return job.Errorf(job.CodeJobNotFinished, "The job is %s: it has no result yet. It will have one if it succeeds.", state)
}
