package handlers

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/job"
)

const (
	ofOneWebhook = webhookSelf + "/deliveries"
	ofOneJob     = "/v1/jobs/01890000-0000-7000-8000-000000000001/deliveries"
)

// aCallback is a delivery to the callback of a job, given up.
func aCallback() *job.Delivery {
	return &job.Delivery{
		ID: deliveryID, ClientID: clientA, URL: "https://example.com/done", JobID: jobID, Seq: 3, EventID: eventID,
		EventName: job.EventAssigned, CreatedAt: now, State: job.DeliveryFailed, Attempts: 9, Tries: 9, SettledAt: at(60),
		LastError: job.SendTimeout,
	}
}

func TestListDeliveries(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	w.webhooks.page = job.DeliveryPage{Deliveries: []job.Delivery{*aDelivery(), *aCallback()}, Next: nextID}
	for path, owner := range map[string]job.DeliveryOwner{ofOneWebhook: {WebhookID: webhookID}, ofOneJob: {JobID: jobID}} {
		a := w.send("GET", path, "")
		p := a.page(t)
		require.Equal(t, job.DeliveryQuery{Owner: owner, Limit: 50}, w.webhooks.query)
		self := path + "/" + deliveryID.String()
		require.JSONEq(t, `{"data": [
			{"delivery_id": "01890000-0000-7000-8000-0000000000d1", "webhook_id": "01890000-0000-7000-8000-0000000000c1", "url": null,
				"job_id": "01890000-0000-7000-8000-000000000001", "seq": 5, "event_id": "01890000-0000-7000-8000-0000000000e1",
					"event_name": "job.failed",
				"state": "PENDING", "attempts": 0, "next_attempt_at": "2030-01-31T12:00:02.123456Z", "created_at": "2030-01-31T12:00:00.123456Z",
				"settled_at": null, "last_status": null, "last_error": null, "links": {"self": "`+self+`", "redeliver": "`+self+`/redeliver"}},
			{"delivery_id": "01890000-0000-7000-8000-0000000000d1", "webhook_id": null, "url": "https://example.com/done",
				"job_id": "01890000-0000-7000-8000-000000000001", "seq": 3, "event_id": "01890000-0000-7000-8000-0000000000e1",
					"event_name": "job.assigned",
				"state": "FAILED", "attempts": 9, "next_attempt_at": null, "created_at": "2030-01-31T12:00:00.123456Z",
				"settled_at": "2030-01-31T12:01:00.123456Z", "last_status": null,
				"last_error": {"code": "TIMEOUT", "detail": "The receiver did not answer completely within the time limit."},
				"links": {"self": "`+self+`", "redeliver": "`+self+`/redeliver"}}
		], "page": {"limit": 50, "next_cursor": "`+*p.Page.NextCursor+`"}}`, a.text)

		w.send("GET", path+"?limit=7&cursor="+*p.Page.NextCursor, "").page(t)
		require.Equal(t, job.DeliveryQuery{Owner: owner, Limit: 7, After: nextID}, w.webhooks.query)

		after, before := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 2, 0, 0, 0, 1000, time.UTC)
		w.send("GET",
			path+
				"?state=DELIVERED&event_name=batch.completed&created_after=2030-01-01T00:00:00Z"+
				"&created_before=2030-01-02T00:00:00.0000001Z&limit=100", "").page(t)
		require.Equal(t, job.DeliveryQuery{
			Owner: owner, Limit: 100, State: job.DeliveryDelivered, EventName: job.EventBatchCompleted, CreatedAfter: &after, CreatedBefore: &before,
		}, w.webhooks.query)
	}
	w.webhooks.page = job.DeliveryPage{}
	require.JSONEq(t, `{"data": [], "page": {"limit": 50, "next_cursor": null}}`, w.send("GET", ofOneJob, "").text)
	w.webhooks.find, w.jobs.job = nil, nil
	w.send("GET", ofOneWebhook, "").requireProblem(t, job.CodeWebhookNotFound)
	w.send("GET", ofOneJob, "").requireProblem(t, job.CodeJobNotFound)
	w.webhooks.err = &job.Error{Code: job.CodeJobGone, Detail: "Gone.", ExpiredAt: &now}
	w.send("GET", ofOneJob, "").requireProblem(t, job.CodeJobGone)
}

func TestBadDeliveryQueries(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	bad := map[string][]string{
		"limit": {"", "0", "101", "x"}, "cursor": {"", "x", "!", strings.Repeat("A", 5000)},
		"state":         {"", "pending", "QUEUED", "PENDING,FAILED", "PENDING%00"},
		"event_name":    {"", "*", "job.*", "job.progress", "JOB.FAILED", "nope"},
		"created_after": {"", "now", "2030-01-01"}, "created_before": {"", "2030-01-01T00:00:00%2B01:00"},
	}
	for _, path := range []string{ofOneWebhook, ofOneJob} {
		all := url.Values{"type": {"EXECUTE"}}
		for _, p := range deliveryQuery {
			all.Set(p.Name, "!")
			require.NotEmpty(t, bad[p.Name])
			for _, value := range bad[p.Name] {
				refused := w.send("GET", path+"?"+p.Name+"="+value, "").requireProblem(t, job.CodeMalformed)
				if p.Name != "cursor" {
					requireBadValue(t, p, refused, value)
				}
			}
		}
		refused := w.send("GET", path+"?"+all.Encode(), "").requireProblem(t, job.CodeMalformed)
		require.Len(t, refused.Violations, len(all), "all are told at once")
	}
	refused := w.send("GET", "/v1/jobs?state=PENDING", "").requireProblem(t, job.CodeMalformed)
	require.Contains(t, refused.Violations[0].Detail, "CREATED")
}

func TestDeliveryCursorsAreOfTheirList(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	w.webhooks.page = job.DeliveryPage{Deliveries: []job.Delivery{*aDelivery()}, Next: nextID}
	w.webhooks.find = func(_, _ job.ID) (*job.Webhook, error) { return aWebhook(), nil }
	all := map[string]string{}
	for _, path := range []string{
		ofOneWebhook + "?", ofOneWebhook + "?state=FAILED&", ofOneWebhook + "?event_name=job.failed&",
		ofOneWebhook + "?created_after=2030-01-01T00:00:00Z&",
		webhookPath(batchID) + "/deliveries?", ofOneJob + "?", ofOneJob + "?state=FAILED&", jobPath(webhookID) + "/deliveries?",
	} {
		all[path] = *w.send("GET", path+"limit=1", "").page(t).Page.NextCursor
	}
	twoPages(w)
	all["/v1/jobs?"] = *w.send("GET", "/v1/jobs", "").page(t).Page.NextCursor
	for path := range all {
		for other, cursor := range all {
			a := w.send("GET", path+"limit=3&cursor="+cursor, "")
			if path == other {
				require.Equal(t, 200, a.StatusCode)
				continue
			}
			require.Equal(t, query.ErrBadCursor.Detail, a.requireProblem(t, job.CodeMalformed).Detail, "%s with a cursor of %s", path, other)
		}
		w.send("GET", path+"cursor="+all[path], "", "Authorization", "Bearer "+otherKey).requireProblem(t, job.CodeMalformed)
	}
	cursor := all[ofOneWebhook+"?"]
	for i := range cursor {
		changed := []byte(cursor)
		changed[i] = map[bool]byte{true: 'B', false: 'A'}[cursor[i] == 'A']
		w.send("GET", ofOneWebhook+"?cursor="+string(changed), "").requireProblem(t, job.CodeMalformed)
		w.send("GET", ofOneWebhook+"?cursor="+cursor[:i], "").requireProblem(t, job.CodeMalformed)
	}
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
	for path, owner := range map[string]job.DeliveryOwner{ofOneWebhook: {WebhookID: webhookID}, ofOneJob: {JobID: jobID}} {
		a := w.send("GET", path+"/"+deliveryID.String(), "")
		require.Equal(t, 200, a.StatusCode, a.text)
		require.Equal(t, owner, w.webhooks.owner)
		require.Equal(t, deliveryID, w.webhooks.asked)
		require.Equal(t, "application/json", a.Header.Get("Content-Type"), "whatever the receiver sent")
		require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
		var shown map[string]any
		require.NoError(t, json.Unmarshal([]byte(a.text), &shown))
		require.EqualValues(t, 503, shown["last_status"])
		log, err := json.Marshal(shown["attempts_log"])
		require.NoError(t, err)
		require.JSONEq(t, `[
			{"number": 1, "started_at": "2030-01-31T12:00:00.123456Z", "duration_ms": 10000, "status": null, "response": null,
				"error": {"code": "TIMEOUT", "detail": "The receiver did not answer completely within the time limit."}},
			{"number": 2, "started_at": "2030-01-31T12:00:05.123456Z", "duration_ms": 1, "status": 503,
				"error": {"code": "HTTP_5XX", "detail": "The receiver answered with a 5xx status."},
				"response": {"headers": {"Content-Type": ["text/html"], "Set-Cookie": ["a=1", "b=2"]}, "body": "<script>ä</script>",
					"truncated": false}}
		]`, string(log))
	}
	for _, id := range []string{webhookID.String(), "x", "%00", strings.ToUpper(deliveryID.String()) + "0"} {
		w.send("GET", ofOneWebhook+"/"+id, "").requireProblem(t, job.CodeRequestNotFound)
		w.send("POST", ofOneJob+"/"+id+"/redeliver", "").requireProblem(t, job.CodeRequestNotFound)
	}
	require.Equal(t, nobody, w.webhooks.asked)
	w.webhooks.find = nil
	w.send("GET", ofOneWebhook+"/"+deliveryID.String(), "").requireProblem(t, job.CodeWebhookNotFound)
}

// TestReceivedBodies: what is not text is shown in base64, and what was cut off
// within a character is still text.
func TestReceivedBodies(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body      string
		truncated bool
		want      string // members of the answer
	}{
		"none":               {"", false, `"body": ""`},
		"text":               {"a\r\n\tä😀\u2028\x7f\x1b", false, `"body": "a\r\n\tä😀\u2028\u007f\u001b"`},
		"NUL":                {"a\x00b", false, `"body": null, "body_base64": "YQBi"`},
		"not UTF-8":          {"\xff\xfe", false, `"body": null, "body_base64": "//4="`},
		"not UTF-8, cut":     {"\xffab", true, `"body": null, "body_base64": "/2Fi"`},
		"half a character":   {"a\xf0\x9f\x98", false, `"body": null, "body_base64": "YfCfmA=="`},
		"cut":                {"abc", true, `"body": "abc"`},
		"cut in a character": {"a\xf0\x9f\x98", true, `"body": "a"`},
		"cut at its start":   {"a\xc3", true, `"body": "a"`},
		"cut after it":       {"aä", true, `"body": "aä"`},
		"strays at the cut":  {"a\x80\x80\x80\x80", true, `"body": null, "body_base64": "YYCAgIA="`},
		"only a half":        {"\xe2\x82", true, `"body": ""`},
	}
	for name, test := range tests {
		w := newWorld(t).full()
		w.webhooks.attempts = []job.DeliveryAttempt{{Number: 1, StartedAt: now, Status: 200, Body: []byte(test.body), Truncated: test.truncated}}
		var shown struct {
			Log []struct{ Response json.RawMessage } `json:"attempts_log"`
		}
		require.NoError(t, json.Unmarshal([]byte(w.send("GET", ofOneWebhook+"/"+deliveryID.String(), "").text), &shown))
		truncated, err := json.Marshal(test.truncated)
		require.NoError(t, err)
		require.JSONEq(t, `{"headers": {}, "truncated": `+string(truncated)+`, `+test.want+`}`, string(shown.Log[0].Response), name)
	}
}

func TestRedeliver(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	for path, owner := range map[string]job.DeliveryOwner{ofOneWebhook: {WebhookID: webhookID}, ofOneJob: {JobID: jobID}} {
		self := path + "/" + deliveryID.String()
		for _, body := range []string{"", "{}"} {
			a := w.send("POST", self+"/redeliver", body)
			require.Equal(t, 202, a.StatusCode)
			require.Equal(t, owner, w.webhooks.owner)
			require.Equal(t, self, a.Header.Get("Location"))
			require.Contains(t, a.text, `"state":"PENDING"`)
			require.NotContains(t, a.text, "attempts_log")
		}
		w.send("POST", self+"/redeliver", `{"since":"2030-01-31T12:00:00Z"}`).requireProblem(t, job.CodeMalformed)
		w.webhooks.err = job.Errorf(job.CodeConflict, "The webhook is disabled.")
		w.send("POST", self+"/redeliver", "").requireProblem(t, job.CodeConflict)
		w.webhooks.err = nil
	}
}

// TestEventsOfWebhooks are in lists and streams of the client's events, and of
// no job.
func TestEventsOfWebhooks(t *testing.T) {
	t.Parallel()
	data := json.RawMessage(`{"webhookId":"01890000-0000-7000-8000-0000000000c1","reason":"GONE",` +
		`"text":"The receiver answered 410 Gone.","disabledAt":"2030-01-31T12:00:00.123456Z"}`)
	disabled := job.Occurrence{
		Event:    job.Event{ID: eventID, Name: job.EventWebhookDisabled, At: now, Data: data},
		Position: job.Position{Tx: 5, ID: eventID}, Webhook: webhookID,
	}
	const want = `{"event_id": "01890000-0000-7000-8000-0000000000e1", "seq": null, "job_id": null,
		"webhook_id": "01890000-0000-7000-8000-0000000000c1",
		"event_name": "webhook.disabled", "prev_state": null, "next_state": null, "attempt": null,
			"timestamp": "2030-01-31T12:00:00.123456Z", "data": `
	w := newWorld(t, func(_ *Config, d *Deps) { d.Events = feedOf{noEvents{&fakeJobs{}}, disabled} })
	a := w.send(http.MethodGet, "/v1/events", "")
	text, err := json.Marshal(a.page(t).Data[0])
	require.NoError(t, err)
	require.JSONEq(t, want+string(data)+"}", string(text))

	frame := w.server.frameData(&disabled)
	require.Equal(t, "webhook-disabled", stream.EventName(disabled.Name))
	text, err = json.Marshal(frame)
	require.NoError(t, err)
	require.JSONEq(t, want+string(data)+"}", string(text))
	require.NoError(t, compileAt(t, docs.AsyncAPI, "/components/messages/webhook-disabled/payload").Validate(plainOf(t, frame)))
	require.Equal(t, "webhook-test", stream.EventName(job.EventWebhookTest))
}

// feedOf has one event of a client.
type feedOf struct {
	noEvents
	one job.Occurrence
}

func (f feedOf) ClientEvents(_ context.Context, _ job.ID, after job.Position, _ int) (job.Feed, error) {
	if after == f.one.Position {
		return job.Feed{}, nil
	}
	return job.Feed{Events: []job.Occurrence{f.one}}, nil
}
