package decode

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// items writes a body with one item and some more.
func items(more ...string) string {
	return `{"jobs":[` + strings.Join(append([]string{`{"type":"EXECUTE"}`}, more...), ",") + `]}`
}

// TestDecodeBatchRefusesAll has bodies of which nothing is accepted.
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
			items(`{"params":` + strings.Repeat(`{"a":`, 70) + `1` + strings.Repeat(`}`, 71)):    "/jobs/1/params" + strings.Repeat("/a", 61),
			items("{\"type\":\"\xff\"}"):                                                         "/jobs/1/type",
			`{"jobs":[{"type":"EXECUTE"}],"idempotency_key":1}`:                                  "/idempotency_key",
			items(`{"type":"EXECUTE","item_id":"a"}`, `{"item_id":"a"}`, `{"item_id":"\u0061"}`): "/jobs/2/item_id /jobs/3/item_id",
			items(`{"type":"EXECUTE","item_id":"0"}`):                                            "/jobs/1/item_id",
			`{"jobs":[{"type":"EXECUTE","item_id":"1"},{"type":"EXECUTE"}]}`:                     "/jobs/1",
			`{"jobs":` + many(1001, good) + `}`:                                                  "/jobs",
			`{"jobs":` + many(1001, good) + `}x`:                                                 "/jobs",
		},
		job.CodeValidationFailed: {`{"jobs":[{"type":"EXECUTE"}],"idempotency_key":""}`: "/idempotency_key"},
	} {
		for body, at := range bodies {
			_, err := Batch([]byte(body), "", limits)
			require.Equal(t, at, told(t, code, err, true, nil), "%.200q", body)
		}
	}
}

// TestDecodeBatchRefusesItems has items that are refused alone.
func TestDecodeBatchRefusesItems(t *testing.T) {
	t.Parallel()
	for malformed, bad := range map[bool]map[string]string{ // pointers from the item
		true: {
			`{}`: "/type", execute(`"x":{"y":1}`): "/x", execute(`"idempotency_key":"k"`): "/idempotency_key",
			`{"type":1,"work_kind":2,"params":[],"auto_retry":"x","item_id":5}`: "/type /work_kind /params /auto_retry /item_id",
			execute(`"idempotency_key":{"a":1}`):                                "/idempotency_key", emit(`{}`): "/event/name",
			param(`"\u0000"`):      "/params/a",
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
			r, err := Batch([]byte(items(item, execute(`"work_kind":"SUCCESS_FAST"`))), "", limits)
			require.NoError(t, err, item)
			require.Len(t, r.Items, 3)
			require.Empty(t, r.Items[0].Request.Violations, item)
			require.Empty(t, r.Items[2].Request.Violations, item)
			require.Equal(t, job.SuccessFast, r.Items[2].Request.WorkKind)
			got := r.Items[1]
			require.Equal(t, "1", got.ItemID)
			require.Equal(t, malformed, got.Request.Malformed, item)
			if malformed || at != "" {
				code := map[bool]job.Code{true: job.CodeMalformed, false: job.CodeValidationFailed}[malformed]
				require.Equal(t, at, told(t, code, nil, malformed, got.Request.Violations), item)
			} else {
				require.Empty(t, got.Request.Violations, item)
			}
		}
	}
}

func TestDecodeBatchItemIDs(t *testing.T) {
	t.Parallel()
	body := items(execute(`"item_id":"`+long[:128]+`"`), execute(`"item_id":"A.b-c_2"`), `{"type":"EXECUTE"}`)
	r, err := Batch([]byte(body), "", limits)
	require.NoError(t, err)
	for i, id := range []string{"0", long[:128], "A.b-c_2", "3"} {
		require.Equal(t, id, r.Items[i].ItemID)
	}
	r, err = Batch([]byte(`{"jobs":`+many(1000, `{"type":"EXECUTE"}`)+`}`), "", limits)
	require.NoError(t, err)
	require.Len(t, r.Items, job.MaxBatchItems)
	require.Equal(t, "999", r.Items[999].ItemID)
}
