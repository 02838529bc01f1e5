package repo_test

import (
	"encoding/json"
	"slices"
	"strings"
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

func TestSituationOfEmptyStore(t *testing.T) {
	f := setup(t)
	workers := admin.WorkerTotals{Alive: 1, Slots: 1}
	require.Equal(t, admin.Situation{
		LeaderGone: true, Workers: workers, Pauses: job.Pauses{}, Silent: []admin.SilentWorker{},
	}, f.situation())
	require.True(t, f.becomeLeader(newID()))
	require.False(t, f.situation().LeaderGone)
	// LeaderGone is set some seconds after the lease's end, because another process may still take over.
	for since, gone := range map[string]bool{"1 s": false, "3 s": true} {
		f.exec(`UPDATE maintenance_state SET leader_expires_at = clock_timestamp() - $1::interval`, since)
		require.Equal(t, gone, f.situation().LeaderGone, since)
	}
	f.exec(`DELETE FROM maintenance_state`)
	require.Equal(t, job.CodeStorageUnavailable, codeOf(f.store.Admin().Situation(f.ctx())))
}

func TestSituationCountsStoredRows(t *testing.T) {
	f := setup(t)
	require.True(t, f.becomeLeader(newID()))
	for i, s := range job.States {
		for range i + 1 {
			f.force(s)
		}
	}
	f.exec(`UPDATE jobs SET execution_at = now() + interval '1 h', run_at = now() + interval '1 h' WHERE state = 'CREATED'`)
	oldest := job.Time(one[time.Time](f, `SELECT min(run_at) FROM jobs WHERE state = 'QUEUED'`))
	next := job.Time(one[time.Time](f, `SELECT run_at FROM jobs WHERE state = 'CREATED'`))
	want := admin.Situation{
		Created: 1, Queued: 2, Assigned: 3, Running: 4,
		Waiting: admin.WaitingJobs{Count: 3, Due: 2, OldestRunAt: &oldest, NextRunAt: &next},
		Workers: admin.WorkerTotals{Alive: 1, Slots: 1, Held: 7}, Pauses: job.Pauses{}, Silent: []admin.SilentWorker{},
	}
	require.Equal(t, want, f.situation())

	p := f.pause(job.PauseKind, "CPU_BURST", job.ModeDrain)
	want.Pauses = job.Pauses{{Scope: job.PauseKind, Target: "CPU_BURST", Mode: job.ModeDrain, Operator: "ann", Reason: "a release"}}
	require.Equal(t, want, f.situation())
	f.unpause(p)
	want.Pauses = job.Pauses{}

	f.exec(`UPDATE workers SET name = 'w', heartbeat_at = now() - interval '14 s', expires_at = now() + interval '16 s'`)
	require.Equal(t, want, f.situation(), "a worker may miss two heartbeats")
	f.exec(`UPDATE workers SET heartbeat_at = now() - interval '15 s', expires_at = now() + interval '15 s'`)
	silent := f.situation().Silent
	require.Len(t, silent, 1)
	require.Equal(t, []any{"w", 7}, []any{silent[0].Name, silent[0].Held})
	want.Workers.Alive, want.Workers.Slots = 0, 0

	for _, step := range []struct {
		worker string
		lost   bool
		died   int
	}{
		{`expires_at = now() - interval '1 s'`, false, 0}, // an expired worker keeps its jobs for a few seconds
		{`expires_at = now() - interval '6 s'`, true, 0},
		{`state = 'DEAD'`, true, 1},
		{`expires_at = now() - interval '16 min'`, true, 0},
		{`state = 'STOPPED', expires_at = now() + interval '1 h', heartbeat_at = now()`, false, 0},
		{`heartbeat_at = now() - interval '6 s'`, true, 0},
	} {
		f.exec(`UPDATE workers SET ` + step.worker)
		want.LostWorkers, want.LostJobs, want.Died = 0, 0, step.died
		if step.lost {
			want.LostWorkers, want.LostJobs = 1, 7
		}
		require.Equal(t, want, f.situation(), step.worker)
	}
	f.newWorker()
	want.Workers.Alive, want.Workers.Slots = 1, 1
	require.Equal(t, want, f.situation(), "a worker without jobs is not lost")
}

func TestSituationCountsThrottledClients(t *testing.T) {
	f := setup(t)
	for i := range 5 {
		f.exec(`UPDATE jobs SET run_at = $2, client_id = $3 WHERE job_id = $1`, f.submit().String(), job.ThrottledUntil,
			[]job.ID{f.client, f.worker, newID()}[min(i, 2)].String())
	}
	require.Equal(t, 5, f.situation().Throttled)
	f.exec(`UPDATE jobs SET client_id = $1 WHERE client_id NOT IN ($1, $2)`, f.client.String(), f.worker.String())
	now := f.situation()
	require.Equal(t, 2, now.Throttled)
	require.Equal(t, admin.WaitingJobs{Count: 5}, now.Waiting, "throttled jobs have no known start time")
}

func TestSituationOfDeliveries(t *testing.T) {
	f := setup(t)
	sent := func(hook job.ID, due string) {
		f.insert("deliveries", 1, columns{"client_id": quoted(f.client), "endpoint_id": quoted(hook), "webhook_id": quoted(hook),
			"next_attempt_at": "now() + interval '" + due + "'"})
	}
	hooks := map[string]job.ID{}
	for _, reason := range []string{"", "OWNER", "GONE", "FAILING", "GONE, deleted"} {
		hooks[reason] = newID()
		row := columns{"client_id": quoted(f.client), "webhook_id": quoted(hooks[reason])}
		if reason, deleted, _ := strings.Cut(reason, ", "); reason != "" {
			row["disabled_at"], row["disabled_reason"] = "now()", `'`+reason+`'`
			if deleted != "" {
				row["deleted_at"] = "now()"
			}
		}
		f.insert("webhooks", 1, row)
	}
	sent(hooks["GONE"], "-1 h")
	require.Nil(t, f.situation().Deliveries.FirstDueAt, "deliveries of a disabled webhook are not late")
	for n, due := range []time.Duration{time.Hour, time.Minute, -time.Minute, -10 * time.Minute} {
		sent(hooks[""], due.String())
		got := f.situation().Deliveries
		require.Equal(t, n+2, got.Count)
		require.False(t, got.More)
		require.InDelta(t, time.Now().Add(due).Unix(), time.Time(*got.FirstDueAt).Unix(), 30)
	}
	failed := func(reason string, times int) {
		f.exec(`UPDATE webhooks SET consecutive_failures = $2, failing_since = now() - interval '1 h' WHERE webhook_id = $1`,
			hooks[reason].String(), times)
	}
	failed("FAILING", 700)
	failed("OWNER", 800)
	failed("", admin.FailingAfter-1)
	now := f.situation()
	require.Equal(t, admin.WebhookTrouble{}, now.Failing)
	require.Equal(t, []any{2, hooks["FAILING"], 700}, []any{now.Disabled.Count, *now.Disabled.WebhookID, now.Disabled.Failures})
	failed("", admin.FailingAfter)
	now = f.situation()
	require.Equal(t, []any{1, hooks[""], admin.FailingAfter}, []any{now.Failing.Count, *now.Failing.WebhookID, now.Failing.Failures})
	require.InDelta(t, time.Now().Add(-time.Hour).Unix(), time.Time(*now.Failing.Since).Unix(), 30)
}

func TestAdminMark(t *testing.T) {
	f := setup(t)
	a := f.store.Admin()
	seen := map[string]bool{}
	var claim job.ClaimID
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"nothing", func() {}},
		{"a submission", func() { claim.JobID = f.submit() }},
		{"a claim", func() { claim = f.assigned(claim.JobID, 1) }},
		{"a start", func() { f.start(claim) }},
		{"an end", func() { f.finish(success(claim)) }},
		{"a delivery", func() { f.subscribe("*"); f.submit() }},
		{"an operator", func() {
			entry := admin.AuditEntry{AuditID: newID(), Operator: "ann", Action: "x", TargetType: "job", RequestID: "r", Detail: []byte("{}")}
			require.NoError(t, a.Begin(f.ctx(), entry))
		}},
		{"a worker's end", func() { f.expireWorker(f.worker) }},
	} {
		step.do()
		mark := must(a.Mark(f.ctx()))(t)
		require.NotContains(t, seen, mark, step.name)
		seen[mark] = true
		require.Equal(t, mark, must(a.Mark(f.ctx()))(t), "the mark changes only with events")
	}
}

func (f *fixture) allJobs(q admin.JobQuery, size int) []job.ID {
	q.Limit = size
	ids, _ := walk(f, func(after admin.Place) ([]job.ID, admin.Place) {
		q.After = after
		page := must(f.store.Admin().Jobs(f.ctx(), q))(f.t)
		require.LessOrEqual(f.t, len(page.Jobs), size)
		return each(page.Jobs, func(j admin.JobSummary) job.ID { return j.JobID }), page.Next
	})
	return ids
}

func TestAdminListsAreComplete(t *testing.T) {
	f := setup(t)
	for range 4 {
		for _, s := range job.States {
			f.at(s)
		}
		f.another()
	}
	f.exec(`UPDATE jobs SET correlation_id = 'order-7' WHERE job_id IN (SELECT job_id FROM jobs ORDER BY job_id LIMIT 5)`)
	f.exec(`UPDATE jobs SET correlation_id = 'ORD_8%', schedule_id = client_id
		WHERE job_id = (SELECT max(job_id::text)::uuid FROM jobs WHERE client_id = $1)`, f.client.String())
	f.exec(`UPDATE jobs SET correlation_id = 'ORDX8X' WHERE job_id = (SELECT min(job_id::text)::uuid FROM jobs WHERE correlation_id IS NULL)`)
	middle := one[time.Time](f, `SELECT created_at FROM jobs ORDER BY created_at OFFSET 10 LIMIT 1`)
	at := `'` + middle.Format(time.RFC3339Nano) + `'`
	code := job.Code(one[string](f, `SELECT failure_code FROM jobs WHERE failure_code IS NOT NULL LIMIT 1`))
	const newest, ended = `job_id DESC`, `finished_at DESC, job_id DESC`
	for _, test := range []struct {
		q            admin.JobQuery
		where, order string
	}{
		{admin.JobQuery{}, `true`, newest},
		{admin.JobQuery{ClientID: f.client}, `client_id = ` + quoted(f.client), newest},
		{admin.JobQuery{State: job.Failed}, `state = 'FAILED'`, ended},
		{admin.JobQuery{FailureCode: code}, `failure_code = '` + string(code) + `'`, ended},
		{admin.JobQuery{State: job.Succeeded}, `state = 'SUCCEEDED'`, ended},
		{admin.JobQuery{State: job.Queued}, `state = 'QUEUED'`, `run_at, job_id`},
		{admin.JobQuery{State: job.Created}, `state = 'CREATED'`, `execution_at, job_id`},
		{admin.JobQuery{State: job.Running}, `state = 'RUNNING'`, newest},
		{admin.JobQuery{State: job.Assigned}, `state = 'ASSIGNED'`, newest},
		{admin.JobQuery{State: job.Running, ClientID: f.client}, `state = 'RUNNING'`, newest},
		{admin.JobQuery{Type: job.Deferred}, `type = 'DEFERRED'`, newest},
		{admin.JobQuery{WorkKind: job.SuccessFast}, `work_kind = 'SUCCESS_FAST'`, newest},
		{admin.JobQuery{CorrelationID: "order-7"}, `correlation_id = 'order-7'`, newest},
		{admin.JobQuery{CorrelationID: "*er-7"}, `correlation_id = 'order-7'`, newest},
		{admin.JobQuery{CorrelationID: "*ORD_*", ClientID: f.client}, `correlation_id = 'ORD_8%'`, newest},
		{admin.JobQuery{CorrelationID: "*_8%"}, `correlation_id = 'ORD_8%'`, newest},
		{admin.JobQuery{ScheduleID: f.client}, `schedule_id = ` + quoted(f.client), newest},
		{admin.JobQuery{From: &middle}, `created_at >= ` + at, newest},
		{admin.JobQuery{State: job.Failed, To: &middle}, `state = 'FAILED' AND created_at < ` + at, ended},
	} {
		want := one[[]string](f, `SELECT coalesce(array_agg(job_id::text ORDER BY `+test.order+`), '{}') FROM jobs WHERE `+test.where)
		for _, size := range []int{1, 3, 100} {
			got := each(f.allJobs(test.q, size), job.ID.String)
			require.Empty(t, cmp.Diff(want, got), "%+v, pages of %d", test.q, size)
		}
		require.NotEmpty(t, want, "%+v", test.q)
		require.Equal(t, admin.Count{Count: len(want)}, must(f.store.Admin().Count(f.ctx(), test.q))(t), "%+v", test.q)
	}
	require.Len(t, f.allJobs(admin.JobQuery{BatchID: f.insertBatch(f.batch(3)).ID}, 2), 3)
}

func TestAdminListsReadBoundedRows(t *testing.T) {
	f := setup(t)
	wanted := f.submit()
	f.insert("jobs", 21000, columns{"job_id": "uuid7(now() + interval '1 s')", "work_kind": "'CPU_BURST'", "state": "'SUCCEEDED'",
		"outcome": "'SUCCESS'", "started_at": "now()", "finished_at": "now()"})
	f.exec(`UPDATE jobs SET correlation_id = 'order-7' WHERE job_id = $1`, wanted.String())
	require.Equal(t, []job.ID{wanted}, f.allJobs(admin.JobQuery{WorkKind: job.SuccessFast}, 10))
	require.Equal(t, []job.ID{wanted}, f.allJobs(admin.JobQuery{CorrelationID: "order-7"}, 10))
	require.Empty(t, f.allJobs(admin.JobQuery{FailureCode: job.CodeInternal}, 10))
	require.Equal(t, admin.Count{Count: 21001}, must(f.store.Admin().Count(f.ctx(), admin.JobQuery{}))(t))
}

func TestAdminJob(t *testing.T) {
	f := setup(t)
	hook := f.subscribe("*")
	const params = `{"big": 12345678901234567890, "a": 1, "a": 2}`
	id := f.failed(job.FailedOnce, traced(anotherTrace), func(s *job.Submission) { s.Job.Params = json.RawMessage(params) })
	got := must(f.store.Admin().Job(f.ctx(), id))(t)
	want := f.job(id)
	require.Equal(t, []any{f.client, job.Failed, want.CanRetry()}, []any{got.ClientID, got.State, got.CanRetry})
	require.Equal(t, params, string(got.Params), "params are returned unchanged")
	require.Equal(t, anotherTrace[3:35], *got.TraceID)
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
	require.Equal(t, f.names(id), names)
	require.Len(t, got.Deliveries, len(names), "one delivery for each event")
	require.Equal(t, hook, *got.Deliveries[0].WebhookID)
	require.False(t, got.MoreEvents || got.MoreDeliveries)
	require.Nil(t, got.Waiting)
	require.Nil(t, got.Result)

	done := f.at(job.Succeeded)
	got = must(f.store.Admin().Job(f.ctx(), done))(t)
	require.Equal(t, "text/plain", got.Result.MediaType)
	require.Len(t, got.Result.SHA256, 64)
	require.Equal(t, f.client, must(f.store.Admin().OwnerOf(f.ctx(), done))(t))
	require.Equal(t, job.CodeJobNotFound, codeOf(f.store.Admin().Job(f.ctx(), newID())))
	require.Equal(t, job.CodeJobNotFound, codeOf(f.store.Admin().OwnerOf(f.ctx(), newID())))
}

func TestAdminJobHasTheReasonOfItsWait(t *testing.T) {
	f := setup(t)
	waiting := func(id job.ID) *admin.Waiting { return must(f.store.Admin().Job(f.ctx(), id))(t).Waiting }
	for reason, id := range map[job.WaitingReason]job.ID{
		job.WaitingScheduled: f.submit(deferred(time.Hour)), job.WaitingBackoff: f.retrying(time.Hour).JobID, job.WaitingQueue: f.submit(),
	} {
		require.Equal(t, reason, waiting(id).Reason)
		require.NotEmpty(t, waiting(id).Detail)
		require.Equal(t, reason != job.WaitingQueue, waiting(id).Until != nil, reason)
	}
	f.expireWorker(f.worker)
	require.Equal(t, job.WaitingNoWorkers, waiting(f.submit()).Reason)
}

// A job may have thousands of events and deliveries. Only the first events and the latest deliveries are shown.
func TestAdminJobIsBounded(t *testing.T) {
	f := setup(t)
	id := f.submit()
	f.insert("events", 1498, columns{"job_id": quoted(id), "client_id": quoted(f.client), "seq": "i + 2"})
	f.exec(`UPDATE jobs SET event_seq = 1500 WHERE job_id = $1`, id.String())
	f.insert("deliveries", 150, columns{"delivery_id": "uuid7(now())", "client_id": quoted(f.client), "url": "'http://x.test'",
		"job_id": quoted(id), "seq": "i"})
	j := must(f.store.Admin().Job(f.ctx(), id))(t)
	require.Len(t, j.Events, 1000)
	require.Len(t, j.Deliveries, 100)
	require.True(t, j.MoreEvents && j.MoreDeliveries)
	require.True(t, slices.IsSortedFunc(j.Deliveries, func(a, b admin.Delivery) int {
		return slices.Compare(b.DeliveryID[:], a.DeliveryID[:])
	}))
}

// After a logout, a session stays ended for all processes until its cookies have expired. Then its row is removed.
func TestLogout(t *testing.T) {
	f := setup(t)
	a := f.store.Admin()
	f.atOnce(8, func(int) error { return a.Logout(f.ctx(), "ended", time.Now().Add(time.Hour)) })
	require.True(t, must(a.LoggedOut(f.ctx(), "ended"))(t))
	require.False(t, must(a.LoggedOut(f.ctx(), "another"))(t))
	f.exec(`UPDATE ended_sessions SET expires_at = now() - interval '1 s'`)
	require.NoError(t, a.Logout(f.ctx(), "another", time.Now().Add(time.Hour)))
	require.Equal(t, 1, f.count("ended_sessions"))
}
