package handlers

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/job"
)

// hook writes a good request for a webhook with some more members.
func hook(members string) string {
	return `{"url":"https://example.com","events":["*"]` + members + `}`
}

// names writes n names of events.
func names(n int) string { return `"*"` + strings.Repeat(`,"job.failed"`, n-1) }

// badWebhooks are requests that must be refused: with violations at exactly the
// given pointers, in this order.
var badWebhooks = []struct {
	name, body string
	code       job.Code
	at         []string
}{
	{"blank", ` `, job.CodeMalformed, []string{""}},
	{"array", `[]`, job.CodeMalformed, []string{""}},
	{"null", `null`, job.CodeMalformed, []string{""}},
	{"half", `{"url":"https://example.com"`, job.CodeMalformed, []string{""}},
	{"half name of an event", `{"events":["job.`, job.CodeMalformed, []string{""}},
	{"half list", `{"events":["*"`, job.CodeMalformed, []string{""}},
	{"trailing comma in the list", `{"url":"https://example.com","events":["*",]}`, job.CodeMalformed, []string{"/events"}},
	{"something follows", hook("") + "{}", job.CodeMalformed, []string{""}},
	{"empty", `{}`, job.CodeMalformed, []string{"/url", "/events"}},
	{"nulls", `{"url":null,"events":null}`, job.CodeMalformed, []string{"/url", "/events"}},
	{"wrong types", `{"url":1,"events":"*","description":[],"content_mode":true,"idempotency_key":{}}`, job.CodeMalformed,
		[]string{"/url", "/events", "/description", "/content_mode", "/idempotency_key"}},
	{"wrong types in the list", `{"url":"https://example.com","events":[1,null,"*",["*"],{"a":"*"},true]}`, job.CodeMalformed,
		[]string{"/events/0", "/events/1", "/events/3", "/events/4", "/events/5"}},
	{"unknown members", hook(`,"secret":"whsec_x","enabled":true,"a/b~":1`), job.CodeMalformed, []string{"/secret", "/enabled", "/a~1b~0"}},
	{"duplicate name", hook(`,"url":"https://example.com"`), job.CodeMalformed, []string{"/url"}},
	{"NUL in the description", hook(`,"description":"a\u0000"`), job.CodeMalformed, []string{"/description"}},
	{"NUL in an event", `{"url":"https://example.com","events":["\u0000"]}`, job.CodeMalformed, []string{"/events/0"}},
	{"invalid UTF-8", hook(",\"description\":\"\xff\""), job.CodeMalformed, []string{"/description"}},
	{"deep list", `{"events":` + strings.Repeat("[", 500_000), job.CodeMalformed, []string{"/events" + strings.Repeat("/0", 63)}},
	{"form and values", `{"url":"ftp://a","events":["x"],"z":1}`, job.CodeMalformed, []string{"/z", "/url", "/events/0"}},

	{"no events", `{"url":"https://example.com","events":[]}`, job.CodeValidationFailed, []string{"/events"}},
	{"21 events", `{"url":"https://example.com","events":[` + names(21) + `]}`, job.CodeValidationFailed, []string{"/events"}},
	{"unknown events",
		`{"url":"https://example.com","events":["","job","job.","JOB.FAILED","job.progress","job.*.x","webhook.*","batch.*"," *"]}`,
		job.CodeValidationFailed,
		[]string{"/events/0", "/events/1", "/events/2", "/events/3", "/events/4", "/events/5", "/events/6", "/events/7", "/events/8"}},
	{"long description", hook(`,"description":"` + strings.Repeat("ä", 257) + `"`), job.CodeValidationFailed, []string{"/description"}},
	{"content mode", hook(`,"content_mode":"Binary"`), job.CodeValidationFailed, []string{"/content_mode"}},
	{"empty content mode", hook(`,"content_mode":""`), job.CodeValidationFailed, []string{"/content_mode"}},
	{"empty key", hook(`,"idempotency_key":""`), job.CodeValidationFailed, []string{"/idempotency_key"}},
	{"URLs", `{"url":"","events":["*"]}`, job.CodeValidationFailed, []string{"/url"}},
	{"URL with a user", `{"url":"https://u:p@example.com","events":["*"]}`, job.CodeValidationFailed, []string{"/url"}},
	{"long URL", `{"url":"https://example.com/` + strings.Repeat("x", 2029) + `","events":["*"]}`, job.CodeValidationFailed, []string{"/url"}},
	{"all values", `{"url":"x","events":["x","*"],"description":"` + strings.Repeat("x", 257) +
		`","content_mode":"x","idempotency_key":"ä"}`, job.CodeValidationFailed,
		[]string{"/url", "/events/0", "/description", "/content_mode", "/idempotency_key"}},
}

func pointers(violations []job.Violation) []string {
	var at []string
	for _, v := range violations {
		at = append(at, v.Pointer)
	}
	return at
}

func TestBadWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, test := range badWebhooks {
		p := w.send("POST", "/v1/webhooks", test.body).requireProblem(t, test.code)
		require.Equal(t, test.at, pointers(p.Violations), test.name)
		for _, v := range p.Violations {
			require.NotEmpty(t, v.Detail)
		}
	}
	p := w.send("POST", "/v1/webhooks", hook(`,"idempotency_key":"a"`), "Idempotency-Key", "b").requireProblem(t, job.CodeValidationFailed)
	require.Equal(t, []string{"/idempotency_key"}, pointers(p.Violations))
	w.send("POST", "/v1/webhooks", hook(""), "Idempotency-Key", "ä").requireProblem(t, job.CodeMalformed)
	w.send("POST", "/v1/webhooks", "").requireProblem(t, job.CodeMalformed)
}

func TestGoodWebhooks(t *testing.T) {
	t.Parallel()
	var quoted []string
	for _, name := range append([]string{"*", "job.*"}, job.SubscribableEvents...) {
		quoted = append(quoted, `"`+name+`"`)
	}
	for _, body := range []string{
		`{"url":"https://example.com","events":[` + strings.Join(quoted, ",") + `]}`,
		`{"url":"https://example.com","events":[` + names(20) + `]}`,
		hook(`,"description":"` + strings.Repeat("ä", 256) + `","content_mode":"binary"`),
		`{"url":"http://localhost:1/` + strings.Repeat("x", 2029) + `","events":["webhook.test"]}`,
		hook(`,"description":null,"content_mode":null,"idempotency_key":null`),
	} {
		r, err := decode.Webhook([]byte(body), "")
		require.NoError(t, err)
		require.Empty(t, r.Violations, body)
		require.NotEmpty(t, r.Events)
		require.NotEmpty(t, r.URL)
	}
}

func TestWebhookViolationsSayWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		hook(`,"colour":1`): "url, events, description, content_mode, idempotency_key",
		`{"url":"https://example.com","events":["job.progress"]}`: job.SubscribableNames() +
			". Progress, job.progress, is shown in event streams only.",
		`{"url":"https://example.com","events":[` + names(22) + `]}`: "1 to 20 names of events and has 22",
		hook(`,"content_mode":"x"`):                                  "binary or structured",
		hook(`,"description":"` + strings.Repeat("x", 300) + `"`):    "at most 256 characters and has 300",
		`{"url":"http://[::","events":["*"]}`:                        "such as https://",
	} {
		r, err := decode.Webhook([]byte(body), "")
		require.NoError(t, err)
		require.Len(t, r.Violations, 1, body)
		require.Contains(t, r.Violations[0].Detail, want)
	}
}

func TestWebhookComplaintsAreBounded(t *testing.T) {
	t.Parallel()
	r, err := decode.Webhook([]byte(`{"url":"https://example.com","events":[`+strings.Repeat(`"x",`, 200_000)+`"*"]}`), "k")
	require.NoError(t, err)
	require.Len(t, r.Violations, job.MaxViolations)
	require.LessOrEqual(t, len(r.Events), 20)
}

func TestBadWebhookPatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	tests := []struct {
		name, body string
		code       job.Code
		at         []string
	}{
		{"empty", `{}`, job.CodeMalformed, []string{""}},
		{"array", `[{"op":"replace","path":"/enabled","value":true}]`, job.CodeMalformed, []string{""}},
		{"null", `null`, job.CodeMalformed, []string{""}},
		{"half", `{"enabled":tr`, job.CodeMalformed, []string{""}},
		{"nulls", `{"url":null,"events":null,"description":null,"content_mode":null,"enabled":null}`, job.CodeMalformed,
			[]string{"/url", "/events", "/description", "/content_mode", "/enabled"}},
		{"wrong types", `{"url":1,"events":{},"description":1,"content_mode":[],"enabled":"true"}`, job.CodeMalformed,
			[]string{"/url", "/events", "/description", "/content_mode", "/enabled"}},
		{"unknown members", `{"secret":"x","idempotency_key":"k","webhook_id":"x","disabled_reason":null}`, job.CodeMalformed,
			[]string{"/secret", "/idempotency_key", "/webhook_id", "/disabled_reason"}},
		{"duplicate name", `{"enabled":true,"enabled":false}`, job.CodeMalformed, []string{"/enabled"}},
		{"no events", `{"events":[]}`, job.CodeValidationFailed, []string{"/events"}},
		{"values", `{"url":"x","events":["*","job.progress"],"description":"` + strings.Repeat("x", 257) + `","content_mode":""}`,
			job.CodeValidationFailed,
			[]string{"/url", "/events/1", "/description", "/content_mode"}},
		{"form and values", `{"url":"x","enabled":0}`, job.CodeMalformed, []string{"/enabled", "/url"}},
	}
	for _, test := range tests {
		for _, media := range []string{"application/json", mimeMergePatch} {
			p := w.send("PATCH", webhookSelf, test.body, "Content-Type", media).requireProblem(t, test.code)
			require.Equal(t, test.at, pointers(p.Violations), test.name)
		}
	}
}

// FuzzDecodeWebhook sees that nothing makes the decoders panic, that a refusal
// says why, and that what is accepted holds the rules.
func FuzzDecodeWebhook(f *testing.F) {
	for _, b := range badWebhooks {
		if len(b.body) < 10_000 {
			f.Add([]byte(b.body))
		}
	}
	for _, seed := range []string{
		hook(`,"description":"ä","content_mode":"structured","idempotency_key":"k"`), `{"enabled":true}`, `{"enabled":null}`,
		`{"since":"2030-01-31T12:00:00Z","cursor":"AAAA"}`,
	} {
		f.Add([]byte(seed))
	}
	requireRefusal := func(t *testing.T, err error) {
		var refused *job.Error
		require.ErrorAs(t, err, &refused)
		require.NotEmpty(t, refused.Violations)
		require.Equal(t, 400, refused.Code.Spec().Status)
	}
	requireEvents := func(t *testing.T, events []string) {
		require.NotEmpty(t, events)
		require.LessOrEqual(t, len(events), 20)
		for i, name := range events {
			require.True(t, job.Subscribable(name))
			require.Equal(t, i, slices.Index(events, name))
		}
	}
	requireURL := func(t *testing.T, url string) { // which is accepted again
		text, err := json.Marshal(url)
		require.NoError(t, err)
		p, err := decode.WebhookPatch([]byte(`{"url":` + string(text) + `}`))
		require.NoError(t, err)
		require.Empty(t, p.Violations)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, err := decode.Webhook(body, "key"); err != nil {
			requireRefusal(t, err)
		} else if len(r.Violations) == 0 {
			requireEvents(t, r.Events)
			requireURL(t, r.URL)
			require.True(t, r.ContentMode == "" || r.ContentMode.Valid())
			require.NotZero(t, r.Hash)
			again, err := decode.Webhook(reverseMembers(t, body), "key")
			require.NoError(t, err)
			require.Equal(t, r, again)
		}
		if p, err := decode.WebhookPatch(body); err != nil {
			requireRefusal(t, err)
		} else if len(p.Violations) == 0 {
			require.True(t, p.URL != nil || p.Events != nil || p.Description != nil || p.ContentMode != nil || p.Enabled != nil)
			require.True(t, p.ContentMode == nil || p.ContentMode.Valid())
			if p.URL != nil {
				requireURL(t, *p.URL)
			}
			if p.Events != nil {
				requireEvents(t, p.Events)
			}
		}
		if since, _, err := decode.Since(body); err != nil {
			requireRefusal(t, err)
		} else {
			require.Equal(t, time.UTC, since.Location())
		}
	})
}

func TestDecodersOfWebhooksCopy(t *testing.T) {
	t.Parallel()
	body := []byte(hook(`,"description":"abc","idempotency_key":"kkk"`))
	r, err := decode.Webhook(body, "")
	require.NoError(t, err)
	for i := range body {
		body[i] = 'X'
	}
	require.Equal(t, []string{"https://example.com", "*", "abc", "kkk"}, []string{r.URL, r.Events[0], r.Description, r.IdempotencyKey})
}
