package repo_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func holding(most int) func(*repo.Config) { return func(c *repo.Config) { c.ClientMaxHeld = most } }

// taskIDs gives the ids of the jobs that tasks are about.
func taskIDs(tasks []job.Task) (ids []job.ID) {
	for _, t := range tasks {
		ids = append(ids, t.JobID)
	}
	return ids
}

func (f *fixture) resume(most int) []job.ID {
	f.t.Helper()
	tasks, err := f.store.ResumeThrottled(f.ctx(), most, 1000, 1000)
	require.NoError(f.t, err)
	return taskIDs(tasks)
}

// claimMany claims jobs at once, through several stores, and gives those that were claimed, in their order.
func (f *fixture) claimMany(stores []*repo.Store, ids []job.ID) (claimed []job.Lease) {
	f.t.Helper()
	claims, refusals := make([]*job.Claim, len(ids)), make([]job.NotClaimed, len(ids))
	errs := make([]error, len(ids))
	var claiming sync.WaitGroup
	for i, id := range ids {
		claiming.Go(func() {
			claims[i], refusals[i], errs[i] = stores[i%len(stores)].Claim(f.ctx(), f.worker, id, 1)
		})
	}
	claiming.Wait()
	for i := range ids {
		require.NoError(f.t, errs[i])
		if claims[i] != nil {
			claimed = append(claimed, claims[i].Lease)
		} else {
			require.Equal(f.t, job.NotClaimed{Throttled: true}, refusals[i])
		}
	}
	return claimed
}

// TestWorkersHoldNoMoreJobsOfAClient than they may, whichever processes claim them at the same moment.
func TestWorkersHoldNoMoreJobsOfAClient(t *testing.T) {
	t.Parallel()
	const most = 3
	f := setup(t, holding(most))
	stores := []*repo.Store{f.store, repotest.OpenURL(t, f.url, holding(most)), repotest.OpenURL(t, f.url, holding(most))}
	var ids []job.ID
	for range 30 {
		ids = append(ids, f.submit())
	}
	foreign := f.submit(func(s *job.Submission) { s.Job.ClientID = newID() })
	left, resumed := len(ids), []job.ID(nil)
	claimed := f.claimMany(stores, ids)
	f.assigned(foreign, 1) // others have places of their own
	require.Empty(t, f.resume(most))
	for rounds := 0; left > 0; rounds++ {
		require.Less(t, rounds, 30)
		require.Len(t, claimed, min(most, left))
		require.Equal(t, len(claimed), one[int](f, `SELECT count(*)::int FROM jobs
			WHERE worker_id IS NOT NULL AND client_id = $1`, f.client.String()))
		for _, lease := range claimed {
			f.start(lease)
			resumed = append(resumed, taskIDs(f.finish(success(lease)).Resumed)...)
		}
		left -= len(claimed)
		claimed, resumed = f.claimMany(stores, resumed), nil
	}
	f.checkInvariants()
}

// TestThrottledJobsComeInTheirOrder: what is younger waits behind them.
func TestThrottledJobsComeInTheirOrder(t *testing.T) {
	t.Parallel()
	f := setup(t, holding(1))
	first, second, third := f.submit(), f.submit(), f.submit()
	lease := f.assigned(first, 1)
	before := f.job(second)
	require.Empty(t, f.claimMany([]*repo.Store{f.store}, []job.ID{third, second}))
	throttled := f.job(second)
	require.Equal(t, job.ThrottledUntil, throttled.RunAt)
	require.Equal(t, job.WaitingClientLimit, throttled.WaitingFor(time.Now(), 1))
	require.Equal(t, before.EventSeq, throttled.EventSeq, "no event: it is QUEUED as before")
	require.Empty(t, f.resume(1))
	f.start(lease)
	require.Equal(t, []job.ID{second}, taskIDs(f.finish(success(lease)).Resumed))

	fourth := f.submit()
	require.Empty(t, f.claimMany([]*repo.Store{f.store}, []job.ID{fourth}), "there is a place, but it is not its")
	require.Equal(t, before.RunAt, f.job(second).RunAt)
	require.Empty(t, f.resume(1), "the place is taken by one that waits for a worker")
	require.Len(t, f.claimMany([]*repo.Store{f.store}, []job.ID{second}), 1)

	require.Equal(t, []job.ID{third, fourth}, f.resume(math.MaxInt32), "without a limit all go on")
	f.checkInvariants()
}

// TestCreatedJobsAreNotThrottled: one whose time has come while it is CREATED is asked for again, once it is QUEUED.
func TestCreatedJobsAreNotThrottled(t *testing.T) {
	t.Parallel()
	f := setup(t, holding(1))
	f.assigned(f.submit(), 1)
	id := f.submit(deferred(time.Hour))
	f.makeDue(id)
	before := f.all(id)
	_, not, err := f.store.Claim(f.ctx(), f.worker, id, 1)
	require.NoError(t, err)
	require.Equal(t, job.NotClaimed{StillWaiting: true, Wait: time.Second}, not)
	require.Equal(t, before, f.all(id))
	_, err = f.store.QueueDue(f.ctx(), 10)
	require.NoError(t, err)
	require.Empty(t, f.claimMany([]*repo.Store{f.store}, []job.ID{id}))
	require.Equal(t, job.WaitingClientLimit, f.job(id).WaitingFor(time.Now(), 1))
}

// TestThrottledJobsAreCanceled, and leave their place in the order. A cancel makes room too.
func TestThrottledJobsAreCanceled(t *testing.T) {
	t.Parallel()
	f := setup(t, holding(1))
	first, second, third := f.submit(), f.submit(), f.submit()
	f.assigned(first, 1)
	require.Empty(t, f.claimMany([]*repo.Store{f.store}, []job.ID{second, third}))
	for _, id := range []job.ID{second, first} {
		_, _, err := f.store.Cancel(f.ctx(), f.client, id)
		require.NoError(t, err)
	}
	require.Equal(t, []job.ID{third}, f.resume(1))
	f.checkInvariants()
}

// TestAnEndMakesRoom: the next job's task comes with the end of the one before.
func TestAnEndMakesRoom(t *testing.T) {
	t.Parallel()
	f := setup(t, holding(2))
	first, second := f.assigned(f.submit(), 1), f.assigned(f.submit(), 1)
	third, fourth := f.submit(), f.submit()
	require.Empty(t, f.claimMany([]*repo.Store{f.store}, []job.ID{third, fourth}))
	f.start(first)
	f.start(second)
	require.Equal(t, []job.ID{third}, taskIDs(f.finish(success(first)).Resumed))
	require.Len(t, f.claimMany([]*repo.Store{f.store}, []job.ID{third}), 1)
	require.Equal(t, []job.ID{fourth}, taskIDs(f.finish(success(second)).Resumed))
	require.Empty(t, f.resume(2))
	f.checkInvariants()
}

// TestTheWayDownResumesThrottledJobs: the version before would let them wait for good.
func TestTheWayDownResumesThrottledJobs(t *testing.T) {
	t.Parallel()
	f := setup(t, holding(1))
	f.assigned(f.submit(), 1)
	id := f.submit()
	before := f.job(id).RunAt
	require.Empty(t, f.claimMany([]*repo.Store{f.store}, []job.ID{id}))
	require.NoError(t, repo.Migrate(f.ctx(), f.url, 10))
	require.Equal(t, before, one[time.Time](f, `SELECT run_at FROM jobs WHERE job_id = $1`, id.String()))
	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	require.Equal(t, 1, one[int](f, `SELECT dispatch FROM jobs WHERE job_id = $1`, id.String()))
	f.checkInvariants()
}
