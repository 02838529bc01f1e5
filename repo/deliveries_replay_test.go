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

func (f *fixture) replayAll(hook job.ID, since time.Time, limit int) (queued, calls int) {
	for r := (job.Replay{More: true}); r.More; calls++ {
		require.Less(f.t, calls, 1000, "the replay makes no progress")
		r = f.replay(hook, since, r.Next, limit)
		queued += r.Queued
	}
	return queued, calls
}

func TestReplaySendsMissedEvents(t *testing.T) {
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
	require.Equal(t, job.CodeConflict, codeOf(f.store.ReplayEvents(f.ctx(), f.client, hook, time.Time{}, job.Position{}, 9)), "disabled")
	f.patch(hook, enabled(true))
	after := f.submit()
	_, err := f.store.ReplayEvents(f.ctx(), f.client, hook, time.Time{}, job.Position{Tx: 1 << 62}, 9)
	require.Equal(t, job.CodeMalformed, job.CodeOf(err), "a position of another server")

	since := time.Now().Add(-time.Minute)
	n, _ := f.replayAll(hook, since, 3)
	require.Equal(t, 2+4+5+1, n, "failed deliveries, recent events without a delivery, and disabling of other webhooks")
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
		require.Equal(t, 2, f.count(`deliveries WHERE job_id = $1 AND webhook_id = $2`, id.String(), hook.String()))
	}
	require.Equal(t, job.Replay{}, f.replay(hook, since, job.Position{}, 100), "nothing is missing now")
	n, _ = f.replayAll(hook, time.Time{}, 100)
	require.Equal(t, 1, n, "the earlier event")
	f.checkInvariants()
}

// With a long history, each call reads a limited number of events. The next call continues where it ended.
func TestReplayOfALongHistory(t *testing.T) {
	f := setup(t)
	// 30,000 events with a delivery, and two without.
	f.insert("events", 30_000, columns{"client_id": quoted(f.client), "event_name": "'job.created'",
		"occurred_at": "now() - interval '2 hours'"})
	f.submit()
	hook := f.subscribe("job.*")
	f.exec(`INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, job_id, seq, event_id, event_name, created_at,
		next_attempt_at)
		SELECT gen_random_uuid(), client_id, $1::uuid, $1::uuid, job_id, seq, event_id, event_name, now(), now() FROM events
			WHERE occurred_at < now() - interval '1 hour'`, hook.String())
	f.awaitOlderTransactions()
	n, calls := f.replayAll(hook, time.Now().Add(-24*time.Hour), 100)
	require.Equal(t, 2, n)
	require.LessOrEqual(t, calls, 8)
	require.GreaterOrEqual(t, calls, 6, "a call reads at most 5,000 events")

	f.exec(`DELETE FROM deliveries WHERE event_id = (SELECT event_id FROM events ORDER BY occurred_at DESC LIMIT 1)`)
	since := time.Now().Add(-time.Hour)
	found := f.reads("events", repo.Statements["findReplayStart"], quoted(f.client)+`, '`+since.Format(time.RFC3339)+`'`)
	require.Less(t, found, 400, "each step reads a few rows")
	n, calls = f.replayAll(hook, since, 100)
	require.Equal(t, 1, n)
	require.LessOrEqual(t, calls, 8, "the last 30,000 events have one transaction")
}

// A replay first redelivers the FAILED deliveries. While FAILED deliveries are left, it returns no position. The next call finds these
// deliveries by their state.
func TestReplayBeginsWithFailedDeliveries(t *testing.T) {
	f := setup(t)
	f.submit()
	hook := f.subscribe(job.EventCreated, job.EventQueued)
	f.submitted(3)
	for _, p := range f.claimAll(hook, 3) {
		f.record(givenUp(p))
	}
	const failed = `deliveries WHERE state = 'FAILED'`
	require.Equal(t, 3, f.count(failed))
	require.Equal(t, job.Replay{Queued: 2, More: true}, f.replay(hook, time.Time{}, job.Position{}, 2))
	require.Equal(t, 1, f.count(failed))
	r := f.replay(hook, time.Time{}, job.Position{}, 2)
	require.Equal(t, 2, r.Queued, "the last failed delivery and the first missed event")
	require.True(t, r.More)
	require.Equal(t, job.Replay{Queued: 1}, f.replay(hook, time.Time{}, r.Next, 2))
	f.checkInvariants()
}

func (f *fixture) awaitOlderTransactions() {
	testkit.Eventually(f.t, "no older transaction is left", func() bool {
		return one[bool](f, `SELECT max(tx::text::bigint) < pg_snapshot_xmin(pg_current_snapshot())::text::bigint FROM events`)
	})
}

// A replay also sends events that come after a pending transaction in the stream. The returned position stays before the pending
// transaction, but repeated calls do not loop. The test runs alone, because its pending transaction would hold up the replays of other
// tests on the same server.
func TestReplayStopsBeforePendingTransactions(t *testing.T) {
	f := setupAt(t, repotest.URL(t))
	f.submit()
	end := f.lock(`SELECT pg_current_xact_id()`)
	number := one[uint64](f, `SELECT pg_snapshot_xmin(pg_current_snapshot())`)
	f.submitted(5)
	hook := f.subscribe("job.*")
	queued, calls := 0, 0
	for r := (job.Replay{More: true}); r.More; calls++ {
		r = f.replay(hook, time.Time{}, r.Next, 3)
		queued += r.Queued
		require.Less(t, r.Next.Tx, number)
		require.Less(t, calls, 20, "the replay makes no progress")
	}
	require.Equal(t, 12, queued)

	f.insert("events", 10_100, columns{"client_id": quoted(f.client), "event_name": "'job.created'"})
	require.Equal(t, job.Replay{}, f.replay(hook, time.Time{}, job.Position{}, 3), "there are more pending events than one call reads")
	end()
	n, _ := f.replayAll(hook, time.Time{}, 3)
	require.Zero(t, n)
}
