package repo_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestClaimTakesAWaitingJob(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit()
	c, not, err := f.store.Claim(f.ctx(), f.worker, id, 1)
	require.NoError(t, err)
	require.Zero(t, not)
	require.Equal(t, job.Lease{JobID: id, Attempt: 1, Fence: 1}, c.Lease)
	require.Empty(t, cmp.Diff(f.job(id), &c.Job), "the claim carries the job as it is stored")
	require.Equal(t, job.Assigned, c.Job.State)
	require.Equal(t, f.worker.String(), one[string](f, `SELECT worker_id::text FROM jobs WHERE job_id = $1`, id.String()))

	log := f.log(id)
	require.Len(t, log, 3)
	data := map[string]any{"work_kind": "SUCCESS_FAST", "duration_ms": 1000.0, "expected_outcome": "SUCCEEDED"}
	require.Empty(t, cmp.Diff(event{3, job.EventAssigned, "QUEUED", "ASSIGNED", 1, c.Job.UpdatedAt, data}, log[2]))
}

func TestClaimFromCreatedPassesThroughQueued(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit(deferred(time.Hour))
	f.makeDue(id)
	f.claim(id, 1)
	log := f.log(id)
	require.Equal(t, []string{job.EventCreated, job.EventQueued, job.EventAssigned}, f.names(id))
	require.Equal(t, []string{"CREATED", "QUEUED", "ASSIGNED"}, []string{log[1].Prev, log[1].Next, log[2].Next})
	require.Equal(t, 3, f.job(id).EventSeq)
	require.Equal(t, log[1].At, one[time.Time](f, `SELECT queued_at FROM jobs WHERE job_id = $1`, id.String()))
	n, err := countDue(f.store, f.ctx(), 10)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestClaimRefusals(t *testing.T) {
	t.Parallel()
	f := setup(t)
	retired := f.newWorker()
	leases := f.store.NewLeases()
	defer leases.Close()
	require.NoError(t, leases.Retire(f.ctx(), retired))
	expired := f.newWorker()
	f.expireWorker(expired)
	dead := f.newWorker()
	f.exec(`UPDATE workers SET state = 'DEAD' WHERE worker_id = $1`, dead.String())

	early := f.submit(deferred(time.Hour))
	backedOff := f.run()
	f.finish(withRetry(failure(backedOff, job.FailedOnce), time.Minute))
	f.exec(`UPDATE jobs SET dispatch = 7 WHERE job_id = $1`, backedOff.JobID.String())

	tests := map[string]struct {
		worker, id job.ID
		attempt    int
		not        job.NotClaimed
	}{
		"not due":         {f.worker, early, 1, job.NotClaimed{StillWaiting: true, Wait: time.Hour}},
		"in its backoff":  {f.worker, backedOff.JobID, 2, job.NotClaimed{StillWaiting: true, Wait: time.Minute, Dispatch: 7}},
		"earlier attempt": {f.worker, backedOff.JobID, 1, job.NotClaimed{Wait: time.Minute, Dispatch: 7}},
		"later attempt":   {f.worker, f.submit(), 2, job.NotClaimed{}},
		"assigned":        {f.worker, f.claim(f.submit(), 1).JobID, 1, job.NotClaimed{}},
		"final":           {f.worker, f.force(job.Canceled), 1, job.NotClaimed{}},
		"unknown job":     {f.worker, newID(), 1, job.NotClaimed{Unknown: true}},
		"unknown worker":  {newID(), f.submit(), 1, job.NotClaimed{StillWaiting: true, WorkerDead: true}},
		"no worker":       {job.ID{}, f.submit(), 1, job.NotClaimed{StillWaiting: true, WorkerDead: true}},
		"retired worker":  {retired, f.submit(), 1, job.NotClaimed{StillWaiting: true, WorkerDead: true}},
		"dead worker":     {dead, f.submit(), 1, job.NotClaimed{StillWaiting: true, WorkerDead: true}},
		"expired worker":  {expired, f.submit(), 1, job.NotClaimed{StillWaiting: true, WorkerDead: true}},
	}
	for name, test := range tests {
		before := f.all(test.id)
		c, not, err := f.store.Claim(f.ctx(), test.worker, test.id, test.attempt)
		require.NoError(t, err, name)
		require.Nil(t, c, name)
		require.InDelta(t, test.not.Wait.Seconds(), not.Wait.Seconds(), 30, name)
		require.LessOrEqual(t, not.Wait, test.not.Wait, name)
		not.Wait = test.not.Wait
		require.Equal(t, test.not, not, name)
		require.Equal(t, before, f.all(test.id), name)
	}
}

func TestConcurrentClaimsHaveOneWinner(t *testing.T) {
	t.Parallel()
	f := setup(t)
	stores := []*repo.Store{f.store, repotest.OpenURL(t, f.url)}
	workers := []job.ID{f.worker, f.newWorker(), f.newWorker()}
	const jobs, claimants = 20, 6
	ids := make([]job.ID, jobs)
	for i := range ids {
		ids[i] = f.submit()
	}
	claims, errs := make([]*job.Claim, jobs*claimants), make([]error, jobs*claimants)
	inParallel(len(claims), func(i int) {
		claims[i], _, errs[i] = stores[i%2].Claim(f.ctx(), workers[i%3], ids[i/claimants], 1)
	})
	won := map[job.ID]int{}
	for i, c := range claims {
		require.NoError(t, errs[i])
		if c != nil {
			won[c.JobID]++
			require.Equal(t, ids[i/claimants], c.Job.ID, "the answer belongs to the question")
			require.EqualValues(t, 1, c.Fence)
		}
	}
	for _, id := range ids {
		require.Equal(t, 1, won[id])
		require.Equal(t, []string{job.EventCreated, job.EventQueued, job.EventAssigned}, f.names(id))
	}
}

func TestClaimsOfOneFlushAreAnsweredEachOnItsOwn(t *testing.T) {
	t.Parallel()
	f := setup(t, patient)
	good, early, gone := f.submit(), f.submit(deferred(time.Hour)), newID()
	release := f.occupy(func() { _, _, _ = f.store.Claim(f.ctx(), f.worker, newID(), 1) })
	ids := []job.ID{early, good, gone}
	claims, nots := make([]*job.Claim, len(ids)), make([]job.NotClaimed, len(ids))
	var calls sync.WaitGroup
	for i, id := range ids {
		calls.Go(func() { claims[i], nots[i], _ = f.store.Claim(f.ctx(), f.worker, id, 1) })
	}
	f.awaitQueued("claim", len(ids))
	release()
	calls.Wait()
	require.Nil(t, claims[0])
	require.True(t, nots[0].StillWaiting)
	require.Equal(t, good, claims[1].JobID)
	require.Nil(t, claims[2])
	require.Equal(t, job.NotClaimed{Unknown: true}, nots[2])
}

func TestFenceRisesWithEachClaim(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit()
	for n := range 5 {
		l := f.claim(id, 1)
		require.EqualValues(t, n+1, l.Fence)
		_, err := f.store.Release(f.ctx(), []job.Lease{l}, []time.Duration{0})
		require.NoError(t, err)
	}
	l := f.start(f.claim(id, 1))
	f.finish(withRetry(failure(l, job.FailedOnce), 0))
	require.EqualValues(t, 7, f.claim(id, 2).Fence, "it goes on through the attempts")
}

func TestClaimOfADamagedDefinition(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, definition := range []string{`NULL`, `'null'`, `'[]'`, `'{"duration_ms": "x"}'`} {
		id := f.submit()
		f.exec(`UPDATE jobs SET definition = `+definition+` WHERE job_id = $1`, id.String())
		c, _, err := f.store.Claim(f.ctx(), f.worker, id, 1)
		require.NoError(t, err, definition)
		require.NotNil(t, c, definition)
		if d := c.Job.Definition; d != nil {
			require.ErrorIs(t, d.Validate(), job.ErrBadDefinition, definition)
		}
		f.start(c.Lease)
		f.finish(failure(c.Lease, job.DefinitionInvalid))
		require.Equal(t, job.Failed, f.state(id), "it can be failed all the same")
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	f := setup(t)
	l := f.claim(f.submit(), 1)
	at, err := f.store.Start(f.ctx(), l)
	require.NoError(t, err)
	j := f.job(l.JobID)
	require.Equal(t, job.Running, j.State)
	require.Equal(t, at, *j.StartedAt)
	require.Equal(t, at, f.log(l.JobID)[3].At)
	require.Equal(t, job.EventRunning, f.log(l.JobID)[3].Name)

	before := f.all(l.JobID)
	again, err := f.store.Start(f.ctx(), l)
	require.NoError(t, err, "the holder's first answer may have been lost")
	require.Equal(t, at, again)
	require.Equal(t, before, f.all(l.JobID))
}

// stale lists leases that are not current any more, on jobs that have passed
// through the given step under another.
func stale(t *testing.T, f *fixture, current func() job.Lease) map[string]job.Lease {
	t.Helper()
	older := func(l job.Lease) job.Lease { l.Fence--; return l }
	newer := func(l job.Lease) job.Lease { l.Fence++; return l }
	attempt := func(l job.Lease) job.Lease { l.Attempt++; return l }
	canceled := current()
	_, _, err := f.store.Cancel(f.ctx(), f.client, canceled.JobID)
	require.NoError(t, err)
	return map[string]job.Lease{
		"old fence":     older(current()),
		"future fence":  newer(current()),
		"other attempt": attempt(current()),
		"canceled":      canceled,
		"unknown job":   {JobID: newID(), Attempt: 1, Fence: 1},
	}
}

func TestStartIsFenced(t *testing.T) {
	t.Parallel()
	f := setup(t)
	leases := stale(t, f, func() job.Lease { return f.claim(f.submit(), 1) })
	released := f.claim(f.submit(), 1)
	_, err := f.store.Release(f.ctx(), []job.Lease{released}, []time.Duration{0})
	require.NoError(t, err)
	leases["released"] = released
	reclaimed := f.claim(f.submit(), 1)
	_, err = f.store.Release(f.ctx(), []job.Lease{reclaimed}, []time.Duration{0})
	require.NoError(t, err)
	f.start(f.claim(reclaimed.JobID, 1))
	leases["running under another"] = reclaimed
	ended := f.run()
	f.finish(success(ended))
	leases["ended"] = ended

	for name, l := range leases {
		before := f.all(l.JobID)
		_, err := f.store.Start(f.ctx(), l)
		require.ErrorIs(t, err, job.ErrStale, name)
		require.Equal(t, before, f.all(l.JobID), name)
	}
	require.Zero(t, f.storageErrors(), "a late write is no trouble of the database")
}
