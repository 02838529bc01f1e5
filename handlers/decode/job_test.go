package decode

import (
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

var limits = Limits{MaxPayload: 1000}

func execute(members string) string { return `{"type":"EXECUTE",` + members + `}` }

func param(value string) string { return execute(`"params":{"a":` + value + `}`) }

func emit(event string) string { return `{"type":"EMIT_EVENT","event":` + event + `}` }

func retry(policy string) string { return execute(`"retry":{` + policy + `}`) }

func backoff(strategy string) string { return retry(`"backoff":{"strategy":` + strategy + `}`) }

func many(n int, of string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(of+",", n), ",") + "]"
}

var long = strings.Repeat("x", 1000)

// badBodies are invalid submissions by error code, each with the pointers of its violations in order.
var badBodies = map[job.Code]map[string]string{
	job.CodeMalformed: {
		// Not JSON.
		` `: "", `hello`: "", `{"type":"EXECUTE"`: "", `{"type":"EXEC`: "", `{"ty`: "", `{,"type":"EXECUTE"}`: "", `{"type":"EXECUTE",}`: "",
		`{"type" "EXECUTE"}`: "/type", `{type:"EXECUTE"}`: "", `{"type":"EXECUTE"/* x */}`: "", "\ufeff{\"type\":\"EXECUTE\"}": "",
		`{"type":"EXECUTE"}{"type":"EXECUTE"}`: "", `{"type":"EXECUTE"} x`: "", "{\"type\":\"EXECUTE\"}\x00": "", `[{"type":"EXECUTE"}]`: "",
		`"EXECUTE"`: "", `1`: "", `null`: "", `{"type":EXECUTE}`: "/type", "{\"type\":\"EXE\nCUTE\"}": "/type", `{"type":"\x45XECUTE"}`: "/type",
		"{\"type\":\"EXECUTE\xff\"}": "/type", "\xff\xfe{\x00}\x00": "",
		param(`NaN`): "/params/a", param(`0x10`): "/params", param(`01`): "/params", param(`+1`): "/params/a", param(`1.`): "/params/a",
		param("\"\xc3\x28\""): "/params/a", param(`"\ud800"`): "/params/a", param(`[1`): "/params/a",
		// Ambiguous JSON.
		`{"type":"EXECUTE","typ\u0065":"EXECUTE"}`: "/type", param(`{"b":1,"b":2}`): "/params/a/b",
		emit(`{"name":"a","name":"b"}`): "/event/name",
		// NUL, depth, numbers.
		`{"type":"\u0000"}`: "/type", execute(`"idempotency_key":"a\u0000"`): "/idempotency_key", param(`["x","\\\u0000"]`): "/params/a/1",
		execute(`"params":{"\u0000":1}`): "/params", emit(`{"name":"a","data":"\u0000"}`): "/event/data",
		param(strings.Repeat("[", 63) + strings.Repeat("]", 63)):                             "/params/a" + strings.Repeat("/0", 62),
		execute(`"params":` + strings.Repeat(`{"a":`, 400) + `1` + strings.Repeat(`}`, 400)): "/params" + strings.Repeat("/a", 63),
		param(strings.Repeat("[", 500_000)):                                                  "/params/a" + strings.Repeat("/0", 62),
		`{"x":` + strings.Repeat("[", 500_000):                                               "/x" + strings.Repeat("/0", 63),
		strings.Repeat("[", 500_000):                                                         strings.Repeat("/0", 64),
		param(strings.Repeat("9", 65)):                                                       "/params/a", param(`1e309`): "/params/a",
		param(`[0,1E-325]`):             "/params/a/1",
		param(`1e99999999999999999999`): "/params/a", param(`1234567890e300`): "/params/a",
		// Wrong structure. TestRequestsAreAsDocumented in package handlers covers each member.
		`{}`: "/type", `{"Type":"EXECUTE"}`: "/Type /type", execute(`"a/b~":1`): "/a~1b~0", execute(`"":1`): "/",
		execute(`"` + long + `":1`): "", emit(`{"name":null}`): "/event/name", emit(`{"name":"a","x":1}`): "/event/x",
		`{"x":1,"work_kind":1,"auto_retry":0,"params":[],"event":{"y":1},"callback":"ftp://a","type":"NOPE"}`: "/x /work_kind " +
			"/auto_retry /params /event/y /event/name /callback /type",
	},
	job.CodeValidationFailed: {
		retry(`"max_attempts":1.5`): "/retry/max_attempts", retry(`"codes":["RFA_JOB_NOT_FOUND"]`): "/retry/codes/0",
		retry(`"backoff":{}`): "/retry/backoff", backoff(`"EXPONENTIAL","base":"1s"`): "/retry/backoff",
		backoff(`"CONSTANT","delay":"1s","max":"2s"`): "/retry/backoff", backoff(`"LIST","delays":[]`): "/retry/backoff/delays",
		backoff(`"CONSTANT","delay":"25h"`): "/retry/backoff/delay", backoff(`"EXPONENTIAL","base":"2s","max":"1s"`): "/retry/backoff",
		`{"type":"execute"}`: "/type", `{"type":"DEFERRED","execution_at":"2030-02-30T12:00:00Z"}`: "/execution_at",
		param(`"` + long + `"`): "/params", emit(`{"name":"a","data":"` + long + `"}`): "/event/data",
		execute(`"idempotency_key":"a\r\nb"`): "/idempotency_key", execute(`"correlation_id":"a\r\nX-Evil: 1"`): "/correlation_id",
		execute(`"correlation_id":"<script>"`): "/correlation_id", emit(`{"name":"a b"}`): "/event/name",
		`{"type":"A","work_kind":"B","callback":"C","idempotency_key":""}`: "/type /work_kind /callback /idempotency_key",
	},
}

func read[T any](t *testing.T, decode func(body []byte, key string, limits Limits) (T, error), body string, limits Limits) T {
	t.Helper()
	v, err := decode([]byte(body), "", limits)
	require.NoError(t, err, "%.300s", body)
	return v
}

func refusedAt(t *testing.T, code job.Code, err error, malformed bool, violations []job.Violation) string {
	t.Helper()
	refusal := job.Request{Malformed: malformed}.Refusal(violations)
	if err != nil {
		require.ErrorAs(t, err, &refusal)
	}
	require.Equal(t, code, refusal.Code, refusal.Violations)
	at := make([]string, len(refusal.Violations))
	for i, v := range refusal.Violations {
		at[i] = v.Pointer
		require.NotEmpty(t, v.Detail)
		require.LessOrEqual(t, len(v.Detail), 700)
	}
	return strings.Join(at, " ")
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for code, bodies := range badBodies {
		for body, at := range bodies {
			r, err := Job([]byte(body), "", limits)
			require.Equal(t, at, refusedAt(t, code, err, r.Malformed, r.Violations), "%.200q", body)
		}
	}
}

func TestDecodeAccepts(t *testing.T) {
	t.Parallel()
	deepest := `{"a":` + strings.Repeat("[", 62) + strings.Repeat("]", 62) + `}`
	numbers := `{"a":[1.7976931348623157e+308,5E-324,` + strings.Repeat("9", 64) + `]}`
	when := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	for body, want := range map[string]job.Request{
		"{\r\n\t\"t\\u0079pe\" : \"EXEC\\u0055TE\" }": {Type: job.Execute},
		`{"type":"EXECUTE","work_kind":null,"execution_at":null,"callback":null,"params":null,"auto_retry":null,"event":null,` +
			`"idempotency_key":null,"correlation_id":null}`: {Type: job.Execute},
		`{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2030-01-31T12:00:00Z",` +
			`"callback":"https://example.com/x?y=1","params": {"a" : [1.50, "\\u0000"]} ,"auto_retry":true,"correlation_id":"a.B-c_1"}`: {
			Type: job.Deferred, WorkKind: job.SuccessFast, ExecutionAt: &when, Callback: "https://example.com/x?y=1",
			Params: json.RawMessage(`{"a" : [1.50, "\\u0000"]}`), AutoRetry: true, CorrelationID: "a.B-c_1"},
		retry(`"max_attempts":5,"backoff":{"delays":["1.5s","1m"],"strategy":"LIST"},"codes":["RFA_EXEC_TIMEOUT"]`): {
			Type: job.Execute, AutoRetry: true, Retry: &job.RetryPolicy{MaxAttempts: 5, Strategy: job.Listed,
				Delays: []time.Duration{1500 * time.Millisecond, time.Minute}, Codes: []job.Code{job.CodeTimeout}}},
		execute(`"auto_retry":false,"retry":{"backoff":{"strategy":"EXPONENTIAL","base":"1s","max":"1s"}}`): {
			Type: job.Execute, Retry: &job.RetryPolicy{Strategy: job.Exponential, Delays: []time.Duration{time.Second, time.Second}}},
		execute(`"auto_retry":null,"retry":{"backoff":{"strategy":"CONSTANT","delay":"0s"}}`): {
			Type: job.Execute, AutoRetry: true, Retry: &job.RetryPolicy{Strategy: job.Constant, Delays: []time.Duration{0}}},
		emit(`{"name":"order.paid","data": -0.5e-3 }`): {
			Type: job.EmitEvent, Emit: &job.Emission{Name: "order.paid", Data: json.RawMessage(`-0.5e-3`)}},
		emit(`{"name":"a","data":null}`): {Type: job.EmitEvent, Emit: &job.Emission{Name: "a"}},
		// The use case, not the decoder, checks combinations of members.
		execute(`"event":{"name":"a"}`): {Type: job.Execute, Emit: &job.Emission{Name: "a"}},
		execute(`"params":` + deepest):  {Type: job.Execute, Params: json.RawMessage(deepest)},
		execute(`"params":` + numbers):  {Type: job.Execute, Params: json.RawMessage(numbers)},
		param(`"\ud83d\ude00😀"`):        {Type: job.Execute, Params: json.RawMessage(`{"a":"\ud83d\ude00😀"}`)},
	} {
		got := read(t, Job, body, limits)
		require.Equal(t, want.Params != nil, len(got.Warnings) > 0, body)
		got.Warnings = nil
		require.Empty(t, cmp.Diff(want, got), body)
	}
}

func TestDecodersKeepNothingOfPreviousBody(t *testing.T) {
	t.Parallel()
	body := []byte(execute(`"callback":"http://example.com","params":{"a":1},"idempotency_key":"k","correlation_id":"c",` +
		`"event":{"name":"n","data":[2]},"work_kind":"SUCCESS_FAST","auto_retry":true,"no":1`))
	first, err := Job(body, "", limits)
	require.NoError(t, err)
	for range 10 {
		next := read(t, Job, `{"type":"EXECUTE"}`, limits)
		require.Empty(t, next.Violations)
		next.Violations = nil
		require.Equal(t, job.Request{Type: job.Execute}, next)
		_, err = Job([]byte(`{"type":`), "", limits)
		require.Error(t, err)
	}
	clear(body) // as if the next request reused the buffer
	require.Equal(t, []string{"http://example.com", `{"a":1}`, "k", "c", "n", "[2]", "/no"}, []string{first.Callback,
		string(first.Params), first.IdempotencyKey, first.CorrelationID, first.Emit.Name, string(first.Emit.Data),
		first.Violations[0].Pointer})
	body = []byte(`{"url":"https://example.com","events":["*"],"description":"abc","idempotency_key":"kkk"}`)
	hook, err := Webhook(body, "")
	require.NoError(t, err)
	clear(body)
	require.Equal(t, []string{"https://example.com", "*", "abc", "kkk"},
		[]string{hook.URL, hook.Events[0], hook.Description, hook.IdempotencyKey})
}

func hashOf(t *testing.T, body, key string) [32]byte {
	t.Helper()
	if strings.Contains(body, `"url"`) {
		r, err := Webhook([]byte(body), key)
		require.NoError(t, err)
		require.Empty(t, r.Violations)
		return r.Hash
	}
	if strings.Contains(body, `"jobs"`) {
		r, err := Batch([]byte(body), key, limits)
		require.NoError(t, err)
		return r.Hash
	}
	r, err := Job([]byte(body), key, limits)
	require.NoError(t, err)
	require.Empty(t, r.Violations)
	return r.Hash
}

// Bodies have the same hash if they differ only in the idempotency key, member order, white space or escapes. The hash must stay the same
// across versions.
// Promise: patterns Idempotency
func TestHashIsCanonical(t *testing.T) {
	t.Parallel()
	const of = `"params":{"a":1,"b":[1.0,{"x":1,"y":2}]}`
	for base, test := range map[string]struct{ same, other []string }{
		execute(of + `,"idempotency_key":"k"`): {
			[]string{execute(of), `{"idempotency_key":"k","params":{"b":[1.0,{"y":2,"x":1}],"a":1},"type":"EXECUTE"}`,
				" {\n\"idempotency\\u005fkey\": \"k\" , \"par\\u0061ms\" : { \"\\u0061\" : 1, \"b\" " +
					":[1.0,{\"x\":1,\"y\":2}]},\"type\":\"\\u0045XECUTE\"} "},
			[]string{`{"type":"EXECUTE"}`, execute(`"params":{"a":1,"b":[1,{"x":1,"y":2}]}`),
				execute(`"params":{"a":1,"b":[1.0,{"x":1,"y":3}]}`), execute(of + `,"auto_retry":false`)},
		},
		param("12345678901234567890"): {nil, []string{param("12345678901234567891")}}, // numbers are not rounded
		`{"type":"EXEC\u0055TE","correlation_id":"a-b","params":{"z":1.50,"a":[{"y":"\u00e4\/","b":1E5},null,-0],"t":"a{b[c"}}`: {},
		`{"jobs":[{"type":"EXECUTE","item_id":"a"},{"x":1}],"idempotency_key":"k"}`: {
			[]string{` { "jobs" : [ {"item_id":"\u0061", "type":"EXECUTE"},{"x":1} ] } `},
			[]string{`{"jobs":[{"type":"EXECUTE","item_id":"b"},{"x":1}]}`, `{"jobs":[{"x":1},{"type":"EXECUTE","item_id":"a"}]}`},
		},
		`{"url":"https://example.com","events":["*","job.failed"],"idempotency_key":"k"}`: {
			[]string{` { "events" : ["\u002a", "job.failed" ] , "url":"https://example.com" } `},
			[]string{`{"url":"https://example.com","events":["job.failed","*"]}`,
				`{"url":"https://example.com","events":["*","job.failed"],"description":""}`},
		},
	} {
		var members map[string]jsontext.Value
		require.NoError(t, json.Unmarshal([]byte(base), &members))
		delete(members, "idempotency_key")
		text, err := json.Marshal(members)
		require.NoError(t, err)
		whole := jsontext.Value(text)
		require.NoError(t, whole.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)))
		hash := sha256.Sum256(whole)
		for _, same := range append(test.same, base) {
			require.Equal(t, hash, hashOf(t, same, "k"), same)
		}
		for _, other := range test.other {
			require.NotEqual(t, hash, hashOf(t, other, "k"), other)
			require.Zero(t, hashOf(t, other, ""), "no key, no hash")
		}
	}
}
