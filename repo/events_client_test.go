package repo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// The databases of all tests share the server's transaction numbers, so a pending transaction in any of them holds up every feed. Tests
// therefore wait for expected events, and check only once for events that a feed must not show.

func eventOf(t testing.TB, e job.Event) event {
	var data map[string]any
	require.NoError(t, json.Unmarshal(e.Data, &data))
	return event{e.Seq, e.Name, string(e.Prev), string(e.Next), e.Attempt, e.At, data}
}

func (f *fixture) feed(after job.Position, limit int) job.Feed {
	return must(f.store.ClientEvents(f.ctx(), f.client, after, limit))(f.t)
}

type follower struct {
	f    *fixture
	at   job.Position
	seen []job.Occurrence
}

func (r *follower) read(limit int) bool {
	r.f.t.Helper()
	feed := r.f.feed(r.at, limit)
	require.LessOrEqual(r.f.t, len(feed.Events), limit)
	if n := len(feed.Events); n > 0 {
		r.at = feed.Events[n-1].Position
	}
	r.seen = append(r.seen, feed.Events...)
	return len(feed.Events) > 0 || feed.Held
}

func (r *follower) readAll(limit int) []job.Occurrence {
	r.f.t.Helper()
	for deadline := time.Now().Add(testkit.Patience); r.read(limit); {
		require.True(r.f.t, time.Now().Before(deadline), "the feed is held up for too long")
	}
	return r.seen
}

func (f *fixture) places() []job.Position {
	rows := must(f.db.Query(f.ctx(), `SELECT tx, id, seq FROM (
		SELECT client_id, tx, job_id AS id, seq FROM events UNION ALL SELECT client_id, tx, event_id, 0 FROM client_events) e
		WHERE client_id = $1 ORDER BY tx, id, seq`, f.client.String()))(f.t)
	places := must(pgx.CollectRows(rows, func(row pgx.CollectableRow) (p job.Position, err error) {
		var id [16]byte
		err = row.Scan(&p.Tx, &id, &p.Seq)
		p.ID = id
		return p, err
	}))(f.t)
	return places
}

func positions(events []job.Occurrence) []job.Position {
	return append([]job.Position{}, each(events, func(e job.Occurrence) job.Position { return e.Position })...)
}

func (f *fixture) clientEvent(db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (id job.ID) {
	id = newID()
	require.NoError(f.t, db.QueryRow(f.ctx(), `INSERT INTO client_events (event_id, client_id, event_name, occurred_at, data)
		VALUES ($1, $2, 'x', now(), '{"n": 1}') RETURNING true`, id.String(), f.client.String()).Scan(new(bool)))
	return id
}

func TestFeedHoldsAllEventsOfAClient(t *testing.T) {
	f := setup(t)
	failed, waiting := f.at(job.Failed), f.submit()
	own := f.clientEvent(f.db)
	succeeded := f.at(job.Succeeded)
	f.another()

	seen := (&follower{f: f}).readAll(100)
	require.Equal(t, f.places(), positions(seen))
	of := map[job.ID][]job.Occurrence{}
	for _, e := range seen {
		of[e.JobID] = append(of[e.JobID], e)
	}
	require.Len(t, of, 4)
	for _, id := range []job.ID{failed, waiting, succeeded} {
		log := f.events(id, 0, 100)
		for i := range log.Events { // events of a log have no position in the feed
			require.Equal(t, id, of[id][i].Position.ID)
			log.Events[i].Position = of[id][i].Position
		}
		require.Equal(t, log.Events, of[id])
	}
	e := of[job.ID{}][0]
	require.JSONEq(t, `{"n": 1}`, string(e.Data))
	require.Equal(t, job.Position{Tx: e.Position.Tx, ID: own}, e.Position)
	e.Position, e.Data, e.At = job.Position{}, nil, time.Time{}
	require.Equal(t, job.Occurrence{Event: job.Event{ID: own, Name: "x"}}, e)
}

func TestFeedInPages(t *testing.T) {
	f := setup(t)
	for range 4 {
		f.at(job.Canceled)
		f.clientEvent(f.db)
	}
	f.exec(`UPDATE events SET tx = '3'`) // events with equal tx have an order, too
	f.exec(`UPDATE client_events SET tx = '3' WHERE event_id IN (SELECT event_id FROM client_events LIMIT 2)`)
	want := f.places()
	require.Len(t, want, 16)
	for _, limit := range []int{1, 2, 5, 16, 100} {
		require.Equal(t, want, positions((&follower{f: f}).readAll(limit)))
	}
	for i, at := range want {
		require.Equal(t, want[i+1:], positions((&follower{f: f, at: at}).readAll(100)), "from the event after the one at %d", i)
	}
}

// A transaction may get its number first, and then wait for a job's row that a later transaction holds. The event of the later transaction
// comes first.
func TestFeedKeepsAJobsOrderUnderContention(t *testing.T) {
	f := setup(t)
	id := f.submit()
	r := &follower{f: f}
	require.Len(t, r.readAll(1), 2)

	numbered := func() pgx.Tx {
		tx := f.begin()
		must(tx.Exec(f.ctx(), `SELECT pg_current_xact_id()`))(t)
		return tx
	}
	early := numbered()
	late := numbered()
	must(late.Exec(f.ctx(), repo.Statements["step"], f.stepArguments(job.Assigned, job.ClaimID{JobID: id, Attempt: 1})...))(t)
	canceled := begin(func() error {
		return errOf(early.Exec(f.ctx(), repo.Statements["cancelJobs"], f.cancelArguments(id)...))
	})
	f.awaitBlocked(1)
	require.False(t, r.read(10), "no event is committed")
	require.NoError(t, late.Commit(f.ctx()))
	require.NoError(t, <-canceled)
	require.True(t, r.read(10), "the claim is committed")
	require.Len(t, r.seen, 2, "the other transaction may still write an earlier event")
	require.NoError(t, early.Commit(f.ctx()))

	r.readAll(1)
	require.Equal(t, []string{job.EventCreated, job.EventQueued, job.EventAssigned, job.EventCanceled}, occurred(r.seen))
	require.Equal(t, occurred(r.seen), occurred((&follower{f: f}).readAll(100)), "every later read has the same order")
	f.checkInvariants()
}

func TestFeedIsHeldByAnEarlierTransaction(t *testing.T) {
	f := setup(t)
	f.submit()
	r := &follower{f: f}
	r.readAll(10)
	end := f.lock(`SELECT pg_current_xact_id()`)

	id := f.submit()
	require.Equal(t, job.Feed{Held: true}, f.feed(r.at, 10))
	latest := must(f.store.LatestPositions(f.ctx(), []job.ID{f.client, newID()}))(t)
	places := f.places()
	require.Equal(t, map[job.ID]job.Position{f.client: places[len(places)-1]}, latest, "a held event has a position")
	require.Equal(t, job.Feed{}, must(f.store.ClientEvents(f.ctx(), newID(), r.at, 10))(t), "events of other clients do not hold the feed")

	end()
	seen := r.readAll(10)
	require.Len(t, seen, 4)
	require.Equal(t, id, seen[3].JobID)
	require.Equal(t, job.Feed{}, f.feed(r.at, 10))

	end = f.lock(`SELECT pg_current_xact_id()`)
	own := f.clientEvent(f.db)
	require.Equal(t, job.Feed{Held: true}, f.feed(r.at, 10), "events without a job are held too")
	require.Equal(t, own, must(f.store.LatestPositions(f.ctx(), []job.ID{f.client}))(t)[f.client].ID)
	end()
	require.Equal(t, own, r.readAll(10)[4].ID)
}

func TestFeedEnd(t *testing.T) {
	f := setup(t)
	f.at(job.Succeeded)
	(&follower{f: f}).readAll(100)
	end := must(f.store.FeedEnd(f.ctx()))(t)
	require.Equal(t, job.Feed{}, f.feed(end, 100))
	id := f.submit()
	seen := (&follower{f: f, at: end}).readAll(100)
	require.Len(t, seen, 2)
	require.Equal(t, id, seen[0].JobID)

	f.submit()
	for _, tx := range []uint64{1 << 62, math.MaxUint64} {
		_, err := f.store.ClientEvents(f.ctx(), f.client, job.Position{Tx: tx}, 10)
		require.Equal(t, job.CodeMalformed, job.CodeOf(err))
		require.ErrorContains(t, err, "after the end of the stream")
	}
	require.Equal(t, job.Feed{}, f.feed(job.Position{Tx: one[uint64](f, `SELECT pg_snapshot_xmax(pg_current_snapshot())`)}, 10))
}

func TestFeedReportsBatches(t *testing.T) {
	f := setup(t)
	b := f.insertBatch(f.batch(1, refusing(1)))
	f.end(jobsOf(b)[0], job.Succeeded, "")
	require.Len(t, f.completeBatches(b.ID), 1)

	seen := (&follower{f: f}).readAll(100)
	events, last := seen[:len(seen)-1], seen[len(seen)-1]
	require.Equal(t, job.EventBatchCompleted, last.Name, "after all of its jobs' events")
	want := f.readBatch(b.ID)
	require.Equal(t, 2, last.Batch.Total())
	want.Items, want.Unread, want.Counts = nil, 2, nil // the feed reads neither items nor counts
	require.Equal(t, want, last.Batch)
	require.NotNil(t, last.Batch.Outcome)
	for _, e := range events {
		require.Nil(t, e.Batch)
	}
	f.exec(`DELETE FROM batches`)
	require.Equal(t, positions(events), positions(f.feed(job.Position{}, 100).Events), "the event is removed with its batch")
}

// A reader that reads pages during concurrent changes sees each event once, in the feed's order. So the events of each job are in order,
// too.
func TestFeedSkipsAndRepeatsNothing(t *testing.T) {
	f := setup(t)
	c := newChaos(f, 6)
	var writing atomic.Bool
	writing.Store(true)
	readers := make(chan *follower, 2)
	for n := range cap(readers) {
		go func() {
			r, dice := &follower{f: f}, c.dice(100+n)
			defer func() { readers <- r }()
			for writing.Load() {
				r.read(1 + dice.IntN(30))
			}
		}()
	}
	const callers, steps = 8, 150
	inParallel(callers, func(i int) {
		dice := c.dice(i)
		for range steps {
			if dice.IntN(6) == 0 {
				c.note(c.slowTransaction(f.ctx(), dice))
				continue
			}
			c.step(f.ctx(), c.stores[i%2], dice, f.worker)
		}
	})
	writing.Store(false)
	require.NoError(t, errors.Join(c.errs...))
	f.checkInvariants()

	want := f.places()
	for range cap(readers) {
		r := <-readers
		t.Logf("%d of %d events were read meanwhile", len(r.seen), len(want))
		r.readAll(7)
		require.Equal(t, want, positions(r.seen))
		seqs := map[job.ID]int{}
		for _, e := range r.seen {
			if !e.JobID.IsZero() {
				seqs[e.JobID]++
				require.Equal(t, seqs[e.JobID], e.Seq, fmt.Sprint(e.JobID))
			}
		}
	}
}

// slowTransaction sleeps after it has its transaction id, so that other transactions overtake it.
func (c *chaos) slowTransaction(ctx context.Context, dice *rand.Rand) error {
	err := pgx.BeginFunc(ctx, c.f.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_current_xact_id(), pg_sleep($1)`, dice.Float64()/40); err != nil {
			return err
		}
		if dice.IntN(3) > 0 {
			c.f.clientEvent(tx)
		} else if _, err := tx.Exec(ctx, repo.Statements["cancelJobs"], c.f.cancelArguments(pick(c, dice, &c.jobs))...); err != nil {
			return err
		}
		if dice.IntN(3) == 0 {
			return errGivenUp
		}
		return nil
	})
	if errors.Is(err, errGivenUp) {
		return nil
	}
	return err
}

var errGivenUp = errors.New("given up")
