package deliveries

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/jobs"
	"github.com/forgerun/forgerun/repo/pg"
)

// eventScanner reads eventColumns. All columns are null if the row has no event. The job's columns are null if the event has no job. The
// report's columns are null if the event ended no attempt.
type eventScanner struct {
	job.Occurrence
	ended jobs.AttemptScanner
}

func (s *eventScanner) columns() []any {
	return append([]any{&s.ID, &s.JobID, &s.Seq, &s.Name, &s.Prev, &s.Next, &s.Attempt, &s.At, &s.Data}, s.ended.Columns()...)
}

func (s *eventScanner) occurrence() *job.Occurrence {
	if s.Name == "" {
		return nil
	}
	origin, ended := s.ended.Of(s.JobID)
	if !origin.CreatedAt.IsZero() {
		s.Origin = origin
	}
	if ended.Number > 0 {
		s.Ended = &ended
	}
	return &s.Occurrence
}

// One read is also limited by the size of the events, because a stream keeps the events in memory until the client has received them.
const (
	// pageBytes is the size, in bytes, that ends a page. The event that reaches this size is still included, so each page has at least one
	// event.
	pageBytes = 256 << 10
	// batchBytes is the approximate size of the largest batch document, in bytes.
	batchBytes = 16 << 10
)

// Events reads events of a client's job after the given seq: at most `limit` of them, within pageBytes. A missing job is an error.
func (s *Store) Events(ctx context.Context, client, id job.ID, after, limit int) (job.Log, error) {
	type line struct {
		state job.State
		last  int
		event *job.Occurrence
	}
	lines, err := pg.Query(ctx, s.db, func(row pgx.CollectableRow) (l line, err error) {
		var e eventScanner
		err = pg.ScanRow(row, append([]any{&l.state, &l.last}, e.columns()...)...)
		l.event = e.occurrence()
		return l, err
	}, statement("jobEvents"), pg.UUID(id), pg.UUID(client), after, limit, pageBytes)
	if err != nil {
		return job.Log{}, err
	}
	if len(lines) == 0 {
		return job.Log{}, s.jobs.Missing(ctx, client, id)
	}
	log := job.Log{Last: lines[0].last}
	for _, l := range lines {
		if l.event != nil {
			log.Events = append(log.Events, *l.event)
			after = l.event.Seq
		}
	}
	log.Ended = lines[0].state.Final() && after >= log.Last
	return log, s.requireReader(ctx, log.Events)
}

// EventSeqs returns the seq of the latest event of each job. It skips jobs that are gone.
func (s *Store) EventSeqs(ctx context.Context, jobs []job.ID) (map[job.ID]int, error) {
	return pg.QueryByID(ctx, s.db, func(seq *int) []any { return []any{seq} }, statement("eventSeqs"), pg.Column(jobs, pg.UUID))
}

// errFuturePosition refuses a position that this server has not reached. Such a position comes from another server, or from before a
// restore.
var errFuturePosition = job.Errorf(job.CodeMalformed, "This position is after the end of the stream: it does not belong to this stream.")

// ClientEvents reads events of a client after a position, in the order of positions: at most `limit` of them, within pageBytes.
//
// ClientEvents returns an event only if no pending transaction can still insert an earlier one. It returns only events with a tx below the
// snapshot's xmin. Pending transactions write only events with a tx at or above the xmin.
func (s *Store) ClientEvents(ctx context.Context, client job.ID, after job.Position, limit int) (job.Feed, error) {
	type line struct {
		future, held, more bool
		event              *job.Occurrence
		batch              job.ID
	}
	lines, err := pg.Query(ctx, s.db, func(row pgx.CollectableRow) (l line, err error) {
		var e eventScanner
		err = pg.ScanRow(row, append([]any{&l.future, &l.held, &l.more, &e.Position.Tx, &e.Position.ID, &l.batch, &e.Webhook}, e.columns()...)...)
		e.Position.Seq = e.Seq
		l.event = e.occurrence()
		return l, err
	}, statement("clientEvents"), pg.UUID(client), after.Tx, [16]byte(after.ID), after.Seq, limit, pageBytes)
	switch {
	case err != nil:
		return job.Feed{}, err
	case lines[0].future:
		return job.Feed{}, errFuturePosition
	}
	batches, err := s.endedBatches(ctx, pg.Column(lines, func(l line) job.ID { return l.batch }))
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
				continue // a batch is removed only after its events, so this event was removed meanwhile
			}
		}
		feed.Events = append(feed.Events, *l.event)
	}
	return feed, s.requireReader(ctx, feed.Events)
}

// requireReader returns an error if the API key of the context was revoked or has expired. The check runs after the events were read. So
// events that were committed after a revocation are never returned.
func (s *Store) requireReader(ctx context.Context, events []job.Occurrence) error {
	key := job.KeyOf(ctx)
	if key == "" || len(events) == 0 {
		return nil
	}
	return s.db.RequireKey(ctx, key)
}

// endedBatches reads completed batches, but not their items and job counts. A completed batch never changes.
func (s *Store) endedBatches(ctx context.Context, ids []job.ID) (map[job.ID]*job.Batch, error) {
	if ids = slices.DeleteFunc(ids, job.ID.IsZero); len(ids) == 0 {
		return nil, nil
	}
	found, err := pg.Query(ctx, s.db, jobs.ScanBatch, statement("endedBatches"), pg.Column(ids, pg.UUID))
	return pg.ByID(found, func(b *job.Batch) job.ID { return b.ID }), err
}

// FeedEnd returns the position after all events that ClientEvents can return now. All new events come after it.
func (s *Store) FeedEnd(ctx context.Context) (job.Position, error) {
	tx, err := pg.QueryValue[uint64](ctx, s.db, `SELECT pg_snapshot_xmin(pg_current_snapshot())`)
	return job.Position{Tx: tx}, err
}

// LatestPositions returns the position of each client's latest committed event. ClientEvents may still hold this event back. Clients
// without events are skipped.
func (s *Store) LatestPositions(ctx context.Context, clients []job.ID) (map[job.ID]job.Position, error) {
	return pg.QueryByID(ctx, s.db, func(p *job.Position) []any { return []any{&p.Tx, &p.ID, &p.Seq} },
		statement("latestPositions"), pg.Column(clients, pg.UUID))
}
