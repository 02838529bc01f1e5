package handlers

import (
	"bufio"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// early makes reports and results come with the end of the job, as storage does.
func early(w *world, f *stateful) {
	refused := func() error {
		switch s := f.state.Load().(job.State); s {
		case job.Succeeded:
			return nil
		case job.Failed:
			return job.Errorf(job.CodeResultNotFound, "The job FAILED.")
		default:
			return job.Errorf(job.CodeJobNotFinished, "The job is %s.", s)
		}
	}
	w.jobs.report = func(ctx context.Context, client, id job.ID, n int) (*job.Report, error) {
		if err := refused(); err != nil {
			return nil, err
		}
		return finishedReport(ctx, client, id, n)
	}
	w.jobs.result = func(ctx context.Context, client, id job.ID) (*job.StoredResult, error) {
		if err := refused(); err != nil {
			return nil, err
		}
		return storedResult(ctx, client, id)
	}
}

func reportPath(id job.ID) string { return views.JobPath(id) + "/report" }

// Promise: contract 8, 15
func TestWhatIsNotFinishedSaysWhenToLookAgain(t *testing.T) {
	t.Parallel()
	for _, path := range []string{reportPath(jobID), reportPath(jobID) + "?attempt=1", views.ResultPath(jobID)} {
		w := newWorld(t)
		f := statefulJob(w, job.Running)
		early(w, f)
		noWait(w)
		for prefer, applied := range map[string]string{"-": "", "wait=soon": "", "respond-async": "", "wait=0": "wait=0"} {
			a := w.send("GET", path, "", "Prefer", prefer)
			require.Equal(t, "The job is RUNNING.", a.requireProblem(t, job.CodeJobNotFinished).Detail)
			require.Equal(t, "1", a.Header.Get("Retry-After"))
			require.Equal(t, applied, a.Header.Get("Preference-Applied"), prefer)
		}
		w.changed(func(j *job.Job) { j.State, j.RunAt = job.Queued, now.Add(20*time.Second) })
		require.Equal(t, "20", w.send("GET", path, "").Header.Get("Retry-After"), "it waits for its time")
		w.jobs.job = nil
		w.send("GET", path, "").requireProblem(t, job.CodeJobNotFound) // it was deleted meanwhile

		// The time is up: what the answer says is true now, not when the wait began.
		w.jobs.job = f.job
		f.state.Store(job.Queued)
		w.jobs.await = func(ctx context.Context, _ func(*job.Job) bool) (*job.Job, error) {
			f.state.Store(job.Running)
			return w.jobs.job(ctx, clientA, jobID)
		}
		late := w.send("GET", path, "", "Prefer", "wait=1")
		require.Equal(t, "The job is RUNNING.", late.requireProblem(t, job.CodeJobNotFinished).Detail)
		require.Equal(t, []string{"1", "wait=1"}, []string{late.Header.Get("Retry-After"), late.Header.Get("Preference-Applied")})

		noWait(w)
		f.state.Store(job.Succeeded)
		a := w.send("GET", path, "", "Prefer", "wait=5")
		require.Equal(t, 200, a.StatusCode)
		require.Equal(t, "wait=5", a.Header.Get("Preference-Applied"))
		require.Empty(t, a.Header.Get("Retry-After"))
	}
}

const waitingGet = "GET " + jobSelf + " HTTP/1.1\r\nHost: x\r\nPrefer: wait=30\r\nAuthorization: Bearer " + goodKey + "\r\n\r\n"

func (w *world) held() int {
	total, _ := w.server.Waits.Held()
	return total
}

// A client that gives up waiting is not counted any more.
func TestWaitEndsWithItsClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	statefulJob(w, job.Running)
	for range 5 {
		c := w.dial()
		w.write(c, waitingGet)
		w.jobs.wake(t) // it waits
		require.Equal(t, 1, w.held())
		require.NoError(t, c.Close())
		testkit.Eventually(t, "it is not counted any more", func() bool { return w.held() == 0 })
	}
	c := w.dial() // one that only says that it will ask nothing more gets its answer
	w.write(c, waitingGet)
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
	for range 5 {
		f.state.Store(job.Running)
		w.write(c, waitingGet)
		w.jobs.wake(t)
		for _, part := range []string{getHealth[:1], getHealth[1:], waitingGet} {
			w.write(c, part)
		}
		f.state.Store(job.Succeeded)
		w.jobs.wake(t)
		for range 3 { // the last does not wait: the job has ended
			require.Equal(t, 200, w.read(in).StatusCode)
		}
		w.write(c, getHealth)
		require.Equal(t, 200, w.read(in).StatusCode)
	}
}

// A key that is revoked while its client waits does not read any more. What was
// accepted before is acknowledged all the same.
func TestKeyIsCheckedAfterAWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	statefulJob(w, job.Running)
	meanwhile := func(do func()) {
		w.clients.change(func() { w.clients.gone = nil })
		w.jobs.await = func(ctx context.Context, _ func(*job.Job) bool) (*job.Job, error) {
			do()
			return finishedJob(ctx, clientA, jobID)
		}
	}
	meanwhile(func() { w.clients.revoke(goodKey) })
	w.send("GET", jobSelf, "", "Prefer", "wait=5").requireProblem(t, job.CodeKeyDisabled)
	meanwhile(func() { w.clients.revoke(goodKey) })
	a := w.submit("", "Prefer", "wait=5")
	require.Equal(t, 202, a.StatusCode)
	require.Contains(t, a.text, `"state":"QUEUED"`)
	waits := 0
	w.clients.change(func() { w.clients.gone = nil })
	w.jobs.await = func(ctx context.Context, _ func(*job.Job) bool) (*job.Job, error) {
		if waits++; waits == 2 {
			w.clients.revoke(goodKey)
		}
		w.clients.tell() // at first of a renewal
		<-ctx.Done()
		return finishedJob(context.Background(), clientA, jobID)
	}
	w.send("GET", jobSelf, "", "Prefer", "wait=60").requireProblem(t, job.CodeKeyDisabled)
	require.Equal(t, 2, waits, "a key that is still good goes on waiting, one that is not ends the wait at once")
	meanwhile(func() { w.clients.change(func() { w.clients.down = job.Errorf(job.CodeStorageUnavailable, "away") }) })
	require.Equal(t, 200, w.send("GET", jobSelf, "", "Prefer", "wait=5").StatusCode, "nothing is known against it")
}
