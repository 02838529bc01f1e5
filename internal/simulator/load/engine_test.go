package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

// script has the responses to the first submissions, in order. "0" drops the response. Later submissions are accepted.
type script []string

const succeeded = `"state":"SUCCEEDED","attempt":1`

func serve(t *testing.T, job string, s script, before func()) (url string, keys func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	answers := map[string]string{
		"/v1/clients": `201 {"client_id":"c"}`, "/v1/clients/c/keys": `201 {"api_key":"frk_k_s","key_id":"k"}`,
		"/v1/testbed/clock": `404 {"status":404,"code":"RFA_REQUEST_NOT_FOUND"}`,
		"/v1/jobs/batch": `202 {"batch_id":"b-1","jobs":[{"job_id":"x","state":"QUEUED"},` +
			`{"failure":{"status":400,"code":"RFA_JOB_VALIDATION_FAILED"}}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := answers[r.URL.Path]
		key := r.Header.Get("Idempotency-Key")
		if answer == "" {
			answer = fmt.Sprintf(`200 {"job_id":%q,%s}`, strings.Split(r.URL.Path+"/", "/")[3], job)
		}
		if strings.HasPrefix(r.URL.Path, "/v1/jobs") && r.Method == http.MethodPost && key != "" {
			if before != nil {
				before()
			}
			mu.Lock()
			seen = append(seen, key)
			if n := len(seen); n <= len(s) {
				answer = s[n-1]
			} else if r.URL.Path == "/v1/jobs" {
				answer = fmt.Sprintf(`202 {"job_id":"job-%s","state":"QUEUED","created_at":"2030-01-01T00:00:00Z"}`, key)
			}
			mu.Unlock()
		}
		status, body := 0, ""
		_, _ = fmt.Sscanf(answer, "%d", &status)
		if _, body, _ = strings.Cut(answer, " "); status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: "application/problem+json"}[status < 300])
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []string { return seen }
}

type played struct {
	engine   *Engine
	recorder *report.Recorder
	facts    map[history.Kind][]history.Fact
	tries    map[int64]string
}

type memory struct {
	mu   sync.Mutex
	list []history.Fact
}

func (m *memory) Add(f history.Fact) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, f)
}

func start(t *testing.T, url, text string) (e *Engine, recorder *report.Recorder, facts *memory) {
	t.Helper()
	s, err := scenario.Parse("test.yaml", []byte(text))
	require.NoError(t, err)
	s.Readers.Streams, facts, recorder = 0, &memory{}, report.NewRecorder(time.Now())
	e = New(Options{URL: url, Run: "run", Scenario: s, History: facts, Recorder: recorder})
	e.timeout = time.Hour
	require.NoError(t, e.Prepare(t.Context()))
	return e, recorder, facts
}

func play(t *testing.T, url, text string) played {
	t.Helper()
	e, recorder, facts := start(t, url, text)
	p := played{engine: e, recorder: recorder, facts: map[history.Kind][]history.Fact{}, tries: map[int64]string{}}
	require.NoError(t, e.Run(t.Context()))
	unfinished, _, _ := e.Drain(t.Context())
	require.Zero(t, unfinished)
	e.Close()
	for _, f := range facts.list {
		p.facts[f.Kind] = append(p.facts[f.Kind], f)
		if f.Kind == history.Submitted {
			for _, try := range f.Submission.Tries {
				p.tries[f.Ticket] += fmt.Sprintf(" %d", try.Status)
			}
		}
	}
	return p
}

func TestSubmissions(t *testing.T) {
	t.Parallel()
	problem := func(status int, code string) string {
		return fmt.Sprintf(`%d {"status":%d,"code":%q,"title":"x"}`, status, status, code)
	}
	limited := problem(429, "RFA_REQUEST_RATE_LIMITED")
	for name, c := range map[string]struct {
		jobs            int
		work            string
		script          script
		requests, keys  int
		tries           map[int64]string
		answers, states map[string]int64
	}{
		"a submission with an unknown outcome is repeated with its key": {
			jobs: 1, work: "kind: SUCCESS_FAST", script: script{problem(503, "RFA_STORAGE_UNAVAILABLE"), "0", limited},
			requests: 4, keys: 1, tries: map[int64]string{1: " 503 0 429 202"}, answers: map[string]int64{report.Accepted: 1},
			states: map[string]int64{client.Succeeded: 1},
		},
		"a refused submission is not repeated": {
			jobs: 4, work: "kind: SUCCESS_FAST",
			script:   script{limited, problem(503, "RFA_EXEC_QUEUE_FULL"), problem(400, "RFA_JOB_VALIDATION_FAILED")},
			requests: 4, keys: 4, answers: map[string]int64{report.Refused: 2, report.Rejected: 1, report.Accepted: 1},
			states: map[string]int64{client.Succeeded: 1},
		},
		"copies with the same key": {
			jobs: 2, work: "kind: SUCCESS_FAST, duplicate: {copies: 2, key: same}", requests: 6, keys: 2,
			tries: map[int64]string{1: " 202 202 202", 2: " 202 202 202"}, states: map[string]int64{client.Succeeded: 2},
		},
		"a batch with a refused item": {
			jobs: 1, work: "kind: SUCCESS_FAST, batch: 2", requests: 1, keys: 1, tries: map[int64]string{1: " 202", 2: " 400"},
			answers: map[string]int64{report.Accepted: 1, report.Rejected: 1},
		},
		"a refused batch": {
			jobs: 1, work: "kind: SUCCESS_FAST, batch: 3", script: script{limited}, requests: 1, keys: 1,
			answers: map[string]int64{report.Refused: 3},
		},
		"refused as planned": {
			jobs: 2, work: "kind: PAYLOAD_INVALID", script: script{problem(400, "RFA_JOB_VALIDATION_FAILED"), limited}, requests: 2, keys: 2,
			answers: map[string]int64{report.Planned: 1, report.Refused: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, keys := serve(t, succeeded, c.script, nil)
			p := play(t, url, fmt.Sprintf("jobs: %d\narrival: {open: [{rate: 20/s}]}\nmix: [{%s}]", c.jobs, c.work))
			distinct := map[string]bool{}
			for _, key := range keys() {
				distinct[key] = true
			}
			require.Len(t, keys(), c.requests)
			require.Len(t, distinct, c.keys)
			if c.tries != nil {
				require.Equal(t, c.tries, p.tries)
				require.EqualValues(t, len(c.tries), p.engine.Tickets())
			}
			numbers := p.recorder.Run().Numbers
			answered := int64(0)
			for _, n := range numbers.Answers {
				answered += n
			}
			require.Equal(t, numbers.Arrivals, answered, "each submission has one outcome")
			for class, n := range c.answers {
				require.EqualValues(t, n, numbers.Answers[class], class)
			}
			for state, n := range c.states {
				require.EqualValues(t, n, numbers.Finished[state], state)
			}
		})
	}
}

func TestOtherTenantsRequestJobs(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, succeeded, nil, nil)
	p := play(t, url, "jobs: 100\ntenants: 2\narrival: {open: [{rate: 500/s}]}\nmix: [{kind: SUCCESS_FAST}]")
	owners, asked := map[string]int{}, map[string]bool{}
	for _, f := range p.facts[history.Submitted] {
		owners[f.Job] = f.Tenant
	}
	for _, f := range p.facts[history.Intruded] {
		require.NotEqual(t, owners[f.Job], f.Tenant)
		asked[fmt.Sprint(f.Ticket, " ", f.Action.Verb)] = true
		if f.Action.Verb == "get" { // the fake service shows every job to every tenant
			require.Equal(t, 200, f.Action.Status)
		}
	}
	require.Len(t, asked, 14, "two of the hundred jobs, with seven requests each")
}

func TestLatenciesIncludeStalls(t *testing.T) {
	t.Parallel()
	resumed := make(chan struct{})
	var once sync.Once
	url, _ := serve(t, succeeded, nil, func() {
		once.Do(func() { time.AfterFunc(time.Second, func() { close(resumed) }) })
		<-resumed
	})
	p := play(t, url, "jobs: 100\narrival: {open: [{rate: 100/s}]}\nmix: [{kind: SUCCESS_FAST}]")
	latency := p.recorder.Run().Numbers.Submit
	require.Greater(t, latency.P50, 300*time.Millisecond, "half of the requests were due in the first half of the stall")
}

func TestInterruptedRunEndsAtOnce(t *testing.T) {
	t.Parallel()
	asked, over := make(chan struct{}, 1000), make(chan struct{})
	url, _ := serve(t, succeeded, nil, func() {
		asked <- struct{}{}
		<-over
	})
	t.Cleanup(func() { close(over) })
	e, _, _ := start(t, url, "duration: 1h\narrival: {open: [{rate: 100/s}]}\nmix: [{kind: SUCCESS_FAST}]\nreaders: {poll: 100%}")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	require.ErrorIs(t, e.Run(ctx), context.Canceled)
	e.Close()
}

func TestDrainListsUnfinishedJobs(t *testing.T) {
	t.Parallel()
	url, keys := serve(t, `"state":"QUEUED","attempt":1,"waiting":{"reason":"NO_WORKERS"}`, nil, nil)
	e, _, _ := start(t, url, "jobs: 7\narrival: {open: [{rate: 100/s}]}\nmix: [{kind: SUCCESS_FAST}]")
	e.o.Scenario.Drain = time.Millisecond
	require.NoError(t, e.Run(t.Context()))
	unfinished, which, _ := e.Drain(t.Context())
	e.Close()
	require.Equal(t, 7, unfinished)
	require.Len(t, which, 5)
	require.Equal(t, "job-"+keys()[0]+" (QUEUED, attempt 1, waiting: NO_WORKERS)", which[0])
}

func TestRefusedBecauseItsTimeHasPassed(t *testing.T) {
	t.Parallel()
	due := time.Now()
	e, late := &Engine{}, &ticket{fact: history.Submission{ExecutionAt: due}}
	refused := history.Answer{Status: http.StatusBadRequest, Code: codeInvalid, Answered: due.Add(time.Millisecond)}
	require.Equal(t, report.Planned, e.class(late, refused))
	refused.Answered = due.Add(-time.Millisecond)
	require.Equal(t, report.Rejected, e.class(late, refused))
}
