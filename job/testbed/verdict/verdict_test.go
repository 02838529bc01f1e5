package verdict_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/job/testbed/verdict"
)

var begin = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

// trace is made of requests, one after the other.
type trace struct {
	verdict.Record
	now time.Time
}

func newTrace() *trace {
	ended := begin.Add(time.Hour)
	return &trace{now: begin, Record: verdict.Record{
		Now:     ended,
		Session: testbed.Session{ID: id(0), Rules: verdict.IDs(), CreatedAt: job.Time(begin), EndedAt: job.TimeOf(&ended)},
	}}
}

func id(n byte) job.ID { return job.ID{15: n, 6: 0x70, 8: 0x80} }

// wait lets time pass.
func (t *trace) wait(d time.Duration) *trace {
	t.now = t.now.Add(d)
	return t
}

// send adds a request that takes 10 ms.
func (t *trace) send(x testbed.Exchange) *trace {
	t.wait(time.Millisecond)
	x.Start = t.now
	t.wait(10*time.Millisecond + time.Duration(faultOf(x).Delay))
	x.End = t.now
	if x.KeyID == "" {
		x.KeyID = "k1"
	}
	t.Exchanges = append(t.Exchanges, x)
	return t
}

func faultOf(x testbed.Exchange) testbed.Effect {
	if x.Fault == nil {
		return testbed.Effect{}
	}
	return *x.Fault
}

func submit(n byte, change ...func(*testbed.Exchange)) testbed.Exchange {
	x := testbed.Exchange{
		Method: "POST", Path: "/v1/jobs", Operation: "submitJob", Status: 202, Made: id(n), Job: id(n), Reused: true,
		Key: fmt.Sprintf("key %d", n), Body: fmt.Sprintf("body %d", n), Correlation: fmt.Sprintf("order-%d", n), ContentType: "application/json",
		Shown: []job.ID{id(n)},
	}
	for _, c := range change {
		c(&x)
	}
	return x
}

func poll(n byte, change ...func(*testbed.Exchange)) testbed.Exchange {
	one := 1
	x := testbed.Exchange{
		Method: "GET", Path: "/v1/jobs/" + id(n).String(), Operation: "getJob", Status: 200, Job: id(n), RetryAfter: &one, ETag: `"1"`,
		Shown: []job.ID{id(n)}, Reused: true,
	}
	for _, c := range change {
		c(&x)
	}
	return x
}

func stream(last string, ids ...string) testbed.Exchange {
	return testbed.Exchange{
		Method: "GET", Path: "/v1/events", Operation: "clientEvents", Status: 200, LastEventID: last, Reused: true,
		Stream: &testbed.Part{Events: len(ids), IDs: ids},
	}
}

func lost(x *testbed.Exchange)        { x.Fault = &testbed.Effect{Close: testbed.AfterCommit} }
func conditional(x *testbed.Exchange) { x.IfNoneMatch = `"1"` }
func final(x *testbed.Exchange)       { x.Final, x.Shown, x.RetryAfter = []job.ID{x.Job}, nil, nil }

func unavailable(x *testbed.Exchange) {
	two := 2
	x.Status, x.Code, x.RetryAfter, x.Fault = 503, job.CodeStorageUnavailable, &two, &testbed.Effect{Status: 503}
	x.Made, x.Shown, x.Final, x.ETag = job.ID{}, nil, nil, ""
}

func with(f *testbed.Effect) func(*testbed.Exchange) {
	return func(x *testbed.Exchange) { x.Fault = f }
}

// right is what a client without a fault does, which exercises all rules.
func right() *trace {
	t := newTrace()
	t.send(submit(1, lost)).wait(time.Second).send(submit(1))
	t.send(submit(2, unavailable)).wait(2 * time.Second).send(submit(2))
	t.send(poll(1)).wait(time.Second).send(poll(1, conditional, with(&testbed.Effect{Extensions: true})))
	t.wait(time.Second).send(poll(1, conditional, final))
	t.send(poll(2, unavailable)).wait(2 * time.Second).send(poll(2)).wait(time.Second).send(poll(2, conditional, final))
	t.send(submit(3)).wait(time.Second).send(poll(3, final)).send(submit(4)).wait(time.Second).send(poll(4, final))
	t.send(poll(5, func(x *testbed.Exchange) {
		x.Path, x.Operation, x.Status, x.Fault = "/v1/limits", "", 308, &testbed.Effect{Moved: true}
	}))
	t.send(poll(5, func(x *testbed.Exchange) { x.Path, x.Operation = "/v1/limits", "" }))
	cut := stream("", "e1", "e2")
	cut.Fault, cut.Stream.Cut = &testbed.Effect{CutAfter: new(2)}, true
	t.send(cut).wait(time.Second).send(stream("e2", "e3"))
	t.send(poll(1, func(x *testbed.Exchange) {
		x.Path, x.HungUp, x.Fault = "/v1/jobs", true, &testbed.Effect{Delay: testbed.Duration(40e9)}
	}))
	t.Expiries = map[string]time.Time{"k1": t.now.Add(time.Second)}
	t.wait(2 * time.Second).send(poll(5, func(x *testbed.Exchange) { x.KeyID, x.Path, x.Operation = "k2", "/v1/jobs", "listJobs" }))
	for n := byte(1); n <= 4; n++ {
		t.Runs = append(t.Runs, testbed.Run{ID: id(n), State: job.Succeeded, Finished: begin.Add(time.Second)})
	}
	t.Runs[2].State = job.Failed
	t.Attempts = append(t.Attempts, testbed.Attempt{
		DeliveryID: id(9), JobID: id(1), Number: 1, Event: job.EventSucceeded, At: t.now, Took: time.Second, Status: 200,
	})
	t.sent(testbed.Effect{Tamper: testbed.TamperBody}, 401).sent(testbed.Effect{Repeat: 1}, 204)
	return t
}

// sent adds a request that the service sent besides a delivery.
func (t *trace) sent(e testbed.Effect, status int) *trace {
	return t.send(testbed.Exchange{Method: "POST", Operation: testbed.Delivery, Delivery: id(9), Number: 2, Status: status, Fault: &e})
}

// statuses are those of the rules that a trace broke or did not exercise.
func statuses(v testbed.Verdict) (broken, missing []string) {
	for _, r := range v.Results {
		switch r.Status {
		case testbed.Broken:
			broken = append(broken, r.Rule)
		case testbed.NotExercised:
			missing = append(missing, r.Rule)
		}
	}
	return broken, missing
}

func TestRightClient(t *testing.T) {
	t.Parallel()
	v := verdict.Of(&right().Record)
	broken, missing := statuses(v)
	require.Empty(t, broken, "%+v", v)
	require.Empty(t, missing)
	require.Equal(t, testbed.Right, v.Verdict)
	for _, r := range v.Results {
		require.NotEmpty(t, r.Evidence, r.Rule)
		require.Empty(t, r.Exercise)
	}
	empty := verdict.Of(&newTrace().Record)
	require.Equal(t, testbed.Incomplete, empty.Verdict)
	require.Len(t, empty.Results, len(verdict.IDs()))
	for _, r := range empty.Results {
		require.Equal(t, testbed.NotExercised, r.Status)
		require.NotEmpty(t, r.Exercise)
	}
}

// For each rule a client that breaks it alone.
func TestEachRuleIsBrokenAlone(t *testing.T) {
	t.Parallel()
	levels := map[string]testbed.Level{}
	for _, r := range verdict.Rules() {
		levels[r.ID] = r.Level
	}
	again := func(t *trace, x testbed.Exchange, times int) {
		for range times {
			t.wait(time.Second).send(x)
		}
	}
	for rule, breaks := range map[string]func(*trace){
		"retry-after": func(t *trace) {
			t.send(submit(7)).send(poll(7)).wait(200 * time.Millisecond).send(poll(7, conditional))
		},
		"stop-at-end":          func(t *trace) { again(t, poll(1, conditional, final), 4) },
		"conditional-requests": func(t *trace) { t.send(submit(7)).send(poll(7)).wait(time.Second).send(poll(7)) },
		"backoff":              func(t *trace) { t.send(submit(7, unavailable)).wait(time.Second).send(submit(7)) },
		"retry-only-retryable": func(t *trace) {
			again(t, submit(7, func(x *testbed.Exchange) {
				x.Status, x.Code, x.Made, x.Shown = 400, job.CodeValidationFailed, job.ID{}, nil
			}), 4)
		},
		"idempotency-key": func(t *trace) {
			t.send(submit(7, unavailable)).wait(2 * time.Second).send(submit(7, func(x *testbed.Exchange) { x.Key = "other" }))
		},
		"same-body": func(t *trace) { t.send(submit(7, func(x *testbed.Exchange) { x.Key = "key 2" })) },
		"one-job-per-intention": func(t *trace) {
			t.send(submit(7)).wait(time.Second).send(submit(7, func(x *testbed.Exchange) { x.Key, x.Made, x.Job = "other", id(8), id(8) }))
		},
		"lost-answer": func(t *trace) {
			t.send(submit(7, lost, func(x *testbed.Exchange) { x.Key, x.Correlation = "", "order-x" }))
		},
		"outcome-learned": func(t *trace) {
			t.send(submit(7))
			t.Runs = append(t.Runs, testbed.Run{ID: id(7), State: job.Succeeded, Finished: t.now})
		},
		"stream-resume": func(t *trace) {
			x := stream("e3", "e4")
			x.Fault, x.Stream.Cut = &testbed.Effect{CutAfter: new(1)}, true
			t.send(x).wait(time.Second).send(stream(""))
		},
		"tolerant-reader": func(t *trace) { t.send(submit(7)).send(poll(7, with(&testbed.Effect{JobStatus: "PONDERING"}))) },
		"deliveries-answered": func(t *trace) {
			t.Attempts = append(t.Attempts, testbed.Attempt{DeliveryID: id(9), Number: 2, At: t.now, Status: 500, Error: "HTTP_5XX"})
		},
		"tampered-refused":  func(t *trace) { t.sent(testbed.Effect{Tamper: testbed.TamperKey}, 202) },
		"repeated-delivery": func(t *trace) { t.sent(testbed.Effect{Repeat: 1}, 409) },
		"not-retryable": func(t *trace) {
			t.wait(time.Second).send(testbed.Exchange{
				Method: "POST", Path: "/v1/jobs/x/retry", Operation: "retryJob", Job: id(3), Status: 409, Code: job.CodeConflict, Reused: true,
			})
		},
		"key-renewal": func(t *trace) {
			t.send(poll(7, func(x *testbed.Exchange) { x.Status, x.Code = 401, job.CodeTokenExpired }))
		},
		"no-key-in-url": func(t *trace) { t.send(poll(7, func(x *testbed.Exchange) { x.KeyInURL = true })) },
		"connection-reuse": func(t *trace) {
			for i := range t.Exchanges {
				t.Exchanges[i].Reused = false
			}
		},
		"time-outs": func(t *trace) { t.send(poll(7, with(&testbed.Effect{Delay: testbed.Duration(35e9)}))) },
		"redirects": func(t *trace) {
			t.send(poll(7, func(x *testbed.Exchange) { x.Status, x.Shown, x.RetryAfter, x.ETag = 308, nil, nil, "" }))
		},
		"content-negotiation": func(t *trace) {
			t.send(poll(7, func(x *testbed.Exchange) { x.Status, x.Code, x.Accept = 406, job.CodeNotAcceptable, "text/csv" }))
		},
		"correlation-ids": func(t *trace) { t.send(submit(7, func(x *testbed.Exchange) { x.Correlation = "" })) },
	} {
		trace := right()
		breaks(trace)
		v := verdict.Of(&trace.Record)
		broken, _ := statuses(v)
		if rule == "lost-answer" { // nobody repeated it either
			require.Contains(t, broken, rule)
			continue
		}
		require.Equal(t, []string{rule}, broken, "%s: %+v", rule, v)
		want := map[testbed.Level]testbed.Conclusion{testbed.Must: testbed.Wrong, testbed.Should: testbed.Improvable}
		require.Equal(t, want[levels[rule]], v.Verdict, rule)
	}
	require.Len(t, verdict.IDs(), 23)
}

// The verdict tells which faults happened to which requests, and which of the profile did not.
func TestFaultsAreCounted(t *testing.T) {
	t.Parallel()
	trace := right()
	trace.Session.Profile = testbed.FlakyNetwork
	v := verdict.Of(&trace.Record)
	require.Equal(t, testbed.Incomplete, v.Verdict, "no submission was closed before the work")
	counts := map[string][2]int{}
	for _, f := range v.Faults {
		counts[fmt.Sprint(f.Of, ": ", f.Fault)] = [2]int{f.Times, f.Requests}
	}
	require.Equal(t, [2]int{1, 6}, counts["submissions: answer lost after the work"])
	require.Equal(t, [2]int{0, 6}, counts["submissions: connection closed before the work"])
	require.Equal(t, [2]int{1, 2}, counts["event streams: stream cut"])
	require.Equal(t, [2]int{0, 0}, counts["reads of results and reports: answer cut in the middle"])
	require.Contains(t, counts, "deliveries: forged delivery")

	trace = newTrace().send(poll(1, unavailable, with(&testbed.Effect{Status: 503, RetryAfter: new(2)})))
	trace.Session.Profile = testbed.MaintenanceWindow
	for _, f := range verdict.Of(&trace.Record).Faults {
		require.Equal(t, f.Fault != "503 with Retry-After", f.Times == 0, f)
	}
	v = verdict.Of(&newTrace().Record)
	require.Empty(t, v.Faults)
	for _, r := range v.Results {
		if r.Rule == "backoff" {
			require.Equal(t, "Requests, with the profile overloaded or maintenance-window.", r.Exercise)
		}
	}
	for _, r := range verdict.Of(&verdict.Record{Session: testbed.Session{Profile: testbed.Overloaded, Rules: []string{"backoff"}}}).Results {
		require.Equal(t, "Requests.", r.Exercise, "of the profile that is there")
	}
}

// Who gets nothing cannot answer.
func TestDroppedDeliveriesAreNotTheClients(t *testing.T) {
	t.Parallel()
	trace := right().sent(testbed.Effect{Drop: true}, 0).sent(testbed.Effect{Tamper: testbed.TamperBody}, 0).sent(testbed.Effect{Repeat: 1}, 0)
	trace.Attempts = append(trace.Attempts, testbed.Attempt{DeliveryID: id(9), Number: 2, At: trace.now, Error: string(job.SendReset)})
	broken, _ := statuses(verdict.Of(&trace.Record))
	require.Empty(t, broken)
}

// A connection that a fault has closed is not one that the client should have kept.
func TestClosedConnectionsAreNotTheClients(t *testing.T) {
	t.Parallel()
	for _, f := range []testbed.Effect{{SlowBytes: 4096}, {Close: testbed.CloseMidBody}} {
		trace := newTrace()
		for n := byte(1); n < 15; n++ {
			trace.wait(time.Second).send(submit(n, with(&f), func(x *testbed.Exchange) { x.Reused = false }))
		}
		broken, _ := statuses(verdict.Of(&trace.Record))
		require.NotContains(t, broken, "connection-reuse")
	}
}

// The page about the test bed has a row for each rule, and our own sentences are where the rules say. Each says how much it asks for.
func TestPagesHaveTheRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/reference/testbed.md")
	require.NoError(t, err)
	api, err := os.ReadFile("../../../docs/reference/api.md")
	require.NoError(t, err)
	for _, r := range verdict.Rules() {
		require.Contains(t, string(page), fmt.Sprintf("| [`%s`](%s) | %s | %s | %s |\n", r.ID, r.See, r.Title, r.Level, r.Exercise))
		if strings.HasSuffix(r.See, "api.md#what-a-client-does") {
			require.Contains(t, string(api), "\n- "+r.Quote+"\n")
		}
		word := map[testbed.Level]string{testbed.Must: "must", testbed.Should: "(should|ought to)"}[r.Level]
		require.Regexp(t, "(?i)"+word, r.Quote)
	}
}
