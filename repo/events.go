package repo

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

var (
	jobEvents       = statement("jobEvents")
	eventSeqs       = statement("eventSeqs")
	clientEvents    = statement("clientEvents")
	latestPositions = statement("latestPositions")
)

// eventColumns is the one column list of an event e with what it takes to
// publish it: its job j, and the report r of the attempt that it ended.
const eventColumns = `e.event_id, e.job_id, e.seq, e.event_name, e.prev_state, e.next_state, e.attempt, e.occurred_at, e.data,
  j.created_at, j.correlation_id, j.language, ` + scenarioColumns + `,
  r.attempt, r.outcome, r.started_at, r.finished_at,
  r.failure_reason, r.failure_code, r.failure_retryable, r.failure_retry_after, r.failure_stage, r.failure_detail`

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
	scenario            scenarioScanner

	ended               *int
	outcome             *string
	startedAt, finished *time.Time
	failed              failureScanner
}

func (s *eventScanner) columns() []any {
	f := &s.failed
	return []any{
		scanID(&s.id), scanID(&s.job), &s.seq, &s.name, &s.prev, &s.next, &s.attempt, &s.at, &s.data,
		&s.created, &s.correlation, &s.locale, &s.scenario.kind, &s.scenario.duration, &s.scenario.expected, &s.scenario.failures,
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
		o.Origin = job.Origin{
			JobID: s.job, CreatedAt: *s.created, CorrelationID: deref(s.correlation), Language: deref(s.locale),
			Scenario: s.scenario.scenario(), Failures: s.scenario.planned(),
		}
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

// Bounds of what is read at once, beside the number of events: a stream
// holds them for as long as its reader takes.
const (
	// pageBytes is how much data, in bytes, ends a page: the event that reaches
	// it is the last one. So each page has an event, however large it is.
	pageBytes = 256 << 10
	// batchBytes is what the document of a batch counts for. It is about the
	// most it has, with all the failed items that it may list.
	batchBytes = 16 << 10
)

// Events reads events of a client's job that come after the given seq: at most
// limit of them, and no more than pageBytes allows. A job that is not there is an error as by Job.
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

// EventSeqs gives the seq of the latest event of each job. Jobs that are gone
// are missing.
func (s *Store) EventSeqs(ctx context.Context, jobs []job.ID) (map[job.ID]int, error) {
	return queryByID(ctx, s, func(seq *int) []any { return []any{seq} }, eventSeqs, column(jobs, uuid))
}

// errAhead is the answer to a position that this server has not come to: a
// position of another server, or of this one before it was restored.
var errAhead = job.Errorf(job.CodeMalformed, "This position is ahead of the server's: it is not one of this stream.")

// ClientEvents reads events of a client that come after a position, in the order
// of positions: at most limit of them, and no more than pageBytes allows.
//
// Only what no transaction can come before any more is shown: one that is under
// way has a number from the snapshot's xmin on, labels its events with that
// number or a later one, and so cannot add anything below it.
func (s *Store) ClientEvents(ctx context.Context, client job.ID, after job.Position, limit int) (job.Feed, error) {
	type line struct {
		ahead, held, more bool
		event             *job.Occurrence
		batch, webhook    job.ID
	}
	lines, err := queryRows(ctx, s, func(row pgx.CollectableRow) (l line, err error) {
		var tx *uint64
		var item job.ID
		var e eventScanner
		err = row.Scan(append([]any{&l.ahead, &l.held, &l.more, &tx, scanID(&item), scanID(&l.batch), scanID(&l.webhook)}, e.columns()...)...)
		if l.event = e.occurrence(); l.event != nil {
			l.event.Position = job.Position{Tx: deref(tx), ID: item, Seq: l.event.Seq}
			l.event.Webhook = l.webhook
		}
		return l, err
	}, clientEvents, uuid(client), after.Tx, [16]byte(after.ID), after.Seq, limit, pageBytes)
	switch {
	case err != nil:
		return job.Feed{}, err
	case lines[0].ahead:
		return job.Feed{}, errAhead
	}
	batches, err := s.endedBatches(ctx, column(lines, func(l line) job.ID { return l.batch }))
	if err != nil {
		return job.Feed{}, err
	}
	feed := job.Feed{Held: lines[0].held, More: lines[0].more}
	for _, l := range lines {
		if l.event == nil {
			continue
		}
		if !l.batch.IsZero() {
			if l.event.Batch = batches[l.batch]; l.event.Batch == nil {
				continue // removed since the event was read; events go before their batches
			}
		}
		feed.Events = append(feed.Events, *l.event)
	}
	return feed, nil
}

// endedBatches reads completed batches with their outcome, which never changes:
// without their items and the numbers of their jobs. Zero ids are left out.
func (s *Store) endedBatches(ctx context.Context, ids []job.ID) (map[job.ID]*job.Batch, error) {
	if ids = slices.DeleteFunc(ids, job.ID.IsZero); len(ids) == 0 {
		return nil, nil
	}
	found, err := queryRows(ctx, s, scanBatch, endedBatches, column(ids, uuid))
	if err != nil {
		return nil, err
	}
	batches := make(map[job.ID]*job.Batch, len(found))
	for _, b := range found {
		batches[b.ID] = b
	}
	return batches, nil
}

// FeedEnd gives the position where new events will come in: what is committed
// by now and shown already lies before it.
func (s *Store) FeedEnd(ctx context.Context) (job.Position, error) {
	tx, _, err := queryFirst(ctx, s, pgx.RowTo[uint64], `SELECT pg_snapshot_xmin(pg_current_snapshot())`)
	return job.Position{Tx: tx}, err
}

// LatestPositions gives the position of each client's latest committed event,
// whether ClientEvents shows it yet or not. Clients without events are missing.
func (s *Store) LatestPositions(ctx context.Context, clients []job.ID) (map[job.ID]job.Position, error) {
	return queryByID(ctx, s, func(p *job.Position) []any { return []any{&p.Tx, scanID(&p.ID), &p.Seq} },
		latestPositions, column(clients, uuid))
}
