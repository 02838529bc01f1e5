package verdict_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func moved(to string) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) {
		x.Status, x.Location, x.Made, x.Job, x.Shown, x.RetryAfter, x.ETag = 308, to, "", "", nil, nil, ""
	}
}

func at(path string) func(*verdict.Exchange) { return func(x *verdict.Exchange) { x.Path = path } }
func bare(x *verdict.Exchange)               { x.Key, x.Correlation = "", "" }

func asGet(x *verdict.Exchange) { x.Method, x.Body, x.Role, x.Made = "GET", "", "", "" }

func byFault(status int) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) {
		moved("")(x)
		x.Status, x.Fault = status, &fault.Effect{Moved: status}
	}
}

// A client repeats a request unchanged after 307 and 308. After 303, it reads the target with GET. It stops in a redirect loop.
func TestRedirects(t *testing.T) {
	t.Parallel()
	same := func(x *verdict.Exchange) { x.Body = "body" }
	const ok, warn, not = verdict.OK, verdict.Warn, verdict.NotTested
	to307, to303 := func(to string) func(*verdict.Exchange) {
		return func(x *verdict.Exchange) { moved(to)(x); x.Status = 307 }
	}, func(to string) func(*verdict.Exchange) {
		return func(x *verdict.Exchange) { moved(to)(x); x.Status = 303 }
	}
	checkClients(t, "redirects", clients{
		"follows 307":             {ok, ok, func(t *trace) { t.send(submit(1, to307("/v2/jobs?"))).send(submit(1, at("/v2/jobs"))) }},
		"loses the method on 307": {warn, warn, func(t *trace) { t.send(submit(1, byFault(307))).send(submit(1, asGet)) }},
		"loses the body on 307": {warn, warn, func(t *trace) {
			t.send(submit(1, byFault(307))).send(submit(1, func(x *verdict.Exchange) { x.Body = "" }))
		}},
		"does not follow 307":             {warn, warn, func(t *trace) { t.send(submit(1, byFault(307))).send(poll(2)) }},
		"reads again after 303":           {ok, ok, func(t *trace) { t.send(poll(1, byFault(303))).send(poll(1)) }},
		"stops after 303":                 {warn, warn, func(t *trace) { t.send(poll(1, byFault(303))).send(poll(2)) }},
		"does not need the target of 303": {not, not, func(t *trace) { t.send(poll(1, to303("/v1/results/1?"))).send(poll(2)) }},
		"does not need the target of 303 with another fault": {not, not, func(t *trace) {
			t.send(poll(1, to303("/v1/results/1?"), with(&fault.Effect{Extensions: true}))).send(poll(2))
		}},
		"reads the target of 303": {ok, ok, func(t *trace) {
			t.send(poll(1, to303("/v1/results/1?"))).send(poll(1, at("/v1/results/1")))
		}},
		"reads a job after 303":    {ok, ok, func(t *trace) { t.send(submit(1, to303("/v1/jobs/job-1?"))).send(poll(1, alone)) }},
		"submits again after 303":  {warn, warn, func(t *trace) { t.send(submit(1, byFault(303))).send(submit(1)) }},
		"ignores 303 after a POST": {not, not, func(t *trace) { t.send(submit(1, byFault(303))).wait(2 * time.Second).send(poll(2)) }},
		"follows three in a row": {ok, ok, func(t *trace) {
			t.send(poll(1, byFault(307))).send(poll(1, byFault(308))).send(poll(1, byFault(303))).send(poll(1))
		}},
		"follows 308 to another query": {ok, ok, func(t *trace) {
			t.send(poll(1, moved("/v1/jobs/job-1?v=2"))).send(poll(1, func(x *verdict.Exchange) { x.Query = "v=2" }))
		}},
		"sends the old query after 308":   {warn, warn, func(t *trace) { t.send(poll(1, moved("/v1/jobs/job-1?v=2"))).send(poll(1)) }},
		"sends to the old path after 308": {warn, warn, func(t *trace) { t.send(submit(1, moved("/v2/jobs?"))).send(submit(1)) }},
		"loses the method, and submits an equal job next": {warn, warn, func(t *trace) {
			t.send(submit(1, same, bare, moved("/v1/jobs?"))).send(submit(1, same, bare, asGet)).send(submit(2, same, bare))
		}},
		"does not follow 308, and submits an equal job with its own key": {warn, warn, func(t *trace) {
			t.send(submit(1, same, moved("/v1/jobs?"))).send(submit(2, same))
		}},
		"submits an equal job much later": {not, not, func(t *trace) {
			t.send(submit(1, same, bare, moved("/v1/jobs?"))).wait(time.Minute).send(submit(2, same, bare))
		}},
		"follows 308 a minute later with its key": {ok, ok, func(t *trace) {
			t.send(submit(1, moved("/v1/jobs?"))).wait(time.Minute).send(submit(1))
		}},
		"follows one of two redirects": {warn, warn, func(t *trace) {
			t.send(submit(1, same, bare, moved("/v2/jobs?"))).send(submit(2, same, bare, moved("/v2/jobs?")))
			t.send(submit(2, same, bare, at("/v2/jobs")))
		}},
		"reads the target in another part at the same time": {ok, ok, func(t *trace) {
			t.send(submit(1, by(1, "k1"), moved("/v2/jobs?"))).send(poll(2, by(2, "k1"), at("/v2/jobs")))
			t.send(submit(1, by(1, "k1"), at("/v2/jobs")))
		}},
		"does not follow 308 to another origin": {not, not, func(t *trace) { t.send(submit(1, moved("https://other.example/jobs"))) }},
		"gets 308 without a target":             {not, not, func(t *trace) { t.send(submit(1, moved(""))) }},
		"gives up after fifty":                  {ok, ok, loop(51)},
		"does not notice a loop":                {warn, warn, loop(52)},
		"tries a loop five times in quick succession": {ok, ok, func(t *trace) {
			t.each(5, func(byte) { loop(20)(t); t.wait(300 * time.Millisecond) })
		}},
		"polls an address that always redirects": {ok, ok, func(t *trace) {
			t.each(60, func(byte) { t.send(poll(7, byFault(307))).send(poll(7)) })
		}},
		"does not go to another host": {not, not, func(t *trace) {
			t.send(poll(7, on("a.example"), leads("http://b.example/"))).wait(2 * time.Second).send(poll(8, on("a.example")))
		}},
	})
}

// After 303, the evidence asks for a GET. After 307 and 308, it asks for the same request.
func TestExpectedAfterRedirects(t *testing.T) {
	t.Parallel()
	const get, same = "Read the address in Location with GET.", "Send the same request, with its method and body, to the address in Location."
	for status, want := range map[int]string{303: get, 307: same, 308: same} {
		trace := newTrace().send(poll(1, byFault(status))).send(poll(2))
		require.Equal(t, want, trace.result("redirects").Evidence[0].Expected)
	}
}

func on(host string) func(*verdict.Exchange) { return func(x *verdict.Exchange) { x.Host = host } }

func loop(times int) func(*trace) {
	return func(t *trace) { t.every(0, times, poll(7, byFault(307))) }
}

func (t *trace) keyless(x verdict.Exchange) *trace {
	t.send(x)
	t.Exchanges[len(t.Exchanges)-1].KeyID = ""
	return t
}

// A client may send its key only to hosts that it used before a redirect.
func TestKeysOfOtherHosts(t *testing.T) {
	t.Parallel()
	const ok, warn, fail, not = verdict.OK, verdict.Warn, verdict.Fail, verdict.NotTested
	away := poll(7, on("a.example:80"), leads("http://B.example/v1/jobs/job-7"))
	here, there := poll(7, on("a.example:80")), poll(7, on("b.example"))
	checkClients(t, "no-key-elsewhere", clients{
		"follows with its key":          {fail, warn, func(t *trace) { t.send(away).send(there) }},
		"follows without its key":       {ok, ok, func(t *trace) { t.send(away).keyless(there) }},
		"sends its key after a refusal": {fail, warn, func(t *trace) { t.send(away).keyless(there).send(there) }},
		"does not follow":               {ok, ok, func(t *trace) { t.send(away).wait(time.Second).send(here) }},
		"stops after the redirect":      {not, not, func(t *trace) { t.send(away) }},
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
		"uses two hosts without a redirect": {not, not, func(t *trace) { t.send(here).send(there) }},
		"stays on its host": {not, not, func(t *trace) {
			t.send(poll(7, on("a.example"), leads("http://a.example/v2"))).send(poll(7, on("a.example"), at("/v2")))
		}},
		"did not get the redirect": {not, not, func(t *trace) {
			x := away
			x.HungUp = true
			t.send(x).send(there)
		}},
	})
}
