package repo_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// Promise: contract 9b
func TestClaimAssignsAWaitingJob(t *testing.T) {
	f := setup(t)
	id := f.submit()
	c, not := f.tryClaim(id, 1)
	require.Zero(t, not)
	require.False(t, c.WasCreated)
	require.Equal(t, job.ClaimID{JobID: id, Attempt: 1, Fence: 1}, c.ClaimID)
	require.Empty(t, cmp.Diff(f.job(id), &c.Job), "the claim contains the stored job")
	require.Equal(t, job.Assigned, c.Job.State)
	require.Equal(t, f.worker.String(), one[string](f, `SELECT worker_id::text FROM jobs WHERE job_id = $1`, id.String()))

	log := f.log(id)
	require.Len(t, log, 3)
	data := map[string]any{"work_kind": "SUCCESS_FAST", "duration_ms": 1000.0, "expected_outcome": "SUCCEEDED"}
	require.Empty(t, cmp.Diff(event{3, job.EventAssigned, "QUEUED", "ASSIGNED", 1, c.Job.UpdatedAt, data}, log[2]))
	require.Nil(t, c.Job.StartedAt)
	require.Equal(t, log[1].At, c.QueuedAt)
	require.Equal(t, c.Job.UpdatedAt, one[time.Time](f, `SELECT assigned_at FROM jobs WHERE job_id = $1`, id.String()))
	f.checkInvariants()
}

func TestClaimRefusals(t *testing.T) {
	f := setup(t)
	gone := f.goneWorkers()
	backedOff, next, canceled, returned := f.retrying(time.Minute).JobID, f.retrying(0).JobID, f.run().JobID, f.assigned(f.submit(), 1)
	f.claim(next, 2)
	f.cancel(canceled)
	must(f.store.Release(f.ctx(), []job.ClaimID{returned}, []time.Duration{time.Hour}))(t)
	dead := job.NotClaimed{StillWaiting: true, WorkerDead: true}
	for name, test := range map[string]struct {
		worker, id job.ID
		attempt    int
		not        job.NotClaimed
	}{
		"not due":             {f.worker, f.submit(deferred(time.Hour)), 1, job.NotClaimed{StillWaiting: true, Wait: time.Hour}},
		"in its backoff":      {f.worker, backedOff, 2, job.NotClaimed{StillWaiting: true, Wait: time.Minute}},
		"released":            {f.worker, returned.JobID, 1, job.NotClaimed{StillWaiting: true, Wait: time.Hour}},
		"earlier attempt":     {f.worker, backedOff, 1, job.NotClaimed{Wait: time.Minute}},
		"later attempt":       {f.worker, f.submit(), 2, job.NotClaimed{}},
		"next attempt runs":   {f.worker, next, 1, job.NotClaimed{}},
		"later than running":  {f.worker, f.run().JobID, 2, job.NotClaimed{}},
		"another's, assigned": {f.newWorker(), f.at(job.Assigned), 1, job.NotClaimed{}},
		"another's, running":  {f.newWorker(), f.at(job.Running), 1, job.NotClaimed{}},
		"running, no worker":  {job.ID{}, f.at(job.Running), 1, job.NotClaimed{}},
		"canceled":            {f.worker, canceled, 1, job.NotClaimed{}},
		"succeeded":           {f.worker, f.at(job.Succeeded), 1, job.NotClaimed{}},
		"failed":              {f.worker, f.at(job.Failed), 1, job.NotClaimed{}},
		"unknown job":         {f.worker, newID(), 1, job.NotClaimed{Unknown: true}},
		"unknown worker":      {newID(), f.submit(), 1, dead},
		"no worker":           {job.ID{}, f.submit(), 1, dead},
		"retired worker":      {gone["retired"], f.submit(), 1, dead},
		"dead worker":         {gone["dead"], f.submit(), 1, dead},
		"expired worker":      {gone["expired"], f.submit(), 1, dead},
	} {
		before := f.all(test.id)
		c, not := must2(f.store.Claim(f.ctx(), test.worker, test.id, test.attempt))(t)
		require.Nil(t, c, name)
		require.InDelta(t, test.not.Wait.Seconds(), not.Wait.Seconds(), 30, name)
		require.LessOrEqual(t, not.Wait, test.not.Wait, name)
		not.Wait = test.not.Wait
		require.Equal(t, test.not, not, name)
		require.Equal(t, before, f.all(test.id), name)
	}
	require.Zero(t, f.storageErrors(), "a refused claim is not a storage error")
}

func (f *fixture) goneWorkers() map[string]job.ID {
	gone := map[string]job.ID{"expired": f.newWorker(), "dead": f.newWorker(), "retired": f.newWorker()}
	f.expireWorker(gone["expired"])
	f.exec(`UPDATE workers SET state = 'DEAD' WHERE worker_id = $1`, gone["dead"].String())
	require.NoError(f.t, f.leases().Retire(f.ctx(), gone["retired"]))
	return gone
}

func TestClaimsOfOneFlushHaveSeparateResults(t *testing.T) {
	f := setup(t, patient)
	good, foreign, stranger := f.submit(), f.submit(), f.newWorker()
	ids := []job.ID{f.submit(deferred(time.Hour)), newID(), foreign, good, good, good, good}
	claims, nots, errs := make([]*job.Claim, len(ids)), make([]job.NotClaimed, len(ids)), make([]error, len(ids))
	f.inOneFlush("claim", func() { _, _, _ = f.store.Claim(f.ctx(), f.worker, newID(), 1) }, len(ids), func(i int) {
		worker := f.worker
		if ids[i] == foreign {
			worker = stranger
		}
		claims[i], nots[i], errs[i] = f.store.Claim(f.ctx(), worker, ids[i], 1)
	})
	require.NoError(t, errors.Join(errs...))
	require.Nil(t, claims[0])
	require.True(t, nots[0].StillWaiting)
	require.Nil(t, claims[1])
	require.Equal(t, job.NotClaimed{Unknown: true}, nots[1])
	for i, c := range claims[2:] {
		require.NotNil(t, c)
		require.Equal(t, job.ClaimID{JobID: ids[2+i], Attempt: 1, Fence: 1}, c.ClaimID)
	}
	require.Len(t, f.log(good), 3)
	f.checkInvariants()
}

func TestRepeatedClaimReturnsTheSameClaim(t *testing.T) {
	f := setup(t)
	id := f.submit(deferred(time.Hour))
	f.makeDue(id)
	first, _ := f.tryClaim(id, 1)
	require.True(t, first.WasCreated)
	before := f.all(id)
	for range 2 {
		again, _ := f.tryClaim(id, 1)
		first.WasCreated = false // only the first claim sets WasCreated
		require.Empty(t, cmp.Diff(first, again))
		require.Equal(t, before, f.all(id), "the repeated call changes nothing")
	}
	f.start(first.ClaimID)
	again, _ := f.tryClaim(id, 1)
	require.Equal(t, first.ClaimID, again.ClaimID, "a RUNNING job repeats its claim too")
}

func stale(f *fixture, current func() job.ClaimID) map[string]job.ClaimID {
	old, future, other, canceled := current(), current(), current(), current()
	old.Fence--
	future.Fence++
	other.Attempt++
	f.cancel(canceled.JobID)
	ended := f.run()
	f.finish(success(ended))
	next := f.retrying(0)
	f.claim(next.JobID, 2)
	return map[string]job.ClaimID{
		"old fence": old, "future fence": future, "other attempt": other, "canceled": canceled, "ended": ended,
		"next attempt runs": next, "never claimed": {JobID: f.submit(), Attempt: 1}, "unknown job": {JobID: newID(), Attempt: 1, Fence: 1},
	}
}

func (f *fixture) requireStale(leases map[string]job.ClaimID, step func(c job.ClaimID) error) {
	for name, l := range leases {
		before := f.all(l.JobID)
		require.ErrorIs(f.t, step(l), job.ErrStale, name)
		require.Equal(f.t, before, f.all(l.JobID), name)
	}
	require.Zero(f.t, f.storageErrors())
	f.checkInvariants()
}

func TestStart(t *testing.T) {
	f := setup(t)
	id := f.submit()
	c, _ := f.tryClaim(id, 1)
	at := must(f.store.Start(f.ctx(), c.ClaimID))(t)
	require.True(t, at.After(c.Job.UpdatedAt), "the start has its own time")
	j := f.job(id)
	require.Equal(t, []any{job.Running, at, at}, []any{j.State, *j.StartedAt, j.UpdatedAt})
	require.Equal(t, c.Job.UpdatedAt, one[time.Time](f, `SELECT assigned_at FROM jobs WHERE job_id = $1`, id.String()))
	log := f.log(id)
	require.Len(t, log, 4)
	require.Empty(t, cmp.Diff(event{4, job.EventRunning, "ASSIGNED", "RUNNING", 1, at, log[2].Data}, log[3]))

	before := f.all(id)
	require.Equal(t, at, must(f.store.Start(f.ctx(), c.ClaimID))(t), "a repeated start returns the same time")
	require.Equal(t, before, f.all(id), "the repeated call changes nothing")
	f.checkInvariants()
}

// Promise: contract 9b
func TestStartIsFenced(t *testing.T) {
	f := setup(t)
	assigned := func() job.ClaimID { return f.assigned(f.submit(), 1) }
	leases := stale(f, assigned)
	for name, id := range f.goneWorkers() {
		l := assigned()
		f.exec(`UPDATE jobs SET worker_id = $2 WHERE job_id = $1`, l.JobID.String(), id.String())
		leases["its worker is "+name] = l
	}
	released, reclaimed := assigned(), assigned()
	f.release(released, reclaimed)
	f.claim(reclaimed.JobID, 1)
	leases["released"], leases["claimed again"] = released, reclaimed
	f.requireStale(leases, func(c job.ClaimID) error { return errOf(f.store.Start(f.ctx(), c)) })
}
