package client_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

func job(state, rest string) reply { return ok(`{"job_id":"j1","state":"` + state + `"` + rest + `}`) }

func failed(after int) reply {
	return job("FAILED", `,"failure":{"jobId":"j1","jobStatus":"FAILED","retryable":true,"retryAfter":`+strconv.Itoa(after)+`}`)
}

// Promise: clients 6.10, 9.4
func TestDraft_6_10_ResubmissionHasANewKey(t *testing.T) {
	t.Parallel()
	s := serve(t, acceptedReply(), failed(3), acceptedReply(), failed(0), acceptedReply(), job("SUCCEEDED", ""))
	ended, err := s.c.Run(t.Context(), client.JobRequest{Type: client.Deferred, ExecutionAt: s.clock.Now()}, client.IdempotencyKey("first"),
		client.CorrelationID("c"))
	require.NoError(t, err)
	require.Equal(t, client.Succeeded, ended.State)
	require.Equal(t, []time.Duration{3 * time.Second, 2 * time.Second}, s.clock.slept())
	got := s.requests()
	keys := []string{got[0].header.Get("Idempotency-Key"), got[2].header.Get("Idempotency-Key"), got[4].header.Get("Idempotency-Key")}
	require.Equal(t, "first", keys[0])
	require.NotEqual(t, keys[0], keys[1])
	require.NotEqual(t, keys[1], keys[2])
	for _, i := range []int{2, 4} {
		require.NotContains(t, got[i].header.Get("Idempotency-Key"), "j1", "never the jobId")
		require.NotEmpty(t, got[i].header.Get("Idempotency-Key"))
		require.Equal(t, "c", got[i].header.Get("X-Correlation-Id"))
		require.JSONEq(t, `{"type":"EXECUTE"}`, got[i].body, "its time has passed")
	}
}

// Promise: clients 6.10, 9.4
func TestDraft_9_4_AtMostFiveSubmissions(t *testing.T) {
	t.Parallel()
	s := serve(t, slices.Repeat([]reply{acceptedReply(), failed(0)}, 10)...)
	ended := must(s.c.Run(t.Context(), client.JobRequest{Type: client.Execute}))(t)
	require.Equal(t, client.Failed, ended.State)
	require.Len(t, s.requests(), 2*client.MaxSubmissions)
	require.Equal(t, []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}, s.clock.slept())
}

func TestRunDoesNotResubmit(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]reply{
		"succeeded":              job("SUCCEEDED", ""),
		"canceled":               job("CANCELED", ""),
		"retryAfter alone":       job("FAILED", `,"failure":{"jobStatus":"FAILED","retryAfter":1}`).with("Retry-After", "1"),
		"retryAfter is too long": failed(4000).with("Retry-After", "1"),
		"no failure in the job":  job("FAILED", ""),
	} {
		s := serve(t, acceptedReply(), end)
		require.NoError(t, second(s.c.Run(t.Context(), client.JobRequest{})), name)
		require.Len(t, s.requests(), 2, name)
	}
}

func TestRunUsesAnswerOfWaitingSubmission(t *testing.T) {
	t.Parallel()
	s := serve(t, job("SUCCEEDED", `,"created_at":"2030-01-31T12:00:00Z"`))
	ended := must(s.c.Run(t.Context(), client.JobRequest{}, client.PreferWait(5*time.Second)))(t)
	require.Equal(t, client.Succeeded, ended.State)
	require.Len(t, s.requests(), 1)

	// The response to a submission can be the job itself. If its state is unknown, Run waits.
	s = serve(t, job("PAUSED", ""), job("SUCCEEDED", ""))
	require.NoError(t, second(s.c.Run(t.Context(), client.JobRequest{}, client.PreferWait(5*time.Second))))
	require.Equal(t, "wait=5", s.requests()[1].header.Get("Prefer"))
}

func TestWait(t *testing.T) {
	t.Parallel()
	unchanged := reply{status: 304, header: map[string]string{"ETag": `W/"1"`}}
	s := serve(t,
		job("QUEUED", "").with("Retry-After", "20").with("ETag", `W/"1"`), unchanged, job("PAUSED", "").with("ETag", `W/"2"`),
		job("RUNNING", "").with("Retry-After", "1").with("ETag", `W/"3"`), job("SUCCEEDED", "").with("ETag", `W/"4"`))
	ended := must(s.c.Wait(t.Context(), "j1", client.IfNoneMatch("a tag of the caller's")))(t)
	require.Equal(t, []string{client.Succeeded, `W/"4"`}, []string{ended.State, ended.ETag})
	slept := s.clock.slept()
	require.Equal(t, []time.Duration{20 * time.Second, 20 * time.Second}, slept[:2], "as advised, also after a 304")
	require.Equal(t, time.Second, slept[3])
	for i, tag := range []string{"", `W/"1"`, `W/"1"`, `W/"2"`, `W/"3"`} {
		h := s.requests()[i].header
		require.Equal(t, []string{tag, ""}, []string{h.Get("If-None-Match"), h.Get("Prefer")})
	}
}

func TestWaitBatch(t *testing.T) {
	t.Parallel()
	s := serve(t, ok(`{"batch_id":"b1","status":"PROCESSING"}`).with("Retry-After", "20").with("ETag", `W/"1"`), reply{status: 304},
		reply{cut: true}, ok(`{"batch_id":"b1","status":"COMPLETED_WITH_ERRORS"}`), problem(404, "RFA_BATCH_NOT_FOUND"))
	require.Equal(t, "COMPLETED_WITH_ERRORS", must(s.c.WaitBatch(t.Context(), "b1"))(t).Status)
	require.Equal(t, []time.Duration{20 * time.Second, 20 * time.Second}, s.clock.slept()[:2])
	require.Equal(t, `W/"1"`, s.requests()[3].header.Get("If-None-Match"))
	require.Error(t, second(s.c.WaitBatch(t.Context(), "b1")))
}

func TestWaitSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	s := serveWith(t, client.Config{MaxTries: 1}, job("QUEUED", "").with("Retry-After", "1"))
	for range 20 {
		s.replies = append(s.replies, reply{cut: true}, problem(503, "RFA_STORAGE_UNAVAILABLE"), problem(500, "RFA_INTERNAL"))
	}
	s.replies = append(s.replies, problem(429, "RFA_REQUEST_RATE_LIMITED").with("Retry-After", "40"), job("CANCELED", ""))
	ended := must(s.c.Wait(t.Context(), "j1"))(t)
	require.Equal(t, client.Canceled, ended.State)
	slept := s.clock.slept()
	require.Equal(t, 40*time.Second, slept[len(slept)-1].Truncate(time.Second))
	for _, wait := range slept[:len(slept)-1] {
		require.LessOrEqual(t, wait, 10*time.Second)
		require.Positive(t, wait)
	}

	s = serve(t, job("QUEUED", ""), problem(410, "RFA_JOB_GONE"))
	_, err := s.c.Wait(t.Context(), "j1")
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, 410, p.Status)
}

// After a delayed response the next poll is immediate. If the service responds without a delay, the client waits before the next poll.
func TestWaitWithPreferWait(t *testing.T) {
	t.Parallel()
	held := job("RUNNING", "").with("Retry-After", "2").with("ETag", `W/"progress"`)
	held.took = 3 * time.Second
	partly := held
	partly.took = 500 * time.Millisecond
	s := serve(t, job("QUEUED", "").with("Retry-After", "2"), held, partly, job("SUCCEEDED", ""))
	require.NoError(t, second(s.c.Wait(t.Context(), "j1", client.PreferWait(20*time.Second))))
	require.Equal(t, []time.Duration{2 * time.Second, 1500 * time.Millisecond}, s.clock.slept())
	for _, r := range s.requests() {
		require.Equal(t, "wait=20", r.header.Get("Prefer"))
		require.Empty(t, r.header.Get("If-None-Match"), "a tag would end the wait at each progress")
	}
}

func TestRunReturnsJobWithUnknownEnd(t *testing.T) {
	t.Parallel()
	s := serve(t, acceptedReply(), problem(401, "RFA_AUTH_TOKEN_EXPIRED"))
	submitted, err := s.c.Run(t.Context(), client.JobRequest{Type: client.Execute})
	require.Error(t, err)
	require.Equal(t, "j1", submitted.JobID)
	require.Equal(t, client.Queued, submitted.State)

	s = serve(t, acceptedReply(), failed(0), problem(401, "RFA_AUTH_TOKEN_EXPIRED"))
	ended, err := s.c.Run(t.Context(), client.JobRequest{})
	require.Error(t, err)
	require.Equal(t, client.Failed, ended.State)
}
