package repo_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// Promise: contract 9a
func TestReleaseGivesClaimedJobsBack(t *testing.T) {
	f := setup(t)
	now, later := f.assigned(f.submit(), 1), f.assigned(f.submit(), 1)
	f.exec(`UPDATE jobs SET dispatch = 4`)
	others := stale(f, func() job.ClaimID { return f.assigned(f.submit(), 1) })
	others["running"] = f.run()
	before := map[string]string{}
	leases, waits := []job.ClaimID{now, later}, []time.Duration{0, time.Minute}
	for name, l := range others {
		leases, waits = append(leases, l), append(waits, 0)
		before[name] = f.all(l.JobID)
	}

	tasks := must(f.store.Release(f.ctx(), leases, waits))(t)
	want := []job.Task{f.taskOf(now.JobID), f.taskOf(later.JobID)}
	want[0].Dispatch, want[1].Dispatch = 5, 5
	require.ElementsMatch(t, want, tasks)
	for name, l := range others {
		require.Equal(t, before[name], f.all(l.JobID), name)
	}
	for i, l := range leases[:2] {
		j := f.job(l.JobID)
		require.Equal(t, job.Queued, j.State)
		require.Equal(t, j.UpdatedAt.Add(waits[i]), j.RunAt)
		require.True(t, one[bool](f, `SELECT worker_id IS NULL AND assigned_at IS NULL AND lease_expiries = 1
			AND fence = 1 FROM jobs WHERE job_id = $1`, l.JobID.String()))
		last := f.log(l.JobID)[3]
		require.Equal(t, []string{job.EventLeaseExpired, "ASSIGNED", "QUEUED"}, []string{last.Name, last.Prev, last.Next})
		require.ErrorIs(t, errOf(f.store.Finish(f.ctx(), success(l))), job.ErrStale)
	}
	require.EqualValues(t, 2, f.assigned(now.JobID, 1).Fence)
	require.Empty(t, f.release(now), "the job has another holder")
}

func TestQueueDueTakesTheEarliestInBatches(t *testing.T) {
	f := setup(t)
	ids := f.submitted(5, deferred(time.Hour))
	for i, id := range ids {
		f.exec(`UPDATE jobs SET execution_at = now() - $2 * interval '1 minute', run_at = now() WHERE job_id = $1`, id.String(), i)
	}
	future, canceled := f.submit(deferred(time.Hour)), f.submit(deferred(-time.Hour))
	f.cancel(canceled)
	unchanged := f.all(future) + f.all(canceled)

	for _, step := range []struct{ moved, left int }{{2, 3}, {2, 1}, {1, 0}, {0, 0}} {
		require.Len(t, f.queueDue(2), step.moved)
		for i, id := range ids {
			require.Equal(t, i < step.left, f.state(id) == job.Created, "job %d with %d left", i, step.left)
		}
	}
	require.Equal(t, unchanged, f.all(future)+f.all(canceled))
	for _, id := range ids {
		require.Equal(t, []string{job.EventCreated, job.EventQueued}, f.names(id))
		require.Zero(t, one[int](f, `SELECT dispatch FROM jobs WHERE job_id = $1`, id.String()))
	}
	f.checkInvariants()
}

func TestQueueDueReportsMovedJobs(t *testing.T) {
	f := setup(t)
	id := f.submit(deferred(-time.Second), calledBack, func(s *job.Submission) { s.Job.CorrelationID = "c-1" })
	due := f.queueDue(10)
	require.Len(t, due, 1)
	want := f.job(id)
	d := want.Definition
	definition := job.Definition{WorkKind: want.WorkKind, DurationMS: d.DurationMS, ExpectedOutcome: d.ExpectedOutcome}
	require.Equal(t, job.Job{
		ID: id, ClientID: f.client, RequestID: want.RequestID, CorrelationID: "c-1", Callback: want.Callback,
		WorkKind: want.WorkKind, Definition: &definition, ExecutionAt: want.ExecutionAt, UpdatedAt: want.UpdatedAt,
	}, due[0])

	durations, got := map[job.ID]int64{}, map[job.ID]int64{}
	for i, definition := range []string{`'{"duration_ms": 1}'`, `'{"duration_ms": 1}'`, `'{"duration_ms": 2}'`, `'{}'`, `'[]'`, `NULL`,
		`'{"duration_ms": "1"}'`, `'{"duration_ms": 1}'`} {
		id := f.submit(deferred(time.Duration(i-20) * time.Second))
		f.exec(`UPDATE jobs SET definition = `+definition+` WHERE job_id = $1`, id.String())
		durations[id] = []int64{1, 1, 2, -1, -1, -1, -1, 1}[i]
	}
	for _, j := range f.queueDue(10) {
		got[j.ID] = -1
		if j.Definition != nil {
			got[j.ID] = j.Definition.DurationMS
		}
	}
	require.Equal(t, durations, got)
}

func maxHeld(most int) func(*repo.Config) { return func(c *repo.Config) { c.ClientMaxHeld = most } }

func taskIDs(tasks []job.Task) []job.ID {
	return each(tasks, func(t job.Task) job.ID { return t.JobID })
}

func (f *fixture) resume(most int) []job.ID {
	return taskIDs(must(f.store.ResumeThrottled(f.ctx(), most, 1000))(f.t))
}

func (f *fixture) claimMany(ids []job.ID, stores ...*repo.Store) (claimed []job.ClaimID) {
	claims := make([]*job.Claim, len(ids))
	f.atOnce(len(ids), func(i int) error {
		c, not, err := append(stores, f.store)[i%(len(stores)+1)].Claim(f.ctx(), f.worker, ids[i], 1)
		if claims[i] = c; err == nil && not.Throttled != (c == nil) {
			err = fmt.Errorf("refused as %+v", not)
		}
		return err
	})
	for _, c := range claims {
		if c != nil {
			claimed = append(claimed, c.ClaimID)
		}
	}
	return claimed
}

func TestWorkersHoldNoMoreJobsOfAClient(t *testing.T) {
	const most = 3
	f := setup(t, maxHeld(most))
	others := []*repo.Store{repotest.OpenURL(t, f.url, maxHeld(most)), repotest.OpenURL(t, f.url, maxHeld(most))}
	ids := f.submitted(30)
	foreign := f.submit(ofClient(newID()))
	left, resumed := len(ids), []job.ID(nil)
	claimed := f.claimMany(ids, others...)
	f.assigned(foreign, 1) // other clients have their own limit
	require.Empty(t, f.resume(most))
	for rounds := 0; left > 0; rounds++ {
		require.Less(t, rounds, 30)
		require.Len(t, claimed, min(most, left))
		require.Equal(t, len(claimed), f.count(`jobs WHERE worker_id IS NOT NULL AND client_id = $1`, f.client.String()))
		for _, lease := range claimed {
			resumed = append(resumed, taskIDs(f.finish(success(f.start(lease))).Resumed)...)
		}
		left -= len(claimed)
		claimed, resumed = f.claimMany(resumed, others...), nil
	}
	f.checkInvariants()
}

func TestThrottledJobsKeepTheirOrder(t *testing.T) {
	f := setup(t, maxHeld(1))
	first, second, third := f.submit(), f.submit(), f.submit()
	lease := f.assigned(first, 1)
	before := f.job(second)
	require.Empty(t, f.claimMany([]job.ID{third, second}))
	throttled := f.job(second)
	require.Equal(t, job.ThrottledUntil, throttled.RunAt)
	require.Equal(t, job.WaitingClientLimit, throttled.WaitingFor(time.Now(), 1))
	require.Equal(t, before.EventSeq, throttled.EventSeq, "a QUEUED job stays QUEUED, without an event")
	require.Empty(t, f.resume(1))
	require.Equal(t, []job.ID{second}, taskIDs(f.finish(success(f.start(lease))).Resumed))

	fourth := f.submit()
	require.Empty(t, f.claimMany([]job.ID{fourth}), "an older job comes first")
	require.Equal(t, before.RunAt, f.job(second).RunAt)
	require.Empty(t, f.resume(1), "a resumed job takes the place")
	require.Len(t, f.claimMany([]job.ID{second}), 1)
	fifth := f.submit()
	require.Empty(t, f.claimMany([]job.ID{fifth}))
	f.cancel(third)
	f.cancel(second)
	require.Equal(t, []job.ID{fourth}, f.resume(1), "canceled jobs make room")
	require.Equal(t, []job.ID{fifth}, f.resume(math.MaxInt32), "all jobs resume without a limit")
	f.checkInvariants()
}
