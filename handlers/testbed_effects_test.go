package handlers

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func (w *world) faulty(effect, method, path, body string, headers ...string) (*reply, verdict.Exchange) {
	w.t.Helper()
	w.madeUp = true
	a := w.send(method, path, body, append(headers, headerFault, effect)...)
	return a, w.recorded()
}

func TestRetryAfterOfFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t).session()
	tag := w.send("GET", jobSelf, "").Header.Get("ETag")
	for effect, want := range map[string]struct {
		lines []string // expected Retry-After lines; nil: one line with a date
		wait  *int
	}{
		`{"retry_after":61}`:                                                {[]string{"61"}, new(61)},
		`{"retry_after":7,"retry_after_as":"date"}`:                         {nil, new(6)},
		`{"retry_after_as":"past"}`:                                         {nil, new(0)},
		`{"retry_after_as":"missing"}`:                                      {[]string{}, nil},
		`{"retry_after_as":"garbage"}`:                                      {[]string{"soon"}, nil},
		`{"retry_after":2,"retry_after_as":"fraction"}`:                     {[]string{"2.5"}, nil},
		`{"retry_after_as":"negative"}`:                                     {[]string{"-1"}, nil},
		`{"retry_after":3,"retry_after_as":"two_lines"}`:                    {[]string{"3", "4"}, nil},
		`{"html":true,"retry_after":5}`:                                     {[]string{"5"}, new(5)},
		`{"moved":307,"retry_after":5}`:                                     {[]string{"5"}, new(5)},
		`{"status":503,"retry_after_as":"missing"}`:                         {[]string{}, nil},
		`{"status":503}`:                                                    {[]string{"1"}, new(1)},
		`{"unfinished":true,"retry_after":9}`:                               {[]string{"9"}, new(9)},
		`{"code":"` + string(job.CodeRateLimited) + `","retry_after":3600}`: {[]string{"3600"}, new(3600)},
	} {
		for _, request := range [][]string{{"GET", jobSelf, "", "If-None-Match", tag}, {"POST", "/v1/jobs", leastBody}} {
			began := time.Now()
			a, x := w.faulty(effect, request[0], request[1], request[2], request[3:]...)
			lines := a.Header.Values("Retry-After")
			if want.lines != nil {
				require.Equal(t, want.lines, append([]string{}, lines...), effect)
				require.Equal(t, want.wait, x.RetryAfter, effect)
				continue
			}
			require.Len(t, lines, 1, effect)
			_, err := http.ParseTime(lines[0])
			require.NoError(t, err, effect)
			slow := int(time.Since(began)/time.Second) + 1
			require.GreaterOrEqual(t, *x.RetryAfter, *want.wait-slow, effect)
			require.LessOrEqual(t, *x.RetryAfter, *want.wait+1, effect)
		}
	}
}

// A redirect leads to the same host, or to another local name if the client used a local name.
func TestMovedRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.PublicURL = "" }).session().start()
	const path = "/v1/jobs?limit=7"
	for host, other := range map[string]string{
		"127.0.0.1:8080": "http://localhost:8080", "[::1]:9": "http://localhost:9", "LOCALHOST": "http://127.0.0.1",
		"evil.example:8080": "", "localhost.evil.example": "", "127.0.0.2:80": "",
	} {
		for effect, want := range map[string]string{`{"moved":303}`: path, `{"moved":308,"to_other_host":true}`: other + path} {
			a, _ := w.raw(strings.Replace(w.request("GET", path, "Accept", "", headerFault, effect), "Host: x", "Host: "+host, 1))
			x := w.recorded()
			require.Equal(t, []string{effect[9:12], want, host, want, "/v1/jobs", "limit=7"},
				[]string{a.Status[:3], a.Header.Get("Location"), x.Host, x.Location, x.Path, x.Query})
		}
	}
	w.raw(w.request("GET", "/v1/jobs?correlation_id=frk_secret", "Accept", "", headerFault, `{"moved":307}`))
	require.Equal(t, "/v1/jobs", w.recorded().Location, "no key is recorded")
}

// A stalled response ends when the client hangs up or the service stops. A hang-up is recorded.
func TestStalledResponses(t *testing.T) {
	t.Parallel()
	w := newWorld(t).session().start()
	whole := len(w.send("GET", jobSelf, "").text)
	stalled := func() (io.Closer, *bufio.Reader) {
		c := w.dial()
		w.write(c, w.request("GET", jobSelf, "Accept", "", headerFault, `{"close":"stall"}`))
		in := bufio.NewReader(c)
		res, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		require.EqualValues(t, whole, res.ContentLength)
		half := make([]byte, whole/2)
		_, err = io.ReadFull(res.Body, half)
		require.NoError(t, err)
		return c, in
	}
	c, _ := stalled()
	require.Equal(t, 1, w.held(), "it holds a slot")
	require.Nil(t, w.recorded().Fault, "it is recorded at its end")
	require.NoError(t, c.Close())
	testkit.Eventually(t, "the slot is released", func() bool { return w.held() == 0 })
	testkit.Eventually(t, "it is recorded", func() bool { return w.recorded().Fault != nil })
	x := w.recorded()
	require.True(t, x.HungUp)
	require.Equal(t, 200, x.Status)

	_, in := stalled()
	w.shutdown()
	requireEnd(t, in, "shutdown closes the connection")
	testkit.Eventually(t, "it is recorded", func() bool { return !w.recorded().HungUp })
}

// The fault closes the service's side of the connection without "Connection: close". Later requests on the connection must have no effect.
func TestHalfClosedConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t).session().start()
	count := func() []int {
		return []int{repotest.Count(t, w.URL(), "jobs"), repotest.Count(t, w.URL(), "testbed_faults")}
	}
	before := count()
	for _, next := range []string{submitHead + framing(len(leastBody), false) + leastBody, getHealth, w.request("DELETE", faultsPath)} {
		c := w.dial()
		w.write(c, w.request("GET", "/v1/jobs", "Accept", "", headerFault, `{"next_request":"half"}`))
		in := bufio.NewReader(c)
		a := w.read(in)
		require.Equal(t, 200, a.StatusCode)
		require.False(t, a.Close)
		requireEnd(t, in, "the server closed its side")
		w.write(c, next)
		if strings.HasPrefix(next, "POST") {
			testkit.Eventually(t, "it is recorded", func() bool { return w.recorded().Method == "POST" })
			require.Equal(t, &fault.Effect{Close: fault.CloseBefore}, w.recorded().Fault)
		}
		testkit.Eventually(t, "the connection is closed", func() bool {
			_, err := c.Write([]byte("GET /"))
			return err != nil
		})
		require.Equal(t, before, count())
	}
}

// The record of a rewritten response has the states that the client sees. If-None-Match never turns a rewritten response into 304.
func TestRewrittenStates(t *testing.T) {
	t.Parallel()
	const json, document = "application/json", "application/problem+json"
	w := newWorld(t).session()
	w.failBatch()
	for _, test := range []struct {
		effect, accept, path, contains, lacks string
		final, shown, maybeFinal              bool
	}{
		{`{"extensions":true}`, json, jobSelf, `"SUCCEEDED"`, "RUNNING", true, false, false},
		{`{"unfinished":true}`, json, jobSelf, `"state":"RUNNING"`, `"result"`, false, true, false},
		{`{"unfinished":true}`, document, jobSelf, `"jobStatus":"PROCESSING"`, "completedAt", false, true, false},
		{`{"unfinished":true,"job_status":"PONDERING"}`, json, jobSelf, `"PONDERING"`, `"state":"S`, false, true, false},
		{`{"job_status":"PONDERING"}`, json, jobSelf, `"PONDERING"`, `"state":"S`, false, true, true},
		{`{"other_end":true}`, json, jobSelf, `"CANCELED"`, `"state":"SUCCEEDED"`, true, false, false},
		{`{"null_optional":true}`, json, jobSelf, `"correlation_id":null`, "RUNNING", true, false, false},
		{`{"omit_optional":true}`, json, jobSelf, `"SUCCEEDED"`, "correlation_id", true, false, false},
		{`{"unfinished":true}`, json, batchSelf, `"PROCESSING"`, `"outcome":{`, false, true, false},
		{`{"unfinished":true}`, document, batchSelf, `"PROCESSING"`, "completedAt", false, true, false},
	} {
		w.madeUp = false
		tag := w.send("GET", test.path, "", "Accept", test.accept).Header.Get("ETag")
		require.NotEmpty(t, tag)
		a, x := w.faulty(test.effect, "GET", test.path, "", "Accept", test.accept, "If-None-Match", tag)
		require.Equal(t, []any{200, ""}, []any{a.StatusCode, a.Header.Get("ETag") + x.ETag})
		require.Contains(t, a.text, test.contains, test)
		require.NotContains(t, a.text, test.lacks, test)
		require.Equal(t, []bool{test.final, test.shown, test.maybeFinal},
			[]bool{x.Final != nil, x.Shown != nil, x.MaybeFinal != nil}, "%+v %+v", test, x)
		if strings.Contains(test.effect, "unfinished") {
			require.Equal(t, "1", a.Header.Get("Retry-After"))
			require.NotContains(t, a.Header.Get("Link"), "job-result")
		}
	}
}
