package repo_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

func TestClaimedDeliveriesAreComplete(t *testing.T) {
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
	for _, origin := range [][]string{ // the URLs of a list belong to the same endpoint
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

func TestRefusedClaimsReturnWhenToRetry(t *testing.T) {
	f := setup(t)
	hook := f.subscribe(job.EventCreated)
	f.submit()
	id := one[job.ID](f, `SELECT delivery_id FROM deliveries`)
	expect := func(claimed bool, least, most time.Duration, why string) {
		t.Helper()
		d, wait := must2(f.store.ClaimDelivery(f.ctx(), id, time.Hour))(t)
		require.Equal(t, claimed, d != nil, why)
		require.True(t, least <= wait && wait <= most, "%s: %v", why, wait)
	}
	again := func(next string) {
		f.exec(`UPDATE deliveries SET claimed_until = NULL, next_attempt_at = clock_timestamp() + $1::interval`, next)
	}
	again("1 hour")
	expect(false, time.Hour-testkit.Patience, time.Hour, "the delivery is not due")
	again("0")
	unlock := f.lock(`SELECT FROM deliveries FOR UPDATE`)
	expect(false, time.Millisecond, time.Second, "another transaction has locked it")
	unlock()
	expect(true, 0, 0, "the delivery is due")
	expect(false, 0, 0, "the delivery is being sent")
	again("0")
	f.patch(hook, enabled(false))
	expect(false, 0, 0, "the webhook is disabled")
	f.patch(hook, enabled(true))
	f.record(delivered(*f.claimDelivery(id)))
	expect(false, 0, 0, "the delivery is settled")
	f.exec(`DELETE FROM deliveries`)
	expect(false, 0, 0, "the delivery was removed")

	f.submit()
	id = one[job.ID](f, `SELECT delivery_id FROM deliveries`)
	again("900 ms")
	testkit.Eventually(t, "the delivery is due", func() bool { return f.claimDelivery(id) != nil })
}

func TestClaimsReadBoundedData(t *testing.T) {
	f := setup(t)
	f.subscribe(job.EventEmitted)
	const n = 34
	for range n {
		end := success(f.run())
		end.Emit = &job.Emission{Name: "x", Data: json.RawMessage(fmt.Sprintf(`"%0*d"`, 250<<10, 1))}
		f.finish(end)
	}
	all := each(f.ids(`SELECT delivery_id FROM deliveries`), job.ID.String)
	f.exec(repo.Statements["claimDeliveries"], all, slices.Repeat([]time.Duration{time.Hour}, n))
	require.Equal(t, 8<<20/(256<<10), f.count(`deliveries WHERE claimed_until IS NOT NULL`))
}

func TestClaimsAndReleases(t *testing.T) {
	f := setup(t)
	hook, first := f.claimed(2)
	f.submit()
	release := func() { require.NoError(t, f.store.ReleaseDelivery(f.ctx(), first[0].ID, first[0].Fence)) }
	release()
	again := f.claimAll(hook, 2)
	require.Equal(t, []any{first[0].ID, 2}, []any{again[0].ID, again[0].Fence}, "a released delivery is due as before")
	release()
	require.Empty(t, f.claimAll(hook, 2), "the old claim is no longer current")

	reclaim := func() int { return must(f.store.ReclaimDeliveries(f.ctx(), 2))(t) }
	require.Zero(t, reclaim())
	f.exec(`UPDATE deliveries SET claimed_until = clock_timestamp() WHERE claimed_until IS NOT NULL`)
	require.Equal(t, []int{2, 1}, []int{reclaim(), reclaim()})
	require.ErrorIs(t, errOf(f.store.RecordDelivery(f.ctx(), delivered(first[1]))), job.ErrStale, "the claim has ended")
	require.Len(t, f.claimAll(hook, 10), 3)
	f.checkInvariants()
}

func TestOrphansAreFailed(t *testing.T) {
	f := setup(t)
	off, gone, fine := f.subscribe(job.EventCreated), f.subscribe(job.EventCreated), f.subscribe(job.EventCreated)
	f.submitted(5)
	for _, hook := range []job.ID{off, gone} {
		r := refused(f.claimAll(hook, 1)[0], time.Hour)
		r.Sent.Attempt.Reason = "HTTP 500 from 203.0.113.5:443"
		f.record(r)
	}
	held := f.claimAll(off, 1)[0]
	f.patch(off, enabled(false))
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, gone))
	require.Equal(t, []job.ID{fine}, f.endpoints())
	require.Empty(t, f.claimAll(off, 10))
	require.Empty(t, f.claimAll(gone, 10))
	total := 0
	for range 20 {
		failed := must(f.store.FailOrphans(f.ctx(), 1, 2))(t)
		require.LessOrEqual(t, len(failed), 2)
		total += f.count(`deliveries WHERE state = 'FAILED' AND delivery_id = ANY ($1::uuid[])`, each(failed, job.ID.String))
	}
	require.Equal(t, 9, total)
	for e, n := range map[job.SendError]int{job.SendDisabled: 3, job.SendDeleted: 4} {
		require.Equal(t, n, f.count(`deliveries WHERE state = 'FAILED' AND last_error = $1`, string(e)))
	}
	require.Equal(t, 2, f.count(`deliveries WHERE state = 'FAILED' AND attempts = 1 AND last_status = 500 AND last_error = 'HTTP_5XX'
		AND last_reason = 'HTTP 500 from 203.0.113.5:443'`))
	f.record(delivered(held))
	require.Len(t, f.claimAll(fine, 10), 5)
	f.checkInvariants()
}

func TestDueDeliveries(t *testing.T) {
	f := setup(t)
	hooks := []job.ID{f.subscribe(job.EventCreated), f.subscribe(job.EventCreated), f.subscribe(job.EventCreated)}
	f.submitted(5)
	find := func(minAge, ahead time.Duration) int {
		found, _ := f.dueDeliveries(100, 50, 100, minAge, ahead)
		return len(found)
	}
	require.Equal(t, []int{15, 0}, []int{find(0, 0), find(time.Hour, 0)})
	next, first := map[job.ID]time.Time{}, map[job.ID][]job.ID{}
	for _, hook := range hooks {
		for i, p := range f.claimAll(hook, 5) {
			first[hook] = slices.Insert(first[hook], 0, p.ID)
			f.record(refused(p, time.Duration(5-i)*time.Minute))
			next[p.ID] = one[time.Time](f, `SELECT next_attempt_at FROM deliveries WHERE delivery_id = $1`, p.ID.String())
		}
	}
	require.Equal(t, []int{0, 15}, []int{find(0, 0), find(time.Hour, time.Hour)}, "a minimum age applies only to untried deliveries")
	for _, page := range []struct{ look, limit, calls int }{{100, 100, 1}, {2, 100, 2}, {100, 4, 3}} {
		found, calls := f.dueDeliveries(page.look, 3, page.limit, 0, time.Hour)
		seen := map[job.ID][]job.ID{}
		for _, d := range found {
			require.Equal(t, f.client, d.ClientID)
			require.True(t, next[d.ID].Equal(d.At))
			if !slices.Contains(seen[d.Endpoint], d.ID) {
				seen[d.Endpoint] = append(seen[d.Endpoint], d.ID)
			}
		}
		for _, hook := range hooks {
			require.Equal(t, first[hook][:3], seen[hook], "the first ones, and of each endpoint no more: %+v", page)
		}
		require.GreaterOrEqual(t, calls, page.calls)
	}
	f.patch(hooks[0], enabled(false))
	require.Equal(t, 10, find(0, time.Hour), "a disabled webhook has no due deliveries")
}

func TestNewDeliveries(t *testing.T) {
	f := setup(t)
	hook := f.subscribe(job.EventCreated, job.EventBatchCompleted)
	id := f.submit(calledBack)
	b := f.insertBatch(f.batch(1))
	batched := b.Items[0].JobID
	f.cancel(batched)
	f.completeBatches(b.ID)
	_, stranger := f.another()
	found := func(jobs, clients []job.ID) (all []job.DeliveryTask) {
		return must(f.store.NewDeliveries(f.ctx(), jobs, clients))(t)
	}
	require.Empty(t, found(nil, nil))
	require.Empty(t, found([]job.ID{stranger}, []job.ID{newID()}))
	of := f.count(`deliveries WHERE job_id = $1`, id.String())
	require.Len(t, found([]job.ID{id}, nil), of, "the deliveries to the webhook and the callback")
	require.Len(t, found([]job.ID{id, batched}, nil), of+1)
	own := found(nil, []job.ID{f.client})
	require.Len(t, own, 1)
	require.Equal(t, []job.ID{f.client, hook}, []job.ID{own[0].ClientID, own[0].Endpoint})
	p := f.claimDelivery(own[0].ID)
	require.Equal(t, []any{job.EventBatchCompleted, b.ID, 1}, []any{p.EventName, p.Occurrence.Batch.ID, p.Occurrence.Batch.Outcome.Canceled})
	require.True(t, p.JobID.IsZero())
	require.Empty(t, found(nil, []job.ID{f.client}), "the delivery is being sent")
	f.record(refused(f.claimAll(hook, 1)[0], 0))
	require.Len(t, found([]job.ID{id, batched}, nil), of, "one delivery was tried")
}

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

// The search for endpoints reads the same number of rows with a backlog as with one delivery.
func TestBacklogsAreNotRead(t *testing.T) {
	f := setup(t)
	busy, idle := f.subscribe("*"), f.subscribe("*")
	for hook, n := range map[job.ID]int{busy: 19_999, idle: 1} {
		f.insert("deliveries", n, columns{"client_id": quoted(f.client), "endpoint_id": quoted(hook), "webhook_id": quoted(hook),
			"next_attempt_at": "now() - interval '1 minute'"})
	}
	const none = `'` + nobody + `', `
	for name, args := range map[string]string{
		"dueDeliveries": none + none + `1000, 5, '1 s', '5 s', 2000`, "failOrphans": none + none + `1000, 500`,
	} {
		require.Less(t, f.reads("deliveries", repo.Statements[name], args), 40, name)
	}
	require.ElementsMatch(t, []job.ID{busy, idle}, f.endpoints())
	f.patch(busy, enabled(false))
	require.Less(t, f.reads("deliveries", repo.Statements["failOrphans"], none+none+`1000, 10`), 100)
}
