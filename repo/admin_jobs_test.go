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

// allJobs reads a list to its end, in pages of the given size.
func (f *fixture) allJobs(q admin.JobQuery, size int) (ids []job.ID) {
	f.t.Helper()
	q.Limit = size
	for pages := 0; ; pages++ {
		require.Less(f.t, pages, 1000, "the list has no end")
		page, err := f.store.Admin().Jobs(f.ctx(), q)
		require.NoError(f.t, err)
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
	f.t.Helper()
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
	t.Parallel()
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
		count, err := f.store.Admin().Count(f.ctx(), test.q)
		require.NoError(t, err)
		require.Equal(t, admin.Count{Count: len(want)}, count, name)
	}
	b := f.insertBatch(f.batch(3))
	require.Len(t, f.allJobs(admin.JobQuery{BatchID: b.ID}, 2), 3)
}

// What a page looks at is bounded: one that finds nothing goes on where it ended.
func TestAdminListsLookAtABoundedNumber(t *testing.T) {
	t.Parallel()
	f := setup(t)
	wanted := f.submit()
	f.exec(`INSERT INTO jobs (job_id, client_id, type, work_kind, state, outcome, max_attempts, auto_retry, event_seq,
			created_at, updated_at, run_at, queued_at, assigned_at, started_at, finished_at, language, request_id)
		SELECT uuid7(now() + interval '1 s'), gen_random_uuid(), 'EXECUTE', 'CPU_BURST', 'SUCCEEDED', 'SUCCESS', 4, false, 5,
			now(), now(), now(), now(), now(), now(), now(), 'en', 'r' FROM generate_series(1, 45000)`)
	f.exec(`UPDATE jobs SET correlation_id = 'order-7' WHERE job_id = $1`, wanted.String())
	require.Equal(t, []job.ID{wanted}, f.allJobs(admin.JobQuery{WorkKind: job.SuccessFast}, 10))
	require.Equal(t, []job.ID{wanted}, f.allJobs(admin.JobQuery{CorrelationID: "order-7"}, 10))
	require.Empty(t, f.allJobs(admin.JobQuery{FailureCode: job.CodeInternal}, 10))
	count, err := f.store.Admin().Count(f.ctx(), admin.JobQuery{})
	require.NoError(t, err)
	require.Equal(t, admin.Count{Count: 45001}, count)
}

// A job's detail is what is stored of it, in the names of the API.
func TestAdminJob(t *testing.T) {
	t.Parallel()
	f := setup(t)
	hook := f.subscribe("*")
	lease := f.run(func(s *job.Submission) {
		s.Job.Params = json.RawMessage(`{"big": 12345678901234567890, "a": 1, "a": 2}`)
		s.Job.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	})
	f.finish(failure(lease, job.FailedOnce))
	got, err := f.store.Admin().Job(f.ctx(), lease.JobID)
	require.NoError(t, err)
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
	got, err = f.store.Admin().Job(f.ctx(), done.JobID)
	require.NoError(t, err)
	require.Equal(t, "text/plain", got.Result.MediaType)
	require.Len(t, got.Result.SHA256, 64)

	_, err = f.store.Admin().Job(f.ctx(), newID())
	require.ErrorContains(t, err, string(job.CodeJobNotFound))
	owner, err := f.store.Admin().OwnerOf(f.ctx(), done.JobID)
	require.NoError(t, err)
	require.Equal(t, f.client, owner)
	_, err = f.store.Admin().OwnerOf(f.ctx(), newID())
	require.ErrorContains(t, err, string(job.CodeJobNotFound))
}

func TestAdminJobSaysWhyItWaits(t *testing.T) {
	t.Parallel()
	f := setup(t)
	failed := f.run()
	f.finish(withRetry(failure(failed, job.FailedOnce), time.Hour))
	for reason, id := range map[job.WaitingReason]job.ID{
		job.WaitingScheduled: f.submit(deferred(time.Hour)), job.WaitingBackoff: failed.JobID, job.WaitingQueue: f.submit(),
	} {
		j, err := f.store.Admin().Job(f.ctx(), id)
		require.NoError(t, err)
		require.NotNil(t, j.Waiting, reason)
		require.Equal(t, reason, j.Waiting.Reason)
		require.NotEmpty(t, j.Waiting.Detail)
		require.Equal(t, reason != job.WaitingQueue, j.Waiting.Until != nil, reason)
	}
	f.expireWorker(f.worker)
	j, err := f.store.Admin().Job(f.ctx(), f.submit())
	require.NoError(t, err)
	require.Equal(t, job.WaitingNoWorkers, j.Waiting.Reason)
}

// A job may have thousands of events and deliveries: the first, and the newest, are shown.
func TestAdminJobIsBounded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit()
	f.exec(`INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
		SELECT $1, $2, s, gen_random_uuid(), 'event.emitted', 1, now(), '{}' FROM generate_series(3, 1500) s`, id.String(), f.client.String())
	f.exec(`UPDATE jobs SET event_seq = 1500 WHERE job_id = $1`, id.String())
	f.exec(`INSERT INTO deliveries (delivery_id, client_id, endpoint_id, url, job_id, seq, event_id, event_name, created_at, next_attempt_at)
		SELECT uuid7(now()), $2, gen_random_uuid(), 'http://x.test', $1, s, gen_random_uuid(), 'x', now(), now() FROM generate_series(1, 150) s`,
		id.String(), f.client.String())
	j, err := f.store.Admin().Job(f.ctx(), id)
	require.NoError(t, err)
	require.Len(t, j.Events, 1000)
	require.Len(t, j.Deliveries, 100)
	require.True(t, j.MoreEvents && j.MoreDeliveries)
	require.True(t, slices.IsSortedFunc(j.Deliveries, func(a, b admin.Delivery) int {
		return slices.Compare(b.DeliveryID[:], a.DeliveryID[:])
	}))
}
