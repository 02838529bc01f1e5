package handlers

import (
	"bufio"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

const waitingGet = "GET /v1/jobs/01890000-0000-7000-8000-000000000001 HTTP/1.1\r\nHost: x\r\nPrefer: wait=30\r\nAuthorization: Bearer " +
	goodKey + "\r\n\r\n"

func (w *world) held() int {
	total, _ := w.server.limiter.Held()
	return total
}

// A client that gives up waiting is not counted any more.
func TestWaitEndsWithItsClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	statefulJob(w, job.Running)
	for range 5 {
		c := w.dial()
		_, err := io.WriteString(c, waitingGet)
		require.NoError(t, err)
		w.jobs.wake(t) // it waits
		require.Equal(t, 1, w.held())
		require.NoError(t, c.Close())
		eventually(t, func() bool { return w.held() == 0 })
	}
	c := w.dial() // one that only says that it will ask nothing more gets its answer
	_, err := io.WriteString(c, waitingGet)
	require.NoError(t, err)
	w.jobs.wake(t)
	require.NoError(t, c.CloseWrite())
	require.Equal(t, 200, w.read(bufio.NewReader(c)).StatusCode)
}

// While a client waits it may send its next request, which is answered after
// the wait: all of it, and on the same connection.
func TestWaitOnAConnectionThatGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	f := statefulJob(w, job.Running)
	c := w.dial()
	in := bufio.NewReader(c)
	const next = "GET /problems/ HTTP/1.1\r\nHost: x\r\n\r\n"
	for range 5 {
		f.state.Store(job.Running)
		_, err := io.WriteString(c, waitingGet)
		require.NoError(t, err)
		w.jobs.wake(t)
		for _, part := range []string{next[:1], next[1:], waitingGet} {
			_, err = io.WriteString(c, part)
			require.NoError(t, err)
		}
		f.state.Store(job.Succeeded)
		w.jobs.wake(t)
		for range 3 { // the last does not wait: the job has ended
			require.Equal(t, 200, w.read(in).StatusCode)
		}
		_, err = io.WriteString(c, next)
		require.NoError(t, err)
		require.Equal(t, 200, w.read(in).StatusCode)
	}
}

// A key that is revoked while its client waits does not read any more. What was
// accepted before is acknowledged all the same.
func TestKeyIsCheckedAfterAWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	statefulJob(w, job.Running)
	keys := &keyring{}
	w.server.deps.Clients = keys
	w.jobs.await = func(ctx context.Context, _ func(*job.Job) bool) (*job.Job, error) {
		keys.change(func() { delete(keys.keys, goodKey) })
		return finishedJob(ctx, clientA, jobID)
	}
	keys.keys = map[string]job.ID{goodKey: clientA}
	w.send("GET", jobPath(jobID), "", "Prefer", "wait=5").requireProblem(t, job.CodeKeyDisabled)
	keys.keys = map[string]job.ID{goodKey: clientA}
	a := w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`, "Prefer", "wait=5")
	require.Equal(t, 202, a.StatusCode)
	require.Contains(t, a.text, `"state":"QUEUED"`)

	keys.keys = map[string]job.ID{goodKey: clientA}
	w.jobs.await = func(ctx context.Context, _ func(*job.Job) bool) (*job.Job, error) {
		keys.change(func() { keys.fail = job.Errorf(job.CodeStorageUnavailable, "away") })
		return finishedJob(ctx, clientA, jobID)
	}
	require.Equal(t, 200, w.send("GET", jobPath(jobID), "", "Prefer", "wait=5").StatusCode, "nothing is known against it")
}
