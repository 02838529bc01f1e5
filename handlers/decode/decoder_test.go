package decode

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestCallbacks(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"http://example.com", "https://example.com:8443/a/b?c=d&e=%20", "HTTP://EXAMPLE.COM/", "http://[::1]:80/", "http://127.0.0.1:9",
		"https://example.com/" + strings.Repeat("x", 2028), "http://münchen.example/ä", "http://example.com/{a}?b={c}&d=%e2%82%AC",
	} {
		require.Empty(t, checkURL(good), good)
	}
	for _, bad := range []string{
		"", "x", "/x", "//example.com", "ftp://example.com", "file:///etc/passwd", "javascript:alert(1)", "http:", "http://", "http:///x",
		"http:example.com",
		"http://:80", "http://?x", "http://u@example.com", "http://u:p@example.com", "http://@example.com", "http://example.com#",
		"http://example.com/#x",
		"http://example.com:0", "http://example.com:65536", "http://example.com:x", "http://example.com:", "http://example.com:-1",
		"http://example.com/a b", "http://example.com/\n", "http://example.com/\r\nX: 1", "http://exa\tmple.com", "http://example.com/\x7f",
		"http://example.com/\u0085",
		"http://example.com\\@evil.example", "http://[::1", "http://%zz", " http://example.com",
		"http://example.com/?a=100%", "http://example.com/?a=%4", "http://example.com/?a=%4g&b", "http://example.com/?%%20",
		"https://example.com/" + strings.Repeat("x", 2029),
	} {
		require.NotEmpty(t, checkURL(bad), bad)
	}
}

func TestDecodeLimitsViolations(t *testing.T) {
	t.Parallel()
	unknown := func(n int) string {
		var members strings.Builder
		for i := range n {
			fmt.Fprintf(&members, `,"%d":0`, i)
		}
		return execute(members.String()[1:])
	}
	r := read(t, Job, unknown(3000), limits)
	require.Len(t, r.Violations, job.MaxViolations)
	require.Equal(t, 3000-job.MaxViolations, r.Unlisted)
	require.True(t, r.Malformed)
	require.Contains(t, r.Refusal(r.Violations).Detail, "And 2,900 more")

	r = read(t, Job, execute(`"event":`+unknown(3000)+`,"retry":{"backoff":{"strategy":"EXPONENTIAL","base":"x","max":"y"}}`), limits)
	require.Equal(t, 3004-job.MaxViolations, r.Unlisted, "the policy is not read")

	b := read(t, Batch, `{"jobs":`+many(20, unknown(60))+`}`, limits)
	require.Len(t, b.Items[0].Request.Violations, 60)
	require.Len(t, b.Items[1].Request.Violations, job.MaxViolations-60)
	require.True(t, b.Items[1].Request.Malformed)
	require.Equal(t, 20*60-job.MaxViolations, b.Unlisted, "all items share the limit")

	w, err := Webhook([]byte(`{"url":"https://example.com","events":`+many(2_000, `"x"`)+`}`), "k")
	require.NoError(t, err)
	require.Len(t, w.Violations, job.MaxViolations)
	require.LessOrEqual(t, len(w.Events), 20)
}

func TestDecodeLimitsMembers(t *testing.T) {
	t.Parallel()
	object := func(n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, `,"%d":0`, i)
		}
		return "{" + text.String()[1:] + "}"
	}
	for body, at := range map[string]string{
		execute(`"params":` + object(4001)): "/params/4000", param(many(13, object(4000))): "/params/a/12/1997",
		param(many(60_000, "1")): "/params/a/50000", `{"params":{"a":` + many(60_000, "[]") + `,"broken"`: "/params/a/50000",
		`{"params":{"a":` + many(30_000, "{}") + `,"b":` + many(21_000, "1e9"): "/params/b/20000",
		emit(`{"name":"a","data":` + many(2, many(30_000, "null")) + `}`):      "/event/data/1/19999",
		execute(`"unknown":` + many(60_000, "1")):                              "/unknown/50000",
	} {
		r, err := Job([]byte(body), "k", limits)
		all := strings.Fields(refusedAt(t, job.CodeMalformed, err, r.Malformed, r.Violations))
		require.Equal(t, at, all[len(all)-1], "%.100s", body)
	}
	for _, body := range []string{execute(`"params":` + object(4000)), param(many(12, object(4000))), param(many(50_000, "1"))} {
		_, err := Job([]byte(body), "k", limits)
		require.NoError(t, err)
	}
	_, err := Batch([]byte(`{"jobs":`+many(11, param(many(5_000, "1")))+`}`), "", limits)
	require.Equal(t, job.CodeMalformed, job.CodeOf(err), "all items of a batch share one limit")
	whole := []byte(object(20_000))
	require.Equal(t, whole, Canonical(whole), "a long body is not canonicalized")
}

// The memory for mistakes must be proportional to the length of the body. The test is not parallel because it measures allocations of the
// process.
func TestMistakesCostLittle(t *testing.T) {
	public.named()
	name, faults := strings.Repeat("n", 50_000), many(5_000, "1e999")
	var members strings.Builder
	for i := range 5_000 {
		fmt.Fprintf(&members, `"%d":"\u0000",`, i)
	}
	for _, body := range []string{
		execute(`"params":{"` + name + `":{` + members.String() + `"x":1}}`), execute(`"params":{"` + name + `":` + faults + `}`),
		execute(`"params":{"` + strings.Repeat(`\u0041/~`, 6_000) + `":` + faults + `}`), execute(`"` + name + `":` + faults),
		execute(members.String() + `"x":1`),
	} {
		limit := uint64(20*len(body) + 100_000)
		require.Less(t, allocated(func() { _, _ = Job([]byte(body), "", limits) }), limit, "%.50s", body)
		require.Less(t, allocated(func() { _, _ = Batch([]byte(`{"jobs":[`+body+`]}`), "", limits) }), limit, "%.50s", body)
	}
	body := `{"jobs":` + many(1000, execute(`"`+name[:400]+`":`+many(100, "1e999"))) + `}`
	require.Less(t, allocated(func() { _, _ = Batch([]byte(body), "", limits) }), uint64(20*len(body)), "many items with mistakes")
}

// Nothing else may run at the same time.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]job.Kind{
		"success-fast":           job.SuccessFast,
		"SUCCES_FAST":            job.SuccessFast,
		"SUCCESS_FATS":           job.SuccessFast,
		"RETRY_ON_FAILURE":       job.RetryOnFail,
		"":                       "",
		"DANCE":                  "",
		"SUCCESS_FAST\x00":       job.SuccessFast,
		strings.Repeat("S", 41):  "",
		strings.Repeat("S", 1e6): "",
	} {
		require.Equal(t, want, Nearest(text, job.Kinds()), "%.50s", text)
	}
	require.Equal(t, " Did you mean type?", DidYouMean("typ", []string{"event", "type"}))
	require.Empty(t, DidYouMean("colour", []string{"event", "type"}))
}

func TestSuggestionsAreLimited(t *testing.T) {
	t.Parallel()
	body := `{"jobs":[` + strings.TrimSuffix(strings.Repeat(`{"type":"EXECUT"},`, job.MaxBatchItems), ",") + `]}`
	r := read(t, Batch, body, Limits{MaxPayload: 1 << 10})
	suggested := 0
	for _, item := range r.Items[:job.MaxViolations] {
		require.Len(t, item.Request.Violations, 1)
		if strings.Contains(item.Request.Violations[0].Detail, "Did you mean EXECUTE?") {
			suggested++
		}
	}
	require.Equal(t, maxGuesses, suggested)
}

func seeds(tables map[job.Code]map[string]string) (bodies []string) {
	for _, table := range tables {
		for body := range table {
			if len(body) < 10_000 {
				bodies = append(bodies, body)
			}
		}
	}
	return bodies
}

// FuzzDecode checks that decoders do not panic, and that each refusal has a reason.
func FuzzDecode(f *testing.F) {
	for _, body := range append(append(seeds(badBodies), seeds(badWebhooks)...),
		`{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2030-01-31T12:00:00.123456789Z",`+
			`"callback":"https://example.com/x?y=1","params": {"a" : [1.50, "\\u0000"]} ,"auto_retry":true,"correlation_id":"a.B-c_1"}`,
		` { "type" : "EMIT_EVENT" , "event" : {"data":{"b":1e5,"a":"\ud83d\ude00"},"name":"order.paid"} , "idempotency_key":"key" }`,
		hook(`,"description":"ä","content_mode":"structured","idempotency_key":"key"`), `{"enabled":true}`, `{"enabled":null}`,
		`{"since":"2030-01-31T12:00:00Z","cursor":"AAAA"}`, `{"item_id":"a","type":"NOPE"}`,
		`{"client_id":"0190a1b2-c3d4-7000-8000-000000000b01","job":{"a":{"b":1}}}`, `{"scope":"KIND","target":"CUSTOM","reason":"a"}`) {
		f.Add([]byte(body))
		f.Add([]byte(items(body)))
	}
	type result = func(body []byte) (violations []job.Violation, err error)
	only := func(read func(body []byte) error) result {
		return func(body []byte) ([]job.Violation, error) { return nil, read(body) }
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, read := range []result{
			func(body []byte) ([]job.Violation, error) {
				r, err := Job(body, "key", limits)
				return r.Violations, err
			},
			func(body []byte) ([]job.Violation, error) {
				r, err := Batch(body, "key", limits)
				var all []job.Violation
				ids := map[string]bool{}
				for _, item := range r.Items {
					all = append(all, item.Request.Violations...)
					ids[item.ItemID] = true
					require.True(t, item.Request.Type.Valid() || len(item.Request.Violations) > 0)
				}
				require.Len(t, ids, len(r.Items))
				return all, err
			},
			func(body []byte) ([]job.Violation, error) {
				r, err := Webhook(body, "key")
				return r.Violations, err
			},
			func(body []byte) ([]job.Violation, error) {
				p, err := WebhookPatch(body)
				return p.Violations, err
			},
			only(func(body []byte) error { _, err := Since(body); return err }),
			only(func(body []byte) error { _, err := Operator.ForClientOf("Submission", "job")(body); return err }),
			only(func(body []byte) error { _, err := Operator.Pause(body); return err }),
		} {
			violations, err := read(body)
			if err != nil {
				var refused *job.Error
				require.ErrorAs(t, err, &refused)
				require.NotEmpty(t, refused.Violations)
				require.Equal(t, 400, refused.Code.Spec().Status)
				continue
			}
			for _, v := range violations {
				require.True(t, v.Pointer == "" || strings.HasPrefix(v.Pointer, "/"), v.Pointer)
			}
		}
	})
}
