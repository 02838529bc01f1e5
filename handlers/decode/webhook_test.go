package decode

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// hook writes a good request for a webhook with some more members.
func hook(members string) string {
	return `{"url":"https://example.com","events":["*"]` + members + `}`
}

// subscribed writes one for events.
func subscribed(events string) string { return `{"url":"https://example.com","events":` + events + `}` }

// badWebhooks are requests that must be refused, by code: with violations at exactly
// the given pointers, in this order.
var badWebhooks = map[job.Code]map[string]string{
	job.CodeMalformed: {
		` `: "", `[]`: "", `null`: "", `{"url":"https://example.com"`: "", `{"events":["job.`: "", `{"events":["*"`: "",
		subscribed(`["*",]`): "/events", hook("") + "{}": "", `{}`: "/url /events", `{"url":null,"events":null}`: "/url /events",
		`{"url":1,"events":"*","description":[],"content_mode":true,"idempotency_key":{}}`: "/url /events /description /content_mode " +
			"/idempotency_key",
		subscribed(`[1,null,"*",["*"],{"a":"*"},true]`):     "/events/0 /events/1 /events/3 /events/4 /events/5",
		hook(`,"secret":"whsec_x","enabled":true,"a/b~":1`): "/secret /enabled /a~1b~0", hook(`,"url":"https://example.com"`): "/url",
		hook(`,"description":"a\u0000"`): "/description", subscribed(`["\u0000"]`): "/events/0",
		hook(",\"description\":\"\xff\""):           "/description",
		`{"events":` + strings.Repeat("[", 500_000): "/events" + strings.Repeat("/0", 63),
		`{"url":"ftp://a","events":["x"],"z":1}`:    "/z /url /events/0",
	},
	job.CodeValidationFailed: {
		subscribed(`[]`): "/events", subscribed(many(21, `"job.failed"`)): "/events",
		subscribed(`["","job","JOB.FAILED","job.progress","job.*.x","webhook.*"," *"]`): "/events/0 /events/1 /events/2 /events/3 /events/4 " +
			"/events/5 /events/6",
		hook(`,"description":"` + strings.Repeat("ä", 257) + `"`): "/description", hook(`,"content_mode":"Binary"`): "/content_mode",
		hook(`,"content_mode":""`): "/content_mode", hook(`,"idempotency_key":""`): "/idempotency_key", `{"url":"","events":["*"]}`: "/url",
		`{"url":"https://u:p@example.com","events":["*"]}`:                             "/url",
		`{"url":"https://example.com/` + long + long + long[:29] + `","events":["*"]}`: "/url",
		`{"url":"x","events":["x","*"],"description":"` + long[:257] + `","content_mode":"x","idempotency_key":"ä"}`: "/url /events/0 " +
			"/description /content_mode /idempotency_key",
	},
}

func TestBadWebhooks(t *testing.T) {
	t.Parallel()
	for code, bodies := range badWebhooks {
		for body, at := range bodies {
			r, err := Webhook([]byte(body), "")
			require.Equal(t, at, told(t, code, err, r.Malformed, r.Violations), "%.200q", body)
		}
	}
	r, err := Webhook([]byte(hook(`,"idempotency_key":"a"`)), "b")
	require.Equal(t, "/idempotency_key", told(t, job.CodeValidationFailed, err, r.Malformed, r.Violations))
}

func TestGoodWebhooks(t *testing.T) {
	t.Parallel()
	var quoted []string
	for _, name := range append([]string{"*", "job.*"}, job.SubscribableEvents...) {
		quoted = append(quoted, `"`+name+`"`)
	}
	for _, body := range []string{
		subscribed(`[` + strings.Join(quoted, ",") + `]`), subscribed(many(20, `"*"`)),
		hook(`,"description":"` + strings.Repeat("ä", 256) + `","content_mode":"binary"`),
		`{"url":"http://localhost:1/` + long + long + long[:29] + `","events":["webhook.test"]}`,
		hook(`,"description":null,"content_mode":null,"idempotency_key":null`),
	} {
		r, err := Webhook([]byte(body), "")
		require.NoError(t, err)
		require.Empty(t, r.Violations, body)
		require.NotEmpty(t, r.Events)
		require.NotEmpty(t, r.URL)
	}
}

func TestBadWebhookPatches(t *testing.T) {
	t.Parallel()
	for code, bodies := range map[job.Code]map[string]string{
		job.CodeMalformed: {
			`{}`: "", `[{"op":"replace","path":"/enabled","value":true}]`: "", `null`: "", `{"enabled":tr`: "",
			`{"url":null,"events":null,"description":null,"content_mode":null,"enabled":null}`: "/url /events /description /content_mode /enabled",
			`{"url":1,"events":{},"description":1,"content_mode":[],"enabled":"true"}`:         "/url /events /description /content_mode /enabled",
			`{"secret":"x","idempotency_key":"k","webhook_id":"x","disabled_reason":null}`: "/secret /idempotency_key /webhook_id " +
				"/disabled_reason",
			`{"enabled":true,"enabled":false}`: "/enabled", `{"url":"x","enabled":0}`: "/enabled /url",
		},
		job.CodeValidationFailed: {
			`{"events":[]}`: "/events",
			`{"url":"x","events":["*","job.progress"],"description":"` + long[:257] + `","content_mode":""}`: "/url /events/1 /description " +
				"/content_mode",
		},
	} {
		for body, at := range bodies {
			p, err := WebhookPatch([]byte(body))
			require.Equal(t, at, told(t, code, err, p.Malformed, p.Violations), "%.200q", body)
		}
	}
}
