package repo_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

func (f *fixture) situation() admin.Situation {
	now := must(f.store.Admin().Situation(f.ctx()))(f.t)
	require.InDelta(f.t, time.Now().Unix(), time.Time(now.AsOf).Unix(), 10)
	now.AsOf = job.Time{}
	return now
}

func TestSituationOfNothing(t *testing.T) {
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

// Whatever operators look at shows in the mark, and nothing else does.
func TestAdminMark(t *testing.T) {
	f := setup(t)
	a := f.store.Admin()
	seen := map[string]string{}
	mark := func(after string) {
		m := must(a.Mark(f.ctx()))(t)
		require.NotContains(t, seen, m, after)
		seen[m] = after
		require.Equal(t, m, must(a.Mark(f.ctx()))(t), "nothing happened")
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

// allJobs reads a list to its end, in pages of the given size.
func (f *fixture) allJobs(q admin.JobQuery, size int) (ids []job.ID) {
	q.Limit = size
	for pages := 0; ; pages++ {
		require.Less(f.t, pages, 1000, "the list has no end")
		page := must(f.store.Admin().Jobs(f.ctx(), q))(f.t)
		require.LessOrEqual(f.t, len(page.Jobs), size)
		for _, j := range page.Jobs {
			ids = append(ids, j.JobID)
		}
		if page.Next.IsZero() {
			return ids
		}
		q.After = page.Next
	}
}

// someJobs makes jobs of two clients in each state, the oldest first.
func (f *fixture) someJobs(each int) (ids []job.ID) {
	for range each {
		for _, s := range job.States {
			ids = append(ids, f.at(s))
		}
		_, other := f.another()
		ids = append(ids, other)
	}
	return ids
}

// Each order and filter gives what a look at all rows gives, whatever the size of the pages.
func TestAdminListsAreComplete(t *testing.T) {
	f := setup(t)
	f.someJobs(4)
	f.exec(`UPDATE jobs SET correlation_id = 'order-7' WHERE job_id IN (SELECT job_id FROM jobs ORDER BY job_id LIMIT 5)`)
	middle := one[time.Time](f, `SELECT created_at FROM jobs ORDER BY created_at OFFSET 10 LIMIT 1`)
	code := job.Code(one[string](f, `SELECT failure_code FROM jobs WHERE failure_code IS NOT NULL LIMIT 1`))
	for name, test := range map[string]struct {
		q     admin.JobQuery
		where string
		order string
	}{
		"all":                 {admin.JobQuery{}, `true`, `job_id DESC`},
		"of a client":         {admin.JobQuery{ClientID: f.client}, `client_id = '` + f.client.String() + `'`, `job_id DESC`},
		"failed":              {admin.JobQuery{State: job.Failed}, `state = 'FAILED'`, `finished_at DESC, job_id DESC`},
		"failed with a code":  {admin.JobQuery{FailureCode: code}, `failure_code = '` + string(code) + `'`, `finished_at DESC, job_id DESC`},
		"succeeded":           {admin.JobQuery{State: job.Succeeded}, `state = 'SUCCEEDED'`, `finished_at DESC, job_id DESC`},
		"queued":              {admin.JobQuery{State: job.Queued}, `state = 'QUEUED'`, `run_at, job_id`},
		"created":             {admin.JobQuery{State: job.Created}, `state = 'CREATED'`, `execution_at, job_id`},
		"running":             {admin.JobQuery{State: job.Running}, `state = 'RUNNING'`, `job_id DESC`},
		"assigned":            {admin.JobQuery{State: job.Assigned}, `state = 'ASSIGNED'`, `job_id DESC`},
		"running of a client": {admin.JobQuery{State: job.Running, ClientID: f.client}, `state = 'RUNNING'`, `job_id DESC`},
		"of a type":           {admin.JobQuery{Type: job.Deferred}, `type = 'DEFERRED'`, `job_id DESC`},
		"of a kind":           {admin.JobQuery{WorkKind: job.SuccessFast}, `work_kind = 'SUCCESS_FAST'`, `job_id DESC`},
		"correlated":          {admin.JobQuery{CorrelationID: "order-7"}, `correlation_id = 'order-7'`, `job_id DESC`},
		"from":                {admin.JobQuery{From: &middle}, `created_at >= '` + middle.Format(time.RFC3339Nano) + `'`, `job_id DESC`},
		"failed to": {admin.JobQuery{State: job.Failed, To: &middle},
			`state = 'FAILED' AND created_at < '` + middle.Format(time.RFC3339Nano) + `'`,
			`finished_at DESC, job_id DESC`},
	} {
		want := one[[]string](f, `SELECT coalesce(array_agg(job_id::text ORDER BY `+test.order+`), '{}') FROM jobs WHERE `+test.where)
		for _, size := range []int{1, 3, 100} {
			got := []string{}
			for _, id := range f.allJobs(test.q, size) {
				got = append(got, id.String())
			}
			require.Empty(t, cmp.Diff(want, got), "%s, pages of %d", name, size)
		}
		require.NotEmpty(t, want, name)
		require.Equal(t, admin.Count{Count: len(want)}, must(f.store.Admin().Count(f.ctx(), test.q))(t), name)
	}
	b := f.insertBatch(f.batch(3))
	require.Len(t, f.allJobs(admin.JobQuery{BatchID: b.ID}, 2), 3)
}

// What a page looks at is bounded: one that finds nothing goes on where it ended.
func TestAdminListsLookAtABoundedNumber(t *testing.T) {
	f := setup(t)
	wanted := f.submit()
	f.exec(`INSERT INTO jobs (job_id, client_id, type, work_kind, state, outcome, max_attempts, auto_retry, event_seq,
			created_at, updated_at, run_at, queued_at, assigned_at, started_at, finished_at, language, request_id)
		SELECT uuid7(now() + interval '1 s'), gen_random_uuid(), 'EXECUTE', 'CPU_BURST', 'SUCCEEDED', 'SUCCESS', 4, false, 5,
			now(), now(), now(), now(), now(), now(), now(), 'en', 'r' FROM generate_series(1, 21000)`)
	f.exec(`UPDATE jobs SET correlation_id = 'order-7' WHERE job_id = $1`, wanted.String())
	require.Equal(t, []job.ID{wanted}, f.allJobs(admin.JobQuery{WorkKind: job.SuccessFast}, 10))
	require.Equal(t, []job.ID{wanted}, f.allJobs(admin.JobQuery{CorrelationID: "order-7"}, 10))
	require.Empty(t, f.allJobs(admin.JobQuery{FailureCode: job.CodeInternal}, 10))
	require.Equal(t, admin.Count{Count: 21001}, must(f.store.Admin().Count(f.ctx(), admin.JobQuery{}))(t))
}

// A job's detail is what is stored of it, in the names of the API.
func TestAdminJob(t *testing.T) {
	f := setup(t)
	hook := f.subscribe("*")
	lease := f.run(func(s *job.Submission) {
		s.Job.Params = json.RawMessage(`{"big": 12345678901234567890, "a": 1, "a": 2}`)
		s.Job.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	})
	f.finish(failure(lease, job.FailedOnce))
	got := must(f.store.Admin().Job(f.ctx(), lease.JobID))(t)
	want := f.job(lease.JobID)
	require.Equal(t, f.client, got.ClientID)
	require.Equal(t, job.Failed, got.State)
	require.Equal(t, want.CanRetry(), got.CanRetry)
	require.Equal(t, `{"big": 12345678901234567890, "a": 1, "a": 2}`, string(got.Params), "as they were sent")
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", *got.TraceID)
	require.Equal(t, want.Failure.Detail, got.Failure.Detail)
	require.Equal(t, want.CreatedAt, time.Time(got.CreatedAt))
	require.Equal(t, want.FinishedAt.UTC(), time.Time(*got.FinishedAt))
	require.Len(t, got.AttemptsLog, 1)
	require.Equal(t, f.worker, *got.AttemptsLog[0].WorkerID)
	require.Equal(t, want.Failure.Code, got.AttemptsLog[0].Failure.Code)
	names := []string{}
	for i, e := range got.Events {
		require.Equal(t, i+1, e.Seq)
		names = append(names, e.EventName)
	}
	require.Equal(t, f.names(lease.JobID), names)
	require.Len(t, got.Deliveries, len(names), "one for each event")
	require.Equal(t, hook, *got.Deliveries[0].WebhookID)
	require.False(t, got.MoreEvents || got.MoreDeliveries)
	require.Nil(t, got.Waiting)
	require.Nil(t, got.Result)

	done := f.run()
	f.finish(success(done))
	got = must(f.store.Admin().Job(f.ctx(), done.JobID))(t)
	require.Equal(t, "text/plain", got.Result.MediaType)
	require.Len(t, got.Result.SHA256, 64)

	_, err := f.store.Admin().Job(f.ctx(), newID())
	require.ErrorContains(t, err, string(job.CodeJobNotFound))
	require.Equal(t, f.client, must(f.store.Admin().OwnerOf(f.ctx(), done.JobID))(t))
	_, err = f.store.Admin().OwnerOf(f.ctx(), newID())
	require.ErrorContains(t, err, string(job.CodeJobNotFound))
}

func TestAdminJobSaysWhyItWaits(t *testing.T) {
	f := setup(t)
	failed := f.run()
	f.finish(withRetry(failure(failed, job.FailedOnce), time.Hour))
	for reason, id := range map[job.WaitingReason]job.ID{
		job.WaitingScheduled: f.submit(deferred(time.Hour)), job.WaitingBackoff: failed.JobID, job.WaitingQueue: f.submit(),
	} {
		j := must(f.store.Admin().Job(f.ctx(), id))(t)
		require.NotNil(t, j.Waiting, reason)
		require.Equal(t, reason, j.Waiting.Reason)
		require.NotEmpty(t, j.Waiting.Detail)
		require.Equal(t, reason != job.WaitingQueue, j.Waiting.Until != nil, reason)
	}
	f.expireWorker(f.worker)
	j := must(f.store.Admin().Job(f.ctx(), f.submit()))(t)
	require.Equal(t, job.WaitingNoWorkers, j.Waiting.Reason)
}

// A job may have thousands of events and deliveries: the first, and the newest, are shown.
func TestAdminJobIsBounded(t *testing.T) {
	f := setup(t)
	id := f.submit()
	f.exec(`INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
		SELECT $1, $2, s, gen_random_uuid(), 'event.emitted', 1, now(), '{}' FROM generate_series(3, 1500) s`, id.String(), f.client.String())
	f.exec(`UPDATE jobs SET event_seq = 1500 WHERE job_id = $1`, id.String())
	f.exec(`INSERT INTO deliveries (delivery_id, client_id, endpoint_id, url, job_id, seq, event_id, event_name, created_at, next_attempt_at)
		SELECT uuid7(now()), $2, gen_random_uuid(), 'http://x.test', $1, s, gen_random_uuid(), 'x', now(), now() FROM generate_series(1, 150) s`,
		id.String(), f.client.String())
	j := must(f.store.Admin().Job(f.ctx(), id))(t)
	require.Len(t, j.Events, 1000)
	require.Len(t, j.Deliveries, 100)
	require.True(t, j.MoreEvents && j.MoreDeliveries)
	require.True(t, slices.IsSortedFunc(j.Deliveries, func(a, b admin.Delivery) int {
		return slices.Compare(b.DeliveryID[:], a.DeliveryID[:])
	}))
}
