package handlers

import (
	"bufio"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/internal/testkit"
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

// A job is waited for until its state changes, a report and a result until the job has ended.
// Promise: patterns Submission
func TestGetWaitsForAChangeOfState(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		path, match     string
		from, still, to job.State // still: it waits on
		status          int
	}{
		{jobSelf, "-", job.Queued, job.Queued, job.Assigned, 200}, {jobSelf, `W/"5"`, job.Running, job.Running, job.Failed, 304},
		{jobSelf, `"4", "5"`, job.Running, job.Running, job.Failed, 304}, {jobSelf, `*`, job.Running, job.Running, job.Failed, 304},
		{reportPath(jobID), "-", job.Queued, job.Running, job.Succeeded, 200},
		{reportPath(jobID) + "?attempt=1", "-", job.Queued, job.Running, job.Succeeded, 200},
		{views.ResultPath(jobID), "-", job.Queued, job.Running, job.Succeeded, 200},
		{views.ResultPath(jobID), "-", job.Running, job.Running, job.Failed, 404},
	} {
		w := newWorld(t)
		f := statefulJob(w, test.from)
		early(w, f)
		answers := w.inBackground("GET", test.path, "", "Prefer", "wait=20", "If-None-Match", test.match)
		if test.still != test.from {
			f.state.Store(test.still)
		}
		w.jobs.wake(t) // read again
		require.Empty(t, answers, test)
		f.state.Store(test.to)
		w.jobs.wake(t)
		a := within(t, answers)
		require.Equal(t, test.status, a.StatusCode, a.text)
		require.Equal(t, "wait=20", a.Header.Get("Preference-Applied"))
		require.Equal(t, test.to == job.Assigned, a.Header.Get("Retry-After") == "1", "else there is nothing to wait for")
	}
}

// An attempt that failed and was retried between two looks is a change too. The report that is asked for decides how long
// to wait.
func TestWhatEndsAWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	early(w, statefulJob(w, job.Queued))
	for _, test := range []struct {
		path    string
		attempt int
		state   job.State
		ended   bool
	}{
		{jobSelf, 1, job.Queued, false}, {jobSelf, 2, job.Queued, true},
		{reportPath(jobID), 1, job.Running, false}, {reportPath(jobID), 1, job.Failed, true}, {reportPath(jobID), 2, job.Queued, true},
		{reportPath(jobID) + "?attempt=1", 2, job.Queued, true}, {reportPath(jobID) + "?attempt=2", 1, job.Failed, false},
		{reportPath(jobID) + "?attempt=2", 2, job.Running, false}, {reportPath(jobID) + "?attempt=2", 2, job.Canceled, true},
	} {
		w.jobs.await = func(ctx context.Context, done func(*job.Job) bool) (*job.Job, error) {
			j, _ := w.jobs.job(ctx, clientA, jobID)
			j.State, j.Attempt = test.state, test.attempt
			require.Equal(t, test.ended, done(j), test)
			return j, nil
		}
		w.madeUp = true
		w.send("GET", test.path, "", "Prefer", "wait=1")
	}
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

// Promise: patterns Submission
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
	release, err := w.server.Waits.Acquire(clientA)
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
	release, err = w.server.Waits.Acquire(clientA)
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
	for _, path := range []string{reportPath(jobID), views.ResultPath(jobID)} {
		w := newWorld(t)
		f := statefulJob(w, job.Running)
		early(w, f)
		noWait(w)
		for prefer, applied := range map[string]string{"-": "", "wait=soon": "", "wait=0": "wait=0"} {
			a := w.send("GET", path, "", "Prefer", prefer)
			require.Equal(t, "The job is RUNNING.", a.requireProblem(t, job.CodeJobNotFinished).Detail)
			require.Equal(t, []string{"1", applied}, []string{a.Header.Get("Retry-After"), a.Header.Get("Preference-Applied")}, prefer)
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
