package handlers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// recorded returns what was recorded last.
func (w *world) recorded() verdict.Exchange {
	w.testbed.mu.Lock()
	defer w.testbed.mu.Unlock()
	require.NotNil(w.t, w.testbed.last)
	return *w.testbed.last
}

// faulty sends a request with a fault, and returns its answer and its record.
func (w *world) faulty(effect, method, path, body string, headers ...string) (*answer, verdict.Exchange) {
	w.t.Helper()
	w.madeUp = true
	a := w.send(method, path, body, append(headers, headerFault, effect)...)
	return a, w.recorded()
}

// Retry-After is that of the fault, whatever the answer is, and the record has what a right client makes of it.
func TestRetryAfterOfFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.job = finishedJob
	tag := w.send("GET", jobSelf, "").Header.Get("ETag")
	for effect, want := range map[string]struct {
		lines []string // nil: a date
		told  *int
	}{
		`{"retry_after":0}`:                                                 {[]string{"0"}, new(0)},
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
		`{"status":403,"retry_after":2}`:                                    {[]string{"2"}, new(2)},
		`{"status":503,"retry_after_as":"missing"}`:                         {[]string{}, nil},
		`{"status":503,"retry_after":0}`:                                    {[]string{"0"}, new(0)},
		`{"status":429,"retry_after":3}`:                                    {[]string{"3"}, new(3)},
		`{"status":503}`:                                                    {[]string{"1"}, new(1)},
		`{"unfinished":true,"retry_after":9}`:                               {[]string{"9"}, new(9)},
		`{"extensions":true,"retry_after_as":"two_lines"}`:                  {[]string{"1", "2"}, nil},
		`{"content_type":"text/plain","retry_after":8}`:                     {[]string{"8"}, new(8)},
		`{"status":401,"code":"RFA_AUTH_TOKEN_EXPIRED"}`:                    {[]string{}, nil},
		`{"delay":"1ms","retry_after_as":"date"}`:                           {nil, new(0)},
		`{"next_request":"before","retry_after":4}`:                         {[]string{"4"}, new(4)},
		`{"code":"` + string(job.CodeRateLimited) + `","retry_after":3600}`: {[]string{"3600"}, new(3600)},
		`{"language":"de","retry_after_as":"negative"}`:                     {[]string{"-1"}, nil},
		`{"omit_optional":true,"retry_after_as":"garbage"}`:                 {[]string{"soon"}, nil},
	} {
		for _, request := range [][]string{{"GET", jobSelf, ""}, {"GET", jobSelf, "", "If-None-Match", tag}, {"POST", "/v1/jobs", leastBody}} {
			began := time.Now()
			a, x := w.faulty(effect, request[0], request[1], request[2], request[3:]...)
			lines := a.Header.Values("Retry-After")
			if want.lines != nil {
				require.Equal(t, want.lines, append([]string{}, lines...), effect)
				require.Equal(t, want.told, x.RetryAfter, effect)
				continue
			}
			require.Len(t, lines, 1, effect)
			_, err := http.ParseTime(lines[0])
			require.NoError(t, err, effect)
			slow := int(time.Since(began)/time.Second) + 1 // a second that passes on the way, and the fraction of one
			require.GreaterOrEqual(t, *x.RetryAfter, *want.told-slow, effect)
			require.LessOrEqual(t, *x.RetryAfter, *want.told+1, effect)
		}
	}
	w.jobs.job = func(context.Context, job.ID, job.ID) (*job.Job, error) {
		return nil, job.Errorf(job.CodeJobNotFound, "None.")
	}
	a, x := w.faulty(`{"retry_after":5}`, "GET", jobSelf, "")
	require.Equal(t, []any{404, "5", 5}, []any{a.StatusCode, a.Header.Get("Retry-After"), *x.RetryAfter})
}

// A redirection leads to the same address, or to another name of this machine, if the client has named it by one.
func TestMovedRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.PublicURL = "" }).start()
	w.jobs.err = errors.New("the work was done")
	const path = "/v1/jobs?limit=7"
	for host, other := range map[string]string{
		"127.0.0.1:8080": "http://localhost:8080", "localhost:80": "http://127.0.0.1:80", "[::1]:9": "http://localhost:9",
		"LOCALHOST": "http://127.0.0.1", "127.0.0.1": "http://localhost", "[::1]": "http://localhost",
		"evil.example:8080": "", "localhost.evil.example": "", "127.0.0.2:80": "",
	} {
		for effect, want := range map[string]string{
			`{"moved":303}`: path, `{"moved":307}`: path, `{"moved":308,"to_other_host":true}`: other + path,
		} {
			a, _ := w.raw(strings.Replace(w.request("GET", path, "Accept", "", headerFault, effect), "Host: x", "Host: "+host, 1))
			require.Equal(t, effect[9:12], a.Status[:3])
			require.Equal(t, want, a.Header.Get("Location"), host)
			x := w.recorded()
			require.Equal(t, []string{host, want, "/v1/jobs", "limit=7"}, []string{x.Host, x.Location, x.Path, x.Query})
		}
	}
	w.raw(w.request("GET", "/v1/jobs?correlation_id=frk_secret", "Accept", "", headerFault, `{"moved":307}`))
	require.Equal(t, "/v1/jobs", w.recorded().Location, "no key is recorded")
	a, _ := w.raw(w.request("GET", path, "Authorization", ""))
	require.Equal(t, 401, a.StatusCode)
}

// An answer stalls in its middle until the client hangs up, which is recorded, or until the service ends.
func TestStalledAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	w.jobs.job = finishedJob
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
	require.Equal(t, 1, w.held(), "it takes a place")
	require.Nil(t, w.recorded().Fault, "it is not over")
	require.NoError(t, c.Close())
	testkit.Eventually(t, "it gives its place up", func() bool { return w.held() == 0 })
	testkit.Eventually(t, "it is recorded", func() bool { return w.recorded().Fault != nil })
	x := w.recorded()
	require.True(t, x.HungUp)
	require.Equal(t, 200, x.Status)

	_, in := stalled()
	w.shutdown()
	requireEnd(t, in, "the service ends it")
	testkit.Eventually(t, "it is recorded", func() bool { return !w.recorded().HungUp })
}

// The service ends its side of a connection after an answer that says nothing of it. What comes on it afterwards has no effect.
func TestHalfClosedConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	submitted := 0
	w.jobs.submit = func(context.Context, job.Request) (job.Receipt, error) {
		submitted++
		return job.Receipt{JobID: jobID, State: job.Queued, CreatedAt: now}, nil
	}
	for _, next := range []string{
		submitHead + framing(len(leastBody), false) + leastBody, getHealth, w.request("DELETE", faultsPath),
		strings.Replace(submitHead, goodKey, goodKey+"2", 1) + framing(len(leastBody), false) + leastBody,
	} {
		w.testbed.rules = make([]fault.Counted, 1)
		c := w.dial()
		w.write(c, w.request("GET", "/v1/jobs", "Accept", "", headerFault, `{"next_request":"half"}`))
		in := bufio.NewReader(c)
		a := w.read(in)
		require.Equal(t, 200, a.StatusCode)
		require.False(t, a.Close)
		requireEnd(t, in, "its side has ended")
		w.write(c, next)
		if strings.HasPrefix(next, "POST") {
			testkit.Eventually(t, "it is recorded", func() bool { return w.recorded().Method == "POST" })
			require.Equal(t, &fault.Effect{Close: fault.CloseBefore}, w.recorded().Fault)
			w.send("GET", "/v1/jobs", "")
		}
		testkit.Eventually(t, "the connection is closed", func() bool {
			_, err := c.Write([]byte("GET /"))
			return err != nil
		})
		require.Zero(t, submitted)
		require.NotEmpty(t, w.testbed.rules, "they are there")
	}
}

// What is recorded of an answer that a fault has rewritten is what the client sees, and no condition hides it.
func TestRewrittenStates(t *testing.T) {
	t.Parallel()
	const json, document = "application/json", "application/problem+json"
	for _, test := range []struct {
		effect, accept     string
		path               string
		contains, lacks    []string
		final, shown, told bool
	}{
		{`{"extensions":true}`, json, jobSelf, []string{`"SUCCEEDED"`}, nil, true, false, false},
		{`{"unfinished":true}`, json, jobSelf, []string{`"state":"RUNNING"`, `"finished_at":null`}, []string{`"result"`}, false, true, false},
		{`{"unfinished":true}`, document, jobSelf, []string{`"jobStatus":"PROCESSING"`}, []string{"completedAt", "title"}, false, true, false},
		{`{"unfinished":true,"job_status":"PONDERING"}`, json, jobSelf, []string{`"PONDERING"`}, []string{`"state":"S`}, false, true, false},
		{`{"job_status":"PONDERING"}`, json, jobSelf, []string{`"PONDERING"`}, nil, false, true, true},
		{`{"other_end":true}`, json, jobSelf, []string{`"CANCELED"`}, []string{`"state":"SUCCEEDED"`}, true, false, false},
		{`{"null_optional":true}`, json, jobSelf, []string{`"correlation_id":null`}, nil, true, false, false},
		{`{"unfinished":true}`, json, batchSelf, []string{`"PROCESSING"`}, []string{`"outcome":{`}, false, true, false},
		{`{"unfinished":true}`, document, batchSelf, []string{`"PROCESSING"`}, []string{"completedAt", "title"}, false, true, false},
		{`{"extensions":true}`, json, batchSelf, []string{`"outcome":{`}, nil, true, false, false},
	} {
		w := newWorld(t)
		w.jobs.job, w.batches.batch = finishedJob, failedBatch
		tag := w.send("GET", test.path, "", "Accept", test.accept).Header.Get("ETag")
		require.NotEmpty(t, tag)
		a, x := w.faulty(test.effect, "GET", test.path, "", "Accept", test.accept, "If-None-Match", tag)
		require.Equal(t, 200, a.StatusCode)
		require.Empty(t, a.Header.Get("ETag")+x.ETag)
		for _, text := range test.contains {
			require.Contains(t, a.text, text, test)
		}
		for _, text := range test.lacks {
			require.NotContains(t, a.text, text, test)
		}
		require.Equal(t, []bool{test.final, test.shown, test.told}, []bool{x.Final != nil, x.Shown != nil, x.Told != nil}, "%+v %+v", test, x)
		if strings.Contains(test.effect, "unfinished") {
			require.Equal(t, "1", a.Header.Get("Retry-After"))
			require.NotContains(t, a.Header.Get("Link"), "job-result")
		}
	}
}

// A fault knows a request again by its key, or else by its body.
func TestSubjectsOfRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range [][]string{
		{"POST", "/v1/jobs", leastBody}, {"POST", "/v1/jobs", shortBody}, {"POST", "/v1/jobs", leastBody},
		{"POST", "/v1/jobs", leastBody, "Idempotency-Key", "one"}, {"POST", "/v1/jobs", shortBody, "Idempotency-Key", "one"},
		{"GET", "/v1/jobs?limit=7", ""}, {"GET", "/v1/jobs", ""},
	} {
		w.send(r[0], r[1], r[2], r[3:]...)
	}
	s := w.testbed.subjects
	require.Equal(t, []bool{false, true, false, true, true}, []bool{s[0] == s[1], s[0] == s[2], s[0] == s[3], s[3] == s[4], s[5] == s[6]})
}

// Each status of the profiles is an error of the contract, for each operation, and none is the end of a key.
func TestStatusesOfFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	for _, status := range []int{401, 403, 404, 410, 429, 500, 503, 504} {
		for _, path := range []string{"/v1/jobs", jobSelf, jobSelf + "/result", jobSelf + "/report", jobSelf + "/events", batchSelf} {
			a, x := w.faulty(fmt.Sprintf(`{"status":%d}`, status), "GET", path, "")
			code, _ := testbed.CodeOf(status)
			a.requireProblem(t, code)
			require.Equal(t, []any{status, string(code), false}, []any{x.Status, x.Code, x.Expired})
		}
	}
	_, x := w.faulty(`{"code":"RFA_AUTH_TOKEN_EXPIRED"}`, "GET", jobSelf, "")
	require.Equal(t, []any{401, false}, []any{x.Status, x.Expired})
}
