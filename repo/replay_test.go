package repo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

func (f *fixture) replay(hook job.ID, since time.Time, limit int) job.Replay {
	f.t.Helper()
	r, err := f.store.ReplayEvents(f.ctx(), f.client, hook, since, limit)
	require.NoError(f.t, err)
	return r
}

// replayAll repeats a replay until there is no more, and tells how much was
// queued, in how many calls.
func (f *fixture) replayAll(hook job.ID, since time.Time, limit int) (queued, calls int) {
	f.t.Helper()
	for {
		r := f.replay(hook, since, limit)
		queued += r.Queued
		if calls++; !r.More {
			return queued, calls
		}
		require.Less(f.t, calls, 1000, "it makes no progress")
	}
}

func TestReplayBringsWhatWasMissed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	hook := f.subscribe("job.*", job.EventBatchCompleted, job.EventWebhookTest, job.EventWebhookDisabled)
	other := f.subscribe(job.EventCreated)
	before := f.submit()
	f.record(givenUp(f.claimAll(hook, 1)[0]))
	f.patch(hook, enabled(false))
	_, err := f.store.FailOrphans(f.ctx(), 100, 100)
	require.NoError(t, err)

	early := f.at(job.Succeeded)
	f.exec(`UPDATE events SET occurred_at = occurred_at - interval '1 hour' WHERE job_id = $1 AND seq = 1`, early.String())
	late := f.at(job.Failed)
	_, err = f.store.TestWebhook(f.ctx(), f.client, other)
	require.NoError(t, err)
	f.exec(`INSERT INTO client_events (event_id, client_id, event_name, occurred_at, webhook_id, data)
		SELECT gen_random_uuid(), $1, 'webhook.disabled', clock_timestamp(), w::uuid, '{}' FROM unnest(ARRAY[$2, $3]) w`, f.client.String(), hook.String(), other.String())
	_, err = f.store.ReplayEvents(f.ctx(), f.client, hook, time.Time{}, 10)
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
	require.Equal(t, job.Replay{}, f.replay(hook, since, 100), "nothing is missing any more")
	n, _ = f.replayAll(hook, time.Time{}, 100)
	require.Equal(t, 1, n, "the earlier one")
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM webhooks WHERE replay_since IS NOT NULL`))
	f.checkInvariants()
}

func TestReplaysAtOnceMakeOneDelivery(t *testing.T) {
	t.Parallel()
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

// A long history costs each call a limited number of reads; the next one goes
// on where it ended.
func TestReplayOfALongHistory(t *testing.T) {
	t.Parallel()
	f := setup(t)
	// 30,000 events that have a delivery, and two that have none.
	f.exec(`INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
		SELECT gen_random_uuid(), $1, 1, gen_random_uuid(), 'job.created', 1, now() - interval '2 hours', '{}' FROM generate_series(1, 30000) i`, f.client.String())
	f.submit()
	hook := f.subscribe("job.*")
	f.exec(`INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, job_id, seq, event_id, event_name, created_at, next_attempt_at)
		SELECT gen_random_uuid(), client_id, $1::uuid, $1::uuid, job_id, seq, event_id, event_name, now(), now() FROM events WHERE occurred_at < now() - interval '1 hour'`, hook.String())
	n, calls := f.replayAll(hook, time.Now().Add(-24*time.Hour), 100)
	require.Equal(t, 2, n)
	require.LessOrEqual(t, calls, 4)
	require.Greater(t, calls, 2)

	f.exec(`DELETE FROM deliveries WHERE event_id = (SELECT event_id FROM events ORDER BY occurred_at DESC LIMIT 1)`)
	start := one[string](f, `SELECT (min(tx::text::bigint))::text FROM events WHERE occurred_at > now() - interval '1 hour'`)
	found := f.reads("events", repo.Statements["findReplayStart"], `'`+f.client.String()+`', '`+time.Now().Add(-time.Hour).Format(time.RFC3339)+`'`)
	require.Less(t, found, 400, "a few for each step")
	n, calls = f.replayAll(hook, time.Now().Add(-time.Hour), 100)
	require.Equal(t, 1, n)
	require.LessOrEqual(t, calls, 4, "the last 30,000 have one transaction: %s", start)

	f.exec(`DELETE FROM deliveries WHERE event_id = (SELECT event_id FROM events ORDER BY occurred_at DESC LIMIT 1)`)
	f.submit()
	f.replay(hook, time.Now().Add(-24*time.Hour), 100)
	require.Equal(t, 1, one[int](f, `SELECT count(*)::int FROM webhooks WHERE replay_since IS NOT NULL`))
	f.patch(hook, job.WebhookPatch{Events: []string{"*"}})
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM webhooks WHERE replay_since IS NOT NULL`), "other events may have been left out before")
}
