package main

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var withTestbed = env{"FORGERUN_TESTBED": "true"}

// disturb sets a client's rules.
func (u *user) disturb(api *proc, rules string) {
	u.s.t.Helper()
	a := u.call(api, "PUT", "/v1/testbed/faults", rules)
	require.Equal(u.s.t, http.StatusOK, a.status, a.body)
}

// plainly sends a request over a connection of its own, whose answer need not be as documented.
func (u *user) plainly(api *proc, method, path, body string, headers ...string) (*http.Response, string, error) {
	request, err := http.NewRequestWithContext(u.s.ctx(), method, api.url+path, strings.NewReader(body))
	require.NoError(u.s.t, err)
	request.Close = true
	request.Header.Set("Authorization", "Bearer "+u.key)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

// A client has its own answers disturbed, on every process and nobody else's, and what the fault says of the work is true.
func TestFaultsOnTheWire(t *testing.T) {
	t.Parallel()
	s := newStack(t, withTestbed)
	first, second := s.startLeader(), s.startAPI()
	u, stranger := s.newUser(first), s.newUser(first)
	submit := func(api *proc, key string) (*http.Response, string, error) {
		return u.plainly(api, "POST", "/v1/jobs", execute("SUCCESS_FAST"), "Idempotency-Key", key)
	}
	jobs := func() int { return s.count(`SELECT count(*) FROM jobs WHERE client_id = $1`, u.id) }

	u.disturb(first, `[{"match":{"operation":"submitJob","nth":1},"effect":{"close":"before"}},
		{"match":{"operation":"submitJob","nth":2},"effect":{"close":"after_commit"}},
		{"match":{"operation":"submitJob","nth":3},"effect":{"close":"mid_body"}},
		{"match":{"operation":"submitJob","nth":4},"effect":{"code":"RFA_EXEC_QUEUE_FULL","retry_after":3}}]`)
	_, _, err := submit(first, "one")
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, jobs(), "closed before the work")
	_, _, err = submit(second, "one")
	require.ErrorIs(t, err, io.EOF, "the rules hold on each process, and their counts too")
	require.Equal(t, 1, jobs(), "the answer was lost, the job was not")
	r, text, err := submit(first, "two")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, http.StatusAccepted, r.StatusCode)
	require.True(t, strings.HasPrefix(text, `{"`), text)
	require.Equal(t, 2, jobs())
	r, text, err = submit(second, "three")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
	require.Equal(t, "3", r.Header.Get("Retry-After"))
	require.Contains(t, text, "RFA_EXEC_QUEUE_FULL")
	require.Equal(t, 2, jobs())
	r, text, err = submit(second, "one")
	require.NoError(t, err)
	require.Equal(t, "true", r.Header.Get("Idempotency-Replayed"), "the repetition finds the job whose answer was lost: "+text)
	require.Equal(t, 2, jobs())

	rules := u.call(second, "GET", "/v1/testbed/faults", "")
	kept := rules.value("data").([]any)
	require.InDelta(t, 5, kept[0].(map[string]any)["seen"], 0, rules.body)
	require.InDelta(t, 1, kept[3].(map[string]any)["applied"], 0, rules.body)
	require.Equal(t, http.StatusAccepted, stranger.call(first, "POST", "/v1/jobs", execute("SUCCESS_FAST")).status)
	require.Empty(t, stranger.call(first, "GET", "/v1/testbed/faults", "").value("data"))
	path := "/v1/testbed/faults/" + kept[0].(map[string]any)["rule_id"].(string)
	stranger.call(first, "DELETE", path, "").requireProblem(t, 404, "RFA_REQUEST_NOT_FOUND")

	began := time.Now()
	_, _, err = u.plainly(first, "GET", "/v1/jobs", "", "ForgeRun-Fault", `{"slow_bytes":500}`)
	require.NoError(t, err)
	require.Greater(t, time.Since(began), 500*time.Millisecond, "a list of two jobs has more than a thousand bytes")
	require.Equal(t, http.StatusNoContent, u.call(second, "DELETE", "/v1/testbed/faults", "").status)
	require.Equal(t, http.StatusAccepted, u.call(first, "POST", "/v1/jobs", execute("SUCCESS_FAST")).status)
	require.Equal(t, http.StatusOK, u.call(first, "PUT", "/v1/testbed/faults", `{"profile":"flaky-network","seed":3}`).status)

	plain := s.startAPI(env{"FORGERUN_TESTBED": "false"})
	u.call(plain, "GET", "/v1/testbed/faults", "").requireProblem(t, 404, "RFA_REQUEST_NOT_FOUND")
	require.Equal(t, http.StatusOK, u.call(plain, "GET", "/v1/jobs", "", "ForgeRun-Fault", `{"status":503}`).status)
}

// What a stream of a finished job looks like under each fault of streams.
func TestFaultsOfStreams(t *testing.T) {
	t.Parallel()
	s := newStack(t, withTestbed)
	api := s.startLeader()
	s.startWorker()
	u := s.newUser(api)
	id := u.submit(api, execute("SUCCESS_FAST"))
	s.await("SUCCEEDED", id)
	const all = 5 // created, queued, assigned, running, succeeded
	for name, test := range map[string]struct {
		effect, lastID string
		events         int
		check          func(text string)
	}{
		"as it is":         {`{"slow_bytes":100000}`, "", all, nil},
		"cut":              {`{"cut_after":2}`, "", 2, nil},
		"half an event":    {`{"half_event_after":1}`, "", 1, func(text string) { require.NotContains(t, text[len(text)-3:], "\n\n") }},
		"repeated":         {`{"repeat_after_resume":2}`, "2", all - 2 + 2, nil},
		"comments only":    {`{"comments_only":true}`, "", 0, func(text string) { require.Equal(t, all, strings.Count(text, ":\n\n")) }},
		"unknown statuses": {`{"job_status":"PONDERING"}`, "", all, func(text string) { require.Contains(t, text, `"PONDERING"`) }},
	} {
		_, text, err := u.plainly(api, "GET", "/v1/jobs/"+id+"/events", "", "Accept", "text/event-stream", "Last-Event-ID", test.lastID,
			"ForgeRun-Fault", test.effect)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			require.NoError(t, err, name)
		}
		complete := 0
		for block := range strings.SplitAfterSeq(text, "\n\n") {
			if strings.HasSuffix(block, "\n\n") && strings.Contains(block, "event: ") {
				complete++
			}
		}
		require.Equal(t, test.events, complete, "%s: %s", name, text)
		if test.check != nil {
			test.check(text)
		}
	}

	request, err := http.NewRequestWithContext(s.ctx(), http.MethodGet, api.url+"/v1/jobs/"+id+"/events", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+u.key)
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("ForgeRun-Fault", `{"stall_after":1}`)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	events := 0
	for quiet := time.NewTimer(500 * time.Millisecond); ; {
		select {
		case line, open := <-lines:
			require.True(t, open || events == 0, "a stalled stream stays open")
			if strings.HasPrefix(line, "event: ") {
				events++
			}
			continue
		case <-quiet.C:
		}
		break
	}
	require.Equal(t, 1, events)
}
