package repo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

func (f *fixture) situation() admin.Situation {
	f.t.Helper()
	now, err := f.store.Admin().Situation(f.ctx())
	require.NoError(f.t, err)
	require.InDelta(f.t, time.Now().Unix(), time.Time(now.AsOf).Unix(), 10)
	now.AsOf = job.Time{}
	return now
}

func TestSituationOfNothing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.Equal(t, admin.Situation{
		LeaderGone: true, Workers: admin.WorkerTotals{Alive: 1, Slots: 1}, Pauses: []admin.Pause{},
	}, f.situation())
	require.True(t, f.lead(newID()))
	require.False(t, f.situation().LeaderGone)
	f.exec(`UPDATE maintenance_state SET leader_expires_at = clock_timestamp() - interval '1 s'`)
	require.False(t, f.situation().LeaderGone, "it lets others lead, and is there still")
	f.exec(`UPDATE maintenance_state SET leader_expires_at = clock_timestamp() - interval '3 s'`)
	require.True(t, f.situation().LeaderGone)
	f.exec(`DELETE FROM maintenance_state`)
	_, err := f.store.Admin().Situation(f.ctx())
	require.Equal(t, job.CodeStorageUnavailable, job.CodeOf(err))
}

func TestSituationCountsWhatIsThere(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.True(t, f.lead(newID()))
	for i, s := range job.States {
		for range i + 1 {
			f.force(s)
		}
	}
	f.exec(`UPDATE jobs SET execution_at = now() + interval '1 h', run_at = now() + interval '1 h' WHERE state = 'CREATED'`)
	oldest := one[time.Time](f, `SELECT min(run_at) FROM jobs WHERE state = 'QUEUED'`)
	at := job.Time(oldest)
	want := admin.Situation{
		Created: 1, Queued: 2, Assigned: 3, Running: 4,
		Waiting: admin.WaitingJobs{Count: admin.Count{Count: 3}, OldestRunAt: &at}, Workers: admin.WorkerTotals{Alive: 1, Slots: 1, Held: 7},
		Pauses: []admin.Pause{},
	}
	require.Equal(t, want, f.situation())

	p := f.stop(job.PauseKind, "CPU_BURST", job.ModeDrain)
	want.Pauses = []admin.Pause{{Scope: job.PauseKind, Target: "CPU_BURST", Mode: job.ModeDrain, Operator: "ann", Reason: "a release"}}
	require.Equal(t, want, f.situation())
	f.goOn(p)
	want.Pauses = []admin.Pause{}

	// A worker that is lost keeps its jobs for a moment.
	f.exec(`UPDATE workers SET expires_at = now() - interval '1 s'`)
	want.Workers.Alive, want.Workers.Slots = 0, 0
	require.Equal(t, want, f.situation())
	for _, state := range []string{"ALIVE", "DEAD"} {
		f.exec(`UPDATE workers SET state = $1, expires_at = now() - interval '6 s'`, state)
		want.LostWorkers, want.LostJobs = 1, 7
		require.Equal(t, want, f.situation(), state)
	}
	f.exec(`UPDATE workers SET state = 'STOPPED', expires_at = now() + interval '1 h', heartbeat_at = now()`)
	want.LostWorkers, want.LostJobs = 0, 0
	require.Equal(t, want, f.situation(), "it has just stopped")
	f.exec(`UPDATE workers SET heartbeat_at = now() - interval '6 s'`)
	want.LostWorkers, want.LostJobs = 1, 7
	require.Equal(t, want, f.situation())
	f.newWorker()
	want.Workers.Alive, want.Workers.Slots = 1, 1
	require.Equal(t, want, f.situation(), "one that holds nothing is not lost")
}

func TestSituationCountsClientsThatWait(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for i := range 5 {
		f.exec(`UPDATE jobs SET run_at = $2, client_id = $3 WHERE job_id = $1`, f.submit().String(), job.ThrottledUntil,
			[]job.ID{f.client, f.worker, newID()}[min(i, 2)].String())
	}
	require.Equal(t, 5, f.situation().Throttled)
	f.exec(`UPDATE jobs SET client_id = $1 WHERE client_id NOT IN ($1, $2)`, f.client.String(), f.worker.String())
	now := f.situation()
	require.Equal(t, 2, now.Throttled)
	require.Nil(t, now.Waiting.OldestRunAt, "their time has not come")
	require.Equal(t, 5, now.Waiting.Count.Count)
}

func TestSituationOfDeliveries(t *testing.T) {
	t.Parallel()
	f := setup(t)
	sent := func(hook job.ID, due string) {
		f.exec(`INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, seq, event_id, event_name, created_at,
				state, next_attempt_at)
			SELECT gen_random_uuid(), client_id, webhook_id, webhook_id, 0, gen_random_uuid(), 'x', now(), 'PENDING', now() + $2::interval
			FROM webhooks WHERE webhook_id = $1`, hook.String(), due)
	}
	hooks := map[string]job.ID{}
	for _, reason := range []string{"", "OWNER", "GONE", "FAILING", "GONE, deleted"} {
		id := newID()
		hooks[reason] = id
		f.exec(`INSERT INTO webhooks (webhook_id, client_id, url, events, description, content_mode, secret, created_at, updated_at, deleted_at,
				disabled_at, disabled_reason)
			VALUES ($1, $2, 'u', '{*}', '', 'binary', 'x', now(), now(), CASE WHEN $3 LIKE '%deleted' THEN now() END,
				CASE WHEN $3 <> '' THEN now() END, nullif(split_part($3, ',', 1), ''))`, id.String(), newID().String(), reason)
	}
	sent(hooks["GONE"], "-1 h")
	sent(hooks[""], "1 h")
	now := f.situation()
	require.Equal(t, 2, now.Disabled)
	require.Nil(t, now.OldestDeliveryAt, "what is disabled waits for its owner")
	sent(hooks[""], "-1 min")
	sent(hooks[""], "-10 min")
	require.InDelta(t, time.Now().Add(-10*time.Minute).Unix(), time.Time(*f.situation().OldestDeliveryAt).Unix(), 30)
}

// What is counted is counted no further than to a limit.
func TestSituationIsBounded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const rows = 100_010
	f.exec(`INSERT INTO jobs (job_id, client_id, type, work_kind, state, max_attempts, auto_retry, event_seq, created_at, updated_at,
		run_at, queued_at, language, request_id)
		SELECT gen_random_uuid(), gen_random_uuid(), 'EXECUTE', 'SUCCESS_FAST', 'QUEUED', 4, false, 2, now(), now(), now() - i * interval '1 ms',
			now(), 'en', 'r' FROM generate_series(1, $1) i`, rows)
	now := f.situation()
	require.Equal(t, admin.Count{Count: 100_000, More: true}, now.Waiting.Count)
	require.Equal(t, 100_000, now.Queued)
}

// Whatever operators look at shows in the mark, and nothing else does.
func TestAdminMark(t *testing.T) {
	t.Parallel()
	f := setup(t)
	a := f.store.Admin()
	seen := map[string]string{}
	mark := func(after string) {
		t.Helper()
		m, err := a.Mark(f.ctx())
		require.NoError(t, err)
		require.NotContains(t, seen, m, after)
		seen[m] = after
		again, err := a.Mark(f.ctx())
		require.NoError(t, err)
		require.Equal(t, m, again, "nothing happened")
	}
	mark("nothing")
	id := f.submit()
	mark("a submission")
	lease := f.assigned(id, 1)
	mark("a claim")
	f.start(lease)
	mark("a start")
	f.finish(success(lease))
	mark("an end")
	f.subscribe("*")
	f.submit()
	mark("a delivery")
	require.NoError(t, a.Begin(f.ctx(), admin.AuditEntry{
		AuditID: newID(), Operator: "ann", Action: "x", TargetType: "job", RequestID: "r", Detail: []byte("{}"),
	}))
	mark("an operator")
	f.expireWorker(f.worker)
	mark("a worker's end")
}
