package main

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is not there yet is not missing: the answer says so, and when to look
// again, and waits if it is asked to.
func TestWhatIsNotFinished(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	id := u.submit(api, execute("SUCCESS_FAST"))
	path := "/v1/jobs/" + id
	for _, what := range []string{"/report", "/report?attempt=1", "/result"} {
		a := u.call(api, "GET", path+what, "")
		a.requireProblem(t, http.StatusNotFound, "RFA_JOB_NOT_FINISHED")
		require.Equal(t, api.url+"/problems/job-not-finished", a.text("type"))
		require.Contains(t, a.text("detail"), "QUEUED")
		after, err := strconv.Atoi(a.header.Get("Retry-After"))
		require.NoError(t, err)
		require.Positive(t, after)
		page := u.call(api, "GET", "/problems/job-not-finished", "")
		require.Equal(t, http.StatusOK, page.status)
		require.Contains(t, page.body, "RFA_JOB_NOT_FINISHED")
	}
	u.call(api, "GET", path+"/report?attempt=2", "").requireProblem(t, http.StatusNotFound, "RFA_JOB_NOT_FOUND")
	stranger := s.newUser(api)
	for _, what := range []string{"/report", "/result"} { // whoever may not see the job does not learn that it runs
		stranger.call(api, "GET", path+what, "", "Prefer", "wait=5").requireProblem(t, http.StatusNotFound, "RFA_JOB_NOT_FOUND")
	}
	a := u.call(api, "GET", path+"/result", "", "Prefer", "wait=1") // no worker runs
	a.requireProblem(t, http.StatusNotFound, "RFA_JOB_NOT_FINISHED")
	require.Equal(t, "wait=1", a.header.Get("Preference-Applied"))

	waiting := make(chan answer, 2)
	for _, what := range []string{"/report", "/result"} {
		go func() { waiting <- u.call(api, "GET", path+what, "", "Prefer", "wait=30") }()
	}
	eventually(t, "both wait", func() bool { return api.metric("http_requests_in_flight") >= 2 })
	s.startWorker()
	for range 2 {
		a := <-waiting
		require.NoError(t, a.err)
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Equal(t, "wait=30", a.header.Get("Preference-Applied"))
	}
}

// A job that has ended without a result says why there is none.
func TestResultOfAJobWithoutOne(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	canceled := u.submit(api, execute("CANCEL_BEFORE_START"))
	require.Equal(t, http.StatusOK, u.call(api, "POST", "/v1/jobs/"+canceled+"/cancel", "").status)
	s.startWorker()
	failed := u.submit(api, execute("FAIL_IMMEDIATE"))
	s.await("FAILED", failed)
	for id, state := range map[string]string{canceled: "CANCELED", failed: "FAILED"} {
		for _, prefer := range []string{"respond-async", "wait=30"} {
			a := u.call(api, "GET", "/v1/jobs/"+id+"/result", "", "Prefer", prefer)
			a.requireProblem(t, http.StatusNotFound, "RFA_RESULT_NOT_FOUND")
			require.Contains(t, a.text("detail"), state)
			require.Empty(t, a.header.Get("Retry-After"))
		}
		require.Equal(t, http.StatusOK, u.call(api, "GET", "/v1/jobs/"+id+"/report", "").status, "each end has a report")
	}
}
