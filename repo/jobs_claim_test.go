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

func TestClaimAssignsAWaitingJob(t *testing.T) {
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
	require.Nil(t, c.Job.StartedAt)
	require.Equal(t, log[1].At, c.QueuedAt)
	require.Equal(t, c.Job.UpdatedAt, one[time.Time](f, `SELECT assigned_at FROM jobs WHERE job_id = $1`, id.String()))
	f.checkInvariants()
}

func TestClaimFromCreatedPassesThroughQueued(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit(deferred(time.Hour))
	f.makeDue(id)
	f.assigned(id, 1)
	log := f.log(id)
	require.Equal(t, []string{job.EventCreated, job.EventQueued, job.EventAssigned}, f.names(id))
	require.Equal(t, []string{"CREATED", "QUEUED", "ASSIGNED"}, []string{log[1].Prev, log[2].Prev, log[2].Next})
	require.Equal(t, 3, f.job(id).EventSeq)
	require.Equal(t, log[2].At, log[1].At)
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
	tests := map[string]struct {
		worker, id job.ID
		attempt    int
		not        job.NotClaimed
	}{
		"not due":         {f.worker, early, 1, job.NotClaimed{StillWaiting: true, Wait: time.Hour}},
		"in its backoff":  {f.worker, backedOff.JobID, 2, job.NotClaimed{StillWaiting: true, Wait: time.Minute}},
		"earlier attempt": {f.worker, backedOff.JobID, 1, job.NotClaimed{Wait: time.Minute}},
		"later attempt":   {f.worker, f.submit(), 2, job.NotClaimed{}},
		"assigned":        {f.newWorker(), f.assigned(f.submit(), 1).JobID, 1, job.NotClaimed{}},
		"running":         {f.newWorker(), f.run().JobID, 1, job.NotClaimed{}},
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
	for n, id := range ids {
		winner := one[string](f, `SELECT worker_id::text FROM jobs WHERE job_id = $1`, id.String())
		for i := n * claimants; i < (n+1)*claimants; i++ {
			require.NoError(t, errs[i])
			require.Equal(t, workers[i%3].String() == winner, claims[i] != nil, "each answer of the winner's, and no other")
			if c := claims[i]; c != nil {
				require.Equal(t, id, c.Job.ID, "the answer belongs to the question")
				require.EqualValues(t, 1, c.Fence)
			}
		}
		require.Equal(t, []string{job.EventCreated, job.EventQueued, job.EventAssigned}, f.names(id))
	}
	f.checkInvariants()
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
		l := f.assigned(id, 1)
		require.EqualValues(t, n+1, l.Fence)
		_, err := f.store.Release(f.ctx(), []job.Lease{l}, []time.Duration{0})
		require.NoError(t, err)
	}
	l := f.claim(id, 1)
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
		f.finish(failure(f.start(c.Lease), job.DefinitionInvalid))
		require.Equal(t, job.Failed, f.state(id), "it can be failed all the same")
	}
}

// The answer to a claim may be lost: who holds the job is told again, and
// nobody else.
func TestClaimIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit(deferred(time.Hour))
	f.makeDue(id)
	first, _, err := f.store.Claim(f.ctx(), f.worker, id, 1)
	require.NoError(t, err)
	require.True(t, first.WasCreated)
	before := f.all(id)
	for range 2 {
		again, _, err := f.store.Claim(f.ctx(), f.worker, id, 1)
		require.NoError(t, err)
		first.WasCreated = false // that step was told of with the first answer
		require.Empty(t, cmp.Diff(first, again))
		require.Equal(t, before, f.all(id), "nothing happens twice")
	}
	f.start(first.Lease)
	again, _, err := f.store.Claim(f.ctx(), f.worker, id, 1)
	require.NoError(t, err)
	require.Equal(t, first.Lease, again.Lease, "when it runs as well")
}

func TestClaimIsAnsweredAgainToItsHolderOnly(t *testing.T) {
	t.Parallel()
	f := setup(t)
	succeeded, failed, canceled := f.at(job.Succeeded), f.at(job.Failed), f.run().JobID
	_, _, err := f.store.Cancel(f.ctx(), f.client, canceled)
	require.NoError(t, err)
	next := f.run()
	f.finish(withRetry(failure(next, job.FailedOnce), 0))
	f.claim(next.JobID, 2)
	returned := f.assigned(f.submit(), 1)
	_, err = f.store.Release(f.ctx(), []job.Lease{returned}, []time.Duration{time.Hour})
	require.NoError(t, err)
	for name, test := range map[string]struct {
		worker, id job.ID
		attempt    int
	}{
		"another worker":         {f.newWorker(), f.run().JobID, 1},
		"no worker":              {job.ID{}, f.run().JobID, 1},
		"a later attempt":        {f.worker, f.run().JobID, 2},
		"its next attempt runs":  {f.worker, next.JobID, 1},
		"succeeded":              {f.worker, succeeded, 1},
		"failed":                 {f.worker, failed, 1},
		"canceled":               {f.worker, canceled, 1},
		"taken back":             {f.worker, returned.JobID, 1},
		"another's, not started": {f.newWorker(), f.assigned(f.submit(), 1).JobID, 1},
	} {
		before := f.all(test.id)
		c, _, err := f.store.Claim(f.ctx(), test.worker, test.id, test.attempt)
		require.NoError(t, err, name)
		require.Nil(t, c, name)
		require.Equal(t, before, f.all(test.id), name)
	}
	require.Zero(t, f.storageErrors(), "a claim in vain is no trouble of the database")
}

// A task that is delivered many times to one worker asks as often.
func TestConcurrentClaimsOfOneWorkerAreOneClaim(t *testing.T) {
	t.Parallel()
	f := setup(t, patient)
	id, other, foreign := f.submit(), f.submit(), f.submit()
	stranger := f.newWorker()
	release := f.occupy(func() { _, _, _ = f.store.Claim(f.ctx(), f.worker, newID(), 1) })
	const times = 10
	claims, errs := make([]*job.Claim, times), make([]error, times)
	var calls sync.WaitGroup
	for i := range times {
		calls.Go(func() { claims[i], _, errs[i] = f.store.Claim(f.ctx(), f.worker, id, 1) })
	}
	for claimed, worker := range map[job.ID]job.ID{other: f.worker, foreign: stranger} {
		calls.Go(func() {
			c, _, err := f.store.Claim(f.ctx(), worker, claimed, 1)
			if err != nil || c == nil || c.JobID != claimed {
				t.Errorf("%+v %v", c, err)
			}
		})
	}
	f.awaitQueued("claim", times+2)
	release()
	calls.Wait()
	for i, c := range claims {
		require.NoError(t, errs[i])
		require.NotNil(t, c)
		require.Equal(t, job.Lease{JobID: id, Attempt: 1, Fence: 1}, c.Lease)
	}
	require.Len(t, f.log(id), 3)
	f.checkInvariants()
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
