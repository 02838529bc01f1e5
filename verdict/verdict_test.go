package verdict_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func TestRightClient(t *testing.T) {
	t.Parallel()
	v := right().judge()
	broken, missing := statuses(v)
	require.Empty(t, broken, "%+v", v)
	require.Empty(t, missing)
	require.Equal(t, verdict.Passed, v.Verdict)
	for _, r := range v.Results {
		require.NotEmpty(t, r.Evidence, r.Rule)
		require.Empty(t, r.Exercise)
	}
	many := right()
	many.Session.Recorded = 1_000
	require.Regexp(t, `^28 rules passed\. 9\d\d of 1000 requests were not judged, because the session had reached its size limit\.$`,
		many.judge().Why)
	empty := newTrace().judge()
	require.Equal(t, verdict.NothingJudged, empty.Verdict)
	require.Equal(t, "No request arrived.", empty.Why)
	require.Len(t, empty.Results, len(verdict.IDs()))
	for _, r := range empty.Results {
		require.Equal(t, verdict.NotTested, r.Status)
		require.NotEmpty(t, r.Reason)
		require.NotEmpty(t, r.Exercise)
	}
}

func TestEachRuleIsBrokenAlone(t *testing.T) {
	t.Parallel()
	levels := map[string]verdict.Level{}
	for _, r := range rulesFor(false) {
		levels[r.Rule] = r.Level
	}
	for rule, breaks := range map[string]func(*trace){
		"retry-after": func(t *trace) {
			t.send(submit(7)).send(poll(7)).each(3, func(byte) { t.wait(200 * time.Millisecond).send(poll(7, conditional)) })
		},
		"list-polling": func(t *trace) { t.send(submit(7)).every(0, 4, list(7)) },
		"half-events": func(t *trace) {
			x := cut(stream("e3", "e4"))
			x.Stream.Half = "e5"
			t.send(x).wait(time.Second).send(stream("e5"))
		},
		"stop-at-end":          func(t *trace) { t.every(time.Second, 4, poll(1, conditional, final)) },
		"conditional-requests": func(t *trace) { t.send(submit(7)).every(time.Second, 4, poll(7)) },
		"backoff":              func(t *trace) { t.send(submit(7, unavailable)).wait(time.Second).send(submit(7)) },
		"retry-only-retryable": func(t *trace) { t.every(time.Second, 4, submit(7, refused(400))) },
		"retry-budget":         func(t *trace) { t.wait(time.Second).every(time.Second, 11, cancel(4, unavailable, noRetryAfter)) },
		"no-key-elsewhere": func(t *trace) {
			t.wait(time.Second).send(poll(4, final, func(x *verdict.Exchange) { x.Host = "b.example" }))
		},
		"idempotency-key": func(t *trace) {
			t.send(submit(7, unavailable)).wait(2 * time.Second).send(submit(7, func(x *verdict.Exchange) { x.Key = "other" }))
		},
		"no-duplicates":         func(t *trace) { t.send(submit(7, lost)).wait(time.Second).send(again(7, 8)) },
		"same-body":             func(t *trace) { t.send(submit(7, func(x *verdict.Exchange) { x.Key = "key 2" })) },
		"one-job-per-intention": func(t *trace) { t.send(submit(7)).wait(time.Second).send(again(7, 8)) },
		"lost-answer": func(t *trace) {
			t.send(submit(7, lost, func(x *verdict.Exchange) { x.Key, x.Correlation = "", "order-x" }))
		},
		"outcome-learned":     func(t *trace) { t.send(submit(7)).end(7) },
		"stream-resume":       func(t *trace) { t.send(cut(stream("e3", "e4"))).wait(time.Second).send(stream("")) },
		"tolerant-reader":     func(t *trace) { t.send(submit(7)).send(poll(7, with(&fault.Effect{JobStatus: "PONDERING"}))) },
		"deliveries-answered": func(t *trace) { t.attempt(verdict.Attempt{Number: 2, Status: 500, Error: "HTTP_5XX"}) },
		"tampered-refused":    func(t *trace) { t.sent(fault.Effect{Tamper: fault.TamperKey}, 202) },
		"repeated-delivery":   func(t *trace) { t.sent(fault.Effect{Repeat: 1}, 409) },
		"not-retryable": func(t *trace) {
			t.wait(time.Second).send(verdict.Exchange{
				Method: "POST", Path: "/v1/jobs/x/retry", Operation: "retry", Role: verdict.Retry, Job: id(3),
				Status: 409, Code: "CONFLICT", Reused: true,
			})
		},
		"key-renewal":   func(t *trace) { t.send(poll(7, func(x *verdict.Exchange) { x.Status, x.Expired = 401, true })) },
		"no-key-in-url": func(t *trace) { t.send(poll(7, func(x *verdict.Exchange) { x.KeyInURL = true })) },
		"connection-reuse": func(t *trace) {
			for i := range t.Exchanges {
				t.Exchanges[i].Reused = false
			}
		},
		"time-outs": func(t *trace) { t.send(poll(7, with(&fault.Effect{Delay: fault.Duration(35e9)}))) },
		"redirects": func(t *trace) {
			t.send(poll(7, with(&fault.Effect{Moved: 308}), func(x *verdict.Exchange) {
				x.Status, x.Shown, x.RetryAfter, x.ETag = 308, nil, nil, ""
			}))
		},
		"content-negotiation": func(t *trace) {
			t.send(poll(7, func(x *verdict.Exchange) { x.Status, x.Code, x.Accept = 406, "NOT_ACCEPTABLE", "text/csv" }))
		},
		"correlation-ids": func(t *trace) { t.send(submit(7, func(x *verdict.Exchange) { x.Correlation = "" })) },
	} {
		trace := right()
		breaks(trace)
		v := trace.judge()
		broken, _ := statuses(v)
		if rule == "lost-answer" || rule == "no-duplicates" { // breaking one of these rules breaks other rules too
			require.Contains(t, broken, rule)
			continue
		}
		require.Equal(t, []string{rule}, broken, "%s: %+v", rule, v)
		require.Equal(t, broken, slices.Collect(maps.Keys(marked(v))), "in the journal")
		want := map[verdict.Level]verdict.Conclusion{verdict.Must: verdict.Failed, verdict.Should: verdict.Warned}
		require.Equal(t, want[levels[rule]], v.Verdict, rule)
	}
	require.Len(t, verdict.IDs(), 28)
}

func TestFaultsAreCounted(t *testing.T) {
	t.Parallel()
	trace := right()
	trace.Session.Profile = fault.FlakyNetwork
	v := trace.judge()
	require.Equal(t, verdict.Passed, v.Verdict)
	require.Contains(t, v.Why, "rules passed. 4 of the profile's faults did not happen.")
	counts := map[string][2]int{}
	for _, f := range v.Faults {
		counts[fmt.Sprint(f.Of, ": ", f.Fault)] = [2]int{f.Times, f.Requests}
	}
	require.Equal(t, [2]int{1, 6}, counts["submissions: response lost after processing"])
	require.Equal(t, [2]int{0, 6}, counts["submissions: connection reset before processing"])
	require.Equal(t, [2]int{1, 2}, counts["event streams: stream cut"])
	require.Equal(t, [2]int{0, 0}, counts["reads of results and reports: response cut in the middle"])
	require.Contains(t, counts, "deliveries: forged delivery")

	trace = newTrace().send(poll(1, unavailable, with(&fault.Effect{Status: 503, RetryAfter: new(2)})))
	trace.Session.Profile = fault.MaintenanceWindow
	for _, f := range trace.judge().Faults {
		require.Equal(t, f.Fault != "503 with Retry-After", f.Times == 0, f)
	}
	v = newTrace().judge()
	require.Empty(t, v.Faults)
	for _, r := range v.Results {
		if r.Rule == "backoff" {
			require.Equal(t, "Send requests, with the profile default, overloaded, maintenance-window, odd-retry-after, credentials or outage.",
				r.Exercise)
		}
	}
	for _, r := range verdict.Of(&verdict.Record{Session: verdict.Session{Profile: fault.Overloaded, Rules: []string{"backoff"}}}).Results {
		require.Equal(t, "Send requests.", r.Exercise, "the profile exercises the rule, so no other is named")
	}
}

func TestDroppedDeliveriesAreNotTheClients(t *testing.T) {
	t.Parallel()
	trace := right().sent(fault.Effect{Drop: true}, 0).sent(fault.Effect{Tamper: fault.TamperBody}, 0).sent(fault.Effect{Repeat: 1}, 0)
	broken, _ := statuses(trace.attempt(verdict.Attempt{Number: 2, Error: "CONNECTION_LOST"}).judge())
	require.Empty(t, broken)
}

func TestStandards(t *testing.T) {
	t.Parallel()
	bare := func(x *verdict.Exchange) { x.Key, x.Correlation = "", "" }
	put := func(x *verdict.Exchange) { x.Method = "PUT" }
	for name, c := range map[string]struct {
		does   func(*trace)
		broken []string
	}{
		"repeats without a key": {func(t *trace) { t.send(submit(1, bare, lost)).send(submit(1, bare)) }, []string{"idempotency-key"}},
		"creates a duplicate": {func(t *trace) {
			t.send(submit(1, bare, lost)).send(submit(1, bare, func(x *verdict.Exchange) { x.Made, x.Job = id(2), id(2) }))
		}, []string{"idempotency-key", "no-duplicates"}},
		"creates a duplicate in an undescribed API": {func(t *trace) {
			created := func(name string) func(x *verdict.Exchange) {
				return func(x *verdict.Exchange) { x.Role, x.Made, x.Job, x.Created = "", "", "", name }
			}
			t.send(submit(1, bare, lost, created("a"))).send(submit(1, bare, created("b")))
		}, []string{"no-duplicates"}},
		"submits another job after giving up": {func(t *trace) {
			t.send(submit(1, lost)).send(submit(1, func(x *verdict.Exchange) {
				x.Key, x.Correlation, x.Made, x.Job = "other", "order-2", id(2), id(2)
			}))
		}, nil},
		"repeats a submission with its key": {func(t *trace) { t.send(submit(1, lost)).send(submit(1)) }, nil},
		"repeats an idempotent request":     {func(t *trace) { t.send(submit(1, bare, lost, put)).send(submit(1, bare, put)) }, nil},
		"submits two equal jobs": {func(t *trace) {
			t.send(submit(1, bare, lost)).send(submit(1, bare)).send(submit(1, bare))
		}, nil},
		"checks whether the job exists": {func(t *trace) { t.send(submit(1, bare, lost)).send(list(1)).send(submit(1, bare)) }, nil},
		"repeats a refused submission": {func(t *trace) {
			t.send(submit(1, bare, unavailable)).wait(2 * time.Second).send(submit(1, bare))
		}, nil},
	} {
		trace := newTrace()
		trace.Standards, trace.Session.Rules = true, verdict.StandardIDs()
		c.does(trace)
		v := trace.judge()
		broken, _ := statuses(v)
		require.Equal(t, c.broken, broken, name)
		require.Equal(t, slices.Contains(c.broken, "no-duplicates"), v.Verdict == verdict.Failed, name)
	}
	for _, r := range rulesFor(true) {
		require.Equal(t, slices.Contains(verdict.StandardIDs(), r.Rule), !strings.HasSuffix(r.See, "api.md#what-a-client-does"), r.Rule)
		require.NotRegexp(t, "CUSTOM|callback|Idempotency-Key|X-Correlation-ID", r.Exercise, "names something of ForgeRun's own API")
		require.Equal(t, r.Reason == "no webhooks", strings.Contains(r.Exercise, "FORGERUN_WEBHOOK_URL"), r.Rule)
	}
}

func TestPagesHaveTheRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/testbed.md")
	require.NoError(t, err)
	api, err := os.ReadFile("../docs/reference/api.md")
	require.NoError(t, err)
	for _, r := range rulesFor(false) {
		require.Contains(t, string(page), fmt.Sprintf("\n- [`%s`](%s) (%s): ", r.Rule, r.See, r.Level))
		if strings.HasSuffix(r.See, "api.md#what-a-client-does") {
			require.Contains(t, string(api), "\n- "+r.Quote+"\n")
		}
		word := map[verdict.Level]string{verdict.Must: "must", verdict.Should: "(should|ought to)"}[r.Level]
		if r.Rule == "no-duplicates" {
			word = "should" // this rule has the level must, although its quote says "should"
		}
		require.Regexp(t, "(?i)"+word, r.Quote)
	}
	for _, r := range rulesFor(true) {
		if strings.Contains(r.See, "testbed.md") {
			require.Contains(t, string(page), r.Quote)
		}
	}
}
