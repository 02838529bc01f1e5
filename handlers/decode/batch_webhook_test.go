package decode

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func items(more ...string) string {
	return `{"jobs":[` + strings.Join(append([]string{`{"type":"EXECUTE"}`}, more...), ",") + `]}`
}

func TestDecodeBatchRefusesAll(t *testing.T) {
	t.Parallel()
	const good = `{"type":"EXECUTE"}`
	for code, bodies := range map[job.Code]map[string]string{
		job.CodeMalformed: {
			` `: "", `[{"type":"EXECUTE"}]`: "", `{}`: "/jobs", `{"jobs":null}`: "/jobs", `{"jobs":{"0":{"type":"EXECUTE"}}}`: "/jobs",
			`{"jobs":[]}`: "/jobs", `{"x":1,"jobs":[]}`: "/x /jobs", `{"jobs":[{"type":"EXECUTE"}],"jobs":[]}`: "/jobs",
			`{"jobs":[{"type":"EXECUTE"}],"correlation_id":"x"}`: "/correlation_id", `{"jobs":[{"type":"EXECUTE"},`: "",
			`{"jobs":[{"type":"EXEC`: "", `{"jobs":[{"type":"EXECUTE"},]}`: "/jobs", items() + `{}`: "", items(`null`): "/jobs/1",
			items(`1`, `"x"`, `[]`, good, `[{"type":"EXECUTE"}]`, `true`):                        "/jobs/1 /jobs/2 /jobs/3 /jobs/5 /jobs/6",
			items(`{"type":"EXECUTE","type":"EXECUTE"}`):                                         "/jobs/1/type",
			items("{\"type\":\"\xff\"}"):                                                         "/jobs/1/type",
			`{"jobs":[{"type":"EXECUTE"}],"idempotency_key":1}`:                                  "/idempotency_key",
			items(`{"type":"EXECUTE","item_id":"a"}`, `{"item_id":"a"}`, `{"item_id":"\u0061"}`): "/jobs/2/item_id /jobs/3/item_id",
			items(`{"type":"EXECUTE","item_id":"0"}`):                                            "/jobs/1/item_id",
			`{"jobs":[{"type":"EXECUTE","item_id":"1"},{"type":"EXECUTE"}]}`:                     "/jobs/1",
			`{"jobs":` + many(1001, good) + `}`:                                                  "/jobs",
		},
		job.CodeValidationFailed: {`{"jobs":[{"type":"EXECUTE"}],"idempotency_key":""}`: "/idempotency_key"},
	} {
		for body, at := range bodies {
			_, err := Batch([]byte(body), "", limits)
			require.Equal(t, at, refusedAt(t, code, err, true, nil), "%.200q", body)
		}
	}
}

func TestDecodeBatchRefusesItems(t *testing.T) {
	t.Parallel()
	for malformed, bad := range map[bool]map[string]string{ // pointers are relative to the item
		true: {
			`{}`: "/type", execute(`"x":{"y":1}`): "/x", execute(`"idempotency_key":"k"`): "/idempotency_key",
			`{"type":1,"work_kind":2,"params":[],"auto_retry":"x","item_id":5}`: "/type /work_kind /params /auto_retry /item_id",
			execute(`"idempotency_key":{"a":1}`):                                "/idempotency_key", emit(`{}`): "/event/name",
			param(`"\u0000"`): "/params/a",
			`{"params":` + strings.Repeat(`{"a":`, 70) + `1` + strings.Repeat(`}`, 71): "/params" + strings.Repeat("/a", 63),
			execute(`"a\u0000":1`): "", `{"type":"NOPE","x":1,"callback":"ftp://a"}`: "/x /type /callback",
		},
		false: {
			execute(`"idempotency_key":null,"item_id":null`): "", execute(`"event":{"name":"a"}`): "",
			`{"type":"NOPE","work_kind":"NOPE","callback":"x","event":{"name":""},"correlation_id":"ä","item_id":"a b"}`: "/type /work_kind " +
				"/callback /event/name /correlation_id /item_id",
			execute(`"item_id":""`): "/item_id", execute(`"item_id":"` + long[:129] + `"`): "/item_id", param(`"` + long + `"`): "/params",
		},
	} {
		for item, at := range bad {
			r := read(t, Batch, items(item, execute(`"work_kind":"SUCCESS_FAST"`)), limits)
			require.Len(t, r.Items, 3)
			require.Empty(t, r.Items[0].Request.Violations, item)
			require.Empty(t, r.Items[2].Request.Violations, item)
			require.Equal(t, job.SuccessFast, r.Items[2].Request.WorkKind)
			got := r.Items[1]
			require.Equal(t, "1", got.ItemID)
			require.Equal(t, malformed, got.Request.Malformed, item)
			if malformed || at != "" {
				code := map[bool]job.Code{true: job.CodeMalformed, false: job.CodeValidationFailed}[malformed]
				require.Equal(t, at, refusedAt(t, code, nil, malformed, got.Request.Violations), item)
			} else {
				require.Empty(t, got.Request.Violations, item)
			}
		}
	}
}

// Promise: draft 7.1
func TestDecodeBatchItemIDs(t *testing.T) {
	t.Parallel()
	body := items(execute(`"item_id":"`+long[:128]+`"`), execute(`"item_id":"A.b-c_2"`), `{"type":"EXECUTE"}`)
	r := read(t, Batch, body, limits)
	for i, id := range []string{"0", long[:128], "A.b-c_2", "3"} {
		require.Equal(t, id, r.Items[i].ItemID)
	}
	r = read(t, Batch, `{"jobs":`+many(1000, `{"type":"EXECUTE"}`)+`}`, limits)
	require.Len(t, r.Items, job.MaxBatchItems)
	require.Equal(t, "999", r.Items[999].ItemID)
}

func hook(members string) string {
	return `{"url":"https://example.com","events":["*"]` + members + `}`
}

func subscribed(events string) string { return `{"url":"https://example.com","events":` + events + `}` }

// badWebhooks maps error codes to invalid bodies and the JSON pointers of their violations.
var badWebhooks = map[job.Code]map[string]string{
	job.CodeMalformed: {
		`{"events":["job.`: "", `{}`: "/url /events",
		`{"url":1,"events":"*","description":[],"content_mode":true,"idempotency_key":{}}`: "/url /events /description /content_mode " +
			"/idempotency_key",
		subscribed(`[1,null,"*",["*"],{"a":"*"},true]`): "/events/0 /events/1 /events/3 /events/4 /events/5",
		`{"url":"ftp://a","events":["x"],"z":1}`:        "/z /url /events/0",
	},
	job.CodeValidationFailed: {
		subscribed(many(21, `"job.failed"`)):                                           "/events",
		subscribed(`["","job","JOB.FAILED","job.progress","*"," *"]`):                  "/events/0 /events/1 /events/2 /events/3 /events/5",
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
			require.Equal(t, at, refusedAt(t, code, err, r.Malformed, r.Violations), "%.200q", body)
		}
	}
	r, err := Webhook([]byte(hook(`,"idempotency_key":"a"`)), "b")
	require.Equal(t, "/idempotency_key", refusedAt(t, job.CodeValidationFailed, err, r.Malformed, r.Violations))
}
