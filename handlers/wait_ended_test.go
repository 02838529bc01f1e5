package handlers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

func reportPath(id job.ID) string { return jobPath(id) + "/report" }

func TestWhatIsNotFinishedSaysWhenToLookAgain(t *testing.T) {
	t.Parallel()
	for _, path := range []string{reportPath(jobID), reportPath(jobID) + "?attempt=1", resultPath(jobID)} {
		w := newWorld(t)
		f := statefulJob(w, job.Running)
		early(w, f)
		w.jobs.await = func(context.Context, func(*job.Job) bool) (*job.Job, error) {
			t.Error("it waited")
			return nil, errNoJob
		}
		for _, prefer := range []string{"-", "wait=soon", "respond-async", "wait=0"} {
			a := w.send("GET", path, "", "Prefer", prefer)
			p := a.requireProblem(t, job.CodeJobNotFinished)
			require.Equal(t, "The job is RUNNING.", p.Detail)
			require.Equal(t, "1", a.Header.Get("Retry-After"))
			if prefer == "wait=0" {
				require.Equal(t, "wait=0", a.Header.Get("Preference-Applied"))
			} else {
				require.Empty(t, a.Header.Get("Preference-Applied"), prefer)
			}
		}
		running := w.jobs.job
		w.jobs.job = func(ctx context.Context, client, id job.ID) (*job.Job, error) {
			j, err := running(ctx, client, id)
			j.State, j.RunAt = job.Queued, now.Add(20*time.Second)
			return j, err
		}
		require.Equal(t, "20", w.send("GET", path, "").Header.Get("Retry-After"), "it waits for its time")
		w.jobs.job = nil
		w.send("GET", path, "").requireProblem(t, job.CodeJobNotFound) // it was deleted meanwhile

		w.jobs.job = f.job
		f.state.Store(job.Succeeded)
		a := w.send("GET", path, "", "Prefer", "wait=5")
		require.Equal(t, 200, a.StatusCode)
		require.Equal(t, "wait=5", a.Header.Get("Preference-Applied"))
		require.Empty(t, a.Header.Get("Retry-After"))
	}
}

func TestWhatIsNotFinishedIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, path := range []string{reportPath(jobID), reportPath(jobID) + "?attempt=1", resultPath(jobID)} {
		w := newWorld(t)
		f := statefulJob(w, job.Queued)
		early(w, f)
		answers := w.inBackground("GET", path, "", "Prefer", "wait=20")
		f.state.Store(job.Running)
		w.jobs.wake(t)
		require.Empty(t, answers, "it has not ended")
		f.state.Store(job.Succeeded)
		w.jobs.wake(t)
		a := within(t, answers)
		require.Equal(t, 200, a.StatusCode, a.text)
		require.Equal(t, "wait=20", a.Header.Get("Preference-Applied"))
	}
}

func TestResultOfAJobThatFailsMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := statefulJob(w, job.Running)
	early(w, f)
	answers := w.inBackground("GET", resultPath(jobID), "", "Prefer", "wait=20")
	w.jobs.wake(t)
	f.state.Store(job.Failed)
	w.jobs.wake(t)
	a := within(t, answers)
	a.requireProblem(t, job.CodeResultNotFound)
	require.Equal(t, "wait=20", a.Header.Get("Preference-Applied"))
	require.Empty(t, a.Header.Get("Retry-After"), "there is nothing to wait for")
}

// The time is up: what the answer says is true now, not when the wait began.
func TestWaitForTheEndInVain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := statefulJob(w, job.Queued)
	early(w, f)
	w.jobs.await = func(_ context.Context, done func(*job.Job) bool) (*job.Job, error) {
		f.state.Store(job.Running)
		j, err := w.jobs.job(context.Background(), clientA, jobID)
		require.False(t, done(j))
		return j, err
	}
	a := w.send("GET", reportPath(jobID), "", "Prefer", "wait=1")
	require.Equal(t, "The job is RUNNING.", a.requireProblem(t, job.CodeJobNotFinished).Detail)
	require.Equal(t, "1", a.Header.Get("Retry-After"))
	require.Equal(t, "wait=1", a.Header.Get("Preference-Applied"))
}

// The report that is asked for decides how long to wait.
func TestWaitForAnAttemptToEnd(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		query   string
		attempt int
		state   job.State
		ended   bool
	}{
		{"", 1, job.Running, false},
		{"", 1, job.Failed, true},
		{"", 2, job.Queued, true},
		{"?attempt=1", 2, job.Queued, true},
		{"?attempt=2", 1, job.Failed, false},
		{"?attempt=2", 2, job.Running, false},
		{"?attempt=2", 2, job.Canceled, true},
	} {
		w := newWorld(t)
		early(w, statefulJob(w, job.Queued))
		w.jobs.await = func(_ context.Context, done func(*job.Job) bool) (*job.Job, error) {
			j := &job.Job{State: test.state, Attempt: test.attempt}
			require.Equal(t, test.ended, done(j), test)
			return j, nil
		}
		w.send("GET", reportPath(jobID)+test.query, "", "Prefer", "wait=1")
	}
}
