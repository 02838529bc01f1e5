package repo_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// waitingDeliveries walks over all deliveries that wait for another attempt.
func (f *fixture) waitingDeliveries(look, perEndpoint, limit int) (found []job.Delivery, calls int) {
	var at job.EndpointKey
	for {
		calls++
		require.Less(f.t, calls, 100, "the walk ends")
		some, last := must2(f.store.WaitingDeliveries(f.ctx(), at, look, perEndpoint, limit, time.Second))(f.t)
		require.LessOrEqual(f.t, len(some), limit)
		found = append(found, some...)
		if at = last; last == (job.EndpointKey{}) {
			return found, calls
		}
	}
}

func TestWaitingDeliveries(t *testing.T) {
	f := setup(t)
	hooks := []job.ID{f.subscribe(job.EventCreated), f.subscribe(job.EventCreated), f.subscribe(job.EventCreated)}
	for range 5 {
		f.submit()
	}
	found, _ := f.waitingDeliveries(100, 3, 100)
	require.Empty(t, found, "none was tried yet")
	next := map[job.ID]time.Time{}
	for _, hook := range hooks {
		for i, p := range f.claimAll(hook, 5) {
			recorded := f.record(refused(p, time.Duration(5-i)*time.Minute))
			next[p.ID] = *recorded.NextAttemptAt
			require.True(t, one[time.Time](f, `SELECT next_attempt_at FROM deliveries WHERE delivery_id = $1`, p.ID.String()).Equal(
				next[p.ID]))
		}
	}
	for _, page := range []struct{ look, limit, calls int }{{100, 100, 1}, {2, 100, 2}, {100, 4, 3}} {
		found, calls := f.waitingDeliveries(page.look, 3, page.limit)
		seen := map[job.ID][]job.Delivery{}
		for _, d := range found {
			require.Equal(t, []any{1, job.DeliveryPending, f.client}, []any{d.Attempts, d.State, d.ClientID})
			require.True(t, next[d.ID].Equal(*d.NextAttemptAt))
			require.NotEmpty(t, d.LastError)
			if !slices.ContainsFunc(seen[d.Endpoint], func(other job.Delivery) bool { return other.ID == d.ID }) {
				seen[d.Endpoint] = append(seen[d.Endpoint], d)
			}
		}
		for _, hook := range hooks {
			require.Len(t, seen[hook], 3, "of each endpoint no more: %+v", page)
			require.True(t, slices.IsSortedFunc(seen[hook], func(a, b job.Delivery) int {
				return a.NextAttemptAt.Compare(*b.NextAttemptAt)
			}), "the first ones")
			require.WithinDuration(t, time.Now().Add(time.Minute), *seen[hook][0].NextAttemptAt, testkit.Patience)
		}
		require.GreaterOrEqual(t, calls, page.calls)
	}
	f.patch(hooks[0], enabled(false))
	found, _ = f.waitingDeliveries(100, 3, 100)
	require.Len(t, found, 6, "not of one that is disabled")

	f.exec(`UPDATE deliveries SET next_attempt_at = now() - interval '1 min' WHERE attempts > 0`)
	found, _ = f.waitingDeliveries(100, 3, 100)
	require.Empty(t, found, "whoever looks for what is due finds these")
}

// Whoever claims too early learns how long to wait.
func TestClaimsTellWhenTheNextOneIsDue(t *testing.T) {
	f := setup(t)
	hook := f.subscribe(job.EventCreated)
	claim := func() job.DeliveryClaim {
		return must(f.store.ClaimDeliveries(f.ctx(), f.client, hook, 10, time.Hour))(t)
	}
	f.submit()
	f.submit()
	first := claim()
	require.Len(t, first.Deliveries, 2)
	require.Zero(t, first.Next)
	f.record(refused(first.Deliveries[0], time.Hour))
	require.Equal(t, job.DeliveryClaim{Deliveries: nil}, claim(), "nothing is due soon")
	f.record(refused(first.Deliveries[1], time.Hour))
	const soon = 900 * time.Millisecond
	testkit.Eventually(t, "a claim comes before the delivery is due", func() bool {
		f.exec(`UPDATE deliveries SET next_attempt_at = clock_timestamp() + $2::interval, claimed_until = NULL WHERE delivery_id = $1`,
			first.Deliveries[1].ID.String(), soon)
		early := claim()
		return len(early.Deliveries) == 0 && early.Next > 0 && early.Next <= soon
	})
	testkit.Eventually(t, "Postgres' clock comes to it", func() bool { return len(claim().Deliveries) == 1 })
}

// another makes a client that submits what the options say, and gives its job.
func (f *fixture) another(opts ...func(*job.Submission)) (client, id job.ID) {
	client = newID()
	return client, f.submit(append(opts, func(s *job.Submission) { s.Job.ClientID = client })...)
}

// addEvents is a statement that writes an event of each job, which says as much about its callback as calledBack does.
const addEvents = `INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, data,
	called_back)
	SELECT job, client, 7, gen_random_uuid(), name, 'QUEUED', next, 1, now(), '{}', called_back
	FROM unnest($1::uuid[], $2::uuid[], $3::boolean[], $4::text[], $5::text[]) AS v(job, client, called_back, name, next)`

// One statement may write events of clients of all kinds. Each event goes to those who get it, and to nobody else.
func TestEventsOfManyClientsInOneStatement(t *testing.T) {
	f := setup(t)
	callback := func(s *job.Submission) { s.Job.Callback = "http://cb.test/x" }
	var jobs, clients []string
	var says []*bool
	yes, no := true, false
	of := func(client, id job.ID, calledBack *bool) {
		jobs, clients, says = append(jobs, id.String()), append(clients, client.String()), append(says, calledBack)
	}
	subscribe := func(client job.ID, description string, events ...string) {
		sub := f.hook(events...)
		sub.ClientID, sub.Description = client, description
		must(f.store.InsertWebhook(f.ctx(), sub))(t)
	}
	nothing, nothings := f.another()
	of(nothing, nothings, &no)
	unsaid, unsaids := f.another()
	of(unsaid, unsaids, nil)
	hooked, hookeds := f.another()
	of(hooked, hookeds, &no)
	subscribe(hooked, "hooked", "job.*")
	subscribe(hooked, "deaf", job.EventSucceeded)
	called, calleds := f.another(callback)
	of(called, calleds, &yes)
	old, olds := f.another(callback)
	of(old, olds, nil)
	both, boths := f.another(callback)
	of(both, boths, &yes)
	subscribe(both, "both", "*")

	for name, test := range map[string]struct {
		event, next string
		want        []string
	}{
		"a step": {job.EventAssigned, "ASSIGNED", []string{"both", "hooked", "http://cb.test/x", "http://cb.test/x",
			"http://cb.test/x"}},
		"no step":              {job.EventRetriesExhausted, "", []string{"both", "hooked"}},
		"an event of the work": {job.EventEmitted, "", []string{"both", "http://cb.test/x", "http://cb.test/x", "http://cb.test/x"}},
	} {
		f.exec(`DELETE FROM events WHERE seq = 7`)
		f.exec(`DELETE FROM deliveries`)
		names, nexts := make([]string, len(jobs)), make([]*string, len(jobs))
		for i := range jobs {
			names[i] = test.event
			if test.next != "" {
				nexts[i] = &test.next
			}
		}
		sql := addEvents
		if test.next == "" {
			sql = strings.Replace(sql, "'QUEUED'", "NULL", 1)
		}
		f.exec(sql, jobs, clients, says, names, nexts)
		got := one[[]string](f, `SELECT array_agg(coalesce(w.description, d.url) ORDER BY coalesce(w.description, d.url)) FROM deliveries d LEFT
			JOIN webhooks w USING (webhook_id)`)
		require.Equal(t, test.want, got, name)
		require.Zero(t, one[int](f, `SELECT count(*)::int FROM deliveries d JOIN events e USING (event_id)
			WHERE d.client_id <> e.client_id OR d.job_id <> e.job_id OR d.event_name <> e.event_name`), name)
	}
}

// An event reads its own job, only if somebody gets it or nobody said whether it is called back, and its client's
// webhooks alone, however many there are.
func TestWhatEventsRead(t *testing.T) {
	f := setup(t)
	const jobs, events = 5000, 10
	f.exec(`INSERT INTO jobs (job_id, client_id, type, work_kind, state, max_attempts, auto_retry, event_seq, created_at, updated_at, run_at,
		queued_at, language, request_id)
		SELECT ('00000000-0000-0000-0000-' || lpad(i::text, 12, '0'))::uuid, gen_random_uuid(), 'EXECUTE', 'SUCCESS_FAST', 'QUEUED', 4, false,
			2, now(), now(), now(), now(), 'en', 'r'
		FROM generate_series(1, $1::int) i`, jobs)
	reads := func(table, calledBack string) int {
		return f.reads(table, `INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at,
			data, called_back)
			SELECT ('00000000-0000-0000-0000-' || lpad(i::text, 12, '0'))::uuid, $1::uuid, 7, gen_random_uuid(), 'job.assigned', 'QUEUED',
				'ASSIGNED', 1, now(), '{}', `+calledBack+` FROM generate_series(1, 10) i`, `'`+f.client.String()+`'`)
	}
	require.Zero(t, reads("webhooks", "false"))
	f.exec(`INSERT INTO webhooks (webhook_id, client_id, url, events, description, content_mode, secret, created_at, updated_at)
		SELECT gen_random_uuid(), gen_random_uuid(), 'u', '{*}', '', 'binary', 'x', now(), now() FROM generate_series(1, 10000)`)
	for _, prepared := range []string{`SELECT 1`, `ANALYZE webhooks`} {
		f.exec(prepared)
		require.Zero(t, reads("webhooks", "false"), prepared)
		require.Zero(t, reads("jobs", "false"), "nobody gets them")
	}
	require.GreaterOrEqual(t, reads("jobs", "NULL"), events)
	require.GreaterOrEqual(t, reads("jobs", "true"), events)
	f.subscribe("*")
	for table, most := range map[string]int{"jobs": 3 * events, "webhooks": 6 * events} {
		n := reads(table, "false")
		require.GreaterOrEqual(t, n, events, table)
		require.LessOrEqual(t, n, most, table)
	}
	for _, q := range []string{"step", "insertJobs"} {
		require.Contains(t, repo.Statements[q], "called_back", "%s says whether its jobs are called back", q)
	}
	f.exec(`DELETE FROM events`)
	f.submit()
	require.Equal(t, "{f}", one[string](f, `SELECT array_agg(DISTINCT called_back)::text FROM events`))
}

const (
	oneTrace     = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	anotherTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

func traced(traceparent string) func(*job.Submission) {
	return func(s *job.Submission) { s.Job.TraceParent = traceparent }
}

// Whatever tells of a job that is to go on tells of the span to go on from.
func TestTracesGoOnWithTheirJobs(t *testing.T) {
	f := setup(t)
	ofTask := func(tasks []job.Task, id job.ID) string {
		return tasks[slices.IndexFunc(tasks, func(t job.Task) bool { return t.JobID == id })].TraceParent
	}
	for _, want := range []string{oneTrace, ""} {
		for name, tell := range map[string]func(id job.ID) string{
			"waiting":  func(id job.ID) string { return ofTask(f.waitingJobs(job.QueueCursor{}, 0, 100), id) },
			"released": func(id job.ID) string { return ofTask(f.release(f.assigned(id, 1)), id) },
			"redispatched": func(id job.ID) string {
				return must(f.store.Redispatch(f.ctx(), []job.Task{{JobID: id, Attempt: 1}}))(t)[0].TraceParent
			},
			"retried by itself": func(id job.ID) string {
				return f.finish(withRetry(failure(f.claim(id, 1), job.FailedOnce), time.Second)).Next.TraceParent
			},
			"due": func(job.ID) string {
				f.submit(deferred(-time.Second), traced(want))
				return f.queueDue(10)[0].TraceParent
			},
			"claimed": func(id job.ID) string { c, _ := f.tryClaim(id, 1); return c.Job.TraceParent },
			"held": func(id job.ID) string {
				return must(f.leases().Held(f.ctx(), f.worker, []job.Lease{f.claim(id, 1)}))(t)[0].TraceParent
			},
			"orphaned": func(id job.ID) string {
				lost := f.newWorker()
				must2(f.store.Claim(f.ctx(), lost, id, 1))(t)
				f.expireWorker(lost)
				held := f.orphans(10)
				f.cancel(id)
				return held[0].TraceParent
			},
			"canceled": func(id job.ID) string {
				_, before := must2(f.store.Cancel(f.ctx(), f.client, id))(t)
				return before.TraceParent
			},
			"read": func(id job.ID) string { return f.job(id).TraceParent },
		} {
			require.Equal(t, want, tell(f.submit(traced(want))), name)
		}
	}
}

func TestRetryBringsItsOwnTrace(t *testing.T) {
	f := setup(t)
	id := f.submit(traced(oneTrace))
	for n, test := range []struct{ given, want string }{{"", oneTrace}, {anotherTrace, anotherTrace}, {"", anotherTrace}} {
		f.finish(failure(f.claim(id, n+1), job.FailedOnce))
		must(f.store.Retry(f.ctx(), f.client, id, n+1, 0, test.given))(t)
		require.Equal(t, test.want, f.waitingJobs(job.QueueCursor{}, 0, 10)[0].TraceParent)
	}
	all := f.all(id)
	for _, attempt := range []int{3, 4} {
		require.False(t, must(f.store.Retry(f.ctx(), f.client, id, attempt, 0, oneTrace))(t).Changed)
	}
	require.Equal(t, all, f.all(id), "who changes nothing takes over nothing")
}

// Each delivery has the trace that its job had when the event happened.
func TestDeliveriesHaveTheTraceOfTheirTime(t *testing.T) {
	f := setup(t)
	hook := f.subscribe("*")
	id := f.submit(traced(oneTrace), func(s *job.Submission) { s.Job.Callback = "http://cb.test/x" })
	f.finish(failure(f.claim(id, 1), job.FailedOnce))
	must(f.store.Retry(f.ctx(), f.client, id, 1, 0, anotherTrace))(t)
	f.claim(id, 2)
	f.submit()
	f.testWebhook(hook)
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
	must(f.store.ReplayEvents(f.ctx(), f.client, hook, time.Now().Add(-time.Hour), job.Position{}, 100))(t)
	again := f.claimAll(hook, 100)
	require.Len(t, again, 11)
	for _, p := range again {
		require.Equal(t, p.JobID == id, p.TraceParent == anotherTrace, "what is sent anew goes on from the job as it is")
	}
}
