package verdict_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func refused(status int) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) {
		x.Status, x.Fault = status, &fault.Effect{Status: status}
		x.Made, x.Shown, x.Final, x.RetryAfter, x.ETag = "", nil, nil, nil, ""
		if x.Role == verdict.Submit {
			x.Job = ""
		}
	}
}

func unasked(x *verdict.Exchange) {
	refused(0)(x)
	x.Fault = &fault.Effect{Close: fault.CloseBefore, Reset: true}
}

func within(seconds int) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) { x.RetryAfter = &seconds }
}

func (t *trace) every(pause time.Duration, times int, x verdict.Exchange) *trace {
	return t.each(times, func(byte) { t.wait(pause).send(x) })
}

func renew() verdict.Exchange {
	return verdict.Exchange{Method: "POST", Path: "/v1/clients/c/keys/renew", Operation: "renewKey", Status: 201, Reused: true}
}

type judgedClient struct {
	ours, any verdict.Status
	does      func(*trace)
}

type clients map[string]judgedClient

func checkClients(t *testing.T, rule string, clients clients) {
	t.Helper()
	for name, c := range clients {
		for standards, want := range map[bool]verdict.Status{false: c.ours, true: c.any} {
			trace := newTrace()
			trace.Standards, trace.Session.Rules = standards, []string{rule}
			c.does(trace)
			r := trace.judge().Results[0]
			require.Equal(t, want, r.Status, "%s, any API: %v: %+v", name, standards, r)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	const ok, warn, not = verdict.OK, verdict.Warn, verdict.NotTested
	checkClients(t, "retry-only-retryable", clients{
		"retries once after 401":   {ok, ok, func(t *trace) { t.every(time.Second, 2, poll(7, refused(401))) }},
		"keeps retrying after 401": {warn, warn, func(t *trace) { t.every(time.Second, 3, poll(7, refused(401))) }},
		"retries without a key":    {warn, not, func(t *trace) { t.each(3, func(byte) { t.keyless(poll(7, refused(401))) }) }},
		"retries with a new key": {ok, ok, func(t *trace) {
			t.send(poll(7, refused(401))).send(renew()).send(poll(7, refused(401), by(1, "k2"))).send(poll(7, refused(401), by(1, "k2")))
		}},
		"submits several jobs that are refused": {ok, not, func(t *trace) {
			for _, key := range []string{"a", "b", "c", "d"} {
				t.send(submit(7, refused(400), func(x *verdict.Exchange) { x.Body, x.Key, x.Correlation = "", key, key }))
			}
		}},
		"is refused twice, succeeds, and is refused twice": {ok, ok, func(t *trace) {
			t.each(2, func(byte) { t.every(time.Second, 2, poll(7, refused(401))).wait(time.Second).send(poll(7)) })
		}},
		"is refused between outages": {warn, warn, func(t *trace) {
			t.each(3, func(byte) {
				t.wait(time.Second).send(poll(7, refused(401))).wait(time.Second).send(poll(7, refused(503)))
			})
		}},
		"keeps reading after 410":            {warn, warn, func(t *trace) { t.every(time.Second, 3, poll(7, refused(410))) }},
		"retries after 403 with Retry-After": {not, not, func(t *trace) { t.every(2*time.Second, 9, poll(7, refused(403), within(2))) }},
		"keeps retrying after 400":           {warn, not, func(t *trace) { t.every(time.Second, 3, poll(7, refused(400))) }},

		"reads a job that appears late": {ok, ok, func(t *trace) {
			t.send(submit(7)).every(time.Second, 3, poll(7, refused(404))).send(poll(7))
		}},
		"gives up on a missing job":             {ok, ok, func(t *trace) { t.send(submit(7)).every(time.Second, 10, poll(7, refused(404))) }},
		"polls a missing job":                   {warn, warn, func(t *trace) { t.send(submit(7)).every(time.Second, 11, poll(7, refused(404))) }},
		"reads a missing job twice":             {not, not, func(t *trace) { t.send(submit(7)).every(time.Second, 2, poll(7, refused(404))) }},
		"polls a missing job of another client": {not, not, func(t *trace) { t.every(time.Second, 11, poll(7, refused(404))) }},
		"polls a missing result":                {not, not, func(t *trace) { t.send(submit(7)).every(time.Second, 11, poll(7, result(404))) }},
		"polls a result that a fault withholds": {warn, warn, func(t *trace) {
			t.send(submit(7)).every(time.Second, 11, poll(7, result(404), refused(404)))
		}},
		"reads in eleven tabs": {not, not, func(t *trace) {
			t.send(submit(7))
			for n := range uint64(11) {
				t.send(poll(7, by(n+1, "k1"))).wait(time.Second).send(poll(8, by(n+1, "k1"), refused(404)))
			}
		}},

		"renews its key four times without success": {warn, not, func(t *trace) {
			for n := range 5 {
				t.wait(time.Second).send(poll(7, by(1, fmt.Sprint("k", n)), refused(401))).send(renew())
			}
		}},
		"renews its key three times without success": {ok, ok, func(t *trace) {
			for n := range 4 {
				t.wait(time.Second).send(poll(7, by(1, fmt.Sprint("k", n)), refused(401))).send(renew())
			}
		}},
		"renews its key each day": {ok, ok, func(t *trace) {
			for n := range 9 {
				t.wait(time.Second).send(poll(7, by(1, fmt.Sprint("k", n)), refused(401))).send(renew())
				t.send(poll(7, by(1, fmt.Sprint("k", n+1))))
			}
		}},
	})
}

func result(status int) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) {
		x.Role, x.Operation, x.Path, x.Status = verdict.Outcome, "result", x.Path+"/result", status
		x.Shown, x.RetryAfter, x.ETag = nil, nil, ""
	}
}

// A client gives up on a request after ten tries. Reads do not count, nor do requests that may be separate submissions.
func TestBudget(t *testing.T) {
	t.Parallel()
	const ok, warn, not = verdict.OK, verdict.Warn, verdict.NotTested
	plain := func(x *verdict.Exchange) { bare(x) }
	checkClients(t, "retry-budget", clients{
		"tries six times with a library that resends each try": {ok, ok, func(t *trace) {
			for n := range uint64(6) {
				t.wait(time.Second).send(submit(7, unasked, by(2*n+1, "k1"))).send(submit(7, unasked, alone, by(2*n+2, "k1")))
			}
		}},
		"gives up after ten":          {ok, ok, func(t *trace) { t.every(time.Second, 10, submit(7, refused(500))) }},
		"gives up after eleven":       {warn, warn, func(t *trace) { t.every(time.Second, 11, submit(7, refused(500))) }},
		"never gives up":              {warn, warn, func(t *trace) { t.every(time.Minute, 15, submit(7, unasked)) }},
		"succeeds in the end":         {not, not, func(t *trace) { t.every(time.Second, 9, submit(7, refused(500))).send(submit(7)) }},
		"succeeds after eleven":       {warn, warn, func(t *trace) { t.every(time.Second, 11, submit(7, refused(500))).send(submit(7)) }},
		"is refused in the end":       {not, not, func(t *trace) { t.every(time.Second, 9, submit(7, unasked)).send(submit(7, refused(422))) }},
		"tries once":                  {not, not, func(t *trace) { t.send(submit(7, refused(500))) }},
		"uses a new key for each try": {warn, not, func(t *trace) { t.each(11, func(n byte) { t.send(submit(7, refused(500), keyed(n))) }) }},
		"submits twelve jobs once":    {not, not, func(t *trace) { t.each(12, func(n byte) { t.send(submit(n, refused(500))) }) }},
		"submits twelve equal jobs":   {not, not, func(t *trace) { t.every(time.Second, 12, submit(7, plain, refused(500))) }},
		"cancels a job":               {warn, warn, func(t *trace) { t.every(time.Second, 11, cancel(7, refused(503))) }},
		"polls in an outage":          {not, not, func(t *trace) { t.every(time.Second, 60, poll(7, refused(503))) }},
		"tries two jobs six times each": {ok, ok, func(t *trace) {
			t.each(2, func(n byte) { t.every(time.Second, 6, submit(n, refused(500))) })
		}},
	})
}

func keyed(n byte) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) { x.Key = fmt.Sprint("try ", n) }
}

// A client obeys Retry-After with any status. Without Retry-After, the client waits longer each time.
func TestBackoff(t *testing.T) {
	t.Parallel()
	const ok, warn, fail, not = verdict.OK, verdict.Warn, verdict.Fail, verdict.NotTested
	once := func(x verdict.Exchange, wait time.Duration) func(*trace) {
		return func(t *trace) { t.send(x).wait(wait).send(x) }
	}
	storm := func(times int, x verdict.Exchange) func(*trace) { return func(t *trace) { t.every(0, times, x) } }
	undescribed := func(x *verdict.Exchange) { x.Role, x.Body = "", "" }
	all := clients{
		"retries too early after 403":                  {fail, warn, once(poll(7, refused(403), within(2)), time.Second)},
		"waits after 403":                              {ok, ok, once(poll(7, refused(403), within(2)), 2*time.Second)},
		"waits 2 s instead of 61 s":                    {fail, warn, once(poll(7, refused(429), within(61)), 2*time.Second)},
		"waits 10 s instead of 61 s with a submission": {fail, warn, once(submit(7, refused(503), within(61)), 10*time.Second)},
		"waits 61 s":                                   {ok, ok, once(submit(7, refused(503), within(61)), 61*time.Second)},
		"gives up at Retry-After: 61":                  {not, not, func(t *trace) { t.send(poll(7, refused(429), within(61))) }},
		"obeys only the first value": {fail, warn, func(t *trace) {
			t.send(poll(7, refused(429), within(1))).wait(time.Second).send(poll(7)).wait(time.Second)
			t.send(poll(7, refused(429), within(3))).wait(time.Second).send(poll(7))
		}},
		"obeys each value": {ok, ok, func(t *trace) {
			t.send(poll(7, refused(429), within(1))).wait(time.Second).send(poll(7)).wait(time.Second)
			t.send(poll(7, refused(429), within(3))).wait(3 * time.Second).send(poll(7))
		}},
		"retries at once after Retry-After: 0": {ok, ok, once(submit(7, refused(503), within(0)), 0)},
		"fails at once three times, with successes between": {ok, not, func(t *trace) {
			t.each(4, func(byte) { t.send(poll(7, unasked)).send(poll(7)).wait(time.Second) })
		}},
		"uses a new key for each of many immediate tries": {fail, warn, func(t *trace) {
			t.each(200, func(n byte) { t.send(submit(7, lost, keyed(n))) })
		}},
		"repeats a submission without a key at once": {not, warn, once(submit(7, bare, refused(503), within(1)), 0)},
		"submits two equal jobs without a key": {not, not, func(t *trace) {
			t.send(submit(7, bare, refused(503), within(1))).send(submit(7, bare)).send(submit(7, bare))
		}},
		"repeats an undescribed request at once": {fail, warn, storm(200, submit(7, refused(500), bare, undescribed))},
		"repeats a conflict at once":             {not, warn, storm(200, submit(7, refused(409)))},
		"repeats a read at once after 404":       {not, not, storm(200, poll(7, refused(404)))},
		"repeats a successful submission":        {not, not, storm(200, submit(7))},
		"submits many jobs that fail":            {not, not, func(t *trace) { t.each(50, func(n byte) { t.send(submit(n, refused(500))) }) }},
		"sends overlapping requests": {not, not, func(t *trace) {
			t.each(50, func(byte) {
				t.send(submit(7, refused(500), bare))
				last := &t.Exchanges[len(t.Exchanges)-1]
				last.End = last.End.Add(time.Minute)
			})
		}},
		"hangs up on slow answers": {ok, not, func(t *trace) {
			slow := func(x *verdict.Exchange) { x.HungUp, x.Fault = true, &fault.Effect{Delay: fault.Duration(20e9)} }
			t.every(0, 9, poll(7, slow))
		}},
	}
	for name, x := range map[string]verdict.Exchange{
		"a read after 500": poll(7, refused(500)), "a submission after 500": submit(7, refused(500)),
		"a read without an answer": poll(7, unasked), "a submission without an answer": submit(7, unasked),
		"a submission whose answer is lost": submit(7, lost),
	} {
		all["repeats "+name+" three times at once"] = judgedClient{fail, not, storm(4, x)}
		all["repeats "+name+" ten times at once"] = judgedClient{fail, warn, storm(11, x)}
		all["repeats "+name+" after a moment"] = judgedClient{ok, not, func(t *trace) { t.every(100*time.Millisecond, 11, x) }}
		all["repeats "+name+" twice at once"] = judgedClient{ok, not, storm(3, x)}
	}
	all["has a library that resends over each of its connections"] = judgedClient{not, not, func(t *trace) {
		for n := range uint64(12) {
			t.send(submit(7, unasked, by(n+1, "k1")))
		}
	}}
	checkClients(t, "backoff", all)
}

// A client that polls obeys a long Retry-After like a short one. Retry-After: 0 requires no wait.
func TestOddWaits(t *testing.T) {
	t.Parallel()
	const ok, warn, not = verdict.OK, verdict.Warn, verdict.NotTested
	reads := func(pause time.Duration, waits ...int) func(*trace) {
		return func(t *trace) {
			for _, seconds := range waits {
				t.send(poll(7, tagged, within(seconds))).wait(pause)
			}
			t.send(poll(7, tagged, noRetryAfter))
		}
	}
	checkClients(t, "retry-after", clients{
		"waits 2 s instead of 61 s":          {warn, warn, reads(2*time.Second, 61, 61, 61)},
		"waits 61 s":                         {ok, ok, reads(61*time.Second, 61, 61, 61)},
		"gives up":                           {not, not, func(t *trace) { t.send(poll(7, within(61))) }},
		"always waits half a second":         {warn, warn, reads(500*time.Millisecond, 3, 0, 2, 1)},
		"reads at once after Retry-After: 0": {not, not, reads(time.Millisecond, 0, 0, 0)},
		"ignores Retry-After of 202": {not, warn, func(t *trace) {
			t.each(3, func(n byte) { t.send(submit(n, within(61))).wait(2 * time.Second).send(poll(n)) })
		}},
	})
}

func TestStalledAnswers(t *testing.T) {
	t.Parallel()
	const ok, warn = verdict.OK, verdict.Warn
	stalled := poll(7, with(&fault.Effect{Close: fault.CloseStall}))
	checkClients(t, "time-outs", clients{
		"hangs up": {ok, ok, func(t *trace) {
			x := stalled
			x.HungUp = true
			t.send(x)
		}},
		"waits forever": {warn, warn, func(t *trace) { t.send(stalled) }},
	})
	trace := newTrace().send(submit(7, with(&fault.Effect{Close: fault.CloseStall}), func(x *verdict.Exchange) { x.HungUp = true }))
	trace.send(submit(7))
	trace.Exchanges[0].End = trace.now // the service noticed late that the client hung up
	require.Equal(t, verdict.OK, trace.result("lost-answer").Status)
}
