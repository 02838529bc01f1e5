package repo_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

const (
	oneTrace     = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	anotherTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

func traced(traceparent string) func(*job.Submission) {
	return func(s *job.Submission) { s.Job.TraceParent = traceparent }
}

// Whatever tells of a job that is to go on tells of the span to go on from.
func TestTracesGoOnWithTheirJobs(t *testing.T) {
	t.Parallel()
	ofTasks := func(tasks []job.Task, err error) (string, error) { return tasks[0].TraceParent, err }
	for name, test := range map[string]struct {
		opts []func(*job.Submission)
		tell func(f *fixture, id job.ID) (string, error)
	}{
		"waiting": {tell: func(f *fixture, _ job.ID) (string, error) {
			return ofTasks(f.waitingJobs(job.QueueCursor{}, 0, 10), nil)
		}},
		"redispatched": {tell: func(f *fixture, id job.ID) (string, error) {
			return ofTasks(f.store.Redispatch(f.ctx(), []job.Task{{JobID: id, Attempt: 1}}))
		}},
		"released": {tell: func(f *fixture, id job.ID) (string, error) {
			return ofTasks(f.store.Release(f.ctx(), []job.Lease{f.assigned(id, 1)}, []time.Duration{0}))
		}},
		"retried by itself": {tell: func(f *fixture, id job.ID) (string, error) {
			done, err := f.store.Finish(f.ctx(), withRetry(failure(f.claim(id, 1), job.FailedOnce), time.Second))
			return done.Next.TraceParent, err
		}},
		"due": {[]func(*job.Submission){deferred(-time.Second)}, func(f *fixture, _ job.ID) (string, error) {
			due, err := f.store.QueueDue(f.ctx(), 10)
			return due[0].TraceParent, err
		}},
		"claimed": {tell: func(f *fixture, id job.ID) (string, error) {
			c, _, err := f.store.Claim(f.ctx(), f.worker, id, 1)
			return c.Job.TraceParent, err
		}},
		"held": {tell: func(f *fixture, id job.ID) (string, error) {
			held, err := f.leases().Held(f.ctx(), f.worker, []job.Lease{f.claim(id, 1)})
			return held[0].TraceParent, err
		}},
		"orphaned": {tell: func(f *fixture, id job.ID) (string, error) {
			f.claim(id, 1)
			f.expireWorker(f.worker)
			held, err := f.store.Orphans(f.ctx(), 10)
			return held[0].TraceParent, err
		}},
		"canceled": {tell: func(f *fixture, id job.ID) (string, error) {
			_, before, err := f.store.Cancel(f.ctx(), f.client, id)
			return before.TraceParent, err
		}},
		"read": {tell: func(f *fixture, id job.ID) (string, error) { return f.job(id).TraceParent, nil }},
	} {
		for _, want := range []string{oneTrace, ""} {
			t.Run(fmt.Sprint(name, " ", want != ""), func(t *testing.T) {
				t.Parallel()
				f := setup(t)
				got, err := test.tell(f, f.submit(append(test.opts, traced(want))...))
				require.NoError(t, err)
				require.Equal(t, want, got)
			})
		}
	}
}

func TestRetryBringsItsOwnTrace(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit(traced(oneTrace))
	for n, test := range []struct{ given, want string }{{"", oneTrace}, {anotherTrace, anotherTrace}, {"", anotherTrace}} {
		f.finish(failure(f.claim(id, n+1), job.FailedOnce))
		_, err := f.store.Retry(f.ctx(), f.client, id, n+1, 0, test.given)
		require.NoError(t, err)
		require.Equal(t, test.want, f.waitingJobs(job.QueueCursor{}, 0, 10)[0].TraceParent)
	}
	all := f.all(id)
	for _, attempt := range []int{3, 4} {
		change, err := f.store.Retry(f.ctx(), f.client, id, attempt, 0, oneTrace)
		require.NoError(t, err)
		require.False(t, change.Changed)
	}
	require.Equal(t, all, f.all(id), "who changes nothing takes over nothing")
}

// Each delivery has the trace that its job had when the event happened.
func TestDeliveriesHaveTheTraceOfTheirTime(t *testing.T) {
	t.Parallel()
	f := setup(t)
	hook := f.subscribe("*")
	id := f.submit(traced(oneTrace), func(s *job.Submission) { s.Job.Callback = "http://cb.test/x" })
	f.finish(failure(f.claim(id, 1), job.FailedOnce))
	_, err := f.store.Retry(f.ctx(), f.client, id, 1, 0, anotherTrace)
	require.NoError(t, err)
	f.claim(id, 2)
	f.submit()
	_, err = f.store.TestWebhook(f.ctx(), f.client, hook)
	require.NoError(t, err)
	f.clientEvent(f.db)
	want := func(p job.ClaimedDelivery) string {
		switch {
		case p.JobID != id:
			return ""
		case p.Seq <= 5:
			return oneTrace
		}
		return anotherTrace
	}
	seen := map[job.ID]int{}
	for _, endpoint := range f.endpoints() {
		for _, p := range f.claimAll(endpoint, 100) {
			require.Equal(t, want(p), p.TraceParent, "%s %d", p.EventName, p.Seq)
			seen[p.JobID]++
		}
	}
	require.Equal(t, 16, seen[id], "8 events, to the webhook and the callback")
	require.Equal(t, 2, seen[job.ID{}], "events of no job")

	f.exec(`DELETE FROM deliveries WHERE webhook_id IS NOT NULL`)
	_, err = f.store.ReplayEvents(f.ctx(), f.client, hook, time.Now().Add(-time.Hour), job.Position{}, 100)
	require.NoError(t, err)
	again := f.claimAll(hook, 100)
	require.Len(t, again, 11)
	for _, p := range again {
		require.Equal(t, p.JobID == id, p.TraceParent == anotherTrace, "what is sent anew goes on from the job as it is")
	}
}

// Events read their own jobs only, one by one, and only if somebody gets them.
func TestEventsLookUpTheirTraces(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const jobs, events = 5000, 10
	f.exec(`INSERT INTO jobs (job_id, client_id, type, work_kind, state, max_attempts, auto_retry, event_seq, created_at, updated_at, run_at,
		queued_at, language, request_id)
		SELECT ('00000000-0000-0000-0000-' || lpad(i::text, 12, '0'))::uuid, gen_random_uuid(), 'EXECUTE', 'SUCCESS_FAST', 'QUEUED', 4, false,
			2, now(), now(), now(), now(), 'en', 'r'
		FROM generate_series(1, $1::int) i`, jobs)
	insert := `INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data, called_back)
		SELECT ('00000000-0000-0000-0000-' || lpad(i::text, 12, '0'))::uuid, $1::uuid, 1, gen_random_uuid(), 'job.created', 1, now(), '{}',
			false FROM generate_series(1, 10) i`
	client := `'` + f.client.String() + `'`
	require.Zero(t, f.reads("jobs", insert, client), "nobody gets them")
	f.subscribe("*")
	n := f.reads("jobs", insert, client)
	require.GreaterOrEqual(t, n, events)
	require.LessOrEqual(t, n, 3*events)
}

// Jobs are submitted and run while the schema goes up and down, as they are when
// old and new programs run beside each other.
func TestMigrateTracesWhileJobsRun(t *testing.T) {
	t.Parallel()
	f := setup(t)
	newest := schema(t, f)
	old := f.submit(traced(oneTrace), func(s *job.Submission) { s.Job.Callback = "http://cb.test/x" })
	require.NoError(t, repo.Migrate(f.ctx(), f.url, 3))
	before := schema(t, f)
	require.Equal(t, 2, f.count("deliveries"), "they stay")

	stop := make(chan struct{})
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := f.db.Exec(f.ctx(), submitBefore, newID().String(), f.client.String(), "http://cb.test/x"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 4 {
		require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
		require.Equal(t, newest, schema(t, f))
		require.NoError(t, repo.Migrate(f.ctx(), f.url, 3))
		require.Equal(t, before, schema(t, f))
	}
	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	close(stop)
	writers.Wait()
	require.Equal(t, newest, schema(t, f))
	f.claim(old, 1)
	claimed := f.claimAll(f.endpoints()[0], 1000)
	require.NotEmpty(t, claimed)
	for _, p := range claimed {
		if p.JobID == old {
			require.Equal(t, p.Seq > 2, p.TraceParent == oneTrace, "%s: what was before has none", p.EventName)
		}
	}
	f.checkInvariants()
}
