package repo_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func (f *fixture) another(opts ...func(*job.Submission)) (client, id job.ID) {
	client = newID()
	return client, f.submit(append(opts, ofClient(client))...)
}

func TestEventsOfManyClientsInOneStatement(t *testing.T) {
	f := setup(t)
	var jobs, clients []string
	var flags []*bool // called_back of each event
	client := func(calledBack *bool, opts ...func(*job.Submission)) job.ID {
		client, id := f.another(opts...)
		jobs, clients, flags = append(jobs, id.String()), append(clients, client.String()), append(flags, calledBack)
		return client
	}
	subscribe := func(client job.ID, description string, events ...string) {
		sub := f.hook(events...)
		sub.ClientID, sub.Description = client, description
		must(f.store.InsertWebhook(f.ctx(), sub))(t)
	}
	client(new(false))
	client(nil)
	hooked := client(new(false))
	subscribe(hooked, "hooked", "job.*")
	subscribe(hooked, "deaf", job.EventSucceeded)
	client(new(true), calledBack)
	client(nil, calledBack)
	subscribe(client(new(true), calledBack), "both", "*")

	const callback = "http://cb.test/x"
	for name, test := range map[string]struct {
		event, prev, next string
		want              []string
	}{
		"a step":               {job.EventAssigned, `'QUEUED'`, `'ASSIGNED'`, []string{"both", "hooked", callback, callback, callback}},
		"no step":              {job.EventRetriesExhausted, `NULL`, `NULL`, []string{"both", "hooked"}},
		"an event of the work": {job.EventEmitted, `NULL`, `NULL`, []string{"both", callback, callback, callback}},
	} {
		f.exec(`DELETE FROM events WHERE seq = 7`)
		f.exec(`DELETE FROM deliveries`)
		f.exec(`INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, data, called_back)
			SELECT job, client, 7, gen_random_uuid(), $4, `+test.prev+`, `+test.next+`, 1, now(), '{}', called_back
			FROM unnest($1::uuid[], $2::uuid[], $3::boolean[]) AS v(job, client, called_back)`, jobs, clients, flags, test.event)
		got := one[[]string](f, `SELECT array_agg(coalesce(w.description, d.url) ORDER BY coalesce(w.description, d.url))
			FROM deliveries d LEFT JOIN webhooks w USING (webhook_id)`)
		require.Equal(t, test.want, got, name)
		require.Zero(t, f.count(`deliveries d JOIN events e USING (event_id)
			WHERE d.client_id <> e.client_id OR d.job_id <> e.job_id OR d.event_name <> e.event_name`), name)
	}
}

// Writing an event reads only the webhooks of its client. It reads the job only if the event has, or may have, a receiver.
func TestEventsReadFewRows(t *testing.T) {
	f := setup(t)
	const jobs, events = 5000, 10
	f.insert("jobs", jobs, columns{"job_id": `('00000000-0000-0000-0000-' || lpad(i::text, 12, '0'))::uuid`})
	reads := func(table, calledBack string) int {
		return f.reads(table, `INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at,
			data, called_back)
			SELECT ('00000000-0000-0000-0000-' || lpad(i::text, 12, '0'))::uuid, $1::uuid, 7, gen_random_uuid(), 'job.assigned', 'QUEUED',
				'ASSIGNED', 1, now(), '{}', `+calledBack+` FROM generate_series(1, 10) i`, quoted(f.client))
	}
	require.Zero(t, reads("webhooks", "false"))
	f.insert("webhooks", 10_000, nil)
	for _, prepared := range []string{`SELECT 1`, `ANALYZE webhooks`} {
		f.exec(prepared)
		require.Zero(t, reads("webhooks", "false"), prepared)
		require.Zero(t, reads("jobs", "false"), "an event without receivers reads no job")
	}
	require.GreaterOrEqual(t, reads("jobs", "NULL"), events)
	require.GreaterOrEqual(t, reads("jobs", "true"), events)
	f.subscribe("*")
	for table, most := range map[string]int{"jobs": 3 * events, "webhooks": 6 * events} {
		n := reads(table, "false")
		require.GreaterOrEqual(t, n, events, table)
		require.LessOrEqual(t, n, most, table)
	}
	f.exec(`DELETE FROM events`)
	f.run()
	require.Equal(t, "{f}", one[string](f, `SELECT array_agg(DISTINCT called_back)::text FROM events`))
}

const (
	oneTrace     = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	anotherTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

func traced(traceparent string) func(*job.Submission) {
	return func(s *job.Submission) { s.Job.TraceParent = traceparent }
}

// Every statement that returns a job for another process also returns its traceparent.
func TestTracesContinueWithTheirJobs(t *testing.T) {
	f := setup(t)
	ofTask := func(tasks []job.Task, id job.ID) string {
		return tasks[slices.IndexFunc(tasks, func(t job.Task) bool { return t.JobID == id })].TraceParent
	}
	for _, want := range []string{oneTrace, ""} {
		for name, read := range map[string]func(id job.ID) string{
			"waiting":  func(id job.ID) string { return ofTask(f.waitingJobs(job.QueueCursor{}, 0, 100), id) },
			"released": func(id job.ID) string { return ofTask(f.release(f.assigned(id, 1)), id) },
			"retried automatically": func(id job.ID) string {
				return f.finish(withRetry(failure(f.claim(id, 1), job.FailedOnce), time.Second)).Next.TraceParent
			},
			"due": func(job.ID) string {
				f.submit(deferred(-time.Second), traced(want))
				return f.queueDue(10)[0].TraceParent
			},
			"claimed": func(id job.ID) string { c, _ := f.tryClaim(id, 1); return c.Job.TraceParent },
			"held": func(id job.ID) string {
				return must(f.leases().Held(f.ctx(), f.worker, []job.ClaimID{f.claim(id, 1)}))(t)[0].TraceParent
			},
			"orphaned": func(id job.ID) string {
				lost := f.newWorker()
				must2(f.store.Claim(f.ctx(), lost, id, 1))(t)
				f.expireWorker(lost)
				defer f.cancel(id)
				return f.orphans(10)[0].TraceParent
			},
			"canceled": func(id job.ID) string {
				_, before := must2(f.store.Cancel(f.ctx(), f.client, id))(t)
				return before.TraceParent
			},
			"read": func(id job.ID) string { return f.job(id).TraceParent },
		} {
			require.Equal(t, want, read(f.submit(traced(want))), name)
		}
	}
}
