package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const operatorsToken = "the-operators-own-token"

// asOperator sends a request with the operator's token.
func (s *stack) asOperator(api *proc, method, path, body string) answer {
	return (&user{s: s, key: operatorsToken}).call(api, method, path, body)
}

func TestOneClientCannotFillTheService(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{
		"FORGERUN_MAX_ACTIVE_JOBS": "40", "FORGERUN_MAX_QUEUE_SIZE": "40", "FORGERUN_MAX_SCHEDULE_AHEAD": "24h",
		"FORGERUN_ADMIN_TOKEN": operatorsToken,
	})
	one, two := s.startLeader(), s.startAPI()
	greedy, other := s.newUser(one), s.newUser(one)

	const never = `{"type":"DEFERRED","work_kind":"SCHEDULED_ON_TIME","execution_at":"9999-01-01T00:00:00Z"}`
	problem := greedy.trySubmit(one, never)
	problem.requireProblem(t, http.StatusBadRequest, "RFA_JOB_VALIDATION_FAILED")
	require.Contains(t, problem.body, `"pointer":"/execution_at"`)

	greedy.submitBatch(one, `{"jobs":[`+strings.Repeat(deferred(time.Hour)+",", 9)+deferred(time.Hour)+`]}`) // a quarter of 40
	refused := greedy.trySubmit(one, deferred(time.Hour))
	refused.requireProblem(t, http.StatusServiceUnavailable, "RFA_EXEC_QUEUE_FULL")
	require.Contains(t, refused.body, "one client may have 10 jobs that are not final")
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	eventually(t, "the other process knows, too", func() bool {
		return greedy.trySubmit(two, execute("PAYLOAD_SMALL")).status == http.StatusServiceUnavailable
	})
	var accepted []string
	for range 8 {
		accepted = append(accepted, other.submit(one, execute("PAYLOAD_SMALL")))
	}

	cancel := "/v1/clients/" + greedy.id + "/jobs/cancel"
	greedy.call(one, "POST", cancel, "").requireProblem(t, http.StatusForbidden, "RFA_AUTH_FORBIDDEN")
	canceled := s.asOperator(one, "POST", cancel, "")
	require.Equal(t, http.StatusOK, canceled.status, canceled.body)
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE client_id = $1 AND finished_at IS NULL`, greedy.id))
	require.Equal(t, 8, s.count(`SELECT count(*) FROM jobs WHERE client_id = $1 AND finished_at IS NULL`, other.id))
	require.JSONEq(t, `{"canceled":0,"more":false}`, s.asOperator(two, "POST", cancel, "").body)
	eventually(t, "there is room again", func() bool {
		return greedy.trySubmit(one, execute("PAYLOAD_SMALL")).status == http.StatusAccepted
	})
	s.startWorker()
	s.await("SUCCEEDED", accepted...)
	s.checkInvariants()
}

func TestLargeSubmissionsCostWhatTheyAre(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_RATE_LIMIT_PER_MINUTE": "20"})
	api := s.startAPI()
	large := func(bytes int) string {
		return `{"type":"EXECUTE","work_kind":"PAYLOAD_SMALL","params":{"a":"` + strings.Repeat("x", bytes) + `"}}`
	}
	u := s.newUser(api)
	u.submit(api, large(15<<10))  // one
	u.submit(api, large(200<<10)) // and thirteen
	refused := u.trySubmit(api, large(100<<10))
	refused.requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
	require.Contains(t, refused.body, "this one as 7")
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Equal(t, 2, s.count(`SELECT count(*) FROM jobs`))

	other := s.newUser(api)
	refused = other.call(api, "POST", "/v1/jobs/batch", `{"jobs":[`+large(200<<10)+","+large(200<<10)+`]}`)
	require.Equal(t, http.StatusAccepted, refused.status, "more than the limit has: it costs all of it")
	other.trySubmit(api, execute("PAYLOAD_SMALL")).requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
}

func TestBatchesCostWhatTheirJobsDo(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_RATE_LIMIT_PER_MINUTE": "20"})
	api := s.startAPI()
	batch := func(n int) string {
		return `{"jobs":[` + strings.Repeat(execute("PAYLOAD_SMALL")+",", n-1) + execute("PAYLOAD_SMALL") + `]}`
	}
	u := s.newUser(api)
	u.submitBatch(api, batch(15))
	refused := u.call(api, "POST", "/v1/jobs/batch", batch(6))
	refused.requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Equal(t, 15, s.count(`SELECT count(*) FROM jobs`), "whole or not at all")

	other := s.newUser(api)
	other.submitBatch(api, batch(100)) // more than the limit has: it costs all of it
	other.trySubmit(api, execute("PAYLOAD_SMALL")).requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
}
