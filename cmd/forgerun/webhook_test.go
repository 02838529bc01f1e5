package main

import (
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a receiver of everything gets of a job that runs through at once, and
// what its callback gets of it, in order.
var life = []string{"job.created", "job.queued", "job.assigned", "job.running", "job.succeeded"}

// startDelivering starts one process of each role.
func (s *stack) startDelivering(environment ...env) (api, hooks *proc, u *user) {
	s.t.Helper()
	api = s.startLeader(environment...)
	s.startWorker(environment...)
	hooks = s.startWebhooks(environment...)
	return api, hooks, s.newUser(api)
}

// eventNames of deliveries in order of their sequence.
func eventNames(deliveries []received) []string {
	sorted := slices.Clone(deliveries)
	slices.SortStableFunc(sorted, func(a, b received) int { return a.seq() - b.seq() })
	var names []string
	for _, d := range sorted {
		names = append(names, d.event())
	}
	return names
}

func (r received) seq() int {
	n, _ := strconv.Atoi(r.header.Get("Ce-Sequence"))
	return n
}

// WEBHOOK_SUCCESS: every event reaches the subscription, every change of state
// the callback, each once.
func TestWebhookSuccess(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api, _, u := s.startDelivering()
	subscribed, called := newReceiver(t, nil), newReceiver(t, nil)
	hook := u.subscribe(api, subscribed.url+"/all?of=them")
	failures := newReceiver(t, nil)
	u.subscribe(api, failures.url, "job.failed", "job.retries_exhausted")
	id := u.submit(api, execute("WEBHOOK_SUCCESS", `"callback":"`+called.url+`/done"`), "X-Correlation-ID", "order-17")
	s.await("SUCCEEDED", id)
	s.awaitDeliveries()

	require.Equal(t, life, eventNames(subscribed.of(id)))
	require.Equal(t, life, eventNames(called.of(id)))
	require.Empty(t, failures.of(id))
	last := subscribed.await("the end", func(d received) bool { return d.job() == id && d.event() == "job.succeeded" })
	require.Equal(t, "POST", last.method)
	require.Equal(t, subscribed.url+"/all?of=them", last.url)
	require.Equal(t, "application/json", last.header.Get("Content-Type"))
	require.Equal(t, "COMPLETED", last.value("jobStatus"))
	require.Equal(t, id, last.value("jobId"))
	require.Equal(t, "order-17", last.value("correlationId"))
	require.NotNil(t, last.value("completedAt"))
	require.Equal(t, "5", last.header.Get("Ce-Sequence"))
	for _, d := range append(subscribed.of(id), called.of(id)...) {
		require.Equal(t, d.event() == "job.succeeded", d.value("completedAt") != nil, d.body)
		require.Equal(t, "1.0", d.header.Get("Ce-Specversion"))
		require.Equal(t, "WEBHOOK_SUCCESS", d.header.Get("Ce-Workkind"))
		require.Equal(t, map[string]any{"workKind": "WEBHOOK_SUCCESS", "durationMs": 2000.0, "expectedOutcome": "SUCCEEDED"},
			d.value("scenario"), d.body)
		require.Empty(t, d.header.Get("Content-Language"), "it has no text")
		require.Regexp(t, `^ForgeRun/`, d.header.Get("User-Agent"))
	}

	log := u.deliveries(api, "/v1/webhooks/"+hook.id, "?event_name=job.succeeded")
	require.Len(t, log, 1)
	require.Equal(t, "DELIVERED", log[0]["state"])
	one := u.call(api, "GET", "/v1/webhooks/"+hook.id+"/deliveries/"+log[0]["delivery_id"].(string), "")
	require.Equal(t, http.StatusOK, one.status, one.body)
	require.Contains(t, one.body, `"status":204`)
	require.Len(t, u.deliveries(api, "/v1/jobs/"+id, ""), 2*len(life), "the job's log has those of the callback too")
	s.checkInvariants()
}

// A failure arrives as the problem document, and as the same bytes again.
func TestWebhookOfAFailure(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api, _, u := s.startDelivering()
	r := newReceiver(t, func(d received, w http.ResponseWriter, _ *http.Request) {
		if d.nth == 1 {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	u.subscribe(api, r.url, "job.failed")
	id := u.submit(api, execute("FAIL_AFTER_RETRYABLE"), "Accept-Language", "de")
	s.await("FAILED", id)
	s.awaitDeliveries()
	got := r.of(id)
	require.Len(t, got, 2)
	require.Equal(t, "application/problem+json", got[0].header.Get("Content-Type"))
	require.Equal(t, "FAILED", got[0].value("jobStatus"))
	require.Equal(t, true, got[0].value("retryable"))
	require.Equal(t, got[0].body, got[1].body)
	require.Equal(t, got[0].id(), got[1].id())
	require.Equal(t, "FAIL_AFTER_RETRYABLE", got[0].value("scenario.workKind"))
	require.Equal(t, "processing", got[0].value("processingStage"))
	require.Equal(t, "A dependency of the job did not answer in time.", got[0].value("detail"), "in English, whatever the submission accepts")
	require.Equal(t, []any{"en", "en"}, []any{got[0].value("language"), got[0].header.Get("Content-Language")})
	shown := u.call(api, "GET", "/v1/jobs/"+id+"/attempts/1", "", "Accept", "application/problem+json")
	require.Equal(t, []string{"de", "de"}, []string{shown.text("language"), shown.header.Get("Content-Language")})
	require.NotEqual(t, shown.text("title"), got[0].value("title"), "over HTTP it is in the language of the submission")
	s.checkInvariants()
}

// WEBHOOK_TIMEOUT: a receiver that does not answer in time is asked again; the
// job has ended long before.
func TestWebhookTimeout(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks, env{"FORGERUN_WEBHOOK_TIMEOUT": "2s", "FORGERUN_WEBHOOK_MAX_RETRIES": "20"})
	api, _, u := s.startDelivering()
	hanging, release := hold()
	defer release()
	r := newReceiver(t, func(d received, w http.ResponseWriter, request *http.Request) {
		if d.nth == 1 {
			hanging(d, w, request)
		}
	})
	hook := u.subscribe(api, r.url, "job.succeeded")
	id := u.submit(api, execute("WEBHOOK_TIMEOUT"))
	s.await("SUCCEEDED", id)
	s.awaitDeliveries()
	require.Equal(t, "DELIVERED", u.deliveries(api, "/v1/webhooks/"+hook.id, "")[0]["state"])
	errors := s.attemptErrors(id)
	require.Equal(t, "TIMEOUT", errors[0])
	require.Empty(t, errors[len(errors)-1])
	s.checkInvariants()
}

// attemptErrors are the classes of the attempts about a job, in order.
func (s *stack) attemptErrors(job string) (classes []string) {
	s.t.Helper()
	rows, err := s.db.Query(s.ctx(), `SELECT coalesce(a.error, '') FROM delivery_attempts a JOIN deliveries USING (delivery_id)
		WHERE job_id = $1 ORDER BY number`, job)
	require.NoError(s.t, err)
	for rows.Next() {
		var class string
		require.NoError(s.t, rows.Scan(&class))
		classes = append(classes, class)
	}
	require.NoError(s.t, rows.Err())
	return classes
}

// WEBHOOK_5XX: refused first, then accepted.
func TestWebhook5XX(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api, _, u := s.startDelivering()
	r := newReceiver(t, func(d received, w http.ResponseWriter, _ *http.Request) {
		if d.nth <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	hook := u.subscribe(api, r.url, "job.succeeded")
	id := u.submit(api, execute("WEBHOOK_5XX"))
	s.await("SUCCEEDED", id)
	s.awaitDeliveries()
	require.Equal(t, []string{"HTTP_5XX", "HTTP_5XX", ""}, s.attemptErrors(id))
	got := r.of(id)
	require.Len(t, got, 3)
	require.Equal(t, got[0].id(), got[2].id(), "the same id on each try")
	a := u.call(api, "GET", "/v1/webhooks/"+hook.id, "")
	require.Equal(t, true, a.value("enabled"), a.body)
	require.Equal(t, 0.0, a.value("consecutive_failures"), a.body)
	s.checkInvariants()
}

// WEBHOOK_RETRIES_EXHAUSTED: given up, kept, and sent again when asked for.
func TestWebhookRetriesExhausted(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api, _, u := s.startDelivering()
	r := newReceiver(t, answering(http.StatusInternalServerError))
	hook := u.subscribe(api, r.url, "job.succeeded")
	id := u.submit(api, execute("WEBHOOK_RETRIES_EXHAUSTED"))
	s.await("SUCCEEDED", id)
	s.awaitDeliveries()
	path := "/v1/webhooks/" + hook.id
	failed := u.deliveries(api, path, "?state=FAILED")
	require.Len(t, failed, 1)
	require.Equal(t, 4.0, failed[0]["attempts"])
	require.Len(t, r.of(id), 4)

	r.behave(answering(http.StatusOK))
	a := u.call(api, "POST", path+"/deliveries/"+failed[0]["delivery_id"].(string)+"/redeliver", "")
	require.Equal(t, http.StatusAccepted, a.status, a.body)
	s.awaitDeliveries()
	again := u.deliveries(api, path, "")
	require.Equal(t, "DELIVERED", again[0]["state"])
	require.Equal(t, 5.0, again[0]["attempts"])
	require.Equal(t, "SUCCEEDED", u.get(api, id).text("state"))
	s.checkInvariants()
}

// WEBHOOK_SLOW_RECEIVER: late, but within the limit, is delivered.
func TestWebhookSlowReceiver(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks, env{"FORGERUN_WEBHOOK_TIMEOUT": "60s"})
	api, _, u := s.startDelivering()
	slow, release := hold()
	defer release()
	r := newReceiver(t, slow)
	hook := u.subscribe(api, r.url, "job.succeeded")
	id := u.submit(api, execute("WEBHOOK_SLOW_RECEIVER"))
	r.await("the end", func(d received) bool { return d.job() == id })
	require.Equal(t, "SUCCEEDED", u.get(api, id).text("state"), "the job does not wait for its receiver")
	require.Equal(t, "PENDING", u.deliveries(api, "/v1/webhooks/"+hook.id, "")[0]["state"])
	release()
	s.awaitDeliveries()
	require.Len(t, r.of(id), 1)
	s.checkInvariants()
}

// One endpoint that hangs takes its share of the slots and nothing else; the
// deliveries to others arrive as before.
func TestHangingReceiverBesideAHealthyOne(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks, env{"FORGERUN_WEBHOOK_TIMEOUT": "120s", "FORGERUN_WEBHOOK_CONCURRENCY": "10"})
	api, _, u := s.startDelivering()
	hang, release := hold()
	defer release()
	hanging, healthy := newReceiver(t, hang), newReceiver(t, nil)
	other := s.newUser(api)
	u.subscribe(api, hanging.url)
	u.subscribe(api, healthy.url)
	other.subscribe(api, healthy.url+"/other")
	u.submitMany(api, 40, execute("WEBHOOK_SUCCESS"))
	ids := other.submitMany(api, 40, execute("WEBHOOK_SUCCESS"))
	s.await("SUCCEEDED", s.acceptedIDs()...)
	eventually(t, "the healthy endpoints have everything", func() bool { return len(healthy.all()) == 80*len(life) })
	for _, id := range ids {
		require.Equal(t, life, eventNames(healthy.of(id)))
	}
	hanging.mu.Lock()
	require.LessOrEqual(t, hanging.most, 2, "a fifth of the slots")
	require.GreaterOrEqual(t, hanging.most, 1)
	hanging.mu.Unlock()
	require.Equal(t, 40*len(life), s.count(`SELECT count(*) FROM deliveries WHERE state = 'PENDING'`))
	release()
	s.awaitDeliveries()
	require.Len(t, hanging.all(), 40*len(life), "nothing was sent twice")
	s.checkInvariants()
}

// An event reaches an idle receiver at once; the bound is generous, the
// benchmark measures.
func TestDeliveryIsPrompt(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api, webhooks, u := s.startDelivering()
	r := newReceiver(t, nil)
	u.subscribe(api, r.url, "job.succeeded")
	s.await("SUCCEEDED", u.submit(api, execute("WEBHOOK_SUCCESS"))) // the first one may wait for the relay
	s.awaitDeliveries()
	before := webhooks.metric(`webhook_deliveries_total{event="job.succeeded",result="delivered"}`)
	require.Equal(t, 1.0, before)
	for range 10 {
		id := u.submit(api, execute("WEBHOOK_SUCCESS"))
		r.await("the end", func(d received) bool { return d.job() == id })
	}
	s.awaitDeliveries()
	require.Equal(t, before+10, webhooks.metric(`webhook_deliveries_total{event="job.succeeded",result="delivered"}`))
	require.Less(t, api.metric(`maintenance_deliveries_total{by="woken"}`), 10.0, "the hints led to them, not the relay")
	s.checkInvariants()
}

// An endpoint that is gone is disabled at once; one that keeps failing when it
// has done so for long enough. The owner sees why, and can have what was
// missed.
func TestDisabledWebhookAndReplay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		reason string
	}{
		"gone":    {http.StatusGone, "GONE"},
		"failing": {http.StatusInternalServerError, "FAILING"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, hooks, env{"FORGERUN_WEBHOOK_DISABLE_FAILURES": "3", "FORGERUN_WEBHOOK_DISABLE_AFTER": "1ms"})
			api, _, u := s.startDelivering()
			broken, watcher := newReceiver(t, answering(c.status)), newReceiver(t, nil)
			began := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
			hook := u.subscribe(api, broken.url, "job.succeeded")
			u.subscribe(api, watcher.url, "webhook.disabled")
			missed := []string{u.submit(api, execute("WEBHOOK_SUCCESS"))}
			path := "/v1/webhooks/" + hook.id
			told := watcher.await("webhook.disabled", func(d received) bool { return d.event() == "webhook.disabled" })
			require.Equal(t, hook.id, told.value("webhookId"))
			require.Equal(t, c.reason, told.value("reason"))
			s.awaitDeliveries()
			a := u.call(api, "GET", path, "")
			require.Equal(t, false, a.value("enabled"), a.body)
			require.Equal(t, c.reason, a.text("disabled_reason.code"), a.body)

			missed = append(missed, u.submitMany(api, 5, execute("WEBHOOK_SUCCESS"))...)
			s.await("SUCCEEDED", missed...)
			require.Equal(t, 1, s.count(`SELECT count(*) FROM deliveries WHERE webhook_id = $1`, hook.id), "a disabled webhook gets none")
			broken.behave(answering(http.StatusOK))
			a = u.call(api, "PATCH", path, `{"enabled":true}`)
			require.Equal(t, http.StatusOK, a.status, a.body)
			a = u.call(api, "POST", path+"/replay", `{"since":"`+began+`"}`)
			require.Equal(t, http.StatusAccepted, a.status, a.body)
			require.Equal(t, 6.0, a.value("queued"), a.body)
			require.Nil(t, a.value("next_cursor"), a.body)
			s.awaitDeliveries()
			for _, id := range missed {
				require.NotEmpty(t, broken.of(id))
			}
			a = u.call(api, "POST", path+"/replay", `{"since":"`+began+`"}`)
			require.Equal(t, 0.0, a.value("queued"), a.body)
			s.checkInvariants()
		})
	}
}

// EMIT_EVENT: the client's own event reaches its webhook and its callback.
func TestWebhookOfAnEmittedEvent(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api, _, u := s.startDelivering()
	subscribed, called := newReceiver(t, nil), newReceiver(t, nil)
	u.subscribe(api, subscribed.url, "event.emitted")
	id := u.submit(api, `{"type":"EMIT_EVENT","callback":"`+called.url+`","event":{"name":"order.shipped","data":{"n":[1,2,"ü<"]}}}`)
	s.await("SUCCEEDED", id)
	s.awaitDeliveries()
	got := subscribed.of(id)
	require.Len(t, got, 1)
	require.Equal(t, "order.shipped", got[0].value("emitted.name"))
	require.Equal(t, map[string]any{"n": []any{1.0, 2.0, "ü<"}}, got[0].value("emitted.data"))
	require.Contains(t, eventNames(called.of(id)), "event.emitted")
	s.checkInvariants()
}
