package handlers

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/job"
)

const testPayload = 1000 // bytes

// badBodies are requests that must be refused: with the given code, and with
// violations at exactly the given pointers, in this order.
var badBodies = []struct {
	name, body string
	code       job.Code
	at         []string
}{
	// Not JSON at all.
	{"blank", ` `, job.CodeMalformed, []string{""}},
	{"word", `hello`, job.CodeMalformed, []string{""}},
	{"half", `{"type":"EXECUTE"`, job.CodeMalformed, []string{""}},
	{"half string", `{"type":"EXEC`, job.CodeMalformed, []string{""}},
	{"half name", `{"ty`, job.CodeMalformed, []string{""}},
	{"open brace", `{`, job.CodeMalformed, []string{""}},
	{"trailing comma", `{"type":"EXECUTE",}`, job.CodeMalformed, []string{""}},
	{"leading comma", `{,"type":"EXECUTE"}`, job.CodeMalformed, []string{""}},
	{"no colon", `{"type" "EXECUTE"}`, job.CodeMalformed, []string{"/type"}},
	{"single quotes", `{'type':'EXECUTE'}`, job.CodeMalformed, []string{""}},
	{"bare name", `{type:"EXECUTE"}`, job.CodeMalformed, []string{""}},
	{"comment", `{"type":"EXECUTE"/* x */}`, job.CodeMalformed, []string{""}},
	{"byte order mark", "\ufeff{\"type\":\"EXECUTE\"}", job.CodeMalformed, []string{""}},
	{"second object", `{"type":"EXECUTE"}{"type":"EXECUTE"}`, job.CodeMalformed, []string{""}},
	{"trailing brace", `{"type":"EXECUTE"}}`, job.CodeMalformed, []string{""}},
	{"trailing word", `{"type":"EXECUTE"} x`, job.CodeMalformed, []string{""}},
	{"trailing NUL", "{\"type\":\"EXECUTE\"}\x00", job.CodeMalformed, []string{""}},
	{"array", `[{"type":"EXECUTE"}]`, job.CodeMalformed, []string{""}},
	{"string", `"EXECUTE"`, job.CodeMalformed, []string{""}},
	{"number", `1`, job.CodeMalformed, []string{""}},
	{"null", `null`, job.CodeMalformed, []string{""}},
	{"true", `true`, job.CodeMalformed, []string{""}},
	{"unquoted value", `{"type":EXECUTE}`, job.CodeMalformed, []string{"/type"}},
	{"NaN", `{"type":"EXECUTE","params":{"a":NaN}}`, job.CodeMalformed, []string{"/params/a"}},
	{"Infinity", `{"type":"EXECUTE","params":{"a":-Infinity}}`, job.CodeMalformed, []string{"/params/a"}},
	{"hex number", `{"type":"EXECUTE","params":{"a":0x10}}`, job.CodeMalformed, []string{"/params"}},
	{"leading zero", `{"type":"EXECUTE","params":{"a":01}}`, job.CodeMalformed, []string{"/params"}},
	{"plus", `{"type":"EXECUTE","params":{"a":+1}}`, job.CodeMalformed, []string{"/params/a"}},
	{"bare point", `{"type":"EXECUTE","params":{"a":1.}}`, job.CodeMalformed, []string{"/params/a"}},
	{"raw newline", "{\"type\":\"EXE\nCUTE\"}", job.CodeMalformed, []string{"/type"}},
	{"raw NUL", "{\"type\":\"EXE\x00CUTE\"}", job.CodeMalformed, []string{"/type"}},
	{"bad escape", `{"type":"\x45XECUTE"}`, job.CodeMalformed, []string{"/type"}},
	{"invalid UTF-8", "{\"type\":\"EXECUTE\xff\"}", job.CodeMalformed, []string{"/type"}},
	{"invalid UTF-8 in params", "{\"type\":\"EXECUTE\",\"params\":{\"a\":\"\xc3\x28\"}}", job.CodeMalformed, []string{"/params/a"}},
	{"lone surrogate", `{"type":"EXECUTE","params":{"a":"\ud800"}}`, job.CodeMalformed, []string{"/params/a"}},
	{"UTF-16", "\xff\xfe{\x00}\x00", job.CodeMalformed, []string{""}},
	{"mismatched brackets", `{"type":"EXECUTE","params":{"a":[1}}`, job.CodeMalformed, []string{"/params/a"}},

	// JSON, but more than one reading.
	{"duplicate name", `{"type":"EXECUTE","type":"DEFERRED"}`, job.CodeMalformed, []string{"/type"}},
	{"duplicate name, escaped", `{"type":"EXECUTE","typ\u0065":"EXECUTE"}`, job.CodeMalformed, []string{"/type"}},
	{"duplicate in params", `{"type":"EXECUTE","params":{"x":{"a":1,"a":2}}}`, job.CodeMalformed, []string{"/params/x/a"}},
	{"duplicate in event", `{"type":"EMIT_EVENT","event":{"name":"a","name":"b"}}`, job.CodeMalformed, []string{"/event/name"}},

	// NUL, depth, numbers.
	{"NUL in type", `{"type":"\u0000"}`, job.CodeMalformed, []string{"/type"}},
	{"NUL in key", `{"type":"EXECUTE","idempotency_key":"a\u0000"}`, job.CodeMalformed, []string{"/idempotency_key"}},
	{"NUL in params", `{"type":"EXECUTE","params":{"a":["x","\\\u0000"]}}`, job.CodeMalformed, []string{"/params/a/1"}},
	{"NUL in a name", `{"type":"EXECUTE","params":{"\u0000":1}}`, job.CodeMalformed, []string{"/params"}},
	{"NUL in event data", `{"type":"EMIT_EVENT","event":{"name":"a","data":"\u0000"}}`, job.CodeMalformed, []string{"/event/data"}},
	{"65 levels", `{"type":"EXECUTE","params":{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}}`, job.CodeMalformed,
		[]string{"/params/a" + strings.Repeat("/0", 62)}},
	{"deep objects", `{"type":"EXECUTE","params":` + strings.Repeat(`{"a":`, 400) + `1` + strings.Repeat(`}`, 401), job.CodeMalformed,
		[]string{"/params" + strings.Repeat("/a", 63)}},
	{"endlessly deep", `{"type":"EXECUTE","params":{"a":` + strings.Repeat("[", 500_000), job.CodeMalformed,
		[]string{"/params/a" + strings.Repeat("/0", 62)}},
	{"deep unknown member", `{"x":` + strings.Repeat("[", 500_000), job.CodeMalformed, []string{"/x", "/x" + strings.Repeat("/0", 63)}},
	{"deep array", strings.Repeat("[", 500_000), job.CodeMalformed, []string{strings.Repeat("/0", 64)}},
	{"long number", `{"type":"EXECUTE","params":{"a":` + strings.Repeat("9", 65) + `}}`, job.CodeMalformed, []string{"/params/a"}},
	{"huge exponent", `{"type":"EXECUTE","params":{"a":1e301}}`, job.CodeMalformed, []string{"/params/a"}},
	{"tiny exponent", `{"type":"EXECUTE","params":{"a":[0,1E-301]}}`, job.CodeMalformed, []string{"/params/a/1"}},
	{"overflowing exponent", `{"type":"EXECUTE","params":{"a":1e99999999999999999999}}`, job.CodeMalformed, []string{"/params/a"}},
	{"not a float64", `{"type":"EXECUTE","params":{"a":1234567890e300}}`, job.CodeMalformed, []string{"/params/a"}},

	// The wrong structure.
	{"empty", `{}`, job.CodeMalformed, []string{"/type"}},
	{"null type", `{"type":null}`, job.CodeMalformed, []string{"/type"}},
	{"number type", `{"type":1}`, job.CodeMalformed, []string{"/type"}},
	{"object type", `{"type":{"a":1}}`, job.CodeMalformed, []string{"/type"}},
	{"unknown member", `{"type":"EXECUTE","typo":{"a":[1]}}`, job.CodeMalformed, []string{"/typo"}},
	{"other case", `{"Type":"EXECUTE"}`, job.CodeMalformed, []string{"/Type", "/type"}},
	{"odd member name", `{"type":"EXECUTE","a/b~":1}`, job.CodeMalformed, []string{"/a~1b~0"}},
	{"empty member name", `{"type":"EXECUTE","":1}`, job.CodeMalformed, []string{"/"}},
	{"endless member name", `{"type":"EXECUTE","` + strings.Repeat("x", 1000) + `":1}`, job.CodeMalformed, []string{""}},
	{"number kind", `{"type":"EXECUTE","work_kind":5}`, job.CodeMalformed, []string{"/work_kind"}},
	{"number time", `{"type":"DEFERRED","execution_at":1893456000}`, job.CodeMalformed, []string{"/execution_at"}},
	{"array callback", `{"type":"EXECUTE","callback":["http://a"]}`, job.CodeMalformed, []string{"/callback"}},
	{"array params", `{"type":"EXECUTE","params":[1]}`, job.CodeMalformed, []string{"/params"}},
	{"string params", `{"type":"EXECUTE","params":"{}"}`, job.CodeMalformed, []string{"/params"}},
	{"string auto_retry", `{"type":"EXECUTE","auto_retry":"true"}`, job.CodeMalformed, []string{"/auto_retry"}},
	{"number auto_retry", `{"type":"EXECUTE","auto_retry":1}`, job.CodeMalformed, []string{"/auto_retry"}},
	{"object key", `{"type":"EXECUTE","idempotency_key":{}}`, job.CodeMalformed, []string{"/idempotency_key"}},
	{"number correlation", `{"type":"EXECUTE","correlation_id":7}`, job.CodeMalformed, []string{"/correlation_id"}},
	{"string event", `{"type":"EMIT_EVENT","event":"a"}`, job.CodeMalformed, []string{"/event"}},
	{"nameless event", `{"type":"EMIT_EVENT","event":{}}`, job.CodeMalformed, []string{"/event/name"}},
	{"null event name", `{"type":"EMIT_EVENT","event":{"name":null}}`, job.CodeMalformed, []string{"/event/name"}},
	{"unknown in event", `{"type":"EMIT_EVENT","event":{"name":"a","x":1}}`, job.CodeMalformed, []string{"/event/x"}},
	{"everything", `{"x":1,"work_kind":1,"auto_retry":0,"params":{"a":"\u0000"},"event":{"y":1},"callback":"ftp://a","type":"NOPE"}`,
		job.CodeMalformed,
		[]string{"/x", "/work_kind", "/auto_retry", "/params/a", "/event/y", "/event/name", "/callback", "/type"}},

	{"string retry", `{"type":"EXECUTE","retry":"often"}`, job.CodeMalformed, []string{"/retry"}},
	{"unknown in retry", `{"type":"EXECUTE","retry":{"times":3}}`, job.CodeMalformed, []string{"/retry/times"}},
	{"number backoff", `{"type":"EXECUTE","retry":{"backoff":5}}`, job.CodeMalformed, []string{"/retry/backoff"}},

	// Wrong values.
	{"no attempts", `{"type":"EXECUTE","retry":{"max_attempts":0}}`, job.CodeValidationFailed, []string{"/retry/max_attempts"}},
	{"many attempts", `{"type":"EXECUTE","retry":{"max_attempts":101}}`, job.CodeValidationFailed, []string{"/retry/max_attempts"}},
	{"unknown code", `{"type":"EXECUTE","retry":{"codes":["RFA_JOB_NOT_FOUND"]}}`, job.CodeValidationFailed, []string{"/retry/codes/0"}},
	{"empty backoff", `{"type":"EXECUTE","retry":{"backoff":{}}}`, job.CodeValidationFailed, []string{"/retry/backoff"}},
	{"unknown strategy", `{"type":"EXECUTE","retry":{"backoff":{"strategy":"LINEAR"}}}`, job.CodeValidationFailed,
		[]string{"/retry/backoff/strategy"}},
	{"half a backoff", `{"type":"EXECUTE","retry":{"backoff":{"strategy":"EXPONENTIAL","base":"1s"}}}`, job.CodeValidationFailed,
		[]string{"/retry/backoff"}},
	{"another's member", `{"type":"EXECUTE","retry":{"backoff":{"strategy":"CONSTANT","delay":"1s","max":"2s"}}}`, job.CodeValidationFailed,
		[]string{"/retry/backoff"}},
	{"no delays", `{"type":"EXECUTE","retry":{"backoff":{"strategy":"LIST","delays":[]}}}`, job.CodeValidationFailed,
		[]string{"/retry/backoff"}},
	{"many delays", `{"type":"EXECUTE","retry":{"backoff":{"strategy":"LIST","delays":["1s"` + strings.Repeat(`,"1s"`, 100) + `]}}}`,
		job.CodeValidationFailed, []string{"/retry/backoff/delays"}},
	{"base above max", `{"type":"EXECUTE","retry":{"backoff":{"strategy":"EXPONENTIAL","base":"2s","max":"1s"}}}`, job.CodeValidationFailed,
		[]string{"/retry/backoff"}},
	{"long delay", `{"type":"EXECUTE","retry":{"backoff":{"strategy":"CONSTANT","delay":"25h"}}}`, job.CodeValidationFailed,
		[]string{"/retry/backoff/delay"}},
	{"unknown type", `{"type":"execute"}`, job.CodeValidationFailed, []string{"/type"}},
	{"empty type", `{"type":""}`, job.CodeValidationFailed, []string{"/type"}},
	{"unknown kind", `{"type":"EXECUTE","work_kind":"SUCCESS"}`, job.CodeValidationFailed, []string{"/work_kind"}},
	{"empty kind", `{"type":"EXECUTE","work_kind":""}`, job.CodeValidationFailed, []string{"/work_kind"}},
	{"time without zone", `{"type":"DEFERRED","execution_at":"2030-01-31T12:00:00"}`, job.CodeValidationFailed, []string{"/execution_at"}},
	{"other zone", `{"type":"DEFERRED","execution_at":"2030-01-31T12:00:00+01:00"}`, job.CodeValidationFailed, []string{"/execution_at"}},
	{"date", `{"type":"DEFERRED","execution_at":"2030-01-31"}`, job.CodeValidationFailed, []string{"/execution_at"}},
	{"no such day", `{"type":"DEFERRED","execution_at":"2030-02-30T12:00:00Z"}`, job.CodeValidationFailed, []string{"/execution_at"}},
	{"empty time", `{"type":"DEFERRED","execution_at":""}`, job.CodeValidationFailed, []string{"/execution_at"}},
	{"large params", `{"type":"EXECUTE","params":{"a":"` + strings.Repeat("x", testPayload) + `"}}`, job.CodeValidationFailed,
		[]string{"/params"}},
	{"large data", `{"type":"EMIT_EVENT","event":{"name":"a","data":"` + strings.Repeat("x", testPayload) + `"}}`, job.CodeValidationFailed,
		[]string{"/event/data"}},
	{"empty key", `{"type":"EXECUTE","idempotency_key":""}`, job.CodeValidationFailed, []string{"/idempotency_key"}},
	{"long key", `{"type":"EXECUTE","idempotency_key":"` + strings.Repeat("x", 256) + `"}`, job.CodeValidationFailed,
		[]string{"/idempotency_key"}},
	{"key with space", `{"type":"EXECUTE","idempotency_key":"a b"}`, job.CodeValidationFailed, []string{"/idempotency_key"}},
	{"key with umlaut", `{"type":"EXECUTE","idempotency_key":"ä"}`, job.CodeValidationFailed, []string{"/idempotency_key"}},
	{"key with newline", `{"type":"EXECUTE","idempotency_key":"a\r\nb"}`, job.CodeValidationFailed, []string{"/idempotency_key"}},
	{"empty correlation", `{"type":"EXECUTE","correlation_id":""}`, job.CodeValidationFailed, []string{"/correlation_id"}},
	{"correlation with newline", `{"type":"EXECUTE","correlation_id":"a\r\nX-Evil: 1"}`, job.CodeValidationFailed,
		[]string{"/correlation_id"}},
	{"correlation with markup", `{"type":"EXECUTE","correlation_id":"<script>"}`, job.CodeValidationFailed, []string{"/correlation_id"}},
	{"long correlation", `{"type":"EXECUTE","correlation_id":"` + strings.Repeat("x", 257) + `"}`, job.CodeValidationFailed,
		[]string{"/correlation_id"}},
	{"empty event name", `{"type":"EMIT_EVENT","event":{"name":""}}`, job.CodeValidationFailed, []string{"/event/name"}},
	{"long event name", `{"type":"EMIT_EVENT","event":{"name":"` + strings.Repeat("x", 129) + `"}}`, job.CodeValidationFailed,
		[]string{"/event/name"}},
	{"event name with space", `{"type":"EMIT_EVENT","event":{"name":"a b"}}`, job.CodeValidationFailed, []string{"/event/name"}},
	{"several values", `{"type":"A","work_kind":"B","callback":"C","idempotency_key":""}`, job.CodeValidationFailed,
		[]string{"/type", "/work_kind", "/callback", "/idempotency_key"}},
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range badBodies {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			req, err := decode.Job([]byte(test.body), "", decode.Limits{MaxPayload: testPayload})
			refusal := req.Refusal(req.Violations)
			if err != nil {
				require.ErrorAs(t, err, &refusal)
			}
			require.Equal(t, test.code, refusal.Code)
			var at []string
			for _, v := range refusal.Violations {
				at = append(at, v.Pointer)
				require.NotEmpty(t, v.Detail)
				require.LessOrEqual(t, len(v.Detail), 700)
			}
			require.Equal(t, test.at, at, refusal.Violations)
		})
	}
}

// TestDecodeRefusesOverHTTP sees that every bad body is a problem with its
// violations, and never an accident.
func TestDecodeRefusesOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.MaxPayloadBytes = testPayload })
	for _, test := range badBodies {
		p := w.send("POST", "/v1/jobs", test.body).requireProblem(t, test.code)
		require.Len(t, p.Violations, len(test.at), test.name)
	}
}

func TestDecodeBoundsItsComplaints(t *testing.T) {
	t.Parallel()
	var body strings.Builder
	body.WriteString(`{"type":"EXECUTE"`)
	for i := range 3000 {
		fmt.Fprintf(&body, `,"%d":0`, i)
	}
	body.WriteString("}")
	r, err := decode.Job([]byte(body.String()), "", decode.Limits{MaxPayload: testPayload})
	require.NoError(t, err)
	require.Len(t, r.Violations, job.MaxViolations)
	require.Equal(t, 3000-job.MaxViolations, r.Unlisted)
	require.True(t, r.Malformed)
	require.Contains(t, r.Refusal(r.Violations).Detail, "And 2,900 more")
}

// Names are compared with each other: their number is bounded, in an object and in all.
func TestDecodeBoundsMembers(t *testing.T) {
	t.Parallel()
	object := func(n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, `,"%d":0`, i)
		}
		return "{" + text.String()[1:] + "}"
	}
	list := func(n int) string { return "[" + strings.Join(repeated(object(4000), n), ",") + "]" }
	for params, at := range map[string]string{
		object(4001):                "/params/4000",
		`{"list":` + list(13) + `}`: "/params/list/12/1997",
	} {
		_, err := decode.Job([]byte(`{"type":"EXECUTE","params":`+params+`}`), "k", decode.Limits{MaxPayload: testPayload})
		var refused *job.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, job.CodeMalformed, refused.Code)
		require.Equal(t, at, refused.Violations[0].Pointer)
	}
	for _, params := range []string{object(4000), `{"list":` + list(12) + `}`} {
		_, err := decode.Job([]byte(`{"type":"EXECUTE","params":`+params+`}`), "k", decode.Limits{MaxPayload: testPayload})
		require.NoError(t, err)
	}
	long := []byte(object(20_000))
	require.Equal(t, long, decode.Canonical(long), "it is not put in order")
}

// Elements of arrays cost as much time as members: what says too many is not read to its end.
func TestDecodeBoundsElements(t *testing.T) {
	t.Parallel()
	list := func(n int, of string) string { return "[" + strings.Join(repeated(of, n), ",") + "]" }
	for body, at := range map[string]string{
		`{"type":"EXECUTE","params":{"list":` + list(520_000, "1") + "}}":                         "/params/list/49999",
		`{"type":"EXECUTE","params":{"list":` + list(340_000, "[]") + `,"broken"`:                 "/params/list/49999",
		`{"type":"EXECUTE","params":{"list":` + list(260_000, `"x"`) + `,"broken"`:                "/params/list/49999",
		`{"type":"EXECUTE","params":{"a":` + list(30_000, "{}") + `,"b":` + list(21_000, "1e9"):   "/params/b/19999",
		`{"type":"EMIT_EVENT","event":{"name":"a","data":` + list(2, list(30_000, "null")) + `}}`: "/event/data/1/19997",
		`{"type":"EXECUTE","unknown":` + list(520_000, "1") + "}":                                 "/unknown/49999",
	} {
		_, err := decode.Job([]byte(body), "k", decode.Limits{MaxPayload: testPayload})
		var refused *job.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, job.CodeMalformed, refused.Code)
		last := refused.Violations[len(refused.Violations)-1]
		require.Equal(t, at, last.Pointer)
		require.Equal(t, "All arrays of the body together may have at most 50,000 elements.", last.Detail)
	}
	_, err := decode.Job([]byte(`{"type":"EXECUTE","params":{"list":`+list(50_000, "1")+`}}`), "k", decode.Limits{MaxPayload: testPayload})
	require.NoError(t, err)
	items := list(11, `{"type":"EXECUTE","params":{"list":`+list(5_000, "1")+`}}`)
	_, err = decode.Batch([]byte(`{"jobs":`+items+`}`), "", decode.Limits{MaxPayload: testPayload})
	require.Equal(t, job.CodeMalformed, job.CodeOf(err), "the items of a batch have one bound together")
}

func TestDecodeAccepts(t *testing.T) {
	t.Parallel()
	deepest := `{"a":` + strings.Repeat("[", 62) + strings.Repeat("]", 62) + `}`
	when := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name, body string
		want       job.Request
	}{
		{"least", `{"type":"EXECUTE"}`, job.Request{Type: job.Execute}},
		{"white space", " {\r\n\t\"type\" : \"EXECUTE\" } \n", job.Request{Type: job.Execute}},
		{"escapes", `{"t\u0079pe":"EXEC\u0055TE"}`, job.Request{Type: job.Execute}},
		{"nulls",
			`{"type":"EXECUTE","work_kind":null,"execution_at":null,"callback":null,"params":null,"auto_retry":null,"event":null,` +
				`"idempotency_key":null,"correlation_id":null}`,
			job.Request{Type: job.Execute}},
		{"all",
			`{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2030-01-31T12:00:00Z",` +
				`"callback":"https://example.com/x?y=1","params": {"a" : [1.50, "\\u0000"]} ,"auto_retry":true,"correlation_id":"a.B-c_1"}`,
			job.Request{Type: job.Deferred, WorkKind: job.SuccessFast, ExecutionAt: &when, Callback: "https://example.com/x?y=1",
				Params: json.RawMessage(`{"a" : [1.50, "\\u0000"]}`), AutoRetry: true, CorrelationID: "a.B-c_1"}},
		{"retry", `{"retry":{"max_attempts":5,"backoff":{"delays":["1.5s","1m"],"strategy":"LIST"},"codes":["RFA_EXEC_TIMEOUT"]},` +
			`"type":"EXECUTE"}`,
			job.Request{Type: job.Execute, AutoRetry: true, Retry: &job.RetryPolicy{
				MaxAttempts: 5, Strategy: job.Listed, Delays: []time.Duration{1500 * time.Millisecond, time.Minute}, Codes: []job.Code{job.CodeTimeout},
			}}},
		{"retry on request alone", `{"type":"EXECUTE","auto_retry":false,"retry":{"backoff":{"strategy":"EXPONENTIAL","base":"1s","max":"1s"}}}`,
			job.Request{Type: job.Execute, Retry: &job.RetryPolicy{Strategy: job.Exponential, Delays: []time.Duration{time.Second, time.Second}}}},
		{"retry without a word", `{"type":"EXECUTE","auto_retry":null,"retry":{"backoff":{"strategy":"CONSTANT","delay":"0s"}}}`,
			job.Request{Type: job.Execute, AutoRetry: true, Retry: &job.RetryPolicy{Strategy: job.Constant, Delays: []time.Duration{0}}}},
		{"event", `{"type":"EMIT_EVENT","event":{"name":"order.paid","data": -0.5e-3 }}`,
			job.Request{Type: job.EmitEvent, Emit: &job.Emission{Name: "order.paid", Data: json.RawMessage(`-0.5e-3`)}}},
		{"event without data", `{"type":"EMIT_EVENT","event":{"name":"a","data":null}}`,
			job.Request{Type: job.EmitEvent, Emit: &job.Emission{Name: "a"}}},
		{"wrong combination is not decided here", `{"type":"EXECUTE","event":{"name":"a"}}`,
			job.Request{Type: job.Execute, Emit: &job.Emission{Name: "a"}}},
		{"64 levels", `{"type":"EXECUTE","params":` + deepest + `}`, job.Request{Type: job.Execute, Params: json.RawMessage(deepest)}},
		{"largest numbers", `{"type":"EXECUTE","params":{"a":[1e300,1E-300,` + strings.Repeat("9", 64) + `]}}`,
			job.Request{Type: job.Execute, Params: json.RawMessage(`{"a":[1e300,1E-300,` + strings.Repeat("9", 64) + `]}`)}},
		{"surrogate pair", `{"type":"EXECUTE","params":{"\ud83d\ude00":"😀"}}`,
			job.Request{Type: job.Execute, Params: json.RawMessage(`{"\ud83d\ude00":"😀"}`)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := decode.Job([]byte(test.body), "", decode.Limits{MaxPayload: testPayload})
			require.NoError(t, err)
			require.Equal(t, test.want.Params != nil, len(got.Warnings) > 0)
			got.Warnings = nil
			require.Empty(t, cmp.Diff(test.want, got))
		})
	}
}

func TestDecodeCopies(t *testing.T) {
	t.Parallel()
	body := []byte(`{"type":"EXECUTE","callback":"http://example.com","params":{"a":1},"idempotency_key":"k",` +
		`"correlation_id":"c","event":{"name":"n","data":[2]}}`)
	got, err := decode.Job(body, "", decode.Limits{MaxPayload: testPayload})
	require.NoError(t, err)
	for i := range body {
		body[i] = '#'
	}
	require.Equal(t, "http://example.com", got.Callback)
	require.Equal(t, `{"a":1}`, string(got.Params))
	require.Equal(t, "k", got.IdempotencyKey)
	require.Equal(t, "c", got.CorrelationID)
	require.Equal(t, "n", got.Emit.Name)
	require.Equal(t, `[2]`, string(got.Emit.Data))
}

func TestHashIsCanonical(t *testing.T) {
	t.Parallel()
	hash := func(body, header string) [32]byte {
		r, err := decode.Job([]byte(body), header, decode.Limits{MaxPayload: testPayload})
		require.NoError(t, err)
		require.Empty(t, r.Violations)
		return r.Hash
	}
	base := hash(`{"type":"EXECUTE","params":{"a":1,"b":[1.0,{"x":1,"y":2}]},"idempotency_key":"k"}`, "")
	require.NotZero(t, base)
	for _, same := range []string{
		`{"type":"EXECUTE","params":{"a":1,"b":[1.0,{"x":1,"y":2}]}}`,
		`{"idempotency_key":"k","params":{"b":[1.0,{"y":2,"x":1}],"a":1},"type":"EXECUTE"}`,
		" {\n\"idempotency\\u005fkey\": \"k\" , \"par\\u0061ms\" : { \"\\u0061\" : 1, \"b\" " +
			":[1.0,{\"x\":1,\"y\":2}]},\"type\":\"\\u0045XECUTE\"} ",
	} {
		require.Equal(t, base, hash(same, "k"), same)
	}
	for _, other := range []string{
		`{"type":"EXECUTE"}`,
		`{"type":"EXECUTE","params":{"a":1,"b":[1,{"x":1,"y":2}]}}`,
		`{"type":"EXECUTE","params":{"a":1,"b":[1.0,{"x":1,"y":3}]}}`,
		`{"type":"EXECUTE","params":{"a":12345678901234567890,"b":[1.0,{"x":1,"y":2}]}}`,
		`{"type":"EXECUTE","params":{"a":12345678901234567891,"b":[1.0,{"x":1,"y":2}]}}`,
		`{"type":"EXECUTE","params":{"a":1,"b":[1.0,{"x":1,"y":2}]},"auto_retry":false}`,
	} {
		require.NotEqual(t, base, hash(other, "k"), other)
	}
	require.NotEqual(t,
		hash(`{"type":"EXECUTE","params":{"a":12345678901234567890}}`, "k"),
		hash(`{"type":"EXECUTE","params":{"a":12345678901234567891}}`, "k"), "numbers are not rounded")
	require.Zero(t, hash(`{"type":"EXECUTE"}`, ""), "no key, no hash")
}

// allocated gives the bytes that f allocates. Nothing else may run beside it.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestFaultsCostLittle: neither many faults nor faults below long names make
// the decoder do more than the body's length justifies. It is not parallel,
// because it looks at what the process allocates.
func TestFaultsCostLittle(t *testing.T) {
	long := strings.Repeat("n", 50_000)
	faults := strings.Repeat(`1e999,`, 5_000) + `1e999`
	var members strings.Builder
	for i := range 5_000 {
		fmt.Fprintf(&members, `"%d":"\u0000",`, i)
	}
	bodies := map[string]string{
		"members below a long name": `{"type":"EXECUTE","params":{"` + long + `":{` + members.String() + `"x":1}}}`,
		"array below a long name":   `{"type":"EXECUTE","params":{"` + long + `":[` + faults + `]}}`,
		"below an escaped name":     `{"type":"EXECUTE","params":{"` + strings.Repeat(`\u0041/~`, 6_000) + `":[` + faults + `]}}`,
		"in an unknown member":      `{"type":"EXECUTE","` + long + `":[` + faults + `]}`,
		"unknown members":           `{"type":"EXECUTE",` + members.String() + `"x":1}`,
	}
	for name, body := range bodies {
		limit := uint64(20*len(body) + 100_000)
		require.Less(t, allocated(func() { _, _ = decode.Job([]byte(body), "", decode.Limits{MaxPayload: testPayload}) }), limit, name)
		require.Less(t, allocated(func() { _, _ = decode.Batch([]byte(items(body)), "", decode.Limits{MaxPayload: testPayload}) }), limit, name)
	}
	item := `{"type":"EXECUTE","` + strings.Repeat("n", 400) + `":[` + strings.Repeat(`1e999,`, 99) + `0]}`
	body := items(repeated(item, 999)...)
	require.Less(t, allocated(func() { _, _ = decode.Batch([]byte(body), "", decode.Limits{MaxPayload: testPayload}) }),
		uint64(20*len(body)), "many items with faults")
}

func TestFormAndValuesAreToldTogether(t *testing.T) {
	t.Parallel()
	catalogue := job.Catalogue{Types: job.Types, Kinds: job.Kinds()}
	tests := map[string]struct {
		body string
		code job.Code
		at   []string
	}{
		"time that must not be there": {`{"type":"EXECUTE","execution_at":"2030-01-01T00:00:00Z","colour":1}`, job.CodeMalformed,
			[]string{"/colour", "/execution_at"}},
		"time that is missing": {`{"type":"DEFERRED","auto_retry":"x","callback":"x"}`, job.CodeMalformed,
			[]string{"/auto_retry", "/callback", "/execution_at"}},
		"time of the wrong type": {`{"type":"DEFERRED","execution_at":5}`, job.CodeMalformed, []string{"/execution_at"}},
		"values only": {`{"type":"EXECUTE","callback":"x","work_kind":"PAYLOAD_INVALID"}`, job.CodeValidationFailed,
			[]string{"/callback", "/work_kind"}},
		"form only":                      {`{"work_kind":"SUCCESS_FAST"}`, job.CodeMalformed, []string{"/type"}},
		"rules, and something after all": {`{"type":"EXECUTE","event":{"name":"a"}} x`, job.CodeMalformed, []string{"", "/event"}},
	}
	for name, test := range tests {
		r, err := decode.Job([]byte(test.body), "", decode.Limits{MaxPayload: testPayload})
		require.NoError(t, err, name)
		refusal := r.Refusal(catalogue.Check(r))
		require.Equal(t, test.code, refusal.Code, name)
		var at []string
		for _, v := range refusal.Violations {
			at = append(at, v.Pointer)
		}
		require.Equal(t, test.at, at, name)
	}
	_, err := decode.Job([]byte(`{"type":"DEFERRED","colour":1`), "", decode.Limits{MaxPayload: testPayload})
	var refusal *job.Error
	require.ErrorAs(t, err, &refusal)
	require.Len(t, refusal.Violations, 2, "of what was not read to its end only the form is judged")
}

// TestViolationsSayWhatIsAllowed, and not only that something is not.
func TestViolationsSayWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for member, want := range map[string]string{
		`"colour":1`:              "type, work_kind, execution_at, callback, params, auto_retry, retry, event, correlation_id, idempotency_key",
		`"event":{"x":1}`:         "name, data",
		`"work_kind":"X"`:         decode.OneOf(job.Kinds()),
		`"type":"X"`:              decode.OneOf(job.Types),
		`"callback":"http://[::"`: "such as https://",
		`"idempotency_key":""`:    "1 to 255",
		`"params":{"a":1e999}`:    "64 characters and exponents from -300 to 300",
	} {
		r, err := decode.Job([]byte(`{`+member+`}`), "", decode.Limits{MaxPayload: testPayload})
		require.NoError(t, err)
		require.Contains(t, r.Violations[0].Detail+r.Violations[len(r.Violations)-1].Detail, want)
	}
	_, err := decode.RevokeKey([]byte(`{"key_id":""}`))
	var refusal *job.Error
	require.ErrorAs(t, err, &refusal)
	require.Contains(t, refusal.Violations[0].Detail, "1 to 128")
}

// wholeHash is the hash of a body's members in canonical form as jsontext gives
// it for the whole object: what is stored must be found again by every version.
func wholeHash(t *testing.T, body string) [32]byte {
	t.Helper()
	var members map[string]jsontext.Value
	require.NoError(t, json.Unmarshal([]byte(body), &members))
	delete(members, "idempotency_key")
	text, err := json.Marshal(members)
	require.NoError(t, err)
	whole := jsontext.Value(text)
	require.NoError(t, whole.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)))
	return sha256.Sum256(whole)
}

func TestHashOfMembersIsThatOfTheWhole(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"type":"EXECUTE"}`,
		` { "work_kind" : "SUCCESS_FAST" ,"type"	:
			"EXECUTE" , "auto_retry": true, "params":null } `,
		`{"type":"EXEC\u0055TE","correlation_id":"a-b","params":{"z":1.50,"a":[{"y":"\u00e4\/","b":1E5},null,-0,12345678901234567890]}}`,
		`{"idempotency_key":"k","\u0074ype":"EXECUTE","params":{"text":"a{b[c","ä":{}}}`,
		`{"type":"EMIT_EVENT","event":{"name":"x","data":[1, 2 ,{"b":2,"a":1}]},"callback":"https://example.com/{x}"}`,
	} {
		r, err := decode.Job([]byte(body), "key-of-header", decode.Limits{MaxPayload: 1 << 20})
		if strings.Contains(body, "idempotency_key") {
			r, err = decode.Job([]byte(body), "", decode.Limits{MaxPayload: 1 << 20})
		}
		require.NoError(t, err)
		require.Empty(t, r.Violations, body)
		require.Equal(t, wholeHash(t, body), r.Hash, body)
	}
}

func TestDecodersKeepNothingOfTheirLastBody(t *testing.T) {
	t.Parallel()
	full := `{"type":"EXECUTE","work_kind":"SUCCESS_FAST","params":{"a":1},"callback":"https://example.com","auto_retry":true,` +
		`"correlation_id":"c","idempotency_key":"k","no":1}`
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			for range 100 {
				body := []byte(full)
				first, err := decode.Job(body, "", decode.Limits{MaxPayload: 1 << 20})
				require.NoError(t, err)
				second, err := decode.Job([]byte(`{"type":"EXECUTE"}`), "", decode.Limits{MaxPayload: 1 << 20})
				require.NoError(t, err)
				require.Equal(t, job.Request{Type: job.Execute, Violations: []job.Violation{}}, normal(second))
				_, err = decode.Job([]byte(`{"type":`), "", decode.Limits{MaxPayload: 1 << 20})
				require.Error(t, err)
				clear(body) // which is the next request's
				require.Equal(t, `{"a":1}`, string(first.Params))
				require.Equal(t, "https://example.com", first.Callback)
				require.Len(t, first.Violations, 1)
				require.Equal(t, "/no", first.Violations[0].Pointer)
			}
		})
	}
	group.Wait()
}

func normal(r job.Request) job.Request {
	if r.Violations == nil {
		r.Violations = []job.Violation{}
	}
	return r
}
