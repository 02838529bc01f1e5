package repo

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// eventColumns is the one column list of an event e with what it takes to tell
// of it: its job j, and the report r of the attempt that it ended.
const eventColumns = `e.event_id, e.job_id, e.seq, e.event_name, e.prev_state, e.next_state, e.attempt, e.occurred_at, e.data,
  j.created_at, j.correlation_id, j.language,
  r.attempt, r.outcome, r.started_at, r.finished_at,
  r.failure_reason, r.failure_code, r.failure_retryable, r.failure_retry_after, r.failure_stage, r.failure_detail`

// endedBy joins the report of the attempt that an event e ended: of the event's
// own attempt, whatever became of the job since. There is one at most; that it
// is said makes the planner find it by primary key.
const endedBy = `LEFT JOIN LATERAL (
  SELECT * FROM reports WHERE job_id = e.job_id AND attempt = e.attempt AND e.next_state IN ('SUCCEEDED', 'FAILED', 'CANCELED') LIMIT 1
) r ON true`

// eventScanner reads eventColumns. They are all null where there is no event,
// those of the job where the event belongs to none, and those of the report
// where the event ended no attempt.
type eventScanner struct {
	id, job             job.ID
	seq, attempt        *int
	name, prev, next    *string
	at, created         *time.Time
	data                json.RawMessage
	correlation, locale *string

	ended               *int
	outcome             *string
	startedAt, finished *time.Time
	failed              failureScanner
}

func (s *eventScanner) columns() []any {
	f := &s.failed
	return []any{
		scanID(&s.id), scanID(&s.job), &s.seq, &s.name, &s.prev, &s.next, &s.attempt, &s.at, &s.data,
		&s.created, &s.correlation, &s.locale,
		&s.ended, &s.outcome, &s.startedAt, &s.finished,
		&f.reason, &f.code, &f.retryable, &f.retryAfter, &f.stage, &f.detail,
	}
}

// occurrence gives the event, and nil where there is none.
func (s *eventScanner) occurrence() *job.Occurrence {
	if s.name == nil {
		return nil
	}
	o := &job.Occurrence{Event: job.Event{
		ID: s.id, JobID: s.job, Seq: deref(s.seq), Name: *s.name, Prev: job.State(deref(s.prev)), Next: job.State(deref(s.next)),
		Attempt: deref(s.attempt), At: deref(s.at), Data: s.data,
	}}
	if s.created != nil {
		o.Origin = job.Origin{JobID: s.job, CreatedAt: *s.created, CorrelationID: deref(s.correlation), Language: deref(s.locale)}
	}
	if s.ended != nil {
		outcome := job.Outcome(deref(s.outcome))
		o.Ended = &job.Attempt{
			Number: *s.ended, State: stateOf(outcome), Outcome: outcome,
			StartedAt: s.startedAt, FinishedAt: s.finished, Failure: s.failed.failure(),
		}
	}
	return o
}

// Bounds of what is read at once, beside the number of events: whoever tells of
// events holds them for as long as their reader takes.
const (
	// pageBytes is how much data, in bytes, ends a page: the event that reaches
	// it is the last one. So each page has an event, however large it is.
	pageBytes = 256 << 10
	// batchBytes is what the document of a batch counts for. It is about the
	// most it has, with all the failed items that it may list.
	batchBytes = `16384`
)

// Events reads events of a client's job that come after the given seq: at most
// limit of them, and no more than pageBytes allows. A job that is not there is told of as by Job.
func (s *Store) Events(ctx context.Context, client, id job.ID, after, limit int) (job.Log, error) {
	type line struct {
		state job.State
		last  int
		event *job.Occurrence
	}
	lines, err := queryRows(ctx, s, func(row pgx.CollectableRow) (l line, err error) {
		var e eventScanner
		err = row.Scan(append([]any{&l.state, &l.last}, e.columns()...)...)
		l.event = e.occurrence()
		return l, err
	}, jobEvents, uuid(id), uuid(client), after, limit, pageBytes)
	if err != nil {
		return job.Log{}, err
	}
	if len(lines) == 0 {
		return job.Log{}, s.missing(ctx, client, id)
	}
	log := job.Log{Last: lines[0].last}
	for _, l := range lines {
		if l.event != nil {
			log.Events = append(log.Events, *l.event)
			after = l.event.Seq
		}
	}
	log.Ended = lines[0].state.Final() && after >= log.Last
	return log, nil
}

// jobEvents reads a job, found by the index jobs_client, and its events, found
// by their primary key, in one snapshot. Without further events it yields one
// row. The seq has no gaps: so it goes from event to event, and looks at no
// data behind the end of the page. (That each step finds one event at most is
// said so that the planner searches by the whole key.)
const jobEvents = `
WITH RECURSIVE page AS (
  SELECT greatest($3::bigint, 0) AS seq, 0 AS n, 0::bigint AS bytes
  UNION ALL
  SELECT e.seq, n + 1, bytes + octet_length(e.data::text)
  FROM page CROSS JOIN LATERAL (SELECT * FROM events WHERE job_id = $1 AND seq = page.seq + 1 LIMIT 1) e WHERE n < $4 AND bytes < $5
)
SELECT j.state, j.event_seq, ` + eventColumns + `
FROM jobs j CROSS JOIN page
LEFT JOIN LATERAL (SELECT * FROM events WHERE job_id = $1 AND seq = page.seq AND n > 0 LIMIT 1) e ON true
` + endedBy + `
WHERE j.job_id = $1 AND j.client_id = $2 ORDER BY n`

// EventSeqs gives the seq of the latest event of each job. Jobs that are gone
// are missing.
func (s *Store) EventSeqs(ctx context.Context, jobs []job.ID) (map[job.ID]int, error) {
	type latest struct {
		id  job.ID
		seq int
	}
	found, err := queryRows(ctx, s, func(row pgx.CollectableRow) (l latest, err error) {
		return l, row.Scan(scanID(&l.id), &l.seq)
	}, eventSeqs, column(jobs, uuid))
	if err != nil {
		return nil, err
	}
	seqs := make(map[job.ID]int, len(found))
	for _, l := range found {
		seqs[l.id] = l.seq
	}
	return seqs, nil
}

const eventSeqs = `SELECT job_id, event_seq FROM jobs WHERE job_id = ANY ($1::uuid[])`
