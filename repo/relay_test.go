package repo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// undispatched asks as the relay does.
func (f *fixture) undispatched(epoch int64, after job.Place, minAge time.Duration, limit int) []job.Task {
	f.t.Helper()
	tasks, err := f.store.Undispatched(f.ctx(), epoch, after, time.Minute, minAge, limit)
	require.NoError(f.t, err)
	return tasks
}

// overdue asks as the relay's probe does.
func (f *fixture) overdue(epoch int64, after job.Place, limit int) []job.Task {
	f.t.Helper()
	tasks, err := f.store.Overdue(f.ctx(), epoch, after, 5*time.Second, limit)
	require.NoError(f.t, err)
	return tasks
}

// waiting submits jobs that became due the given times ago.
func (f *fixture) waiting(ago ...time.Duration) []job.Task {
	f.t.Helper()
	tasks := make([]job.Task, len(ago))
	for i, d := range ago {
		id := f.submit()
		f.exec(`UPDATE jobs SET run_at = clock_timestamp() - $2::interval WHERE job_id = $1`, id.String(), d)
		tasks[i] = job.Task{JobID: id, Attempt: 1, RunAt: f.job(id).RunAt}
	}
	return tasks
}

// settle lets the latest change of every job be a while ago.
func (f *fixture) settle() {
	f.t.Helper()
	f.exec(`UPDATE jobs SET updated_at = clock_timestamp() - interval '1 hour'`)
}

func (f *fixture) stamp(epoch int64, tasks ...job.Task) {
	f.t.Helper()
	require.NoError(f.t, f.store.Stamp(f.ctx(), epoch, tasks))
}

func TestUndispatchedFindsWaitingJobsInOrder(t *testing.T) {
	t.Parallel()
	f := setup(t)
	tasks := f.waiting(3*time.Second, 2*time.Second, time.Second)
	scheduled := f.submit(deferred(30 * time.Second))
	tasks = append(tasks, job.Task{JobID: scheduled, Attempt: 1, RunAt: f.job(scheduled).RunAt})
	f.submit(deferred(2 * time.Hour)) // beyond the horizon
	for _, s := range []job.State{job.Assigned, job.Running, job.Succeeded, job.Failed, job.Canceled} {
		f.at(s)
	}
	f.settle()
	require.Equal(t, tasks, f.undispatched(1, job.Place{}, time.Minute, 10))

	var walked []job.Task
	for place := (job.Place{}); ; {
		page := f.undispatched(1, place, time.Minute, 3)
		if len(page) == 0 {
			break
		}
		walked = append(walked, page...)
		last := page[len(page)-1]
		place = job.Place{RunAt: last.RunAt, JobID: last.JobID}
	}
	require.Equal(t, tasks, walked, "page by page")
}

func TestUndispatchedWalksThroughEqualTimes(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.waiting(0, 0, 0, 0, 0)
	f.exec(`UPDATE jobs SET run_at = '2026-01-01'`)
	seen := map[job.ID]bool{}
	place := job.Place{}
	for range 5 {
		page := f.undispatched(1, place, 0, 1)
		require.Len(t, page, 1)
		seen[page[0].JobID] = true
		place = job.Place{RunAt: page[0].RunAt, JobID: page[0].JobID}
	}
	require.Len(t, seen, 5)
	require.Empty(t, f.undispatched(1, place, 0, 1))
}

func TestUndispatchedLeavesFreshChangesToTheirMakers(t *testing.T) {
	t.Parallel()
	f := setup(t)
	tasks := f.waiting(time.Second)
	require.Empty(t, f.undispatched(1, job.Place{}, time.Minute, 10), "it changed just now")
	require.Equal(t, tasks, f.undispatched(1, job.Place{}, 0, 10))
	late := f.waiting(11 * time.Second)
	require.Equal(t, late, f.undispatched(1, job.Place{}, time.Minute, 10), "due for so long that nobody else is about to do it")
}

func TestStampHoldsForItsEpoch(t *testing.T) {
	t.Parallel()
	f := setup(t)
	tasks := f.waiting(20*time.Second, 19*time.Second)
	f.stamp(1, tasks[0])
	require.Equal(t, tasks[1:], f.undispatched(1, job.Place{}, 0, 10))
	require.Equal(t, tasks, f.undispatched(2, job.Place{}, 0, 10), "in the next epoch every job is dispatched anew")
	require.Equal(t, tasks[:1], f.overdue(1, job.Place{}, 10))
	require.Empty(t, f.overdue(2, job.Place{}, 10))
	f.stamp(2, tasks...)
	require.Empty(t, f.undispatched(2, job.Place{}, 0, 10))
	require.Equal(t, tasks, f.undispatched(1, job.Place{}, 0, 10))
}

func TestOverdue(t *testing.T) {
	t.Parallel()
	f := setup(t)
	tasks := f.waiting(30*time.Second, 20*time.Second, 10*time.Second, time.Second)
	f.stamp(1, tasks...)
	f.claim(f.waiting(time.Minute)[0].JobID, 1)
	require.Equal(t, tasks[:3], f.overdue(1, job.Place{}, 10), "due for 5 s, whenever it changed")
	require.Equal(t, tasks[:2], f.overdue(1, job.Place{}, 2))
	require.Equal(t, tasks[1:3], f.overdue(1, job.Place{RunAt: tasks[0].RunAt, JobID: tasks[0].JobID}, 2))
}

func TestStampAndRedispatchLeaveJobsThatWentOn(t *testing.T) {
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
	gone = append(gone, job.Task{JobID: retried, Attempt: 1}, job.Task{JobID: renamed, Attempt: 1, Dispatch: 0}, job.Task{JobID: newID(), Attempt: 1})

	before := one[string](f, `SELECT jsonb_agg(to_jsonb(j) ORDER BY job_id)::text FROM jobs j`)
	f.stamp(1, gone...)
	tasks, err := f.store.Redispatch(f.ctx(), gone)
	require.NoError(t, err)
	require.Empty(t, tasks)
	require.Equal(t, before, one[string](f, `SELECT jsonb_agg(to_jsonb(j) ORDER BY job_id)::text FROM jobs j`))
}

func TestRedispatchRaisesTheName(t *testing.T) {
	t.Parallel()
	f := setup(t)
	tasks := f.waiting(20*time.Second, 19*time.Second)
	f.stamp(1, tasks...)
	log := f.names(tasks[0].JobID)
	for n := 1; n <= 2; n++ {
		renamed, err := f.store.Redispatch(f.ctx(), tasks[:1])
		require.NoError(t, err)
		tasks[0].Dispatch = n
		require.Equal(t, tasks[:1], renamed)
		require.Equal(t, tasks[:1], f.undispatched(1, job.Place{}, 0, 10), "the stamp was for the former name")
	}
	require.Equal(t, log, f.names(tasks[0].JobID), "how often it is dispatched is nobody else's business")
	require.True(t, one[bool](f, `SELECT updated_at = created_at FROM jobs WHERE job_id = $1`, tasks[0].JobID.String()))
}

func TestStampAndRedispatchSkipALockedJob(t *testing.T) {
	t.Parallel()
	f := setup(t)
	tasks := f.waiting(20*time.Second, 19*time.Second)
	unlock := f.lockRow(tasks[0].JobID.String())
	f.stamp(1, tasks...)
	require.Equal(t, tasks[:1], f.undispatched(1, job.Place{}, 0, 10))
	renamed, err := f.store.Redispatch(f.ctx(), tasks)
	require.NoError(t, err)
	require.Len(t, renamed, 1)
	require.Equal(t, tasks[1].JobID, renamed[0].JobID)
	unlock()
}
