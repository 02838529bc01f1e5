package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// life lists the events of a job that succeeds at its first attempt, in order.
var life = []string{"job.created", "job.queued", "job.assigned", "job.running", "job.succeeded"}

func (s *stack) startDelivering(environment ...env) (api, hooks *proc, u *user) {
	s.t.Helper()
	api = s.startLeader(environment...)
	s.startWorker(environment...)
	hooks = s.startDeliverer(environment...)
	return api, hooks, s.newUser(api)
}

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

func TestWebhookSuccess(t *testing.T) {
	s, api, u := newDelivering(t)
	subscribed, called := newReceiver(t, nil), newReceiver(t, nil)
	hook := u.subscribe(api, subscribed.url+"/all?of=them")
	failures := u.receive(api, nil, "job.failed", "job.retries_exhausted")
	id := u.submitAndAwait(api, "SUCCEEDED", execute("WEBHOOK_SUCCESS", `"callback":"`+called.url+`/done"`), "X-Correlation-ID", "order-17")
	s.awaitDeliveries()

	require.Equal(t, life, eventNames(subscribed.of(id)))
	require.Equal(t, life, eventNames(called.of(id)))
	require.Empty(t, failures.of(id))
	last := subscribed.await("the end", func(d received) bool { return d.job() == id && d.event() == "job.succeeded" })
	require.Equal(t, subscribed.url+"/all?of=them", last.url)
	require.Equal(t, []any{"COMPLETED", id, "order-17"}, []any{last.value("jobStatus"), last.value("jobId"), last.value("correlationId")})
	for _, d := range append(subscribed.of(id), called.of(id)...) {
		require.Equal(t, d.event() == "job.succeeded", d.value("completedAt") != nil, d.body)
		require.Equal(t, map[string]any{"workKind": "WEBHOOK_SUCCESS", "durationMs": 2000.0, "expectedOutcome": "SUCCEEDED"},
			d.value("scenario"), d.body)
	}

	log := u.deliveries(api, "/v1/webhooks/"+hook.id, "?event_name=job.succeeded")
	require.Len(t, log, 1)
	require.Equal(t, "DELIVERED", log[0]["state"])
	one := u.expect(api, http.StatusOK, "GET", "/v1/webhooks/"+hook.id+"/deliveries/"+log[0]["delivery_id"].(string), "")
	require.Contains(t, one.body, `"status":204`)
	require.Len(t, u.deliveries(api, "/v1/jobs/"+id, ""), 2*len(life), "with the deliveries to the callback")
	s.checkInvariants()
}

// The delivery of a failure is a problem document. Repetitions have the same bytes.
// Promise: draft 5.3, 6.6, D
// Promise: draft F.5
func TestWebhookOfAFailure(t *testing.T) {
	s, api, u := newDelivering(t)
	r := newReceiver(t, func(d received, w http.ResponseWriter, _ *http.Request) {
		if d.nth == 1 {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	u.subscribe(api, r.url, "job.failed")
	id := u.submitAndAwait(api, "FAILED", execute("FAIL_AFTER_RETRYABLE"), "Accept-Language", "de")
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
	require.Equal(t, "A dependency of the job did not respond in time.", got[0].value("detail"), "in English, whatever the submission accepts")
	require.Equal(t, []any{"en", "en"}, []any{got[0].value("language"), got[0].header.Get("Content-Language")})
	shown := u.call(api, "GET", "/v1/jobs/"+id+"/attempts/1", "", "Accept", "application/problem+json")
	require.Equal(t, []string{"de", "de"}, []string{shown.text("language"), shown.header.Get("Content-Language")})
	require.NotEqual(t, shown.text("title"), got[0].value("title"), "over HTTP it is in the language of the submission")
	s.checkInvariants()
}

// If the endpoint of a webhook fails for too long, the webhook is disabled. The client sees the reason, and can replay the missed events.
func TestDisabledWebhookAndReplay(t *testing.T) {
	s, api, u := newDelivering(t, env{"FORGERUN_WEBHOOK_DISABLE_AFTER": "1ms", "FORGERUN_WEBHOOK_MAX_RETRIES": "30",
		"FORGERUN_WEBHOOK_BACKOFF_MAX": "50ms"})
	failing, watcher := newReceiver(t, withStatus(http.StatusInternalServerError)), newReceiver(t, nil)
	began := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	hook := u.subscribe(api, failing.url, "job.succeeded")
	u.subscribe(api, watcher.url, "webhook.disabled")
	missed := []string{u.submit(api, execute("WEBHOOK_SUCCESS"))}
	path := "/v1/webhooks/" + hook.id
	event := watcher.await("webhook.disabled", func(d received) bool { return d.event() == "webhook.disabled" })
	require.Equal(t, hook.id, event.value("webhookId"))
	require.Equal(t, "FAILING", event.value("reason"))
	s.awaitDeliveries()
	a := u.call(api, "GET", path, "")
	require.Equal(t, false, a.value("enabled"), a.body)
	require.Equal(t, "FAILING", a.text("disabled_reason.code"), a.body)

	missed = append(missed, u.submitMany(api, 5, execute("WEBHOOK_SUCCESS"))...)
	s.await("SUCCEEDED", missed...)
	require.Equal(t, 1, s.count(`SELECT count(*) FROM deliveries WHERE webhook_id = $1`, hook.id), "a disabled webhook gets none")
	failing.respondWith(withStatus(http.StatusOK))
	a = u.expect(api, http.StatusOK, "PATCH", path, `{"enabled":true}`)
	a = u.expect(api, http.StatusAccepted, "POST", path+"/replay", `{"since":"`+began+`"}`)
	require.Equal(t, 6.0, a.value("queued"), a.body)
	require.Nil(t, a.value("next_cursor"), a.body)
	s.awaitDeliveries()
	for _, id := range missed {
		require.NotEmpty(t, failing.of(id))
	}
	a = u.call(api, "POST", path+"/replay", `{"since":"`+began+`"}`)
	require.Equal(t, 0.0, a.value("queued"), a.body)
	s.checkInvariants()
}

// Deliveries to a receiver that hangs or fails are retried with the same id. Deliveries without retries left are stored as FAILED, and can
// be sent again. No receiver delays the job.
func TestFailingReceivers(t *testing.T) {
	s, api, u := newDelivering(t, env{"FORGERUN_WEBHOOK_TIMEOUT": "1s"})
	hang, release := hold()
	defer release()
	late := newReceiver(t, func(d received, w http.ResponseWriter, request *http.Request) {
		if d.nth == 1 {
			hang(d, w, request)
		}
	})
	refusing, dead := newReceiver(t, failing(2)), newReceiver(t, failing(1000))
	hooks := []string{u.subscribe(api, late.url, "job.succeeded").id, u.subscribe(api, refusing.url, "job.succeeded").id,
		u.subscribe(api, dead.url, "job.succeeded").id}
	id := u.submitAndAwait(api, "SUCCEEDED", execute("WEBHOOK_RETRIES_EXHAUSTED"))
	s.awaitDeliveries()
	errors := func(hook string) string {
		return s.text(`SELECT string_agg(coalesce(a.error, 'none'), ' ' ORDER BY number) FROM delivery_attempts a
			JOIN deliveries d USING (delivery_id) WHERE webhook_id = $1`, hook)
	}
	require.Regexp(t, `^TIMEOUT( TIMEOUT)* none$`, errors(hooks[0]))
	require.Equal(t, "HTTP_5XX HTTP_5XX none", errors(hooks[1]))
	require.Equal(t, "HTTP_5XX HTTP_5XX HTTP_5XX HTTP_5XX", errors(hooks[2]))
	got := refusing.of(id)
	require.Len(t, got, 3)
	require.Equal(t, got[0].id(), got[2].id(), "the same id on each try")
	require.EqualValues(t, 0, u.call(api, "GET", "/v1/webhooks/"+hooks[1], "").value("consecutive_failures"))

	path := "/v1/webhooks/" + hooks[2]
	failed := u.deliveries(api, path, "?state=FAILED")
	require.Len(t, failed, 1)
	require.EqualValues(t, 4, failed[0]["attempts"])
	require.Equal(t, map[string]any{"code": "HTTP_5XX", "detail": "HTTP 503 from " + strings.TrimPrefix(dead.url, "http://")},
		failed[0]["last_error"])
	dead.respondWith(withStatus(http.StatusOK))
	u.expect(api, http.StatusAccepted, "POST", path+"/deliveries/"+failed[0]["delivery_id"].(string)+"/redeliver", "")
	s.awaitDeliveries()
	again := u.deliveries(api, path, "")
	require.Equal(t, []any{"DELIVERED", 5.0}, []any{again[0]["state"], again[0]["attempts"]})
	s.checkInvariants()
}

var challenged = env{"FORGERUN_WEBHOOK_CHALLENGE": "true", "FORGERUN_PUBLIC_URL": "http://forgerun.test"}

func (u *user) register(api *proc, url string, headers ...string) answer {
	return u.call(api, "POST", "/v1/webhooks", `{"url":"`+url+`","events":["job.succeeded"]}`, headers...)
}

func requireRefused(t *testing.T, a answer, pointer, why string) {
	t.Helper()
	require.NoError(t, a.err)
	require.Equal(t, http.StatusBadRequest, a.status, a.body)
	require.Equal(t, "RFA_JOB_VALIDATION_FAILED", a.text("code"), a.body)
	found := a.value("violations").([]any)
	require.Len(t, found, 1, a.body)
	require.Equal(t, pointer, found[0].(map[string]any)["pointer"], a.body)
	require.Contains(t, found[0].(map[string]any)["detail"], why)
}

// With FORGERUN_WEBHOOK_CHALLENGE, only receivers that have consented get events.
func TestWebhookChallenge(t *testing.T) {
	s, api, u := newDelivering(t, challenged)
	willing, other := newReceiver(t, nil), newReceiver(t, nil)

	elsewhere := httptest.NewServer(http.RedirectHandler(willing.url, http.StatusTemporaryRedirect))
	t.Cleanup(elsewhere.Close)
	requireRefused(t, u.register(api, elsewhere.URL), "/url", "with status 307")
	require.Empty(t, willing.challenges(), "no redirect is followed")
	require.Zero(t, s.count(`SELECT count(*) FROM webhooks`))
	requireRefused(t, u.trySubmit(api, execute("WEBHOOK_SUCCESS", `"callback":"`+willing.url+`/done"`)), "/callback", "Register a webhook")

	for range 2 {
		a := u.register(api, willing.url+"/in", "Idempotency-Key", "taken")
		require.Equal(t, http.StatusCreated, a.status, a.body)
		require.NotNil(t, a.value("proven_at"), a.body)
		if secret := a.value("secret"); secret != nil {
			s.secret(secret.(string))
		}
	}
	require.Equal(t, []string{"forgerun.test"}, willing.challenges(), "a repeated key sends no further challenge")
	id := u.submit(api, execute("WEBHOOK_SUCCESS", `"callback":"`+willing.url+`/done"`))
	batch := u.call(api, "POST", "/v1/jobs/batch", `{"jobs":[`+execute("WEBHOOK_SUCCESS", `"callback":"`+willing.url+`"`)+`,`+
		execute("WEBHOOK_SUCCESS", `"callback":"`+other.url+`"`)+`]}`)
	require.Equal(t, http.StatusAccepted, batch.status, batch.body)
	require.Contains(t, batch.body, `"/jobs/1/callback"`)
	unregistered := s.newUser(api).trySubmit(api, execute("WEBHOOK_SUCCESS", `"callback":"`+willing.url+`"`))
	requireRefused(t, unregistered, "/callback", "Register a webhook")
	s.await("SUCCEEDED", id)
	s.awaitDeliveries()
	require.Len(t, willing.of(id), len(life)+1, "all deliveries to the callback and one to the webhook")
	for _, d := range willing.all() {
		require.Equal(t, "forgerun.test", d.header.Get("WebHook-Request-Origin"))
	}
	require.Empty(t, other.all())
	s.checkInvariants()
}
