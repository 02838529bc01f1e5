package repo_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

func (f *fixture) claimAll(endpoint job.ID, n int) (claimed []job.ClaimedDelivery) {
	for _, id := range f.ids(`SELECT delivery_id FROM deliveries WHERE client_id = $1 AND endpoint_id = $2 AND state = 'PENDING'
		AND claimed_until IS NULL ORDER BY next_attempt_at, job_id, seq LIMIT $3`, f.client.String(), endpoint.String(), n) {
		if d := f.claimDelivery(id); d != nil {
			claimed = append(claimed, *d)
		}
	}
	return claimed
}

func (f *fixture) ids(sql string, args ...any) []job.ID {
	return must(pgx.CollectRows(must(f.db.Query(f.ctx(), sql, args...))(f.t), pgx.RowTo[job.ID]))(f.t)
}

func (f *fixture) claimDelivery(id job.ID) *job.ClaimedDelivery {
	d, _ := must2(f.store.ClaimDelivery(f.ctx(), id, time.Hour))(f.t)
	return d
}

func (f *fixture) claimed(n int) (hook job.ID, claimed []job.ClaimedDelivery) {
	hook = f.subscribe(job.EventCreated)
	f.submitted(n)
	return hook, f.claimAll(hook, n)
}

func (f *fixture) dueDeliveries(look, perEndpoint, limit int, minAge, ahead time.Duration) (found []job.DeliveryTask, calls int) {
	return walk(f, func(at job.EndpointKey) ([]job.DeliveryTask, job.EndpointKey) {
		some, last := must2(f.store.DueDeliveries(f.ctx(), at, look, perEndpoint, limit, minAge, ahead))(f.t)
		require.LessOrEqual(f.t, len(some), limit)
		return some, last
	})
}

func (f *fixture) endpoints() (found []job.ID) {
	due, _ := f.dueDeliveries(100, 1, 100, 0, 0)
	for _, t := range due {
		if t.ClientID == f.client {
			found = append(found, t.Endpoint)
		}
	}
	return found
}

func delivered(p job.ClaimedDelivery) job.DeliveryResult {
	return job.DeliveryResult{
		DeliveryID: p.ID, Fence: p.Fence, State: job.DeliveryDelivered,
		Sent: job.Sent{Attempt: job.DeliveryAttempt{StartedAt: time.Now(), Duration: 5 * time.Millisecond, Status: 200}},
	}
}

func refused(p job.ClaimedDelivery, wait time.Duration) job.DeliveryResult {
	r := delivered(p)
	r.State, r.Wait = job.DeliveryPending, wait
	r.Sent.Attempt.Status, r.Sent.Attempt.Error = 500, job.SendServerError
	return r
}

func givenUp(p job.ClaimedDelivery) job.DeliveryResult {
	r := refused(p, 0)
	r.State = job.DeliveryFailed
	return r
}

func (f *fixture) record(r job.DeliveryResult) job.Recorded {
	return must(f.store.RecordDelivery(f.ctx(), r))(f.t)
}

func (f *fixture) deliverAll() (sent []job.ClaimedDelivery) {
	for _, endpoint := range f.endpoints() {
		for claimed := f.claimAll(endpoint, 100); len(claimed) > 0; claimed = f.claimAll(endpoint, 100) {
			for _, p := range claimed {
				f.record(delivered(p))
			}
			sent = append(sent, claimed...)
		}
	}
	return sent
}

// sentTo returns the text "target event" for each delivery that matches the condition, in order. The target is a webhook's description or
// a callback's URL.
func (f *fixture) sentTo(where string, args ...any) []string {
	text := one[string](f, `SELECT coalesce(string_agg(coalesce(w.description, d.url) || ' ' || event_name, ',' ORDER BY job_id,
		coalesce(w.description, d.url), seq), '')
		FROM deliveries d LEFT JOIN webhooks w USING (webhook_id) WHERE `+where, args...)
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func TestEventsHaveTheirDeliveries(t *testing.T) {
	f := setup(t)
	named := func(name string, events ...string) job.ID {
		sub := f.hook(events...)
		sub.Description = name
		return must(f.store.InsertWebhook(f.ctx(), sub))(t).ID
	}
	named("all", "*")
	named("jobs", "job.*", job.EventSucceeded)
	named("ends", job.EventSucceeded, job.EventFailed, job.EventBatchCompleted, job.EventWebhookDisabled)
	f.patch(named("off", "*"), enabled(false))
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, named("gone", "*")))
	stranger := f.hook("*")
	stranger.ClientID = newID()
	must(f.store.InsertWebhook(f.ctx(), stranger))(t)

	targets := []struct {
		name  string
		wants func(event string) bool
	}{
		{"all", func(string) bool { return true }},
		{"ends", func(event string) bool { return event == job.EventSucceeded || event == job.EventFailed }},
		{"http://cb.test/x", func(event string) bool { return event != job.EventRetriesExhausted }},
		{"jobs", func(event string) bool { return strings.HasPrefix(event, "job.") }},
	}
	check := func(id job.ID) {
		var want []string
		for _, target := range targets {
			for _, event := range f.names(id) {
				if target.wants(event) {
					want = append(want, target.name+" "+event)
				}
			}
		}
		require.Equal(t, want, f.sentTo(`job_id = $1`, id.String()), "%v", f.names(id))
	}
	l := f.run(calledBack)
	check(l.JobID)
	end := withRetry(failure(l, job.FailedOnce), 0)
	end.Emit = &job.Emission{Name: "x", Data: json.RawMessage(`1`)}
	f.finish(end) // event.emitted, job.failed and job.retried
	check(l.JobID)
	end = failure(f.claim(l.JobID, 2), job.FailedOnce)
	end.Exhausted = true
	f.finish(end)
	check(l.JobID)
	f.retry(l.JobID, 2)
	check(l.JobID)
	f.release(f.assigned(l.JobID, 3))
	check(l.JobID)
	f.cancel(l.JobID)
	check(l.JobID)
	require.Subset(t, f.names(l.JobID), []string{job.EventEmitted, job.EventRetriesExhausted, job.EventRetried, job.EventLeaseExpired,
		job.EventCanceled})

	later, early := f.submit(calledBack, deferred(time.Hour)), f.submit(calledBack, deferred(time.Hour))
	f.makeDue(later)
	f.queueDue(10)
	check(later)
	f.makeDue(early)
	f.finish(success(f.claim(early, 1))) // the claim also queues the due job
	check(early)

	b := f.insertBatch(f.batch(2))
	for _, id := range jobsOf(b) {
		require.Len(t, f.sentTo(`job_id = $1`, id.String()), 4, "two events for two webhooks")
		f.cancel(id)
	}
	f.completeBatches(b.ID)
	require.Equal(t, []string{"all batch.completed", "ends batch.completed"}, f.sentTo(`job_id IS NULL`))
	require.Zero(t, f.count(`deliveries WHERE client_id <> $1`, f.client.String()))
	f.checkInvariants()
}

func calledBack(s *job.Submission) { s.Job.Callback = "http://cb.test/x" }

func TestWebhookTestHasOneDelivery(t *testing.T) {
	f := setup(t)
	id, other := f.subscribe(job.EventSucceeded), f.subscribe("*")
	d := must(f.store.TestWebhook(f.ctx(), f.client, id))(t)
	require.Equal(t, job.EventWebhookTest, d.EventName)
	require.Equal(t, 1, f.count("deliveries"), "only one webhook gets the test")
	p := f.claimAll(id, 10)[0]
	require.Equal(t, []job.ID{d.ID, id}, []job.ID{p.ID, p.Occurrence.Webhook})
	require.JSONEq(t, fmt.Sprintf(`{"webhookId": %q}`, id), string(p.Occurrence.Data))
	seen := (&follower{f: f}).readAll(10)
	require.Len(t, seen, 1)
	require.Equal(t, id, seen[0].Webhook)
	f.patch(other, enabled(false))
	require.Equal(t, job.CodeConflict, codeOf(f.store.TestWebhook(f.ctx(), f.client, other)))
	f.checkInvariants()
}

func (f *fixture) deliveries(q job.DeliveryQuery) job.DeliveryPage {
	return must(f.store.Deliveries(f.ctx(), f.client, q))(f.t)
}

func TestListOfDeliveries(t *testing.T) {
	f := setup(t)
	hook, _ := f.subscribe("job.*"), f.subscribe("*")
	first := f.at(job.Succeeded)
	middle := one[time.Time](f, `SELECT clock_timestamp()`)
	testkit.Eventually(t, "the clock passes the moment", func() bool { return f.store.Now().After(middle) })
	f.at(job.Failed)
	f.record(givenUp(f.claimAll(hook, 1)[0]))
	owner := job.DeliveryOwner{WebhookID: hook}

	list, _ := walk(f, func(after job.ID) ([]job.Delivery, job.ID) {
		page := f.deliveries(job.DeliveryQuery{Owner: owner, Limit: 3, After: after})
		return page.Deliveries, page.Next
	})
	require.Len(t, list, 10)
	require.True(t, slices.IsSortedFunc(list, func(a, b job.Delivery) int { return bytes.Compare(b.ID[:], a.ID[:]) }), "newest first")
	for i, d := range list {
		require.Equal(t, hook, d.WebhookID)
		require.True(t, i == 0 || d.ID != list[i-1].ID, "each delivery is listed once")
	}
	for n, q := range map[int]job.DeliveryQuery{
		10: {Owner: job.DeliveryOwner{JobID: first}}, // for both webhooks
		1:  {Owner: owner, State: job.DeliveryFailed},
		2:  {Owner: owner, EventName: job.EventCreated},
		5:  {Owner: owner, CreatedAfter: &middle},
		0:  {Owner: job.DeliveryOwner{WebhookID: f.subscribe("*")}},
	} {
		q.Limit = 100
		require.Len(t, f.deliveries(q).Deliveries, n)
	}
	require.Len(t, f.deliveries(job.DeliveryQuery{Owner: owner, CreatedBefore: &middle, Limit: 100}).Deliveries, 5)
}

func (f *fixture) redeliver(owner job.DeliveryOwner, id job.ID) *job.Delivery {
	return must(f.store.Redeliver(f.ctx(), f.client, owner, id))(f.t)
}

func TestLogAndRedelivery(t *testing.T) {
	f := setup(t)
	hook, claimed := f.claimed(1)
	owner, p := job.DeliveryOwner{WebhookID: hook}, claimed[0]
	r := refused(p, time.Hour)
	a := &r.Sent.Attempt
	a.Header, a.Body, a.Truncated = map[string][]string{"X": {"a\x00b", "c"}}, []byte{0, 255}, true
	a.StartedAt = a.StartedAt.UTC().Truncate(time.Microsecond)
	recorded := f.record(r)
	require.Equal(t, job.Recorded{Number: 1}, recorded)

	d, log := must2(f.store.Delivery(f.ctx(), f.client, owner, p.ID))(t)
	a.Number = 1
	require.Equal(t, []job.DeliveryAttempt{*a}, log)
	require.Equal(t, []any{job.DeliveryPending, 1, 1, 500, job.SendServerError},
		[]any{d.State, d.Attempts, d.Tries, d.LastStatus, d.LastError})
	require.WithinDuration(t, time.Now().Add(time.Hour), *d.NextAttemptAt, testkit.Patience)
	require.Empty(t, f.claimAll(hook, 1), "the delivery is not due")

	require.Equal(t, 1, f.redeliver(owner, p.ID).Tries, "only the wait ends")
	p = f.claimAll(hook, 1)[0]
	require.Equal(t, p.ClaimedUntil, f.redeliver(owner, p.ID).ClaimedUntil, "the delivery is being sent")
	require.Equal(t, 2, f.record(givenUp(p)).Number)
	again := f.redeliver(job.DeliveryOwner{JobID: p.JobID}, p.ID)
	require.Equal(t, []any{job.DeliveryPending, 2, 0}, []any{again.State, again.Attempts, again.Tries})
	require.Nil(t, again.SettledAt)
	f.checkInvariants()
	p = f.claimAll(hook, 1)[0]
	require.Equal(t, 0, p.Tries)
	f.record(delivered(p))
	_, log = must2(f.store.Delivery(f.ctx(), f.client, owner, p.ID))(t)
	require.Equal(t, []int{1, 2, 3}, []int{log[0].Number, log[1].Number, log[2].Number})

	f.patch(hook, enabled(false))
	require.Equal(t, job.CodeConflict, codeOf(f.store.Redeliver(f.ctx(), f.client, owner, p.ID)))
	require.Equal(t, job.CodeConflict, codeOf(f.store.RedeliverFailed(f.ctx(), f.client, hook, time.Time{}, 10)))
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, hook))
	require.Equal(t, job.CodeWebhookNotFound, codeOf(f.store.Redeliver(f.ctx(), f.client, job.DeliveryOwner{JobID: p.JobID}, p.ID)))
	f.checkInvariants()
}

func TestRedeliverFailed(t *testing.T) {
	f := setup(t)
	hook := f.subscribe(job.EventCreated)
	for range 5 {
		f.submit()
		f.exec(`SELECT pg_sleep(0.002)`) // ids within a millisecond are not ordered
	}
	claimed := f.claimAll(hook, 10)
	for _, p := range claimed[:4] {
		f.record(givenUp(p))
	}
	f.record(delivered(claimed[4]))
	for _, want := range []job.Replay{{Queued: 2, More: true}, {Queued: 1}} {
		require.Equal(t, want, must(f.store.RedeliverFailed(f.ctx(), f.client, hook, claimed[1].CreatedAt, 2))(t))
		if want.More {
			due := f.claimAll(hook, 10)
			require.Equal(t, []job.ID{claimed[1].ID, claimed[2].ID}, []job.ID{due[0].ID, due[1].ID}, "the oldest first")
		}
	}
	f.checkInvariants()
}
