package verdict_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// from sets the User-Agent of a request.
func from(agent string) func(*verdict.Exchange) { return func(x *verdict.Exchange) { x.Agent = agent } }

func reused(*verdict.Exchange)   {}
func closes(x *verdict.Exchange) { x.Reused, x.Closes = false, true }

// A script with one process per request cannot keep connections. A long-running process should.
func TestProcessesAndConnections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent string
		gap   time.Duration // since the previous request, in addition to 1 ms
		does  func(*verdict.Exchange)
		want  verdict.Status
	}{
		"one interpreter per request":                  {"python-requests/2.32.3", 90 * time.Millisecond, alone, verdict.NotTested},
		"one compiled program per request":             {"Go-http-client/1.1", 8 * time.Millisecond, alone, verdict.NotTested},
		"one command-line tool per request":            {"HTTPie/3.2.2", 0, alone, verdict.NotTested},
		"curl":                                         {"curl/8.5.0", 0, alone, verdict.NotTested},
		"a process without a session":                  {"python-requests/2.32.3", 8 * time.Millisecond, alone, verdict.Warn},
		"a process that closes each connection":        {"Go-http-client/1.1", time.Millisecond, alone, verdict.Warn},
		"a process that asks to close each connection": {"Go-http-client/1.1", 90 * time.Millisecond, closes, verdict.Warn},
		"a library that always closes":                 {"Python-urllib/3.12", 90 * time.Millisecond, closes, verdict.NotTested},
		"a process that keeps connections":             {"Go-http-client/1.1", time.Millisecond, reused, verdict.OK},
	} {
		trace := newTrace()
		for n := range 15 {
			trace.wait(c.gap).send(poll(7, from(c.agent), by(uint64(n+1), "k1"), c.does))
		}
		require.Equal(t, c.want, status(trace, "connection-reuse"), name)
	}
}

// A client is not blamed for connections that die while idle, or for requests to another host.
func TestConnectionsThatDie(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]fault.Effect{
		"half closed": {NextRequest: fault.CloseHalf}, "reset": {NextRequest: fault.CloseBefore, Reset: true},
		"elsewhere": {Moved: 307, OtherHost: true},
	} {
		trace := newTrace()
		trace.each(15, func(n byte) { trace.send(poll(7, by(uint64(n+1), "k1"), alone, with(&e))) })
		require.Equal(t, verdict.OK, status(trace, "connection-reuse"), name)
	}
}

func status(t *trace, rule string) verdict.Status {
	for _, r := range t.judge().Results {
		if r.Rule == rule {
			return r.Status
		}
	}
	return ""
}

// moved redirects a request by 308.
func moved(to string) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) {
		x.Status, x.Location, x.Made, x.Job, x.Shown, x.RetryAfter, x.ETag = 308, to, "", "", nil, nil, ""
	}
}

func at(path string) func(*verdict.Exchange) { return func(x *verdict.Exchange) { x.Path = path } }
func bare(x *verdict.Exchange)               { x.Key, x.Correlation = "", "" }

func asGet(x *verdict.Exchange) { x.Method, x.Body, x.Role, x.Made = "GET", "", "", "" }

func TestRedirects(t *testing.T) {
	t.Parallel()
	same := func(x *verdict.Exchange) { x.Body = "body" }
	for name, c := range map[string]struct {
		want verdict.Status
		does func(*trace)
	}{
		"followed to another path": {verdict.OK, func(t *trace) { t.send(submit(1, moved("/v2/jobs?"))).send(submit(1, at("/v2/jobs"))) }},
		"followed on the same path, by a fault": {verdict.OK, func(t *trace) {
			t.send(submit(1, moved(""), with(&fault.Effect{Moved: 308}))).send(submit(1))
		}},
		"to another query": {verdict.OK, func(t *trace) {
			t.send(poll(1, moved("/v1/jobs/job-1?v=2"))).send(poll(1, func(x *verdict.Exchange) { x.Query = "v=2" }))
		}},
		"to another query, and sent to the old one": {verdict.Warn, func(t *trace) {
			t.send(poll(1, moved("/v1/jobs/job-1?v=2"))).send(poll(1))
		}},
		"sent to the old path": {verdict.Warn, func(t *trace) { t.send(submit(1, moved("/v2/jobs?"))).send(submit(1)) }},
		"not followed":         {verdict.Warn, func(t *trace) { t.send(submit(1, moved("/v2/jobs?"))).send(poll(2)) }},
		"followed as GET":      {verdict.Warn, func(t *trace) { t.send(submit(1, moved("/v2/jobs?"))).send(submit(1, at("/v2/jobs"), asGet)) }},
		"followed as GET, before an equal order": {verdict.Warn, func(t *trace) {
			t.send(submit(1, same, bare, moved("/v1/jobs?"))).send(submit(1, same, bare, asGet)).send(submit(2, same, bare))
		}},
		"not followed, before an equal order with its own key": {verdict.Warn, func(t *trace) {
			t.send(submit(1, same, moved("/v1/jobs?"))).send(submit(2, same))
		}},
		"not followed, and an equal order much later": {verdict.NotTested, func(t *trace) {
			t.send(submit(1, same, bare, moved("/v1/jobs?"))).wait(time.Minute).send(submit(2, same, bare))
		}},
		"retried later with its key": {verdict.OK, func(t *trace) {
			t.send(submit(1, moved("/v1/jobs?"))).wait(time.Minute).send(submit(1))
		}},
		"two redirects, one followed": {verdict.Warn, func(t *trace) {
			t.send(submit(1, same, bare, moved("/v2/jobs?"))).send(submit(2, same, bare, moved("/v2/jobs?")))
			t.send(submit(2, same, bare, at("/v2/jobs")))
		}},
		"while another part of the client reads the target": {verdict.OK, func(t *trace) {
			t.send(submit(1, by(1, "k1"), moved("/v2/jobs?"))).send(poll(2, by(2, "k1"), at("/v2/jobs")))
			t.send(submit(1, by(1, "k1"), at("/v2/jobs")))
		}},
		"to another origin": {verdict.NotTested, func(t *trace) { t.send(submit(1, moved("https://other.example/jobs"))) }},
		"to nowhere":        {verdict.NotTested, func(t *trace) { t.send(submit(1, moved(""))) }},
	} {
		trace := newTrace()
		c.does(trace)
		require.Equal(t, c.want, status(trace, "redirects"), name)
	}
}

// Judging many unfollowed redirects takes no longer than judging as many other requests.
func TestManyRedirects(t *testing.T) {
	t.Parallel()
	trace := newTrace()
	for n := range 20_000 {
		trace.send(submit(1, moved("/v2/jobs?"), func(x *verdict.Exchange) { x.Key = fmt.Sprint(n % 2) }))
	}
	require.Equal(t, verdict.Warn, status(trace, "redirects"))
}
