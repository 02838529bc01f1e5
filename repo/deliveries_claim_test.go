package repo_test

import (
	"encoding/json"
	"fmt"
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
	l := f.run(func(s *job.Submission) {
		s.Job.Callback, s.Job.CorrelationID, s.Job.Language = "http://CB.test:81/x?y", "corr", "de"
	})
	end := failure(l, job.FailedOnce)
	end.Exhausted, end.Emit = true, &job.Emission{Name: "x", Data: json.RawMessage(`{"a":1}`)}
	f.finish(end)

	endpoints := f.endpoints()
	require.Len(t, endpoints, 2)
	require.Contains(t, endpoints, hook)
	claimed := f.claimAll(hook, 100)
	var names []string
	for i, p := range claimed {
		names = append(names, p.EventName)
		require.Equal(t, []any{hook, hook, f.client, l.JobID, i + 1, 1}, []any{p.Endpoint, p.WebhookID, p.ClientID, p.JobID, p.Seq, p.Fence})
		require.Equal(t, "https://x.test/in", p.Target.URL)
		require.Equal(t, job.ContentBinary, p.Target.ContentMode)
		require.Equal(t, "second", string(p.Target.Secrets[0].Sealed))
		require.Equal(t, "first", string(p.Target.Secrets[1].Sealed))
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
	require.Equal(t, f.names(l.JobID), names, "in order")
	require.Contains(t, string(claimed[4].Occurrence.Data), `"a"`)
	require.Empty(t, f.claimAll(hook, 100), "each is claimed once")

	for _, endpoint := range endpoints {
		if endpoint != hook {
			calls := f.claimAll(endpoint, 100)
			require.Len(t, calls, len(claimed)-1, "all but job.retries_exhausted")
			require.Equal(t, job.Target{URL: "http://CB.test:81/x?y", ContentMode: job.ContentBinary}, calls[0].Target)
			require.Equal(t, "http://CB.test:81/x?y", calls[0].URL)
		}
	}
	require.Empty(t, f.endpoints())
}

func TestCallbackEndpoints(t *testing.T) {
	f := setup(t)
	endpoint := func(url string) string {
		return one[string](f, `SELECT callback_endpoint($1, $2)::text`, f.client.String(), url)
	}
	for _, origin := range [][]string{ // each has one endpoint
		{"http://cb.test:81", "http://CB.test:81/x?y", "HTTP://cb.test:81?y"},
		{"http://cb.test", "http://cb.test:80", "http://cb.test:/x", "http://cb.test:080/"},
		{"https://cb.test", "https://cb.test:443/x", "https://CB.test:/"},
		{"https://cb.test:80"},
		{"http://cb.test:443"},
		{"http://cb.test:8080"},
		{"http://[::80]", "http://[::80]:80/x"},
		{`http://cb\test`},
		{`none`},
	} {
		for _, url := range origin {
			require.Equal(t, endpoint(origin[0]), endpoint(url), url)
		}
	}
	seen := map[string]bool{}
	for _, url := range []string{"http://cb.test", "http://cb.test:81", "https://cb.test", "https://cb.test:80", "http://cb.test:443",
		"http://cb.test:8080", "http://[::80]", "http://[::]", `http://cb\test`, "http://cbtest", "none"} {
		require.False(t, seen[endpoint(url)], url)
		seen[endpoint(url)] = true
	}
	require.NotEqual(t, endpoint("http://cb.test"), one[string](f, `SELECT callback_endpoint(gen_random_uuid(), 'http://cb.test')::text`))
}

// Whoever claims learns whether to ask again.
func TestClaimsTellOfMore(t *testing.T) {
	f := setup(t)
	hook := f.subscribe(job.EventEmitted)
	claim := func(n int) (int, bool) {
		claim := must(f.store.ClaimDeliveries(f.ctx(), f.client, hook, n, time.Hour))(t)
		return len(claim.Deliveries), claim.More
	}
	expect := func(n, want int, wantMore bool, why string) {
		got, more := claim(n)
		require.Equal(t, want, got, why)
		require.Equal(t, wantMore, more, why)
	}
	emit := func(bytes int) {
		end := success(f.run())
		end.Emit = &job.Emission{Name: "x", Data: json.RawMessage(fmt.Sprintf(`"%0*d"`, bytes, 1))}
		f.finish(end)
	}
	expect(3, 0, false, "nothing is due")
	for range 4 {
		emit(1)
	}
	expect(3, 3, true, "it got what it asked for")
	expect(3, 1, false, "that was all")
	emit(1)
	emit(1)
	unlock := f.lock(`SELECT FROM deliveries WHERE delivery_id = (SELECT delivery_id FROM deliveries
		WHERE claimed_until IS NULL LIMIT 1) FOR UPDATE`)
	expect(3, 1, true, "somebody else has one")
	expect(3, 0, true, "and has it still")
	unlock()
	expect(3, 1, false, "there it is")
	for range 6 {
		emit(250 << 10)
	}
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
	insert := func(endpoint, due, rows string) {
		f.exec(`INSERT INTO deliveries (delivery_id, client_id, endpoint_id, url, job_id, seq, event_id, event_name, created_at, next_attempt_at)
			SELECT gen_random_uuid(), $1, (`+endpoint+`)::uuid, 'http://x.test', gen_random_uuid(), 1, gen_random_uuid(), 'job.created', now(),
				now() + $2::interval
			FROM generate_series(1, `+rows+`) i`, f.client.String(), due)
	}
	insert(`'00000000-0000-0000-0000-' || lpad(to_hex(i), 12, '0')`, "1 hour", "9998")
	insert(`'00000000-0000-0000-0000-100000000000'`, "0", "2")
	insert(`'ffffffff-0000-0000-0000-000000000000'`, "0", "1")
	require.Len(t, f.endpoints(), 2)
	insert(`'00000000-0000-0000-0001-' || lpad(to_hex(i), 12, '0')`, "1 hour", "2")
	require.Less(t, f.reads("deliveries", repo.Statements["dueEndpoints"], `'`+f.client.String()+`', '`+nobody+`', 1000, 10000`), 50_000,
		"each is looked up")
	found := f.endpoints()
	require.Len(t, found, 2)
	require.Equal(t, "ffffffff-0000-0000-0000-000000000000", found[1].String())
}

func TestClaimedBatchCompletion(t *testing.T) {
	f := setup(t)
	hook := f.subscribe(job.EventBatchCompleted)
	b := f.batch(1)
	must2(f.store.InsertBatch(f.ctx(), b))(t)
	f.cancel(b.Jobs[0].ID)
	must(f.store.CompleteBatches(f.ctx(), []job.ID{b.Batch.ID}))(t)
	p := f.claimAll(hook, 10)
	require.Len(t, p, 1)
	require.Equal(t, b.Batch.ID, p[0].Occurrence.Batch.ID)
	require.Equal(t, 1, p[0].Occurrence.Batch.Outcome.Canceled)
	require.True(t, p[0].JobID.IsZero())
}

func TestClaimsAndReleases(t *testing.T) {
	f := setup(t)
	hook := f.subscribe(job.EventCreated)
	for range 3 {
		f.submit()
	}
	first := f.claimAll(hook, 2)
	require.Len(t, first, 2)
	require.NoError(t, f.store.ReleaseDeliveries(f.ctx(), first[:1]))
	again := f.claimAll(hook, 2)
	require.Equal(t, []job.ID{first[0].ID}, []job.ID{again[0].ID}, "it is due as it was")
	require.Equal(t, 2, again[0].Fence)
	require.NoError(t, f.store.ReleaseDeliveries(f.ctx(), first[:1]), "this claim is not current any more")
	require.Empty(t, f.claimAll(hook, 2))

	n := must(f.store.ReclaimDeliveries(f.ctx(), 10))(t)
	require.Zero(t, n)
	f.exec(`UPDATE deliveries SET claimed_until = clock_timestamp() WHERE claimed_until IS NOT NULL`)
	require.Equal(t, 2, must(f.store.ReclaimDeliveries(f.ctx(), 2))(t))
	require.Equal(t, 1, must(f.store.ReclaimDeliveries(f.ctx(), 2))(t))
	_, err := f.store.RecordDelivery(f.ctx(), delivered(first[1]))
	require.ErrorIs(t, err, job.ErrStale, "it was given up")
	require.Len(t, f.claimAll(hook, 10), 3)
	f.checkInvariants()
}

// Claims of many processes for many endpoints share statements, and nothing is handed out twice.
func TestClaimsOfManyAtOnce(t *testing.T) {
	f := setup(t)
	var hooks []job.ID
	for range 5 {
		hooks = append(hooks, f.subscribe(job.EventCreated))
	}
	for range 20 {
		f.submit()
	}
	stores := f.twoStores()
	found := make([][]job.ClaimedDelivery, 40)
	inParallel(len(found), func(i int) {
		var err error
		var claim job.DeliveryClaim
		claim, err = stores[i%2].ClaimDeliveries(f.ctx(), f.client, hooks[i%5], 4, time.Hour)
		found[i] = claim.Deliveries
		require.NoError(t, err)
		for _, p := range found[i] {
			require.Equal(t, hooks[i%5], p.Endpoint)
		}
	})
	seen := map[job.ID]bool{}
	for _, claimed := range found {
		for _, p := range claimed {
			require.False(t, seen[p.ID])
			seen[p.ID] = true
		}
	}
	for _, hook := range hooks {
		for _, p := range f.claimAll(hook, 100) { // what was locked by another claim for a moment
			seen[p.ID] = true
		}
	}
	require.Len(t, seen, 100)
}

func TestOrphansAreFailed(t *testing.T) {
	f := setup(t)
	off, gone, fine := f.subscribe(job.EventCreated), f.subscribe(job.EventCreated), f.subscribe(job.EventCreated)
	for range 4 {
		f.submit()
	}
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
	count := func(e job.SendError) int {
		return one[int](f, `SELECT count(*)::int FROM deliveries WHERE state = 'FAILED' AND last_error = $1`, string(e))
	}
	require.Equal(t, 3, count(job.SendDisabled))
	require.Equal(t, 4, count(job.SendDeleted))
	f.record(delivered(held))
	require.Len(t, f.claimAll(fine, 10), 4)
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
	walk := func(age time.Duration, look int) (found []job.ID, calls int) {
		var at job.EndpointKey
		for {
			calls++
			some, last := must2(f.store.DueClients(f.ctx(), at, age, look))(t)
			found = append(found, some...)
			if at = last; last == (job.EndpointKey{}) {
				return found, calls
			}
		}
	}
	found, _ := walk(0, 100)
	require.ElementsMatch(t, clients, found, "each once")
	found, calls := walk(0, 4)
	require.ElementsMatch(t, clients, found)
	require.Equal(t, 2, calls)
	found, _ = walk(time.Hour, 4)
	require.Empty(t, found)
	f.patch(f.hooks()[0], enabled(false))
	f.patch(f.hooks()[1], enabled(false))
	found, _ = walk(0, 100)
	require.ElementsMatch(t, clients[:2], found)
}

// hooks are the client's webhooks.
func (f *fixture) hooks() (ids []job.ID) {
	for _, w := range must(f.store.Webhooks(f.ctx(), f.client))(f.t) {
		ids = append(ids, w.ID)
	}
	return ids
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
	f.exec(`INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, job_id, seq, event_id, event_name, created_at,
		next_attempt_at)
		SELECT gen_random_uuid(), $1, CASE WHEN i > 1 THEN $2 ELSE $3 END::uuid, CASE WHEN i > 1 THEN $2 ELSE $3 END::uuid, gen_random_uuid(), 1,
			gen_random_uuid(), 'job.created', now(), now() - interval '1 minute' FROM generate_series(1, 20000) i`,
		f.client.String(), busy.String(), idle.String())
	client := `'` + f.client.String() + `'`
	none := `'` + nobody + `'`
	require.Less(t, f.reads("deliveries", repo.Statements["dueEndpoints"], client+`, `+none+`, 1000, 10000`), 20)
	require.Less(t, f.reads("deliveries", repo.Statements["dueClients"], none+`, `+none+`, 1000, '1 s'`), 20)
	require.Less(t, f.reads("deliveries", repo.Statements["failOrphans"], none+`, `+none+`, 1000, 500`), 20)
	require.ElementsMatch(t, []job.ID{busy, idle}, f.endpoints())
	f.patch(busy, enabled(false))
	require.Less(t, f.reads("deliveries", repo.Statements["failOrphans"], none+`, `+none+`, 1000, 10`), 100)
}
