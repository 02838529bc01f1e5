package verdict_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// byFault redirects to the same address.
func byFault(status int) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) {
		moved("")(x)
		x.Status, x.Fault = status, &fault.Effect{Moved: status}
	}
}

// A client repeats a request unchanged after 307 and 308, reads the target with GET after 303, and stops in a redirect loop.
func TestKindsOfRedirects(t *testing.T) {
	t.Parallel()
	const ok, warn, not = verdict.OK, verdict.Warn, verdict.NotTested
	to307, to303 := func(to string) func(*verdict.Exchange) {
		return func(x *verdict.Exchange) { moved(to)(x); x.Status = 307 }
	}, func(to string) func(*verdict.Exchange) {
		return func(x *verdict.Exchange) { moved(to)(x); x.Status = 303 }
	}
	circle := func(times int) func(*trace) {
		return func(t *trace) { t.every(0, times, poll(7, byFault(307))) }
	}
	outcomes(t, "redirects", clients{
		"follows 307":             {ok, ok, func(t *trace) { t.send(submit(1, to307("/v2/jobs?"))).send(submit(1, at("/v2/jobs"))) }},
		"follows 307 of a fault":  {ok, ok, func(t *trace) { t.send(submit(1, byFault(307))).send(submit(1)) }},
		"loses the method on 307": {warn, warn, func(t *trace) { t.send(submit(1, byFault(307))).send(submit(1, asGet)) }},
		"loses the body on 307": {warn, warn, func(t *trace) {
			t.send(submit(1, byFault(307))).send(submit(1, func(x *verdict.Exchange) { x.Body = "" }))
		}},
		"does not follow 307":     {warn, warn, func(t *trace) { t.send(submit(1, byFault(307))).send(poll(2)) }},
		"reads again after 303":   {ok, ok, func(t *trace) { t.send(poll(1, byFault(303))).send(poll(1)) }},
		"stops after 303":         {warn, warn, func(t *trace) { t.send(poll(1, byFault(303))).send(poll(2)) }},
		"needs only the 303":      {not, not, func(t *trace) { t.send(poll(1, to303("/v1/results/1?"))).send(poll(2)) }},
		"reads the target of 303": {ok, ok, func(t *trace) { t.send(poll(1, to303("/v1/results/1?"))).send(poll(1, at("/v1/results/1"))) }},
		"reads a job after 303":   {ok, ok, func(t *trace) { t.send(submit(1, to303("/v1/jobs/job-1?"))).send(poll(1, alone)) }},
		"submits again after 303": {warn, warn, func(t *trace) { t.send(submit(1, byFault(303))).send(submit(1)) }},
		"ignores 303 of a POST":   {not, not, func(t *trace) { t.send(submit(1, byFault(303))).wait(2 * time.Second).send(poll(2)) }},
		"follows three in a row": {ok, ok, func(t *trace) {
			t.send(poll(1, byFault(307))).send(poll(1, byFault(308))).send(poll(1, byFault(303))).send(poll(1))
		}},
		"gives up a circle of five":        {ok, ok, circle(6)},
		"gives up after fifty":             {ok, ok, circle(51)},
		"does not notice a circle":         {warn, warn, circle(52)},
		"follows a long circle to its end": {warn, warn, func(t *trace) { circle(200)(t); t.send(poll(7)) }},
		"tries a circle five times, soon after each other": {ok, ok, func(t *trace) {
			t.each(5, func(byte) { circle(20)(t); t.wait(300 * time.Millisecond) })
		}},
		"tries a circle five times": {ok, ok, func(t *trace) {
			t.each(5, func(byte) { circle(20)(t); t.wait(time.Second) })
		}},
		"polls an address that always redirects": {ok, ok, func(t *trace) {
			t.each(60, func(byte) { t.send(poll(7, byFault(307))).send(poll(7)) })
		}},
		"does not go to another host": {not, not, func(t *trace) {
			t.send(poll(7, on("a.example"), leads("http://b.example/"))).wait(2 * time.Second).send(poll(8, on("a.example")))
		}},
	})
	for see, does := range map[string]func(*trace){
		"15.4.8": func(t *trace) { t.send(submit(1, byFault(307))).send(submit(1, asGet)) },
		"15.4.9": func(t *trace) { t.send(submit(1, byFault(308))).send(submit(1, asGet)) },
		"15.4.4": func(t *trace) { t.send(submit(1, byFault(303))).send(submit(1)) },
		"15.4":   circle(60),
	} {
		trace := newTrace()
		does(trace)
		require.Equal(t, "https://www.rfc-editor.org/rfc/rfc9110#section-"+see, trace.result("redirects").See)
	}
	trace := newTrace()
	circle(60)(trace)
	require.Equal(t, "The client followed 59 redirects in a row for one request.", trace.result("redirects").Evidence[0].Found)
}

func on(host string) func(*verdict.Exchange) { return func(x *verdict.Exchange) { x.Host = host } }

// keyless sends a request without an API key, which send would add.
func (t *trace) keyless(x verdict.Exchange) *trace {
	t.send(x)
	t.Exchanges[len(t.Exchanges)-1].KeyID = ""
	return t
}

// A client may send a key only to the host that it was configured for.
func TestKeysOfOtherHosts(t *testing.T) {
	t.Parallel()
	const ok, warn, fail, not = verdict.OK, verdict.Warn, verdict.Fail, verdict.NotTested
	away := poll(7, on("a.example:80"), leads("http://B.example/v1/jobs/job-7"))
	here, there := poll(7, on("a.example:80")), poll(7, on("b.example"))
	outcomes(t, "no-key-elsewhere", clients{
		"follows with its key":          {fail, warn, func(t *trace) { t.send(away).send(there) }},
		"follows without its key":       {ok, ok, func(t *trace) { t.send(away).keyless(there) }},
		"sends its key after a refusal": {fail, warn, func(t *trace) { t.send(away).keyless(there).send(there) }},
		"does not follow":               {ok, ok, func(t *trace) { t.send(away).wait(time.Second).send(here) }},
		"ends":                          {not, not, func(t *trace) { t.send(away) }},
		"uses the other host anyway":    {not, not, func(t *trace) { t.send(there).send(away).send(there) }},
		"has another key for it":        {not, not, func(t *trace) { t.send(away).send(poll(7, on("b.example"), by(1, "k2"))) }},
		"has no key":                    {not, not, func(t *trace) { t.keyless(away).keyless(there) }},
		"sends its key there later": {fail, warn, func(t *trace) {
			t.send(here).send(away).wait(time.Minute).send(poll(8, on("b.example")))
		}},
		"ignores a redirect by the service": {not, not, func(t *trace) {
			x := away
			x.Fault = nil
			t.send(x).wait(time.Second).send(here)
		}},
		"follows the service with its key": {fail, warn, func(t *trace) {
			x := away
			x.Fault = nil
			t.send(x).send(there)
		}},
		"is not redirected": {not, not, func(t *trace) { t.send(here).send(there) }},
		"stays on its host": {not, not, func(t *trace) {
			t.send(poll(7, on("a.example"), leads("http://a.example/v2"))).send(poll(7, on("a.example"), at("/v2")))
		}},
		"did not get the redirect": {not, not, func(t *trace) {
			x := away
			x.HungUp = true
			t.send(x).send(there)
		}},
	})
	r := newTrace().send(away).send(there).result("no-key-elsewhere")
	require.Equal(t, "The client followed a redirect from a.example:80 and sent its key to b.example.", r.Evidence[0].Found)
}
