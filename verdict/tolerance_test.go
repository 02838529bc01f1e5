package verdict_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func follow(n byte, e fault.Effect, change ...func(*verdict.Exchange)) verdict.Exchange {
	x := stream("", "e1", "e2")
	x.Path, x.Job, x.Shown, x.Fault = "/v1/jobs/"+id(n)+"/events", id(n), []string{id(n)}, &e
	for _, c := range change {
		c(&x)
	}
	return x
}

func (t *trace) rewritten(number, status int, e fault.Effect) *trace {
	t.send(verdict.Exchange{Method: "POST", Role: verdict.Delivery, Delivery: id(9), Number: number, Status: status, Fault: &e})
	return t.attempt(verdict.Attempt{
		JobID: id(7), Number: number, Event: "job.running", Status: status, Error: map[bool]string{true: "HTTP_4XX"}[status/100 != 2],
	})
}

func TestUnknownThings(t *testing.T) {
	t.Parallel()
	const ok, warn, fail, not = verdict.OK, verdict.Warn, verdict.Fail, verdict.NotTested
	odd := fault.Effect{Status: 503, ProblemType: "https://example.com/later", Extensions: true}
	strange := poll(7, refused(503), within(1), with(&odd))
	events := fault.Effect{ExtraEvents: true}
	sees := func(x verdict.Exchange, goesOn bool) func(*trace) {
		return func(t *trace) {
			t.send(submit(7)).send(x).wait(time.Second)
			if t.end(7); goesOn {
				t.send(poll(7, final))
			}
		}
	}
	all := clients{
		"gives up at an unknown error": {fail, warn, func(t *trace) {
			t.send(submit(7)).send(poll(7, refused(503))).wait(time.Second).send(strange).wait(time.Second).end(7)
		}},
		"gives up at the only error": {not, not, sees(strange, false)},
		"continues after the error":  {ok, ok, sees(strange, true)},
		"continues over another connection, and does not find the job": {ok, ok, func(t *trace) {
			t.send(submit(7)).send(poll(8, by(2, "k1"))).send(strange).wait(time.Second)
			t.send(poll(7, refused(404), by(2, "k1"))).send(poll(7, refused(404), by(2, "k1"))).end(7)
		}},
		"reads a job once after a submission with unknown members": {ok, ok, func(t *trace) {
			made := submit(7, with(&fault.Effect{Extensions: true}))
			made.Shown = []string{id(7)}
			t.send(made).send(poll(7, refused(503))).wait(time.Second).end(7)
		}},
		"sees an unknown state after the end": {not, not, func(t *trace) {
			t.send(submit(7)).wait(time.Second).end(7)
			t.send(poll(7, final)).send(poll(7, with(&fault.Effect{Unfinished: true, JobStatus: "PONDERING"})))
		}},
		"gives up at any error": {not, not, func(t *trace) {
			t.send(submit(7)).send(submit(8)).send(poll(8, refused(503))).send(strange).wait(time.Second).end(7).end(8)
		}},
		"leaves before the job ends": {not, not, func(t *trace) { t.send(submit(7)).send(strange).wait(2 * time.Hour).end(7) }},
		"gets a known error with unknown members": {not, not, func(t *trace) {
			t.send(submit(7)).send(poll(7, refused(404), with(&fault.Effect{Status: 404, Extensions: true}))).end(7)
		}},
		"stops at an unknown event":      {fail, warn, sees(follow(7, events), false)},
		"reads the job after the stream": {ok, ok, sees(follow(7, events), true)},
		"sees the end on the stream":     {ok, ok, sees(follow(7, events, func(x *verdict.Exchange) { x.Final = x.Shown }), false)},
		"stops at an unfinished state":   {not, not, sees(poll(7, with(&fault.Effect{Unfinished: true})), false)},
		"sees another end":               {not, not, sees(poll(7, final, with(&fault.Effect{OtherEnd: true})), true)},
		"accepts a list with unknown members": {ok, ok, func(t *trace) {
			x := list(7)
			x.Fault = &fault.Effect{Extensions: true}
			t.send(submit(7)).send(x).wait(time.Second).end(7).send(poll(7, final))
		}},
		"stops at a list with unknown members": {fail, warn, func(t *trace) {
			x := list(7)
			x.Fault = &fault.Effect{Extensions: true}
			t.send(submit(7)).send(x).wait(time.Second).end(7)
		}},
		"lists jobs of other clients": {not, not, func(t *trace) {
			x := list(8)
			x.Fault = &fault.Effect{Extensions: true}
			t.send(submit(7)).send(x).wait(time.Second).send(poll(7)).end(7)
		}},
		"accepts a delivery with unknown members":  {ok, ok, func(t *trace) { t.rewritten(1, 204, fault.Effect{Extensions: true}) }},
		"refuses an unknown state":                 {fail, warn, func(t *trace) { t.rewritten(1, 400, fault.Effect{JobStatus: "PONDERING"}) }},
		"does not answer a delivery":               {not, not, func(t *trace) { t.rewritten(1, 0, fault.Effect{Extensions: true}) }},
		"refuses a delivery without unknown parts": {not, not, func(t *trace) { t.rewritten(1, 400, fault.Effect{RotatedSecret: true}) }},
	}
	for name, e := range map[string]fault.Effect{
		"an unknown state": {Unfinished: true, JobStatus: "PONDERING"}, "null": {Unfinished: true, NullOptional: true},
		"less": {Unfinished: true, OmitOptional: true, Extensions: true}, "an unknown type": {ProblemType: "https://example.com/later"},
	} {
		all["stops at "+name] = judgedClient{fail, warn, sees(poll(7, with(&e)), false)}
		all["continues after "+name] = judgedClient{ok, ok, sees(poll(7, with(&e)), true)}
	}
	checkClients(t, "tolerant-reader", all)
}

// A client stops polling at any final state of the API. It may go on polling if a later response shows the job unfinished again.
func TestOtherEnds(t *testing.T) {
	t.Parallel()
	const ok, warn, not = verdict.OK, verdict.Warn, verdict.NotTested
	other := poll(7, final, with(&fault.Effect{OtherEnd: true}))
	checkClients(t, "stop-at-end", clients{
		"stops":    {ok, ok, func(t *trace) { t.send(poll(7)).wait(time.Second).send(other) }},
		"reads on": {warn, warn, func(t *trace) { t.send(poll(7)).every(time.Second, 4, other) }},
		"reads a job that continues after all": {ok, ok, func(t *trace) {
			t.send(poll(7)).every(time.Second, 2, poll(7, final)).every(time.Second, 5, poll(7)).every(time.Second, 3, poll(7, final))
		}},
		"reads on before the job continues after all": {warn, warn, func(t *trace) {
			t.send(poll(7)).every(time.Second, 5, poll(7, final)).every(time.Second, 2, poll(7)).every(time.Second, 1, poll(7, final))
		}},
		"does not read": {not, not, func(t *trace) { t.send(submit(7)) }},
	})
}

// A client may give up on a job after repeated refusals. It must not give up at the first one.
func TestJobsThatAreGivenUp(t *testing.T) {
	t.Parallel()
	const ok, warn, fail, not = verdict.OK, verdict.Warn, verdict.Fail, verdict.NotTested
	ends := func(x ...verdict.Exchange) func(*trace) {
		return func(t *trace) {
			t.send(submit(7))
			for _, x := range x {
				t.wait(time.Second).send(x)
			}
			t.end(7)
		}
	}
	other := func(t *trace) { t.wait(time.Second).send(submit(8)).end(8).wait(time.Second).send(poll(8, final)) }
	gone, key, late, none, busy := poll(7, refused(410)), poll(7, refused(401)), poll(7, refused(404)), poll(7, unasked), poll(7, refused(503))
	long := poll(7, refused(429), within(61))
	all := clients{
		"at one 401, while its key works": {fail, warn, ends(poll(7), key)},
		"at one 404":                      {fail, warn, ends(late)},
		"at one 503":                      {fail, warn, ends(poll(7), busy)},
		"at one lost connection":          {fail, warn, ends(poll(7), none)},
		"after 401 twice":                 {not, not, ends(poll(7), key, key)},
		"after 404 ten times":             {not, not, ends(late, late, late, late, late, late, late, late, late, late)},
		"at 410":                          {not, not, ends(poll(7), gone)},
		"after no response twice":         {not, not, ends(poll(7), none, none)},
		"after 503 three times":           {not, not, ends(poll(7), busy, busy, busy)},
		"at Retry-After: 61":              {not, not, ends(poll(7), long)},
		"at a redirect to another host":   {not, not, ends(poll(7, on("a.example"), leads("http://b.example/")))},
		"after a redirect loop":           {not, not, ends(poll(7, byFault(307)), poll(7, byFault(307)), poll(7, byFault(307)))},
		"at a missing report":             {fail, warn, ends(poll(7, result(404)), poll(7, result(404)))},
		"after 401 twice and a success":   {fail, warn, ends(key, key, poll(7))},
		"and reads another job":           {not, not, func(t *trace) { ends(gone)(t); other(t) }},
		"and never reads another job": {fail, warn, func(t *trace) {
			t.send(submit(9)).end(9)
			ends(gone)(t)
			other(t)
		}},
		"and on all others at the end": {not, not, func(t *trace) {
			t.send(submit(9)).end(9)
			ends(key, key)(t)
		}},
		"with another refused job": {not, not, func(t *trace) { ends(poll(7))(t); t.every(time.Second, 3, submit(8, refused(500))) }},
		"late, because of Retry-After": {ok, ok, func(t *trace) {
			t.send(submit(7)).send(submit(8)).end(7).end(8).send(poll(7, refused(429), within(61))).wait(61 * time.Second)
			t.send(poll(7, final)).send(poll(8, final))
		}},
		"later than Retry-After": {fail, warn, func(t *trace) {
			t.send(submit(7)).end(7).send(poll(7, refused(429), within(61))).wait(122 * time.Second).send(poll(7, final))
		}},
		"late, because of missing responses": {ok, ok, func(t *trace) {
			t.send(submit(7)).end(7)
			for range 2 {
				t.send(poll(7, with(&fault.Effect{Close: fault.CloseNever}), func(x *verdict.Exchange) { x.HungUp = true }))
				t.wait(30 * time.Second)
				t.Exchanges[len(t.Exchanges)-1].End = t.now
				t.wait(time.Second)
			}
			t.send(poll(7, final))
		}},
		"late, because it has no time-out": {fail, warn, func(t *trace) {
			t.send(submit(7)).end(7)
			for range 3 {
				t.send(poll(7, with(&fault.Effect{Close: fault.CloseNever})))
				t.wait(time.Minute)
				t.Exchanges[len(t.Exchanges)-1].End = t.now
			}
			t.send(poll(7, final))
		}},
		"and reads it after all": {ok, ok, func(t *trace) { ends(key, key)(t); t.send(poll(7, final)) }},
	}
	checkClients(t, "outcome-learned", all)
	trace := newTrace()
	ends(key, key)(trace)
	require.Equal(t, "the client gave up on a job after repeated refusals", trace.result("outcome-learned").Reason)
}

// The response to a repeated delivery is judged only if the receiver answered each attempt with 2xx.
func TestCopies(t *testing.T) {
	t.Parallel()
	const ok, warn, fail, not = verdict.OK, verdict.Warn, verdict.Fail, verdict.NotTested
	copies := func(status int, attempts ...int) func(*trace) {
		return func(t *trace) {
			for i, status := range attempts {
				t.attempt(verdict.Attempt{Number: i + 1, Status: status})
			}
			t.sent(fault.Effect{Repeat: 1}, status)
		}
	}
	checkClients(t, "repeated-delivery", clients{
		"accepts a copy":                        {ok, ok, copies(204, 200)},
		"refuses a copy":                        {fail, warn, copies(409, 200)},
		"refuses an attempt and a copy":         {fail, warn, copies(500, 500, 200)},
		"refuses an attempt and accepts a copy": {not, not, copies(204, 500, 200)},
		"does not answer the first attempt":     {not, not, copies(204, 0, 200)},
		"does not get the first attempt": {ok, ok, func(t *trace) {
			t.send(verdict.Exchange{Method: "POST", Role: verdict.Delivery, Delivery: id(9), Number: 1, Fault: &fault.Effect{Drop: true}})
			copies(204, 0, 200)(t)
		}},
		"does not answer the copy": {not, not, copies(0, 200)},
	})
}

// Each rule lists exactly the profiles that can test the rule.
func TestProfilesOfRules(t *testing.T) {
	t.Parallel()
	exercise := map[string]string{}
	for _, r := range rulesFor(false) {
		exercise[r.Rule] = strings.NewReplacer(",", " ", ".", " ").Replace(r.Exercise)
	}
	for rule, kinds := range map[string][]string{
		"redirects":         {"303", "307", "308"},
		"no-key-elsewhere":  {"307 to another host"},
		"time-outs":         {"response stalled in the middle", "no response on an open connection"},
		"half-events":       {"stream cut within an event"},
		"tampered-refused":  {"forged delivery"},
		"repeated-delivery": {"delivery repeated"},
		"no-duplicates":     {"response lost after processing"},
		"lost-answer":       {"response lost after processing"},
	} {
		for _, p := range fault.Profiles {
			brings := slices.ContainsFunc(p.About(ours, 1), func(c fault.Count) bool { return slices.Contains(kinds, c.Fault) })
			require.Equal(t, brings, slices.Contains(strings.Fields(exercise[rule]), string(p)), "%s and %s", rule, p)
		}
	}
}
