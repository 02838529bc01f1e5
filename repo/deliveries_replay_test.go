package repo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func (f *fixture) replay(hook job.ID, since time.Time, after job.Position, limit int) job.Replay {
	return must(f.store.ReplayEvents(f.ctx(), f.client, hook, since, after, limit))(f.t)
}

// replayAll repeats a replay until there is no more, and tells how much was queued, in how many calls.
func (f *fixture) replayAll(hook job.ID, since time.Time, limit int) (queued, calls int) {
	var after job.Position
	for {
		r := f.replay(hook, since, after, limit)
		queued, after = queued+r.Queued, r.Next
		if calls++; !r.More {
			require.Zero(f.t, after)
			return queued, calls
		}
		require.Less(f.t, calls, 1000, "it makes no progress")
	}
}

func TestReplayBringsWhatWasMissed(t *testing.T) {
	f := setup(t)
	hook := f.subscribe("job.*", job.EventBatchCompleted, job.EventWebhookTest, job.EventWebhookDisabled)
	other := f.subscribe(job.EventCreated)
	before := f.submit()
	f.record(givenUp(f.claimAll(hook, 1)[0]))
	f.patch(hook, enabled(false))
	must(f.store.FailOrphans(f.ctx(), 100, 100))(t)

	early := f.at(job.Succeeded)
	f.exec(`UPDATE events SET occurred_at = occurred_at - interval '1 hour' WHERE job_id = $1 AND seq = 1`, early.String())
	late := f.at(job.Failed)
	f.testWebhook(other)
	f.exec(`INSERT INTO client_events (event_id, client_id, event_name, occurred_at, webhook_id, data)
		SELECT gen_random_uuid(), $1, 'webhook.disabled', clock_timestamp(), w::uuid, '{}' FROM unnest(ARRAY[$2, $3]) w`, f.client.String(),
		hook.String(), other.String())
	_, err := f.store.ReplayEvents(f.ctx(), f.client, hook, time.Time{}, job.Position{}, 10)
	require.Equal(t, job.CodeConflict, job.CodeOf(err), "it is disabled")
	f.patch(hook, enabled(true))
	after := f.submit()

	since := time.Now().Add(-time.Minute)
	n, _ := f.replayAll(hook, since, 3)
	require.Equal(t, 2+4+5+1, n, "what failed, what has no delivery and did not occur earlier, what other webhooks were disabled for")
	var got []string
	for _, p := range f.claimAll(hook, 100) {
		if p.JobID == early || p.JobID == late {
			got = append(got, p.EventName)
		}
		require.NotEqual(t, job.EventWebhookTest, p.EventName)
		require.NotEqual(t, hook, p.Occurrence.Webhook)
	}
	require.Equal(t, append(f.names(early)[1:], f.names(late)...), got, "in order")
	for _, id := range []job.ID{before, after} {
		require.Equal(t, 2, one[int](f, `SELECT count(*)::int FROM deliveries WHERE job_id = $1 AND webhook_id = $2`, id.String(), hook.String()))
	}
	require.Equal(t, job.Replay{}, f.replay(hook, since, job.Position{}, 100), "nothing is missing any more")
	n, _ = f.replayAll(hook, time.Time{}, 100)
	require.Equal(t, 1, n, "the earlier one")
	f.checkInvariants()
}

func TestReplaysAtOnceMakeOneDelivery(t *testing.T) {
	f := setup(t)
	for range 20 {
		f.submit()
	}
	hook := f.subscribe("*")
	queued := make([]int, 10)
	inParallel(len(queued), func(i int) { queued[i], _ = f.replayAll(hook, time.Time{}, 7) })
	total := 0
	for _, n := range queued {
		total += n
	}
	require.Equal(t, 40, total)
	require.Equal(t, 40, f.count("deliveries"))
	f.checkInvariants()
}

// A long history costs each call a limited number of reads; the next one goes on where it ended.
func TestReplayOfALongHistory(t *testing.T) {
	f := setup(t)
	// 30,000 events that have a delivery, and two that have none.
	f.exec(`INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
		SELECT gen_random_uuid(), $1, 1, gen_random_uuid(), 'job.created', 1, now() - interval '2 hours', '{}' FROM generate_series(1,
			30000) i`, f.client.String())
	f.submit()
	hook := f.subscribe("job.*")
	f.exec(`INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, job_id, seq, event_id, event_name, created_at,
		next_attempt_at)
		SELECT gen_random_uuid(), client_id, $1::uuid, $1::uuid, job_id, seq, event_id, event_name, now(), now() FROM events
			WHERE occurred_at < now() - interval '1 hour'`, hook.String())
	f.awaitPast()
	n, calls := f.replayAll(hook, time.Now().Add(-24*time.Hour), 100)
	require.Equal(t, 2, n)
	require.LessOrEqual(t, calls, 8)
	require.GreaterOrEqual(t, calls, 6, "none looks at more than 5,000 events")

	f.exec(`DELETE FROM deliveries WHERE event_id = (SELECT event_id FROM events ORDER BY occurred_at DESC LIMIT 1)`)
	start := one[string](f, `SELECT (min(tx::text::bigint))::text FROM events WHERE occurred_at > now() - interval '1 hour'`)
	found := f.reads("events", repo.Statements["findReplayStart"],
		`'`+f.client.String()+`', '`+time.Now().Add(-time.Hour).Format(time.RFC3339)+`'`)
	require.Less(t, found, 400, "a few for each step")
	n, calls = f.replayAll(hook, time.Now().Add(-time.Hour), 100)
	require.Equal(t, 1, n)
	require.LessOrEqual(t, calls, 8, "the last 30,000 have one transaction: %s", start)
}

// FAILED deliveries need no position: what was sent again is FAILED no more.
func TestReplayBeginsWithWhatFailed(t *testing.T) {
	f := setup(t)
	f.submit()
	hook := f.subscribe(job.EventCreated, job.EventQueued)
	for range 3 {
		f.submit()
	}
	for _, p := range f.claimAll(hook, 3) {
		f.record(givenUp(p))
	}
	failed := one[int](f, `SELECT count(*)::int FROM deliveries WHERE state = 'FAILED'`)
	require.Equal(t, 3, failed)
	require.Equal(t, job.Replay{Queued: 2, More: true}, f.replay(hook, time.Time{}, job.Position{}, 2))
	require.Equal(t, 1, one[int](f, `SELECT count(*)::int FROM deliveries WHERE state = 'FAILED'`))
	r := f.replay(hook, time.Time{}, job.Position{}, 2)
	require.Equal(t, 2, r.Queued, "the last one that failed, and the first event that was missed")
	require.True(t, r.More)
	require.Equal(t, job.Replay{Queued: 1}, f.replay(hook, time.Time{}, r.Next, 2))
	f.checkInvariants()
}

// awaitPast waits until no transaction of this server is older than an event.
func (f *fixture) awaitPast() {
	testkit.Eventually(f.t, "it comes about", func() bool {
		return one[bool](f, `SELECT max(tx::text::bigint) < pg_snapshot_xmin(pg_current_snapshot())::text::bigint FROM events`)
	})
}

// hold keeps a transaction under way, which could still write events.
func (f *fixture) hold() (number uint64, end func()) {
	tx := must(f.db.Begin(f.ctx()))(f.t)
	require.NoError(f.t, tx.QueryRow(f.ctx(), `SELECT pg_current_xact_id()`).Scan(&number))
	f.t.Cleanup(func() { _ = tx.Rollback(f.ctx()) }) // or the pool could not be closed
	return number, func() { require.NoError(f.t, tx.Rollback(f.ctx())) }
}

// While a transaction is under way that may still write events, a replay sends
// later ones, but does not pass them, and ends all the same.
// It runs alone: it would hold up the replays of other tests, since transactions are numbered for the whole server.
func TestReplayPassesNothingThatIsUnderWay(t *testing.T) {
	f := setupAt(t, repotest.URL(t))
	f.submit()
	number, end := f.hold()
	for range 5 {
		f.submit()
	}
	hook := f.subscribe("job.*")
	queued, calls := 0, 0
	var after job.Position
	for more := true; more; calls++ {
		r := f.replay(hook, time.Time{}, after, 3)
		queued, more, after = queued+r.Queued, r.More, r.Next
		require.Less(t, after.Tx, number)
		require.Less(t, calls, 20, "it makes no progress")
	}
	require.Equal(t, 12, queued)

	f.exec(`INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
		SELECT gen_random_uuid(), $1, 1, gen_random_uuid(), 'job.created', 1, now(), '{}' FROM generate_series(1, 10100) i`, f.client.String())
	require.Equal(t, job.Replay{}, f.replay(hook, time.Time{}, job.Position{}, 3), "more of those that it must not pass than it looks at")
	end()
	n, _ := f.replayAll(hook, time.Time{}, 3)
	require.Zero(t, n)
}

func TestReplayGoesOnOnlyForAnEnabledWebhookOfTheClient(t *testing.T) {
	f := setup(t)
	for range 3 {
		f.submit()
	}
	hook := f.subscribe("job.*")
	r := f.replay(hook, time.Time{}, job.Position{}, 2)
	require.True(t, r.More)
	r.Next.Tx = max(r.Next.Tx, 1) // not the beginning, whatever is under way
	code := func(client job.ID, after job.Position) job.Code {
		_, err := f.store.ReplayEvents(f.ctx(), client, hook, time.Time{}, after, 2)
		return job.CodeOf(err)
	}
	require.Equal(t, job.CodeWebhookNotFound, code(newID(), r.Next))
	ahead := r.Next
	ahead.Tx += 1 << 40
	require.Equal(t, job.CodeMalformed, code(f.client, ahead), "a position of another server")
	f.patch(hook, enabled(false))
	require.Equal(t, job.CodeConflict, code(f.client, r.Next))
	f.patch(hook, enabled(true))
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, hook))
	require.Equal(t, job.CodeWebhookNotFound, code(f.client, r.Next))
	require.Equal(t, 2, f.count("deliveries"))
}
