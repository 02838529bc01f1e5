package repo_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// another makes a client that submits what the options say, and gives its job.
func (f *fixture) another(opts ...func(*job.Submission)) (client, id job.ID) {
	f.t.Helper()
	client = newID()
	return client, f.submit(append(opts, func(s *job.Submission) { s.Job.ClientID = client })...)
}

// addEvents is a statement that writes an event of each job, which says as much
// about its callback as calledBack does.
const addEvents = `INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, data,
	called_back)
	SELECT job, client, 7, gen_random_uuid(), name, 'QUEUED', next, 1, now(), '{}', called_back
	FROM unnest($1::uuid[], $2::uuid[], $3::boolean[], $4::text[], $5::text[]) AS v(job, client, called_back, name, next)`

// One statement may write events of clients of all kinds. Each event goes to
// those who get it, and to nobody else.
func TestEventsOfManyClientsInOneStatement(t *testing.T) {
	t.Parallel()
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
		_, err := f.store.InsertWebhook(f.ctx(), sub)
		require.NoError(t, err)
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

// Events that nobody gets cost no look at their jobs; those of which nobody said
// whether they are called back do.
func TestEventsThatNobodyGetsReadNoJobs(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const n = 20
	for range n {
		f.submit()
	}
	stranger := f.hook("*")
	stranger.ClientID = newID()
	_, err := f.store.InsertWebhook(f.ctx(), stranger)
	require.NoError(t, err)
	reads := func(calledBack string) int {
		return f.reads("jobs", `INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at,
			data, called_back)
			SELECT job_id, client_id, 7, gen_random_uuid(), 'job.assigned', 'QUEUED', 'ASSIGNED', 1, now(), '{}', `+calledBack+` FROM events
				WHERE seq = 2 AND client_id = $1`,
			`'`+f.client.String()+`'`)
	}
	require.Zero(t, reads("false"))
	require.GreaterOrEqual(t, reads("NULL"), n)
	require.GreaterOrEqual(t, reads("true"), n)
	require.Zero(t, f.count("deliveries"))
	for _, q := range []string{"step", "insert"} {
		require.Contains(t, repo.Statements[q], "called_back", "%s says whether its jobs are called back", q)
	}
	require.Equal(t, "{f}", one[string](f, `SELECT array_agg(DISTINCT called_back)::text FROM events`))
}
