package repo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// waitingJobs asks as the relay does.
func (f *fixture) waitingJobs(after job.QueueCursor, ahead time.Duration, limit int) []job.Task {
	f.t.Helper()
	tasks, err := f.store.Waiting(f.ctx(), after, ahead, limit)
	require.NoError(f.t, err)
	return tasks
}

// taskOf is the task that names a job's present attempt, if it was never dispatched anew.
func (f *fixture) taskOf(id job.ID) job.Task {
	f.t.Helper()
	j := f.job(id)
	return job.Task{JobID: id, Attempt: j.Attempt, RunAt: j.RunAt, ClientID: j.ClientID, WorkKind: j.WorkKind}
}

// waiting submits jobs that became due the given times ago.
func (f *fixture) waiting(ago ...time.Duration) []job.Task {
	f.t.Helper()
	tasks := make([]job.Task, len(ago))
	for i, d := range ago {
		id := f.submit()
		f.exec(`UPDATE jobs SET run_at = clock_timestamp() - $2::interval WHERE job_id = $1`, id.String(), d)
		tasks[i] = f.taskOf(id)
	}
	return tasks
}

func TestWaitingJobsInOrder(t *testing.T) {
	t.Parallel()
	f := setup(t)
	tasks := f.waiting(3*time.Second, 2*time.Second, time.Second)
	scheduled := f.submit(deferred(30 * time.Second))
	tasks = append(tasks, f.taskOf(scheduled))
	f.submit(deferred(2 * time.Hour)) // far ahead
	for _, s := range []job.State{job.Assigned, job.Running, job.Succeeded, job.Failed, job.Canceled} {
		f.at(s)
	}
	require.Equal(t, tasks, f.waitingJobs(job.QueueCursor{}, time.Minute, 10))
	require.Equal(t, tasks[:3], f.waitingJobs(job.QueueCursor{}, 0, 10))
	f.exec(`UPDATE jobs SET run_at = run_at - interval '1 minute' WHERE job_id = $1`, tasks[0].JobID.String())
	tasks[0].RunAt = tasks[0].RunAt.Add(-time.Minute)
	require.Equal(t, tasks[:1], f.waitingJobs(job.QueueCursor{}, -30*time.Second, 10))

	var walked []job.Task
	for place := (job.QueueCursor{}); ; {
		page := f.waitingJobs(place, time.Minute, 3)
		if len(page) == 0 {
			break
		}
		walked = append(walked, page...)
		last := page[len(page)-1]
		place = job.QueueCursor{RunAt: last.RunAt, JobID: last.JobID}
	}
	require.Equal(t, tasks, walked, "page by page")
}

// The task of a retry says why the attempt before failed.
func TestWaitingJobsSayWhyTheyAreRetried(t *testing.T) {
	t.Parallel()
	f := setup(t)
	l := f.run()
	f.finish(withRetry(failure(l, job.FailedOnce), 0))
	want := f.taskOf(l.JobID)
	want.Reason = job.FailedOnce
	require.Equal(t, []job.Task{want}, f.waitingJobs(job.QueueCursor{}, time.Minute, 10))
}

func TestWaitingJobsOfEqualTimes(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.waiting(0, 0, 0, 0, 0)
	f.exec(`UPDATE jobs SET run_at = '2026-01-01'`)
	seen := map[job.ID]bool{}
	place := job.QueueCursor{}
	for range 5 {
		page := f.waitingJobs(place, 0, 1)
		require.Len(t, page, 1)
		seen[page[0].JobID] = true
		place = job.QueueCursor{RunAt: page[0].RunAt, JobID: page[0].JobID}
	}
	require.Len(t, seen, 5)
	require.Empty(t, f.waitingJobs(place, 0, 1))
}

func TestRedispatchLeavesJobsThatWentOn(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var gone []job.Task
	for _, s := range []job.State{job.Assigned, job.Running, job.Succeeded, job.Failed, job.Canceled} {
		gone = append(gone, job.Task{JobID: f.at(s), Attempt: 1})
	}
	retried := f.at(job.Failed)
	_, err := f.store.Retry(f.ctx(), f.client, retried, 1, 0, "")
	require.NoError(t, err)
	renamed := f.submit()
	f.exec(`UPDATE jobs SET dispatch = 1 WHERE job_id = $1`, renamed.String())
	gone = append(gone, job.Task{JobID: retried, Attempt: 1}, job.Task{JobID: renamed, Attempt: 1, Dispatch: 0},
		job.Task{JobID: newID(), Attempt: 1})

	before := one[string](f, `SELECT jsonb_agg(to_jsonb(j) ORDER BY job_id)::text FROM jobs j`)
	tasks, err := f.store.Redispatch(f.ctx(), gone)
	require.NoError(t, err)
	require.Empty(t, tasks)
	require.Equal(t, before, one[string](f, `SELECT jsonb_agg(to_jsonb(j) ORDER BY job_id)::text FROM jobs j`))
}

func TestRedispatchRaisesTheName(t *testing.T) {
	t.Parallel()
	f := setup(t)
	tasks := f.waiting(20*time.Second, 19*time.Second)
	epoch, _, err := f.store.Epoch(f.ctx())
	require.NoError(t, err)
	log := f.names(tasks[0].JobID)
	for n := 1; n <= 2; n++ {
		renamed, err := f.store.Redispatch(f.ctx(), tasks[:1])
		require.NoError(t, err)
		tasks[0].Dispatch = n
		require.Equal(t, tasks[:1], renamed)
		require.Equal(t, tasks, f.waitingJobs(job.QueueCursor{}, 0, 10))
		require.Equal(t, epoch, one[int64](f, `SELECT dispatch_epoch FROM jobs WHERE job_id = $1`, tasks[0].JobID.String()),
			"when its task was lost last")
	}
	require.True(t, one[bool](f, `SELECT dispatch_epoch IS NULL FROM jobs WHERE job_id = $1`, tasks[1].JobID.String()))
	require.Equal(t, log, f.names(tasks[0].JobID), "how often it is dispatched is nobody else's business")
	require.True(t, one[bool](f, `SELECT updated_at = created_at FROM jobs WHERE job_id = $1`, tasks[0].JobID.String()))
}

func TestRedispatchSkipsALockedJob(t *testing.T) {
	t.Parallel()
	f := setup(t)
	tasks := f.waiting(20*time.Second, 19*time.Second)
	unlock := f.lockRow(tasks[0].JobID.String())
	renamed, err := f.store.Redispatch(f.ctx(), tasks)
	require.NoError(t, err)
	require.Len(t, renamed, 1)
	require.Equal(t, tasks[1].JobID, renamed[0].JobID)
	unlock()
}
