package handlers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

const aHook = `{"url":"https://example.com/x","events":["*"]}`

func TestRegisterWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send("POST", "/v1/webhooks",
		`{"url":"https://example.com/x","events":["job.failed","*","job.failed"],"description":"ä\n","content_mode":"structured",`+
			`"idempotency_key":"k"}`).requireStatus(t, 201)
	require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	require.NotContains(t, w.log.String(), "whsec_")
	id, err := job.ParseID(a.field(t, "webhook_id"))
	require.NoError(t, err)
	require.Contains(t, w.log.String(), `"webhook_id":"`+id.String()+`"`)
	hook, err := w.Webhooks.Webhook(t.Context(), backend.ClientA, id)
	require.NoError(t, err)
	require.Equal(t, []any{"https://example.com/x", []string{"job.failed", "*"}, "ä\n", job.ContentStructured},
		[]any{hook.URL, hook.Events, hook.Description, hook.ContentMode})
	location := ""
	for i := range 2 {
		a = w.send("POST", "/v1/webhooks", aHook, "Idempotency-Key", `"again"`).requireStatus(t, 201)
		require.Equal(t, i == 1, a.Header.Get("Idempotency-Replayed") == "true")
		require.Equal(t, i == 0, strings.Contains(a.text, backend.Secret), "a secret is shown once")
		require.True(t, i == 0 || location == a.Header.Get("Location"))
		location = a.Header.Get("Location")
	}
}

func TestUpdateWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for body, want := range map[string]string{
		`{"url":"https://example.org"}`: `"url":"https://example.org"`, `{"events":["*"]}`: `"events":["*"]`,
		`{"description":""}`: `"description":""`, `{"content_mode":"structured"}`: `"content_mode":"structured"`,
		"{\n\"enabled\" : false , \"content_mode\":\"structured\",\"url\":\"https://example.org\"}": `"enabled":false`,
	} {
		for _, media := range []string{"application/json", "application/merge-patch+json"} {
			w.Seed()
			a := w.send("PATCH", webhookSelf, body, "Content-Type", media).requireStatus(t, 200)
			require.Contains(t, a.text, want)
			require.Contains(t, w.send("GET", webhookSelf, "").text, want)
		}
	}
}

func TestRedeliverAndReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(`UPDATE deliveries SET state = 'FAILED', settled_at = now(), next_attempt_at = NULL, last_error = 'TIMEOUT', created_at = now(),
		delivery_id = uuid7(now()) WHERE delivery_id::text LIKE '%d3'`)
	for _, path := range []string{webhookSelf + "/redeliver", webhookSelf + "/replay"} {
		a := w.send("POST", path, aMoment).requireStatus(t, 202)
		require.Contains(t, a.text, `"next_cursor":null`)
		w.send("POST", path, "").requireProblem(t, job.CodeMalformed)
	}
	require.Equal(t, 1, repotest.Count(t, w.URL(), `deliveries WHERE webhook_id IS NOT NULL AND seq = 4 AND state = 'PENDING'`))
}

func TestSigningKeys(t *testing.T) {
	t.Parallel()
	s := backend.New(t)
	for _, failure := range []error{nil, job.Errorf(job.CodeStorageUnavailable, "Storage is away."), errors.New("planted secret")} {
		w := newWorldOn(t, s, func(_ *Config, d *Deps) {
			d.Directory = func(context.Context) ([]byte, error) { return []byte(keyDirectory), failure }
		})
		a := w.send("GET", "/.well-known/http-message-signatures-directory", "", "Authorization", "-", "Accept", "text/plain")
		require.Equal(t, map[bool]string{true: "public, max-age=300", false: "no-store"}[failure == nil], a.Header.Get("Cache-Control"))
		require.Equal(t, failure == nil, a.text == keyDirectory)
		require.NotContains(t, a.text, "planted")
	}
}

func TestRegistrationChallengesTheReceiver(t *testing.T) {
	t.Parallel()
	r := &receiver{}
	w := newWorldOn(t, backend.New(t, r.asked))
	for i, headers := range [][]string{nil, {"Idempotency-Key", "k"}} {
		a := w.send("POST", "/v1/webhooks", aHook, headers...).requireStatus(t, 201)
		require.Contains(t, a.text, backend.Secret)
		require.Len(t, r.urls, i+1)
	}
	a := w.send("POST", "/v1/webhooks", aHook, "Idempotency-Key", "k").requireStatus(t, 201)
	require.Equal(t, "true", a.Header.Get("Idempotency-Replayed"))
	w.send("POST", "/v1/webhooks", `{"url":1,"events":["*"]}`).requireProblem(t, job.CodeMalformed)
	require.Len(t, r.urls, 2, "replays and invalid requests do not ask the receiver")

	r.says = func() string { return "The receiver said nothing." }
	for _, headers := range [][]string{nil, {"Idempotency-Key", "l"}} {
		a = w.send("POST", "/v1/webhooks", aHook, headers...)
		a.requireProblem(t, job.CodeValidationFailed)
		require.Contains(t, a.text, "The receiver said nothing.")
		require.Empty(t, a.Header.Get("Location"))
	}
	r.says = nil
	a = w.send("POST", "/v1/webhooks", aHook, "Idempotency-Key", "l")
	require.Equal(t, 201, a.StatusCode, "a refusal leaves the key free")
	require.Empty(t, a.Header.Get("Idempotency-Replayed"))

	before := len(r.urls)
	require.Equal(t, 200, w.send("PATCH", webhookSelf, `{"enabled":true}`).StatusCode)
	require.Len(t, r.urls, before)
	require.Equal(t, 200, w.send("PATCH", webhookSelf, `{"url":"https://example.com/y"}`).StatusCode)
	require.Equal(t, []string{"https://example.com/y"}, r.urls[before:])
}

// receiver records the URLs that the service has asked for consent.
type receiver struct {
	says func() string // returns the refusal, or "" to accept; nil: always accepts
	urls []string
}

func (r *receiver) asked(s *backend.Service) {
	s.Ask = func(_ context.Context, url string) string {
		if r.urls = append(r.urls, url); r.says == nil {
			return ""
		}
		return r.says()
	}
}

// While the service waits for a receiver, it holds no storage slot of the client. Receivers that hang do not block other changes.
func TestChallengeHoldsNoStorageSlot(t *testing.T) {
	t.Parallel()
	asked, answered := make(chan struct{}), make(chan struct{})
	r := &receiver{says: func() string {
		close(asked)
		<-answered
		return ""
	}}
	w := newWorldOn(t, backend.New(t, r.asked))
	before := free(w)
	done := w.inBackground("POST", "/v1/webhooks", aHook)
	within(t, asked)
	require.Equal(t, before, free(w), "the request holds no slot")
	close(answered)
	require.Equal(t, 201, within(t, done).StatusCode)
}

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

func TestBulkBegins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send("POST", "/v1/bulk", `{"action":"cancel","filter":{"state":"QUEUED","type":"EXECUTE","work_kind":"SUCCESS_FAST",
		"batch_id":"`+backend.Batch.String()+`","correlation_id":"run-7","failure_code":"RFA_EXEC_TIMEOUT",
		"created_after":"2030-01-31T12:00:00Z","created_before":"2030-01-31T13:00:00Z"},"rate":7}`).requireStatus(t, 202)
	require.Equal(t, "/v1/bulk/"+a.field(t, "bulk_id"), a.Header.Get("Location"))
	shown := w.send("GET", a.Header.Get("Location"), "").text
	require.Contains(t, shown, `"filter":{"state":"QUEUED","type":"EXECUTE","work_kind":"SUCCESS_FAST","batch_id":"`+backend.Batch.String()+
		`","correlation_id":"run-7","failure_code":"RFA_EXEC_TIMEOUT","created_after":"2030-01-31T12:00:00.000000Z",`+
		`"created_before":"2030-01-31T13:00:00.000000Z"}`)
	require.Contains(t, shown, `"rate":7`)

	a = w.send("POST", "/v1/bulk", `{"action":"retry","filter":{"all":true}}`, "Idempotency-Key", "once").requireStatus(t, 202)
	require.Contains(t, w.send("GET", a.Header.Get("Location"), "").text, fmt.Sprintf(`"rate":%d`, job.DefaultBulkRate))
	again := w.send("POST", "/v1/bulk", `{"filter":{"all":true}, "action":"retry"}`, "Idempotency-Key", "once")
	require.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
	require.Equal(t, a.text, again.text)
	require.Equal(t, a.Header.Get("Location"), again.Header.Get("Location"))
	w.send("POST", "/v1/bulk", `{"action":"cancel","filter":{"all":true}}`, "Idempotency-Key", "once").
		requireProblem(t, job.CodeIdempotencyConflict)

	w.Exec(`UPDATE jobs SET created_at = '2025-01-31 12:00Z'`) // bulk operations skip jobs created in the future
	a = w.send("POST", "/v1/bulk", `{"action":"delete","filter":{"state":"SUCCEEDED"},"dry_run":true}`, "Idempotency-Key", "dry")
	require.Equal(t, 200, a.StatusCode, a.text)
	require.Contains(t, a.text, `"count":1,"changes":1,"left":[],"more":false,"sample":[{"job_id":"`+backend.Job.String())
	require.Equal(t, 1, repotest.Count(t, w.URL(), "idempotency_keys"), "a dry run stores no key")
}

func TestScheduleIsCreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send("POST", "/v1/schedules", `{"name":"x","interval":"90s","jitter":"1s","start_at":"2030-02-01T00:00:00Z","overlap":"queue_one",
		"catch_up":"all","catch_up_max":1000,"paused":false,"job":{"type":"EMIT_EVENT","event":{"name":"tick","data":[1]},"params":{"a":1},
		"correlation_id":"c","auto_retry":true,"callback":"https://example.com/x"}}`, "Accept-Language", "de")
	require.Equal(t, 201, a.StatusCode, a.text)
	id := a.field(t, "schedule_id")
	require.Equal(t, "/v1/schedules/"+id, a.Header.Get("Location"))
	for _, part := range []string{`"interval":"1m30s"`, `"jitter":"1s"`, `"overlap":"queue_one"`, `"catch_up":"all"`, `"catch_up_max":1000`,
		`"event":{"name":"tick","data":[1]}`, `"correlation_id":"c"`, `"auto_retry":true`, `"warnings":[{"pointer":"/job/params/a"`,
		`"next_runs":["2030-02-01T00:00:00.000000Z","2030-02-01T00:01:30.000000Z"`} {
		require.Contains(t, a.text, part)
	}
	require.Contains(t, w.log.String(), `"schedule_id":"`+id+`"`)
	a = w.send("POST", "/v1/schedules", `{"cron":"* * * * *","job":{"type":"EXECUTE"}}`)
	for _, part := range []string{`"overlap":"allow"`, `"catch_up":"none"`, fmt.Sprintf(`"catch_up_max":%d`, job.DefaultCatchUp)} {
		require.Contains(t, a.text, part)
	}
}

func TestScheduleIsChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Contains(t, w.send("POST", scheduleSelf+"/pause", "").text, `"paused":true`)
	require.Contains(t, w.send("POST", scheduleSelf+"/resume", "").text, `"paused":false`)
	a := w.send("PATCH", scheduleSelf, `{"cron":null,"time_zone":null,"interval":"1h","end_at":"2031-01-01T00:00:00Z"}`,
		"Content-Type", "application/merge-patch+json").requireStatus(t, 200)
	require.Contains(t, a.text, `"cron":null,"time_zone":null,"interval":"1h0m0s"`)
	require.Contains(t, w.send("PATCH", scheduleSelf, `{"name":null}`).text, `"interval":"1h0m0s"`)
}

// Refusals by rules that a schema cannot express also have a pointer.
func TestFinerRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	count := func() []int {
		return []int{repotest.Count(t, w.URL(), "testbed_faults"), repotest.Count(t, w.URL(), "bulk_operations"),
			repotest.Count(t, w.URL(), "schedules")}
	}
	before := count()
	const schedules, every = "/v1/schedules", `{"interval":"1m","job":{"type":"EXECUTE"},`
	for _, test := range []struct{ method, path, body, pointer string }{
		{"POST", "/v1/bulk", `{"action":"retry","filter":{}}`, "/filter"},
		{"POST", "/v1/bulk", `{"action":"retry","filter":{"all":false}}`, "/filter"},
		{"POST", "/v1/bulk", `{"action":"retry","filter":{"all":true,"state":"FAILED"}}`, "/filter/all"},
		{"POST", schedules, every + `"jitter":"2h"}`, "/jitter"}, {"POST", schedules, `{"cron":"* * * *","job":{"type":"EXECUTE"}}`, "/cron"},
		{"POST", schedules, `{"cron":"* * * * *","time_zone":"X","job":{"type":"EXECUTE"}}`, "/time_zone"},
		{"POST", schedules, `{"interval":"999ms","job":{"type":"EXECUTE"}}`, "/interval"},
		{"POST", schedules, `{"interval":"1m","job":{"type":"EXECUTE","work_kind":"X"}}`, "/job/work_kind"},
		{"POST", schedules, `{"interval":"1m","job":{"type":"EXECUTE","callback":"x"}}`, "/job/callback"},
		{"POST", schedules, `{"interval":"1m","job":{"type":"EXECUTE","idempotency_key":"x"}}`, "/job/idempotency_key"},
		{"PATCH", scheduleSelf, `{}`, ""},
		{"PATCH", scheduleSelf, `{"paused":true}`, "/paused"},
		{"POST", webhookSelf + "/replay", `{"since":"2030-01-31T13:00:00+01:00"}`, "/since"},
		{"POST", webhookSelf + "/redeliver", `{"since":"2030-02-30T00:00:00Z"}`, "/since"},
		{"POST", webhookSelf + "/redeliver", `{"since":"2030-01-31T12:00:00Z","x":1}`, "/x"},
		{"PUT", faultsPath, `[{}]`, "/0/effect"}, {"PUT", faultsPath, `[{"effect":{"status":503,"code":"RFA_INTERNAL"}}]`, "/0/effect/status"},
		{"PUT", faultsPath, `[{"effect":{"code":"RFA_NONE"}}]`, "/0/effect/code"},
		{"PUT", faultsPath, `[{"effect":{"delay":"61s"}}]`, "/0/effect/delay"},
		{"PUT", faultsPath, `[{"effect":{"close":"before","status":503}}]`, "/0/effect/close"},
		{"PUT", faultsPath, `[{"effect":{"to_other_host":true}}]`, "/0/effect/to_other_host"},
		{"PUT", faultsPath, `[{"effect":{"html":true,"code":"RFA_INTERNAL"}}]`, "/0/effect/html"},
		{"PUT", faultsPath, `[{"effect":{"moved":308,"status":503}}]`, "/0/effect/moved"},
		{"PUT", faultsPath, `[{"effect":{"content_type":"a\nb"}}]`, "/0/effect/content_type"},
		{"PUT", faultsPath, `[{"match":{"nth":1,"every":2},"effect":{"status":503}}]`, "/0/match"},
		{"PUT", faultsPath, `[{"effect":{"status":503}},{"match":{"operation":"submit"},"effect":{"status":503}}]`, "/1/match/operation"},
		{"PUT", faultsPath, `[{"match":{"from":"2030-01-02T00:00:00Z","until":"2030-01-01T00:00:00Z"},"effect":{"status":503}}]`,
			"/0/match/until"},
		{"PUT", faultsPath, `[{"match":{"operation":"delivery"},"effect":{"status":503}}]`, "/0/effect"},
		{"POST", clockPath, `{}`, ""}, {"POST", clockPath, `{"advance":"1h","rate":2}`, ""},
	} {
		p := w.send(test.method, test.path, test.body).problem(t)
		require.Equal(t, 400, p.Status, test)
		require.Equal(t, test.pointer, p.Violations[0].Pointer, test)
	}
	require.Equal(t, before, count(), "no rows were changed")
}
