package handlers

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// fakeAdmission refuses while full, and records who left.
type fakeAdmission struct {
	full bool
	left []bool
}

func (f *fakeAdmission) Full() error { return f.Enter() }

func (f *fakeAdmission) Enter() error {
	if f.full {
		return &job.Error{Code: job.CodeQueueFull, RetryAfter: time.Second, Detail: "Too many wait."}
	}
	return nil
}

func (f *fakeAdmission) Leave(accepted bool) { f.left = append(f.left, accepted) }

func withAdmission(t *testing.T) (*world, *fakeAdmission) {
	a := &fakeAdmission{}
	return newWorld(t, func(_ *Config, d *Deps) { d.Admission, d.BatchAdmission = a, a }), a
}

func TestSubmissionsAreRefusedWhileTooManyWait(t *testing.T) {
	t.Parallel()
	for path, action := range map[string]string{"/v1/jobs": "submit", "/v1/jobs/batch": "submit_batch"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			w, a := withAdmission(t)
			a.full = true
			answer := w.send(http.MethodPost, path, `{"not even": `)
			answer.requireProblem(t, job.CodeQueueFull)
			require.Equal(t, "1", answer.Header.Get("Retry-After"))
			require.Empty(t, a.left, "who did not enter does not leave")
			require.Equal(t, 1.0, series(t, w.registry)["submissions_refused_total overload"])
			require.NotContains(t, w.log.String(), "request failed")
			require.NotContains(t, w.log.String(), "RFA_EXEC_QUEUE_FULL", "Admission tells of all of them")

			stranger := w.send(http.MethodPost, path, shortBody, "Authorization", "Bearer nobody's")
			stranger.requireProblem(t, job.CodeInvalidCredentials)
			require.NotEqual(t, http.StatusServiceUnavailable, w.send(http.MethodGet, "/v1/jobs", "").StatusCode, "reading goes on")

			a.full = false
			require.Equal(t, http.StatusBadRequest, w.send(http.MethodPost, path, `{"not even": `).StatusCode)
			require.Equal(t, []bool{false}, a.left)
		})
	}
}

func TestSubmissionLeavesBeforeItsClientWaits(t *testing.T) {
	t.Parallel()
	w, a := withAdmission(t)
	w.jobs.await = func(context.Context, func(*job.Job) bool) (*job.Job, error) {
		require.Equal(t, []bool{true}, a.left, "what waits for a job does not wait for storage")
		return nil, nil
	}
	require.Equal(t, http.StatusAccepted, w.send(http.MethodPost, "/v1/jobs", shortBody, "Prefer", "wait=1").StatusCode)
	require.Equal(t, []bool{true}, a.left)
}

func TestSubmissionLeavesAlsoAfterPanic(t *testing.T) {
	t.Parallel()
	w, a := withAdmission(t)
	w.jobs.submit = func(context.Context, job.Request) (job.Receipt, error) { panic("a fault") }
	w.send(http.MethodPost, "/v1/jobs", shortBody).requireProblem(t, job.CodeInternal)
	require.Len(t, a.left, 1)
}

func TestRefusalsAreCountedByReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *Config, d *Deps) {
		d.Limiter = fakeLimiter{answer: job.Allowance{Policy: "minute", Limit: 1, RetryAfter: time.Second}}
	})
	w.send(http.MethodPost, "/v1/jobs", shortBody).requireProblem(t, job.CodeRateLimited)
	w.send(http.MethodGet, "/v1/jobs", "").requireProblem(t, job.CodeRateLimited)
	require.Equal(t, 1.0, series(t, w.registry)["submissions_refused_total rate_limit"], "a list is no submission")

	w = newWorld(t)
	w.jobs.submit = func(context.Context, job.Request) (job.Receipt, error) {
		return job.Receipt{}, job.Errorf(job.CodeQueueFull, "Full.")
	}
	w.send(http.MethodPost, "/v1/jobs", shortBody).requireProblem(t, job.CodeQueueFull)
	require.Equal(t, 1.0, series(t, w.registry)["submissions_refused_total queue_full"])
	require.Contains(t, w.log.String(), "request failed")
}
