package handlers

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
)

func TestRegistrationAsksTheReceiver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.webhooks.asks = true
	for i, headers := range [][]string{nil, {"Idempotency-Key", "k"}} {
		a := w.send("POST", "/v1/webhooks", aHook, headers...)
		require.Equal(t, 201, a.StatusCode, a.text)
		require.Contains(t, a.text, testSecret)
		require.Len(t, w.webhooks.proved, i+1)
		require.True(t, w.webhooks.request.Proven)
	}
	a := w.send("POST", "/v1/webhooks", aHook, "Idempotency-Key", "k")
	require.Equal(t, 201, a.StatusCode, a.text)
	require.Equal(t, "true", a.Header.Get("Idempotency-Replayed"))
	require.Len(t, w.webhooks.proved, 2, "for a known key the receiver is not asked")
	a = w.send("POST", "/v1/webhooks", `{"url":1,"events":["*"]}`)
	a.requireProblem(t, job.CodeMalformed)
	require.Len(t, w.webhooks.proved, 2, "nor for what is refused anyhow")

	w.webhooks.says = func() error {
		return job.Invalid(job.Violation{Pointer: "/url", Detail: "The receiver said nothing."})
	}
	for _, headers := range [][]string{nil, {"Idempotency-Key", "l"}} {
		a = w.send("POST", "/v1/webhooks", aHook, headers...)
		a.requireProblem(t, job.CodeValidationFailed)
		require.Contains(t, a.text, "The receiver said nothing.")
		require.Empty(t, a.Header.Get("Location"))
	}
	w.webhooks.says = nil
	a = w.send("POST", "/v1/webhooks", aHook, "Idempotency-Key", "l")
	require.Equal(t, 201, a.StatusCode, "a refusal leaves the key free")
	require.Empty(t, a.Header.Get("Idempotency-Replayed"))
}

func TestChangeOfTheURLAsksTheReceiver(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	w.webhooks.asks = true
	require.Equal(t, 200, w.send("PATCH", webhookSelf, `{"enabled":true}`).StatusCode)
	require.Empty(t, w.webhooks.proved)
	a := w.send("PATCH", webhookSelf, `{"url":"https://example.com/y"}`)
	require.Equal(t, 200, a.StatusCode, a.text)
	require.Equal(t, []string{"https://example.com/y"}, w.webhooks.proved)
	require.True(t, w.webhooks.patch.Proven)
}

// While a receiver is asked, the client's place at the storage is free: receivers
// that hang keep nobody's changes waiting.
func TestWhileAReceiverIsAskedNoPlaceIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.webhooks.asks = true
	before := free(w)
	asked, answered := make(chan struct{}), make(chan struct{})
	w.webhooks.says = func() error {
		close(asked)
		<-answered
		return nil
	}
	done := w.inBackground("POST", "/v1/webhooks", aHook)
	within(t, asked)
	require.Equal(t, before, free(w), "as many as when there is no request")
	close(answered)
	require.Equal(t, 201, within(t, done).StatusCode)
}

// free counts the slots for changes that are free, for a client each.
func free(w *world) (n int) {
	slots := w.server.Slots.Writes
	for slots.TryAcquire(job.ID{byte(n)}) {
		n++
	}
	for i := range n {
		slots.Release(job.ID{byte(i)})
	}
	return n
}

const (
	ofOneWebhook = webhookSelf + "/deliveries"
	ofOneJob     = jobSelf + "/deliveries"
)

// owners are those whose deliveries are at a path.
var owners = map[string]job.DeliveryOwner{ofOneWebhook: {WebhookID: webhookID}, ofOneJob: {JobID: jobID}}

func TestListDeliveries(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	callback := job.Delivery{ // given up
		ID: deliveryID, ClientID: clientA, URL: "https://example.com/done", JobID: jobID, Seq: 3, EventID: eventID,
		EventName: job.EventAssigned, CreatedAt: now, State: job.DeliveryFailed, Attempts: 9, Tries: 9, SettledAt: at(60),
		LastError: job.SendTimeout, LastReason: "timeout after 10 s from 203.0.113.5:443",
	}
	for path, owner := range owners {
		w.webhooks.page = job.DeliveryPage{Deliveries: []job.Delivery{*aDelivery(), callback}, Next: nextID}
		a := w.send("GET", path, "")
		next := a.cursor(t)
		require.Equal(t, job.DeliveryQuery{Owner: owner, Limit: 50}, w.webhooks.query)
		self := path + "/" + deliveryID.String()
		of := `{"delivery_id": "01890000-0000-7000-8000-0000000000d1", "job_id": "01890000-0000-7000-8000-000000000001",
			"event_id": "01890000-0000-7000-8000-0000000000e1", "created_at": "2030-01-31T12:00:00.123456Z", "last_status": null,
			"links": {"self": "` + self + `", "redeliver": "` + self + `/redeliver"}, `
		require.JSONEq(t, `{"data": [
			`+of+`"webhook_id": "01890000-0000-7000-8000-0000000000c1", "url": null, "seq": 5, "event_name": "job.failed", "state": "PENDING",
				"attempts": 0, "next_attempt_at": "2030-01-31T12:00:02.123456Z", "settled_at": null, "last_error": null},
			`+of+`"webhook_id": null, "url": "https://example.com/done", "seq": 3, "event_name": "job.assigned", "state": "FAILED",
				"attempts": 9, "next_attempt_at": null, "settled_at": "2030-01-31T12:01:00.123456Z",
				"last_error": {"code": "TIMEOUT", "detail": "timeout after 10 s from 203.0.113.5:443"}}
		], "page": {"limit": 50, "next_cursor": "`+next+`"}}`, a.text)
		w.send("GET", path+"?limit=7&cursor="+next, "").page(t)
		require.Equal(t, job.DeliveryQuery{Owner: owner, Limit: 7, After: nextID}, w.webhooks.query)
		w.webhooks.page = job.DeliveryPage{}
		require.JSONEq(t, `{"data": [], "page": {"limit": 50, "next_cursor": null}}`, w.send("GET", path, "").text)
	}
	w.webhooks.err = &job.Error{Code: job.CodeJobGone, Detail: "Gone.", ExpiredAt: &now}
	w.send("GET", ofOneJob, "").requireProblem(t, job.CodeJobGone)
}

func TestGetDelivery(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	w.webhooks.delivery = aDelivery()
	w.webhooks.delivery.Attempts, w.webhooks.delivery.LastStatus, w.webhooks.delivery.LastError = 2, 503, job.SendServerError
	w.webhooks.attempts = []job.DeliveryAttempt{
		{Number: 1, StartedAt: now, Duration: 10 * time.Second, Error: job.SendTimeout},
		{Number: 2, StartedAt: *at(5), Duration: 1999 * time.Microsecond, Status: 503, Error: job.SendServerError,
			Header: map[string][]string{"Content-Type": {"text/html"}, "Set-Cookie": {"a=1", "b=2"}}, Body: []byte("<script>ä</script>")},
	}
	for path, owner := range owners {
		a := w.send("GET", path+"/"+deliveryID.String(), "")
		require.Equal(t, 200, a.StatusCode, a.text)
		require.Equal(t, owner, w.webhooks.owner)
		require.Equal(t, deliveryID, w.webhooks.of)
		require.Equal(t, "application/json", a.Header.Get("Content-Type"), "whatever the receiver sent")
		require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
		var shown struct {
			LastStatus int             `json:"last_status"`
			Log        json.RawMessage `json:"attempts_log"`
		}
		a.json(t, &shown)
		require.Equal(t, 503, shown.LastStatus)
		require.JSONEq(t, `[
			{"number": 1, "started_at": "2030-01-31T12:00:00.123456Z", "duration_ms": 10000, "status": null, "response": null,
				"error": {"code": "TIMEOUT", "detail": "The receiver did not answer completely within the time limit."}},
			{"number": 2, "started_at": "2030-01-31T12:00:05.123456Z", "duration_ms": 1, "status": 503,
				"error": {"code": "HTTP_5XX", "detail": "The receiver answered with a 5xx status."},
				"response": {"headers": {"Content-Type": ["text/html"], "Set-Cookie": ["a=1", "b=2"]}, "body": "<script>ä</script>",
					"truncated": false}}
		]`, string(shown.Log))
	}
	for _, id := range []string{webhookID.String(), "x", "%00", strings.ToUpper(deliveryID.String()) + "0"} {
		w.send("GET", ofOneWebhook+"/"+id, "").requireProblem(t, job.CodeRequestNotFound)
		w.send("POST", ofOneJob+"/"+id+"/redeliver", "").requireProblem(t, job.CodeRequestNotFound)
	}
	require.Equal(t, httpkit.UnknownID, w.webhooks.of)
}

// TestReceivedBodies: what is not text is shown in base64, and what was cut off
// within a character is still text.
func TestReceivedBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	for truncated, bodies := range map[string]map[string]string{ // members of the answer
		"false": {
			"": `"body": ""`, "a\r\n\tä😀\u2028\x7f\x1b": `"body": "a\r\n\tä😀\u2028\u007f\u001b"`,
			"a\x00b": `"body": null, "body_base64": "YQBi"`, "\xff\xfe": `"body": null, "body_base64": "//4="`,
			"a\xf0\x9f\x98": `"body": null, "body_base64": "YfCfmA=="`,
		},
		"true": {
			"abc": `"body": "abc"`, "a\xf0\x9f\x98": `"body": "a"`, "a\xc3": `"body": "a"`, "aä": `"body": "aä"`, "\xe2\x82": `"body": ""`,
			"\xffab": `"body": null, "body_base64": "/2Fi"`, "a\x80\x80\x80\x80": `"body": null, "body_base64": "YYCAgIA="`,
		},
	} {
		for body, want := range bodies {
			w.webhooks.attempts = []job.DeliveryAttempt{{
				Number: 1, StartedAt: now, Status: 200, Body: []byte(body), Truncated: truncated == "true"}}
			var shown struct {
				Log []struct{ Response json.RawMessage } `json:"attempts_log"`
			}
			w.send("GET", ofOneWebhook+"/"+deliveryID.String(), "").json(t, &shown)
			require.JSONEq(t, `{"headers": {}, "truncated": `+truncated+`, `+want+`}`, string(shown.Log[0].Response), "%q", body)
		}
	}
}

func TestRedeliver(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	for path, owner := range owners {
		self := path + "/" + deliveryID.String()
		a := w.send("POST", self+"/redeliver", "{}")
		require.Equal(t, 202, a.StatusCode)
		require.Equal(t, owner, w.webhooks.owner)
		require.Equal(t, self, a.Header.Get("Location"))
		require.Contains(t, a.text, `"state":"PENDING"`)
		require.NotContains(t, a.text, "attempts_log")
		w.send("POST", self+"/redeliver", `{"since":"2030-01-31T12:00:00Z"}`).requireProblem(t, job.CodeMalformed)
	}
	w.webhooks.err = job.Errorf(job.CodeConflict, "The webhook is disabled.")
	w.send("POST", ofOneJob+"/"+deliveryID.String()+"/redeliver", "").requireProblem(t, job.CodeConflict)
}
