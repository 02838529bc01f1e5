package load

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

func count(list []report.Count, name string) int64 {
	for _, c := range list {
		if c.Name == name {
			return c.N
		}
	}
	return 0
}

func TestEachTicketIsSubmittedOnceAndFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := f.play("jobs: 50\narrival: {open: [{rate: 500/s}]}\nmix: [{kind: SUCCESS_FAST}]\n")
	require.EqualValues(t, 50, p.engine.Tickets())
	require.Len(t, f.jobs, 50)
	seen := map[string]bool{}
	for _, j := range f.jobs {
		require.True(t, strings.HasPrefix(j.Correlation, "run."), j.Correlation)
		seen[j.Correlation] = true
	}
	require.Len(t, seen, 50, "each job leads back to its ticket")
	for n := range int64(50) {
		fact := p.submission(n + 1)
		require.Len(t, fact.Submission.Tries, 1)
		require.Equal(t, fact.Job, fact.Submission.Tries[0].Job)
		require.Equal(t, fmt.Sprintf("run.%d", n+1), f.jobs[fact.Job].Correlation)
	}
	require.Len(t, p.facts[history.Streamed], 150)
	numbers := p.recorder.Run().Numbers
	require.EqualValues(t, 50, numbers.Arrivals)
	require.EqualValues(t, 50, count(numbers.Answers, report.Accepted))
	require.EqualValues(t, 50, count(numbers.Finished, client.Succeeded))
	require.EqualValues(t, 50, count(numbers.States, client.Succeeded))
	require.Zero(t, count(numbers.States, client.Running))
}

func TestASubmissionOfUnknownFateIsRepeatedWithItsKey(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer = func(n int, _ *http.Request, w http.ResponseWriter) bool {
		switch n {
		case 1:
			refuse(w, http.StatusServiceUnavailable, "RFA_STORAGE_UNAVAILABLE")
		case 2: // the answer is lost
			conn, _, err := w.(http.Hijacker).Hijack()
			require.NoError(t, err)
			_ = conn.Close()
		case 3: // after what came before, this is no refusal
			refuse(w, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
		default:
			return false
		}
		return true
	}
	p := f.play("jobs: 1\narrival: {open: [{rate: 10/s}]}\nmix: [{kind: SUCCESS_FAST}]\n")
	tries := p.submission(1).Submission.Tries
	require.Len(t, tries, 4)
	require.Equal(t, []int{503, 0, 429, 202}, []int{tries[0].Status, tries[1].Status, tries[2].Status, tries[3].Status})
	require.NotEmpty(t, tries[1].Error)
	require.Len(t, slices.Compact(slices.Clone(f.keys)), 1, "always the same key")
	require.EqualValues(t, 1, count(p.recorder.Run().Numbers.Answers, report.Accepted))
}

func TestARefusalIsTakenForAnAnswer(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer = func(n int, _ *http.Request, w http.ResponseWriter) bool {
		switch n % 4 {
		case 1:
			refuse(w, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
		case 2:
			refuse(w, http.StatusServiceUnavailable, "RFA_EXEC_QUEUE_FULL")
		case 3:
			refuse(w, http.StatusBadRequest, "RFA_JOB_VALIDATION_FAILED")
		default:
			return false
		}
		return true
	}
	p := f.play("jobs: 8\narrival: {open: [{rate: 20/s}]}\nmix: [{kind: SUCCESS_FAST}]\n")
	require.Len(t, f.keys, 8)
	numbers := p.recorder.Run().Numbers
	require.EqualValues(t, 4, count(numbers.Answers, report.Refused))
	require.EqualValues(t, 2, count(numbers.Answers, "rejected"))
	require.EqualValues(t, 2, count(numbers.Answers, report.Accepted))
	require.Empty(t, p.submission(1).Job)
}

func TestCopiesAndTheirKeys(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"at_once: true", "at_once: false"} {
		f := newFake(t)
		p := f.play("jobs: 3\narrival: {open: [{rate: 50/s}]}\nmix: [{kind: SUCCESS_FAST, duplicate: {copies: 4, key: same, " + how + "}}]\n")
		require.Len(t, f.keys, 15)
		require.Len(t, f.jobs, 3, "one key, one job")
		require.EqualValues(t, 3, p.engine.Tickets())
		for n := range int64(3) {
			require.Len(t, p.submission(n+1).Submission.Tries, 5)
		}

		f = newFake(t)
		p = f.play("jobs: 3\narrival: {open: [{rate: 50/s}]}\nmix: [{kind: SUCCESS_FAST, duplicate: {copies: 4, key: different, " + how + "}}]\n")
		require.Len(t, f.jobs, 15)
		require.EqualValues(t, 15, p.engine.Tickets())
		require.Len(t, p.facts[history.Submitted], 15)
	}
}

func TestABatchIsOneRequestOfManyTickets(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := f.play("jobs: 1\narrival: {open: [{rate: 50/s}]}\npick: in_turn\nmix: [{kinds: [SUCCESS_FAST, PAYLOAD_INVALID], batch: 4}]\n")
	require.Len(t, f.keys, 1)
	require.Len(t, f.jobs, 2)
	require.EqualValues(t, 4, p.engine.Tickets())
	refused := 0
	for n := range int64(4) {
		fact := p.submission(n + 1)
		require.Equal(t, "b-1", fact.Submission.Batch)
		if fact.Job == "" {
			refused++
			require.Equal(t, 400, fact.Submission.Tries[0].Status)
		}
	}
	require.Equal(t, 2, refused)
	require.EqualValues(t, 1, p.recorder.Run().Numbers.Arrivals)
}

func TestTheClientsPart(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := f.play(`
jobs: 8
arrival: {closed: {clients: 4}}
pick: in_turn
mix:
  - {kind: CANCEL_DURING_RUN, cancel: {in: RUNNING, after: 10ms}}
  - {kind: CANCEL_BEFORE_START, cancel: {in: QUEUED}}
  - {kind: RETRY_ON_FAIL, retry: {max: 2}}
  - {kind: RETRY_LIMIT_REACHED, retry: {max: 9}}
`)
	ends := map[string]int{}
	for _, j := range f.jobs {
		ends[fmt.Sprint(j.Kind, " ", j.State, " ", j.Attempt)]++
	}
	require.Equal(t, map[string]int{
		"CANCEL_DURING_RUN CANCELED 1": 2, "CANCEL_BEFORE_START CANCELED 1": 2,
		"RETRY_ON_FAIL SUCCEEDED 2": 2, "RETRY_LIMIT_REACHED FAILED 4": 2,
	}, ends)
	verbs := map[string]int{}
	for _, a := range p.facts[history.Acted] {
		verbs[fmt.Sprint(a.Action.Verb, " ", a.Action.Status)]++
	}
	require.Equal(t, map[string]int{"cancel 200": 4, "retry 200": 8, "retry 409": 2}, verbs)
	numbers := p.recorder.Run().Numbers
	for state, n := range map[string]int64{client.Succeeded: 2, client.Failed: 2, client.Canceled: 4} {
		require.Equal(t, n, count(numbers.Finished, state), "%s: a retried job ends once", state)
		require.Equal(t, n, count(numbers.States, state), "%s: and is counted once", state)
	}
}

// Another tenant asks for some of the jobs, in every way, and what it is answered
// is written down.
func TestStrangersAskForJobs(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := f.play("jobs: 100\ntenants: 2\narrival: {open: [{rate: 500/s}]}\nmix: [{kind: SUCCESS_FAST}]\n")
	asked := map[string]bool{}
	for _, fact := range p.facts[history.Intruded] {
		require.NotEqual(t, p.submission(fact.Ticket).Tenant, fact.Tenant)
		require.Equal(t, p.submission(fact.Ticket).Job, fact.Job)
		asked[fmt.Sprint(fact.Ticket, " ", fact.Action.Verb)] = true
		if fact.Action.Verb == "get" { // this fake shows everything to everybody
			require.Equal(t, 200, fact.Action.Status)
		}
	}
	require.Len(t, asked, 14, "two of the hundred, in seven ways")
}

func TestJobsThatNobodyStreamsArePolled(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := f.play("jobs: 5\narrival: {open: [{rate: 50/s}]}\nmix: [{kind: SUCCESS_FAST}]\nreaders: {streams: 0, poll: 100%}\n")
	require.Empty(t, p.facts[history.Streamed])
	require.GreaterOrEqual(t, len(p.facts[history.Looked]), 5)
	require.EqualValues(t, 5, count(p.recorder.Run().Numbers.Finished, client.Succeeded))
}

// A service that stands still makes the generator late, not slower: what was to
// be sent meanwhile counts from when it was to be sent.
func TestAStallIsInTheLatenciesOfAll(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	moving := make(chan struct{})
	var once sync.Once
	f.answer = func(int, *http.Request, http.ResponseWriter) bool {
		once.Do(func() { time.AfterFunc(time.Second, func() { close(moving) }) })
		<-moving
		return false
	}
	p := f.play("jobs: 100\narrival: {open: [{rate: 100/s}]}\nmix: [{kind: SUCCESS_FAST}]\n")
	latency := p.recorder.Run().Numbers.Submit
	require.Greater(t, latency.P50, 300*time.Millisecond, "half of them were to be sent in the first half of the stall")
}

// silent registers clients and answers nothing else.
type silent struct{ asked chan struct{} }

func (s silent) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	switch r.URL.Path {
	case "/v1/clients":
		write(w, http.StatusCreated, `{"client_id":"c"}`)
	case "/v1/clients/c/keys":
		write(w, http.StatusCreated, `{"api_key":"frk_k_s","key_id":"k"}`)
	case "/v1/testbed/clock":
		refuse(w, http.StatusNotFound, "RFA_REQUEST_NOT_FOUND")
	default:
		select {
		case s.asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return w.Result(), nil
}

// An interrupted run does not wait for a service that does not answer.
func TestAnInterruptedRunEndsAtOnce(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("test.yaml", []byte("duration: 1h\narrival: {open: [{rate: 100/s}]}\nmix: [{kind: SUCCESS_FAST}]\n"+
		"readers: {streams: 0, poll: 100%}\n"))
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		facts, err := history.Create(t.TempDir())
		require.NoError(t, err)
		service := silent{make(chan struct{}, 1)}
		e, err := New(Options{URL: "http://service", Run: "run", Scenario: s, History: facts, Recorder: report.NewRecorder(time.Now()),
			Transport: service})
		require.NoError(t, err)
		require.NoError(t, e.Prepare(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		var interrupted time.Time
		go func() {
			<-service.asked
			interrupted = time.Now()
			cancel()
		}()
		require.ErrorIs(t, e.Run(ctx), context.Canceled)
		require.Equal(t, interrupted, time.Now(), "a request may take 15 s")
		e.Close()
		require.NoError(t, facts.Close())
	})
}
