package handlers

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// stateful is a job whose state the test sets.
type stateful struct{ state atomic.Value }

func (f *stateful) job(ctx context.Context, client, id job.ID) (*job.Job, error) {
	j, err := finishedJob(ctx, client, id)
	j.State = f.state.Load().(job.State)
	j.Outcome = job.OutcomeOf(j.State)
	if j.State == job.Failed {
		j.Failure = job.NewFailure(job.FailedImmediately, 1, job.Backoff{})
	}
	return j, err
}

func statefulJob(w *world, s job.State) *stateful {
	f := &stateful{}
	f.state.Store(s)
	w.jobs.job = f.job
	return f
}

func TestGetWaitsForAChangeOfState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := statefulJob(w, job.Queued)
	answers := w.inBackground("GET", jobSelf, "", "Prefer", "wait=20")
	w.jobs.wake(t) // read again, and still the same
	require.Empty(t, answers)
	f.state.Store(job.Assigned)
	w.jobs.wake(t)
	a := within(t, answers)
	require.Equal(t, 200, a.StatusCode)
	require.Contains(t, a.text, `"state":"ASSIGNED"`)
	require.Equal(t, "wait=20", a.Header.Get("Preference-Applied"))
	require.Equal(t, "1", a.Header.Get("Retry-After"))
}

// An attempt that failed and was retried between two looks is a change too.
func TestGetWaitSeesANewAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	statefulJob(w, job.Queued)
	w.jobs.await = func(_ context.Context, done func(*job.Job) bool) (*job.Job, error) {
		j, _ := w.jobs.job(context.Background(), clientA, jobID)
		require.False(t, done(j))
		j.Attempt++
		require.True(t, done(j))
		return j, nil
	}
	require.Contains(t, w.send("GET", jobSelf, "", "Prefer", "wait=5").text, `"attempt":2`)
}

// noWait makes a wait a fault.
func noWait(w *world) {
	w.jobs.await = func(context.Context, func(*job.Job) bool) (*job.Job, error) {
		w.t.Error("it waited")
		return nil, errNoJob
	}
}

func TestGetDoesNotWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	noWait(w)
	for _, test := range []struct {
		state                  job.State
		prefer, match, applied string
	}{
		{job.Succeeded, "wait=20", "-", "wait=20"}, {job.Failed, "wait=20", "-", "wait=20"}, {job.Running, "-", "-", ""},
		{job.Running, "wait=soon", "-", ""}, {job.Running, "wait=0", "-", "wait=0"},
		{job.Running, "wait=20", `W/"4"`, "wait=20"},          // an earlier view
		{job.Running, "wait=20", `W/"5-document"`, "wait=20"}, // another kind of view
	} {
		statefulJob(w, test.state)
		a := w.send("GET", jobSelf, "", "Prefer", test.prefer, "If-None-Match", test.match)
		require.Equal(t, 200, a.StatusCode, test)
		require.Equal(t, test.applied, a.Header.Get("Preference-Applied"), test)
	}
	w.jobs.job = finishedJob
	a := w.send("GET", jobSelf, "", "Prefer", "x", "Prefer", "respond-async, wait=40", "Prefer", "wait=3")
	require.Equal(t, "wait=30", a.Header.Get("Preference-Applied"), "several lines are one list")
}

func TestGetWaitsWithTheCurrentTag(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := statefulJob(w, job.Running)
	for _, match := range []string{`W/"5"`, `"4", "5"`, `*`} {
		f.state.Store(job.Running)
		answers := w.inBackground("GET", jobSelf, "", "Prefer", "wait=20", "If-None-Match", match)
		w.jobs.wake(t)
		require.Empty(t, answers)
		f.state.Store(job.Failed)
		w.jobs.wake(t)
		a := within(t, answers)
		require.Equal(t, 304, a.StatusCode, "the fake's tag does not change")
		require.Equal(t, "wait=20", a.Header.Get("Preference-Applied"))
	}
}

// waitFor makes Await note its time limit and give up at once.
func waitFor(w *world, s job.State) *time.Duration {
	var limit time.Duration
	w.jobs.await = func(ctx context.Context, _ func(*job.Job) bool) (*job.Job, error) {
		deadline, _ := ctx.Deadline()
		limit = time.Until(deadline)
		j, _ := finishedJob(ctx, clientA, jobID)
		j.State = s
		return j, nil
	}
	return &limit
}

func TestSubmitWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	limit := waitFor(w, job.Running)
	a := w.submit("", "Prefer", "wait=60, respond-async")
	require.Equal(t, 202, a.StatusCode)
	require.LessOrEqual(t, *limit, 30*time.Second)
	require.Greater(t, *limit, 10*time.Second, "longer than a request without a wait")
	require.Equal(t, "respond-async, wait=30", a.Header.Get("Preference-Applied"))
	require.Contains(t, a.text, `"state":"RUNNING"`, "as it was seen last")
	require.Equal(t, "1", a.Header.Get("Retry-After"))

	waitFor(w, job.Succeeded)
	a = w.submit("", "Prefer", "wait=60, respond-async")
	require.Equal(t, 200, a.StatusCode)
	require.Equal(t, "wait=30", a.Header.Get("Preference-Applied"))
	require.Equal(t, jobSelf, a.Header.Get("Location"))
	require.Equal(t, "<"+jobSelf+`>; rel="status", <`+jobSelf+`/result>; rel="https://forgerun.example/rels/job-result"`, a.Header.Get("Link"))
	w.jobs.job = finishedJob
	get := w.send("GET", jobSelf, "")
	require.Equal(t, get.text, a.text)
	for _, name := range []string{"ETag", "Vary", "Content-Type", "Retry-After", "Cache-Control"} {
		require.Equal(t, get.Header.Values(name), a.Header.Values(name), name)
	}
	a = w.submit("", "Prefer", "wait=1", "Accept", "application/problem+json")
	require.Contains(t, a.text, `"jobStatus":"COMPLETED"`)

	// What was accepted is acknowledged, whatever becomes of the wait.
	for _, err := range []error{errNoJob, context.DeadlineExceeded, job.Errorf(job.CodeStorageUnavailable, "x")} {
		w.jobs.await = func(context.Context, func(*job.Job) bool) (*job.Job, error) { return nil, err }
		a := w.submit("", "Prefer", "wait=5")
		require.Equal(t, 202, a.StatusCode)
		require.Equal(t, jobSelf, a.Header.Get("Location"))
	}
}

func TestNoWaitBeyondTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.MaxStreamsPerClient = 1 })
	statefulJob(w, job.Running)
	release, err := w.server.limiter.Acquire(clientA)
	require.NoError(t, err)
	noWait(w)
	a := w.send("GET", jobSelf, "", "Prefer", "wait=5")
	require.Equal(t, 200, a.StatusCode)
	require.Empty(t, a.Header.Get("Preference-Applied"))
	a = w.submit("", "Prefer", "wait=5, respond-async")
	require.Equal(t, 202, a.StatusCode)
	require.Equal(t, "respond-async", a.Header.Get("Preference-Applied"))
	release()

	waitFor(w, job.Running)
	for range 3 { // each wait is counted only while it lasts
		a = w.send("GET", jobSelf, "", "Prefer", "wait=5")
		require.Equal(t, "wait=5", a.Header.Get("Preference-Applied"))
	}
	w.jobs.await = func(context.Context, func(*job.Job) bool) (*job.Job, error) { panic("planted") }
	w.send("GET", jobSelf, "", "Prefer", "wait=5").requireProblem(t, job.CodeInternal)
	release, err = w.server.limiter.Acquire(clientA)
	require.NoError(t, err, "a panic gives it back too")
	release()
}

// A wait does not use up the time of the request.
func TestTheRequestsTimeBeginsAnewAfterAWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.RequestTimeout = 10 * time.Millisecond })
	f := statefulJob(w, job.Running)
	var first context.Context
	w.jobs.job = func(ctx context.Context, client, id job.ID) (*job.Job, error) {
		first = ctx
		return f.job(ctx, client, id)
	}
	w.jobs.await = func(context.Context, func(*job.Job) bool) (*job.Job, error) {
		<-first.Done()
		return nil, job.Errorf(job.CodeStorageUnavailable, "Storage cannot be reached.")
	}
	w.send("GET", jobSelf, "", "Prefer", "wait=5").requireProblem(t, job.CodeStorageUnavailable)
}

// A job that is deleted while its client waits is gone.
func TestWaitEndsWithTheJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	statefulJob(w, job.Running)
	gone := job.Errorf(job.CodeJobGone, "The job was deleted.")
	w.jobs.await = func(context.Context, func(*job.Job) bool) (*job.Job, error) { return nil, gone }
	w.send("GET", jobSelf, "", "Prefer", "wait=5").requireProblem(t, job.CodeJobGone)
}

func TestShutdownEndsWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	statefulJob(w, job.Running)
	answers := w.overNetwork("GET "+jobSelf, "Prefer: wait=30")
	w.jobs.wake(t) // it waits
	w.shutdown()
	a := within(t, answers)
	require.Equal(t, 200, a.StatusCode)
	require.Contains(t, a.text, `"state":"RUNNING"`)
}
