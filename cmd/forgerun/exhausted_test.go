package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// readyz asks the admin listener.
func (p *proc) readyz() (status int, body string) {
	p.t.Helper()
	response, err := http.Get("http://" + p.logged("admin listening")["address"].(string) + "/readyz")
	require.NoError(p.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return response.StatusCode, string(text)
}

// A worker without a place for temp files fails what it has begun, and leaves the rest
// to others. The folder that is gone stands for a disk that is full.
func TestWorkerWithoutTempSpaceLeavesJobsToOthers(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	dir := filepath.Join(t.TempDir(), "gone")
	poor := s.startWorker(env{"TMPDIR": dir})
	ids := u.submitMany(api, 20, execute("IO_HEAVY"))
	poor.logged("this machine lacks what jobs of a kind need; none is taken until that is mended", `"work_kind":"IO_HEAVY"`)
	status, ready := poor.readyz()
	require.Equal(t, http.StatusOK, status, "it takes other jobs")
	require.Contains(t, ready, `"status":"degraded"`)
	require.Contains(t, ready, "takes no jobs of [IO_HEAVY]")
	require.EqualValues(t, 1, poor.metric("worker_kinds_refused"))
	s.await("SUCCEEDED", u.submit(api, execute("SUCCESS_FAST")))

	s.startWorker()
	ids = append(ids, u.submitMany(api, 80, execute("IO_HEAVY"))...)
	s.awaitFinal(ids...)
	require.LessOrEqual(t, s.countJobs(ids, "FAILED"), 4, "those that it ran at once")
	require.Equal(t, s.countJobs(ids, "FAILED"),
		s.count(`SELECT count(*) FROM jobs WHERE failure_reason = 'worker-exhausted' AND failure_retryable`))

	require.NoError(t, os.Mkdir(dir, 0o700))
	eventually(t, "it takes all jobs again", func() bool { return poor.metric("worker_kinds_refused") == 0 })
	_, ready = poor.readyz()
	require.Contains(t, ready, `"status":"ok"`)
	s.checkInvariants()
}
