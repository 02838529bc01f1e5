package repo_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

func TestClaimedDeliveriesHaveAllItTakes(t *testing.T) {
	f := setup(t)
	hook := f.subscribe("*")
	must(f.store.RotateWebhookSecret(f.ctx(), f.client, hook, []byte("second"), time.Hour))(t)
	const callback = "http://CB.test:81/x?y"
	l := f.run(func(s *job.Submission) { s.Job.Callback, s.Job.CorrelationID, s.Job.Language = callback, "corr", "de" })
	end := failure(l, job.FailedOnce)
	end.Exhausted, end.Emit = true, &job.Emission{Name: "x", Data: json.RawMessage(`{"a":1}`)}
	f.finish(end)

	endpoints := f.endpoints()
	require.Len(t, endpoints, 2)
	require.Contains(t, endpoints, hook)
	claimed := f.claimAll(hook, 100)
	for i, p := range claimed {
		require.Equal(t, []any{hook, hook, f.client, l.JobID, i + 1, 1}, []any{p.Endpoint, p.WebhookID, p.ClientID, p.JobID, p.Seq, p.Fence})
		require.Equal(t, []any{"https://x.test/in", job.ContentBinary, "second", "first"},
			[]any{p.Target.URL, p.Target.ContentMode, string(p.Target.Secrets[0].Sealed), string(p.Target.Secrets[1].Sealed)})
		o := p.Occurrence
		require.Equal(t, []any{p.EventID, p.JobID, p.Seq, p.EventName}, []any{o.ID, o.JobID, o.Seq, o.Name})
		require.Equal(t, f.job(l.JobID).Origin(), o.Origin)
		require.Equal(t, []string{"corr", "de"}, []string{o.Origin.CorrelationID, o.Origin.Language})
		ended := p.EventName == job.EventFailed || p.EventName == job.EventRetriesExhausted
		require.Equal(t, ended, o.Ended != nil, p.EventName)
		if ended {
			require.Equal(t, end.Failure, o.Ended.Failure)
			require.Equal(t, job.Failed, o.Ended.State)
		}
	}
	require.Equal(t, f.names(l.JobID), each(claimed, func(p job.ClaimedDelivery) string { return p.EventName }), "in order")
	require.Contains(t, string(claimed[4].Occurrence.Data), `"a"`)
	require.Empty(t, f.claimAll(hook, 100), "each is claimed once")

	endpoints = slices.DeleteFunc(endpoints, func(id job.ID) bool { return id == hook })
	calls := f.claimAll(endpoints[0], 100)
	require.Len(t, calls, len(claimed)-1, "all but job.retries_exhausted")
	require.Equal(t, job.Target{URL: callback, ContentMode: job.ContentBinary}, calls[0].Target)
	require.Equal(t, callback, calls[0].URL)
	require.Empty(t, f.endpoints())
}

func TestCallbackEndpoints(t *testing.T) {
	f := setup(t)
	endpoint := func(url string) string {
		return one[string](f, `SELECT callback_endpoint($1, $2)::text`, f.client.String(), url)
	}
	seen := map[string]bool{}
	for _, origin := range [][]string{ // each has one endpoint
		{"http://cb.test:81", "http://CB.test:81/x?y", "HTTP://cb.test:81?y"},
		{"http://cb.test", "http://cb.test:80", "http://cb.test:/x", "http://cb.test:080/"},
		{"https://cb.test", "https://cb.test:443/x", "https://CB.test:/"},
		{"https://cb.test:80"},
		{"http://cb.test:443"},
		{"http://cb.test:8080"},
		{"http://[::80]", "http://[::80]:80/x"},
		{"http://[::]"},
		{`http://cb\test`},
		{"http://cbtest"},
		{`none`},
	} {
		require.False(t, seen[endpoint(origin[0])], origin[0])
		seen[endpoint(origin[0])] = true
		for _, url := range origin {
			require.Equal(t, endpoint(origin[0]), endpoint(url), url)
		}
	}
	require.NotEqual(t, endpoint("http://cb.test"), one[string](f, `SELECT callback_endpoint(gen_random_uuid(), 'http://cb.test')::text`))
}

// Whoever claims learns whether to ask again.
func TestClaimsTellOfMore(t *testing.T) {
	f := setup(t)
	hook := f.subscribe(job.EventEmitted)
	expect := func(n, want int, wantMore bool, why string) {
		claim := must(f.store.ClaimDeliveries(f.ctx(), f.client, hook, n, time.Hour))(t)
		require.Len(t, claim.Deliveries, want, why)
		require.Equal(t, wantMore, claim.More, why)
	}
	emit := func(n, bytes int) {
		for range n {
			end := success(f.run())
			end.Emit = &job.Emission{Name: "x", Data: json.RawMessage(fmt.Sprintf(`"%0*d"`, bytes, 1))}
			f.finish(end)
		}
	}
	expect(3, 0, false, "nothing is due")
	emit(4, 1)
	expect(3, 3, true, "it got what it asked for")
	expect(3, 1, false, "that was all")
	emit(2, 1)
	unlock := f.lock(`SELECT FROM deliveries WHERE delivery_id = (SELECT delivery_id FROM deliveries
		WHERE claimed_until IS NULL LIMIT 1) FOR UPDATE`)
	expect(3, 1, true, "somebody else has one")
	expect(3, 0, true, "and has it still")
	unlock()
	expect(3, 1, false, "there it is")
	emit(6, 250<<10)
	expect(10, 4, true, "the data is too much")
	expect(10, 2, false, "the rest")
	f.exec(`UPDATE deliveries SET claimed_until = NULL, next_attempt_at = now() + interval '1 hour'`)
	expect(3, 0, false, "nothing is due yet")
	f.exec(`UPDATE deliveries SET next_attempt_at = now()`)
	f.patch(hook, enabled(false))
	expect(3, 0, false, "it is disabled")
}

// A client with very many receivers in backoff has the others looked at still.
func TestDueEndpointsOfAClientWithVeryMany(t *testing.T) {
	f := setup(t)
	insert := func(endpoint, due string, rows int) {
		f.insert("deliveries", rows, columns{"client_id": quoted(f.client), "url": "'http://x.test'", "endpoint_id": `(` + endpoint + `)::uuid`,
			"next_attempt_at": "now() + interval '" + due + "'"})
	}
	insert(`'00000000-0000-0000-0000-' || lpad(to_hex(i), 12, '0')`, "1 hour", 9998)
	insert(`'00000000-0000-0000-0000-100000000000'`, "0", 2)
	insert(`'ffffffff-0000-0000-0000-000000000000'`, "0", 1)
	require.Len(t, f.endpoints(), 2)
	insert(`'00000000-0000-0000-0001-' || lpad(to_hex(i), 12, '0')`, "1 hour", 2)
	require.Less(t, f.reads("deliveries", repo.Statements["dueEndpoints"], quoted(f.client)+`, '`+nobody+`', 1000, 10000`), 50_000,
		"each is looked up")
	found := f.endpoints()
	require.Len(t, found, 2)
	require.Equal(t, "ffffffff-0000-0000-0000-000000000000", found[1].String())
}

func TestClaimedBatchCompletion(t *testing.T) {
	f := setup(t)
	hook := f.subscribe(job.EventBatchCompleted)
	b := f.insertBatch(f.batch(1))
	f.cancel(b.Items[0].JobID)
	f.completeBatches(b.ID)
	p := f.claimAll(hook, 10)
	require.Len(t, p, 1)
	require.Equal(t, b.ID, p[0].Occurrence.Batch.ID)
	require.Equal(t, 1, p[0].Occurrence.Batch.Outcome.Canceled)
	require.True(t, p[0].JobID.IsZero())
}

func TestClaimsAndReleases(t *testing.T) {
	f := setup(t)
	hook, first := f.claimed(2)
	f.submit()
	require.NoError(t, f.store.ReleaseDeliveries(f.ctx(), first[:1]))
	again := f.claimAll(hook, 2)
	require.Equal(t, []any{first[0].ID, 2}, []any{again[0].ID, again[0].Fence}, "it is due as it was")
	require.NoError(t, f.store.ReleaseDeliveries(f.ctx(), first[:1]), "this claim is not current any more")
	require.Empty(t, f.claimAll(hook, 2))

	reclaim := func() int { return must(f.store.ReclaimDeliveries(f.ctx(), 2))(t) }
	require.Zero(t, reclaim())
	f.exec(`UPDATE deliveries SET claimed_until = clock_timestamp() WHERE claimed_until IS NOT NULL`)
	require.Equal(t, []int{2, 1}, []int{reclaim(), reclaim()})
	require.ErrorIs(t, errOf(f.store.RecordDelivery(f.ctx(), delivered(first[1]))), job.ErrStale, "it was given up")
	require.Len(t, f.claimAll(hook, 10), 3)
	f.checkInvariants()
}

func TestOrphansAreFailed(t *testing.T) {
	f := setup(t)
	off, gone, fine := f.subscribe(job.EventCreated), f.subscribe(job.EventCreated), f.subscribe(job.EventCreated)
	f.submitted(4)
	held := f.claimAll(off, 1)[0]
	f.patch(off, enabled(false))
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, gone))
	require.Equal(t, []job.ID{fine}, f.endpoints())
	require.Empty(t, f.claimAll(off, 10))
	require.Empty(t, f.claimAll(gone, 10))
	total := 0
	for range 12 { // endpoint by endpoint, two at a time
		n := must(f.store.FailOrphans(f.ctx(), 1, 2))(t)
		require.LessOrEqual(t, n, 2)
		total += n
	}
	require.Equal(t, 7, total)
	for e, n := range map[job.SendError]int{job.SendDisabled: 3, job.SendDeleted: 4} {
		require.Equal(t, n, f.count(`deliveries WHERE state = 'FAILED' AND last_error = $1`, string(e)))
	}
	f.record(delivered(held))
	require.Len(t, f.claimAll(fine, 10), 4)
	f.checkInvariants()
}

// A delivery that was tried keeps its error when its webhook is disabled or deleted.
func TestOrphansKeepTheirError(t *testing.T) {
	f := setup(t)
	off, gone := f.subscribe(job.EventCreated), f.subscribe(job.EventCreated)
	f.submitted(2)
	for _, hook := range []job.ID{off, gone} {
		r := refused(f.claimAll(hook, 1)[0], time.Hour)
		r.Sent.Attempt.Reason = "HTTP 500 from 203.0.113.5:443"
		f.record(r)
	}
	f.patch(off, enabled(false))
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, gone))
	for range 4 { // endpoint by endpoint
		must(f.store.FailOrphans(f.ctx(), 100, 100))(t)
	}
	for _, hook := range []job.ID{off, gone} {
		require.Equal(t, 1, f.count(`deliveries WHERE webhook_id = $1 AND state = 'FAILED' AND attempts = 1 AND last_status = 500
			AND last_error = 'HTTP_5XX' AND last_reason = 'HTTP 500 from 203.0.113.5:443'`, hook.String()))
		require.Equal(t, 1, f.count(`deliveries WHERE webhook_id = $1 AND state = 'FAILED' AND attempts = 0
			AND last_error LIKE 'WEBHOOK%'`, hook.String()))
	}
	f.checkInvariants()
}

func TestDueClients(t *testing.T) {
	f := setup(t)
	var clients []job.ID
	for range 3 {
		f.client = newID()
		clients = append(clients, f.client)
		f.subscribe("*")
		f.subscribe("*")
		f.submit()
	}
	due := func(age time.Duration, look int) (found []job.ID, calls int) {
		return walk(f, func(at job.EndpointKey) ([]job.ID, job.EndpointKey) {
			return must2(f.store.DueClients(f.ctx(), at, age, look))(t)
		})
	}
	found, _ := due(0, 100)
	require.ElementsMatch(t, clients, found, "each once")
	found, calls := due(0, 4)
	require.ElementsMatch(t, clients, found)
	require.Equal(t, 2, calls)
	found, _ = due(time.Hour, 4)
	require.Empty(t, found)
	for _, hook := range f.hooks() {
		f.patch(hook, enabled(false))
	}
	found, _ = due(0, 100)
	require.ElementsMatch(t, clients[:2], found)
}

// hooks are the client's webhooks.
func (f *fixture) hooks() []job.ID {
	return each(must(f.store.Webhooks(f.ctx(), f.client))(f.t), func(w job.Webhook) job.ID { return w.ID })
}

// reads counts the rows of a table and the entries of its indexes that a statement reads.
func (f *fixture) reads(table, statement, args string) int {
	tx := must(f.store.Pool().Begin(f.ctx()))(f.t)
	defer func() { require.NoError(f.t, tx.Rollback(f.ctx())) }()
	count := func() (n int) {
		err := tx.QueryRow(f.ctx(), `SELECT pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid)
			+ (SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(indexrelid)), 0) FROM pg_index WHERE indrelid = c.oid)
			FROM pg_class c WHERE relname = $1`, table).Scan(&n)
		require.NoError(f.t, err)
		return n
	}
	before := count()
	must(tx.Conn().PgConn().Exec(f.ctx(), `PREPARE p AS `+statement+`; EXECUTE p(`+args+`); DEALLOCATE p`).ReadAll())(f.t)
	return count() - before
}

// A backlog costs whoever looks for endpoints no more than one delivery does.
func TestBacklogsAreNotRead(t *testing.T) {
	f := setup(t)
	busy, idle := f.subscribe("*"), f.subscribe("*")
	for hook, n := range map[job.ID]int{busy: 19_999, idle: 1} {
		f.insert("deliveries", n, columns{"client_id": quoted(f.client), "endpoint_id": quoted(hook), "webhook_id": quoted(hook),
			"next_attempt_at": "now() - interval '1 minute'"})
	}
	const none = `'` + nobody + `', `
	for name, args := range map[string]string{"dueEndpoints": quoted(f.client) + `, ` + none + `1000, 10000`,
		"dueClients": none + none + `1000, '1 s'`, "failOrphans": none + none + `1000, 500`} {
		require.Less(t, f.reads("deliveries", repo.Statements[name], args), 20, name)
	}
	require.ElementsMatch(t, []job.ID{busy, idle}, f.endpoints())
	f.patch(busy, enabled(false))
	require.Less(t, f.reads("deliveries", repo.Statements["failOrphans"], none+none+`1000, 10`), 100)
}
