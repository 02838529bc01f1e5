package verdict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func TestRightWays(t *testing.T) {
	t.Parallel()
	longPoll := func(x *verdict.Exchange) { x.Prefer = "respond-async, wait=30" }
	refusal := func(x *verdict.Exchange) {
		x.Status, x.RetryAfter, x.ETag, x.Shown, x.Job = 403, nil, "", nil, ""
	}
	for name, does := range map[string]func(*trace){
		"uses long polling":            func(t *trace) { t.send(submit(7)).send(poll(7, longPoll)).send(poll(7, longPoll)) },
		"reads the job after an event": func(t *trace) { t.send(submit(7)).send(poll(7)).hear(7).send(poll(7)) },
		"is refused after an event":    func(t *trace) { t.send(submit(7)).send(poll(7, unavailable)).hear(7).send(poll(7)) },
		"sends a traceparent instead of a correlation id": func(t *trace) {
			t.send(submit(7, func(x *verdict.Exchange) { x.Correlation, x.Trace = "", "4bf9" }))
		},
		"reads several jobs without permission": func(t *trace) { t.each(5, func(n byte) { t.send(poll(20+n, refusal)) }) },
		"submits a failed job again":            func(t *trace) { t.wait(time.Second).send(submit(3)) },
		"waits for 40 s in a long poll": func(t *trace) {
			t.send(submit(7)).send(poll(7, longPoll, with(&fault.Effect{Delay: fault.Duration(40e9)})))
		},
		"resumes a silent stream at once": func(t *trace) {
			x := stream("e3", "e4")
			x.Stream.Cut, x.Fault = true, &fault.Effect{StallAfter: new(1)}
			t.send(x).send(stream("e4"))
		},
		"resumes a stream with a cursor": func(t *trace) {
			t.send(cut(stream("e3", "e4"))).wait(time.Second).send(of(stream(""), "cursor=abc", "k1"))
		},
		"resumes from an event of a killed process": func(t *trace) {
			t.send(cut(stream("e3", "e4"))).wait(time.Second).send(stream("e5"))
		},
		"checks at once whether the stream of an ended job is complete": func(t *trace) {
			x := stream("e3", "e4")
			x.Path, x.Job, x.Final = "/v1/jobs/7/events", id(7), []string{id(7)}
			x.Stream.Cut, x.Stream.Retry = true, 2000
			y := x
			y.LastEventID, y.Stream = "e4", &verdict.Part{}
			t.send(x).wait(5 * time.Millisecond).send(y)
		},
		"reads a list again after an event": func(t *trace) {
			t.send(submit(7)).each(5, func(byte) { t.send(list(7)).hear(7) })
		},
		"learns of the end on a stream of a killed process": func(t *trace) {
			x := stream("e3")
			x.Stream = &verdict.Part{Open: true}
			t.send(submit(7)).send(x).wait(10 * time.Second).send(stream("e5"))
			t.Runs = append(t.Runs, verdict.Run{ID: id(7), State: "SUCCEEDED", Finished: t.now.Add(-time.Second)})
		},
		"does not answer a delivery before the service gives up early": func(t *trace) {
			t.attempt(verdict.Attempt{Number: 2, Took: 5 * time.Second, Error: "TIMEOUT", GaveUp: true})
		},
		"reopens a stream that ended normally": func(t *trace) {
			x := stream("e3", "e4")
			x.Fault = &fault.Effect{Delay: fault.Duration(time.Second)}
			t.send(x).wait(time.Second).send(stream(""))
		},
	} {
		trace := right()
		does(trace)
		broken, _ := statuses(trace.judge())
		require.Empty(t, broken, name)
	}
}

func TestWrongWays(t *testing.T) {
	t.Parallel()
	for name, does := range map[string]struct {
		rule string
		do   func(*trace)
	}{
		"polls an unchanged job": {"retry-after", func(t *trace) {
			t.send(submit(7)).every(0, 4, poll(7, conditional, unchanged))
		}},
		"never learns of an end before the stream began": {"outcome-learned", func(t *trace) {
			x := stream("e3")
			x.Stream = &verdict.Part{Open: true}
			t.send(submit(7)).end(7).send(x)
			x = t.Exchanges[len(t.Exchanges)-1]
			x.Stream = &verdict.Part{Events: 1}
			t.Exchanges = append(t.Exchanges, x)
		}},
		"polls a missing report": {"retry-after", func(t *trace) {
			missing := poll(7, func(x *verdict.Exchange) {
				x.Role, x.Path, x.Status, x.Code, x.Shown = verdict.Outcome, x.Path+"/report", 404, "NOT_FINISHED", nil
			})
			t.send(submit(7)).each(4, func(byte) { t.send(missing) })
		}},
		"polls a final job with its ETag": {"stop-at-end", func(t *trace) {
			t.every(2*time.Second, 4, poll(1, conditional, unchanged, noRetryAfter))
		}},
		"repeats a batch without a key": {"idempotency-key", func(t *trace) {
			twice := submit(7, func(x *verdict.Exchange) {
				x.Role, x.Path, x.Key, x.Correlation = verdict.SubmitMany, "/v1/jobs/batch", "", ""
			})
			t.send(submit(7, func(x *verdict.Exchange) { *x = twice }, lost)).wait(time.Second).send(twice)
		}},
		"learns of an end too late": {"outcome-learned", func(t *trace) {
			t.send(submit(7)).end(7).wait(75 * time.Second).send(poll(7, conditional, final))
		}},
		"mistakes a failure that is retried for the end": {"outcome-learned", func(t *trace) {
			t.send(submit(7)).deliver(7)
			t.Attempts[len(t.Attempts)-1].Final = true
			t.Runs = append(t.Runs, verdict.Run{ID: id(7), State: "FAILED", Finished: t.now.Add(10 * time.Second)})
		}},
	} {
		trace := right()
		does.do(trace)
		broken, _ := statuses(trace.judge())
		require.Equal(t, []string{does.rule}, broken, name)
	}
}

func (t *trace) deliver(n byte) *trace {
	return t.wait(time.Millisecond).attempt(verdict.Attempt{DeliveryID: id(10), JobID: id(n), Number: 1, Event: "job.running", Status: 200})
}

func (t *trace) hear(n byte) *trace {
	x := stream("", "e9")
	x.Shown = []string{id(n)}
	return t.send(x)
}

func (t *trace) each(times int, do func(n byte)) *trace {
	for n := range times {
		do(byte(n))
	}
	return t
}

func TestEvidenceIsAPair(t *testing.T) {
	t.Parallel()
	r := newTrace().send(submit(7)).every(0, 9, poll(7, conditional)).result("retry-after")
	require.Equal(t, 8, r.Failures)
	require.Len(t, r.Evidence, 1)
	e := r.Evidence[0]
	require.Equal(t, 8, e.Times)
	require.Equal(t, "GET /v1/jobs/job-7", e.Before.Request)
	require.Equal(t, "200, Retry-After: 1, ETag: \"1\"", e.Before.Answer)
	require.Equal(t, []string{"If-None-Match: \"1\""}, e.Request.Headers)
	require.True(t, time.Time(e.Request.At).After(time.Time(e.Before.Until)))

	trace := newTrace().sent(fault.Effect{RotatedSecret: true}, 401).attempt(verdict.Attempt{Number: 2, Status: 401, Error: "HTTP_4XX"})
	e = trace.result("deliveries-answered").Evidence[0]
	require.Equal(t, `delivery also signed with a second secret {"rotated_secret":true}`, e.Request.Fault)
	require.Nil(t, e.Before)
}

func TestEvidenceNamesLostResponses(t *testing.T) {
	t.Parallel()
	for response, e := range map[string]fault.Effect{
		"none: a 202 was lost after processing":                             {Close: fault.AfterCommit},
		"none: the request was cut off before processing, with a TCP reset": {Close: fault.CloseBefore, Reset: true},
		"none: the service neither responded nor closed the connection":     {Close: fault.CloseNever},
		"cut off: only part of a 202 was sent":                              {Close: fault.CloseMidBody},
		"stalled: only part of a 202 arrived":                               {Close: fault.CloseStall},
	} {
		trace := newTrace().send(submit(7, with(&e), func(x *verdict.Exchange) { x.Made, x.Job, x.Shown = "", "", nil }))
		trace.wait(time.Second).send(submit(7, func(x *verdict.Exchange) { x.Key = "another" }))
		r := trace.result("idempotency-key")
		require.True(t, r.Status.Broken(), response)
		require.Equal(t, response, r.Evidence[0].Before.Answer)
	}
}

func TestCitations(t *testing.T) {
	t.Parallel()
	repeated := func(times int, x verdict.Exchange) func(*trace) {
		return func(t *trace) { t.every(time.Second, times, x) }
	}
	missing := func(t *trace) { t.send(submit(7)).every(time.Second, 40, poll(7, refused(404))) }
	forged := func(tampers ...fault.Tamper) func(*trace) {
		return func(t *trace) {
			for _, tamper := range tampers {
				t.sent(fault.Effect{Tamper: tamper}, 204)
			}
		}
	}
	lostMethod := func(status int) func(*trace) {
		return func(t *trace) { t.send(submit(1, byFault(status))).send(submit(1, asGet)) }
	}
	elsewhere := func(t *trace) {
		t.send(poll(7, on("a.example:80"), leads("http://B.example/v1/jobs/job-7"))).send(poll(7, on("b.example")))
	}
	for _, c := range []struct {
		rule           string
		does           func(*trace)
		linkEnd, found string
		quote          string
	}{
		{"retry-only-retryable", repeated(4, poll(7, refused(401))), "-15.5.2", "The client sent the refused request 4 times.", ""},
		{"retry-only-retryable", repeated(4, poll(7, refused(410))), "-15.5.11", "The client sent the refused request 4 times.", ""},
		{"retry-only-retryable", func(t *trace) {
			t.every(time.Second, 4, poll(7, refused(401))).every(time.Second, 4, poll(8, refused(403)))
		}, "-15.5.4", "The client sent the refused request 4 times.", ""},
		{"retry-only-retryable", missing, verdictSection, "The client read the job 40 times in a row, and it was never found.", "ten reads"},
		{"retry-budget", repeated(15, submit(7, refused(500))), "-9.2.2",
			"The client sent the same request 15 times in a row, and none succeeded.", ""},
		{"backoff", func(t *trace) { t.every(0, 200, submit(7, refused(503))) }, "-10.2.3",
			"The client sent the same request 200 times in 2.2 s, each time immediately after a failure.", ""},
		{"retry-after", func(t *trace) { t.every(200*time.Millisecond, 5, poll(7, tagged)) }, "-10.2.3",
			"The client read the same resource again after 0.2 s; Retry-After said 1 s.", ""},
		{"retry-after", func(t *trace) { t.every(0, 100, poll(7, noRetryAfter)) }, verdictSection,
			"The client read the same resource 50 times in a row, less than 50 ms apart.", "pause between polls"},
		{"stop-at-end", func(t *trace) { t.send(poll(7)).every(time.Second, 4, poll(7, final)) }, verdictSection,
			"The client read the finished job 3 more times.", "stop polling"},
		{"outcome-learned", func(t *trace) { t.send(submit(7)).end(7) }, verdictSection,
			"Job job-7 SUCCEEDED at 12:00:00; the client never learned this.", "within a minute of its end"},
		{"redirects", lostMethod(307), "-15.4.8", "The client followed the redirect with GET: the method and the body were lost.", ""},
		{"redirects", lostMethod(308), "-15.4.9", "The client followed the redirect with GET: the method and the body were lost.", ""},
		{"redirects", func(t *trace) { t.send(submit(1, byFault(303))).send(submit(1)) }, "-15.4.4",
			"The client followed a 303 redirect with POST, which repeated the request.", ""},
		{"redirects", loop(60), "-15.4", "The client followed 59 redirects in a row for one request.", ""},
		{"no-key-elsewhere", elsewhere, "-15.4", "The client followed a redirect from a.example:80 and sent its key to b.example.", ""},
		{"tampered-refused", forged(fault.TamperTimestamp), "#verifying-signatures",
			"The client returned 204 to an invalid delivery: the request was signed an hour ago.", "Make sure to verify"},
		{"tampered-refused", forged(fault.TamperKey, fault.TamperBody), "#webhook-headers-sending-metadata-to-consumers",
			"The client returned 204 to an invalid delivery: it was not signed with the service's key and secret.", "valid signature"},
		{"tampered-refused", forged(fault.TamperTarget, fault.TamperTimestamp), "#verifying-signatures",
			"The client returned 204 to an invalid delivery: the request was signed for another receiver.",
			"valid signature. [...] Make sure to verify"},
	} {
		trace := newTrace()
		trace.Standards = true
		c.does(trace)
		r := trace.result(c.rule)
		require.True(t, strings.HasSuffix(r.See, c.linkEnd), "%s: %s", c.rule, r.See)
		require.Contains(t, r.Quote, c.quote)
		require.Equal(t, c.found, r.Evidence[0].Found)
	}
	trace := newTrace()
	missing(trace)
	require.Contains(t, trace.result("retry-only-retryable").See, "api.md", "our API has its own demand")
}

const verdictSection = "/docs/reference/testbed.md#sessions-and-the-verdict"
