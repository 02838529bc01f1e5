package client_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

func stream(text string) reply { return reply{status: 200, kind: "text/event-stream", body: text} }

func event(id, name string) string { return "id: " + id + "\nevent: " + name + "\ndata: {}\n\n" }

var atEnd = reply{status: http.StatusNoContent}

func watch(ctx context.Context, c *client.Client, o client.StreamOptions) (ids []string, err error) {
	for m, e := range c.Stream(ctx, o) {
		if e != nil {
			return ids, e
		}
		ids = append(ids, m.ID)
	}
	return ids, nil
}

func TestStreamOfAJob(t *testing.T) {
	t.Parallel()
	s := serve(t, stream("retry: 1500\n\n"+event("1", "job-created")+"event: job-progress\ndata: {}\n\n"+event("2", "job-succeeded")), atEnd)
	var connected []string
	o := client.StreamOptions{JobID: "j", LastEventID: "0", OnConnect: func(id string) { connected = append(connected, id) }}
	require.Equal(t, []string{"1", "", "2"}, must(watch(t.Context(), s.c, o))(t))
	require.Equal(t, []string{"0"}, connected)
	require.Empty(t, s.clock.slept(), "it reconnects at once after the last event")
	got := s.requests()
	require.Equal(t, []string{"/v1/jobs/j/events", "text/event-stream", "0", "2"}, []string{
		got[0].path, got[0].header.Get("Accept"), got[0].header.Get("Last-Event-Id"), got[1].header.Get("Last-Event-Id")})
	require.Error(t, second(watch(t.Context(), s.c, client.StreamOptions{LastEventID: "a\nb"})))
	require.Len(t, s.requests(), 2)
}

func TestStreamIsResumedExactly(t *testing.T) {
	t.Parallel()
	frames := []string{event("1", "job-created"), event("2", "job-running"), event("3", "job-succeeded")}
	whole := strings.Join(frames, "")
	for cut := range len(whole) {
		s := serve(t, stream(whole[:cut]), stream(strings.Join(frames[strings.Count(whole[:cut], "\n\n"):], "")), atEnd)
		if cut == len(whole)-1 {
			s.replies[1] = stream(frames[2])
		}
		require.Equal(t, []string{"1", "2", "3"}, must(watch(t.Context(), s.c, client.StreamOptions{JobID: "j"}))(t), "cut at %d", cut)
		last := strings.Count(whole[:cut], "\n\n")
		require.Equal(t, strings.Trim(strconv.Itoa(last), "0"), s.requests()[1].header.Get("Last-Event-Id"))
	}
}

func TestStreamOfAClientKnowsItsPosition(t *testing.T) {
	t.Parallel()
	s := serve(t, stream("retry: 1000\nid: p0\nevent: position\ndata: {}\n\n"), stream(":\n\n"),
		stream("id: p0\nevent: position\ndata: {}\n\n"+event("p1", "job-created")+event("p1", "job-created")),
		problem(403, "RFA_AUTH_API_KEY_DISABLED"))
	var connected []string
	ids, err := watch(t.Context(), s.c, client.StreamOptions{OnConnect: func(id string) { connected = append(connected, id) }})
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, []string{"p1"}, ids, "a repeated event is skipped")
	require.Equal(t, []string{"p0", "p0", "p0"}, connected)
	for i, want := range []string{"", "p0", "p0", "p1"} {
		require.Equal(t, want, s.requests()[i].header.Get("Last-Event-Id"))
		require.Equal(t, "/v1/events", s.requests()[i].path)
	}
}

func TestPermanentErrorsEndAStream(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]reply{
		"400": problem(400, "RFA_REQUEST_MALFORMED"), "401": problem(401, "RFA_AUTH_TOKEN_EXPIRED"), "410": problem(410, "RFA_JOB_GONE"),
		"misconfigured": problem(503, "RFA_CONFIG_INVALID"), "a page": {status: 200, kind: "text/html"}, "a list": ok(`{"data":[]}`),
		"a line without an end": stream("data: " + strings.Repeat("a", 3<<20)), "not UTF-8": stream("data: \xff\n\n"),
	} {
		s := serve(t, stream(event("1", "job-created")), r)
		ids, err := watch(t.Context(), s.c, client.StreamOptions{JobID: "j"})
		require.Error(t, err, name)
		require.Equal(t, []string{"1"}, ids, name)
		require.Len(t, s.requests(), 2, name)
	}
	s := serveWith(t, client.Config{MaxTries: 3}, reply{cut: true})
	var lost *client.NoAnswerError
	require.ErrorAs(t, second(watch(t.Context(), s.c, client.StreamOptions{})), &lost)
	require.Len(t, s.requests(), 3, "it gives up if no connection ever succeeds")
}

func TestTemporaryErrorsDoNotEndAStream(t *testing.T) {
	t.Parallel()
	// Disable keep-alives: net/http retries a GET on a reused connection.
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	s := serveWith(t, client.Config{HTTP: fresh}, stream("retry: 1\n\n"), reply{cut: true}, problem(500, "RFA_INTERNAL"),
		reply{status: 502, kind: "text/html"}, problem(503, "RFA_STORAGE_UNAVAILABLE"), reply{cut: true},
		problem(429, "RFA_REQUEST_RATE_LIMITED").with("Retry-After", "77"), stream("retry: 3600000\n\n"), atEnd)
	require.NoError(t, second(watch(t.Context(), s.c, client.StreamOptions{JobID: "j"})))
	ms := time.Millisecond
	require.Equal(t, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 77 * time.Second, 30 * time.Second},
		s.clock.slept(), "retry is honoured from 0.1 to 30 s, doubled while no connection lasts, and Retry-After if it is longer")
}

func TestStreamEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, event("1", "job-created"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	c := must(client.New(client.Config{URL: server.URL}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got error
	for m, err := range c.Stream(ctx, client.StreamOptions{}) {
		if got = err; err == nil {
			require.Equal(t, "1", m.ID)
			cancel()
		}
	}
	require.ErrorIs(t, got, context.Canceled)
}

func TestMessages(t *testing.T) {
	t.Parallel()
	running := client.Message{Name: "job-running", Data: []byte(`{"event_id":"e","seq":4,"event_name":"job.running","job_id":null,"new":1}`)}
	ended := client.Message{Name: "job-failed", Data: []byte(`{"jobStatus":"FAILED","retryable":true}`)}
	moved := client.Message{Name: "job-progress", Data: []byte(`{"job_id":"j","attempt":1,"progress":{"percentage":40}}`)}
	require.Equal(t, 4, must(running.Event())(t).Seq)
	require.True(t, must(ended.Outcome())(t).Retryable())
	require.Equal(t, 40, must(moved.Progress())(t).Percentage)
	for _, err := range []error{second(running.Outcome()), second(ended.Event()), second(running.Progress()),
		second(client.Message{Name: "job-running", Data: []byte(`{`)}.Event())} {
		require.Error(t, err)
	}
}

func TestStreamReconnectsImmediatelyOnlyOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for i := range 6 {
		s.replies = append(s.replies, stream(event(fmt.Sprint(i+1), "job-failed")))
	}
	lasted := stream(event("7", "job-failed")) // a connection that lasts resets the count of failures
	s.replies = append(s.replies, lasted, stream(event("8", "job-failed")), atEnd)
	seen := 0
	for m, err := range s.c.Stream(t.Context(), client.StreamOptions{JobID: "j"}) {
		require.NoError(t, err)
		if seen++; m.ID == "7" {
			s.clock.pass(time.Minute)
		}
	}
	require.Equal(t, 8, seen)
	sec := time.Second
	require.Equal(t, []time.Duration{4 * sec, 8 * sec, 16 * sec, 30 * sec, 30 * sec, 4 * sec}, s.clock.slept())
}

// Promise: clients 3.5
func TestDraft_3_5_AlsoInAStream(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	const document = `{"jobId":"j","jobStatus":"PROCESSING","completedAt":"2030-01-01T00:00:00Z"}`
	s := serveWith(t, client.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		stream("id: 1\nevent: job-failed\ndata: "+document+"\n\n"), atEnd,
		reply{status: 200, kind: jsonType, body: document})
	for m, err := range s.c.Stream(t.Context(), client.StreamOptions{JobID: "j"}) {
		require.NoError(t, err)
		came := s.clock.Now()
		s.clock.pass(time.Hour) // the program handles the message late
		o := must(m.Outcome())(t)
		require.Equal(t, came, o.ReceivedAt)
		require.Len(t, o.Warnings, 1)
	}
	require.Contains(t, log.String(), "completedAt is ignored")
	log.Reset()
	require.NoError(t, second(s.c.Job(t.Context(), "j")))
	require.Contains(t, log.String(), "completedAt is ignored")
}
