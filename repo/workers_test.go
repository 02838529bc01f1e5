package repo_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

func (f *fixture) leases() *repo.Leases {
	l := f.store.NewLeases()
	f.t.Cleanup(l.Close)
	return l
}

// held is what storage should say of a lease.
func (f *fixture) held(l job.Lease, s job.State) job.Held {
	return job.Held{Lease: l, ClientID: f.client, RequestID: "r-1", State: s, WorkKind: job.SuccessFast, MaxAttempts: 4}
}

func TestRenewAnswersWithWhatTheWorkerHolds(t *testing.T) {
	t.Parallel()
	f := setup(t)
	leases := f.leases()
	got, err := leases.Renew(f.ctx(), f.worker, time.Minute)
	require.NoError(t, err)
	require.Empty(t, got)

	assigned, running := f.assigned(f.submit(), 1), f.run(func(s *job.Submission) { s.Job.AutoRetry = true })
	f.exec(`UPDATE jobs SET lease_expiries = 3 WHERE job_id = $1`, assigned.JobID.String())
	f.at(job.Succeeded)
	released := f.assigned(f.submit(), 1)
	_, err = f.store.Release(f.ctx(), []job.Lease{released}, []time.Duration{0})
	require.NoError(t, err)
	_, _, err = f.store.Claim(f.ctx(), f.newWorker(), released.JobID, 1)
	require.NoError(t, err)

	got, err = leases.Renew(f.ctx(), f.worker, time.Minute)
	require.NoError(t, err)
	wantAssigned, wantRunning := f.held(assigned, job.Assigned), f.held(running, job.Running)
	wantAssigned.LeaseExpiries, wantRunning.AutoRetry = 3, true
	require.ElementsMatch(t, []job.Lease{assigned, running}, got)
	gone := running
	gone.Fence--
	held, err := leases.Held(f.ctx(), f.worker, []job.Lease{assigned, gone, running, released, {JobID: newID(), Attempt: 1, Fence: 1}})
	require.NoError(t, err)
	require.ElementsMatch(t, []job.Held{wantAssigned, wantRunning}, held)
	require.True(t, one[bool](f, `SELECT expires_at - heartbeat_at BETWEEN interval '59 s' AND interval '61 s' FROM workers
		WHERE worker_id = $1`, f.worker.String()))
}

func TestRenewNeedsALiveLease(t *testing.T) {
	t.Parallel()
	f := setup(t)
	leases := f.leases()
	expired, dead, retired := f.newWorker(), f.newWorker(), f.newWorker()
	f.expireWorker(expired)
	f.exec(`UPDATE workers SET state = 'DEAD' WHERE worker_id = $1`, dead.String())
	require.NoError(t, leases.Retire(f.ctx(), retired))
	for name, id := range map[string]job.ID{"expired": expired, "dead": dead, "retired": retired, "unknown": newID(), "none": {}} {
		_, err := leases.Renew(f.ctx(), id, time.Hour)
		require.ErrorIs(t, err, job.ErrWorkerDead, name)
	}
	n, err := f.store.LiveWorkers(f.ctx())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Zero(t, f.storageErrors())
}

func TestRegisterTwice(t *testing.T) {
	t.Parallel()
	f := setup(t)
	err := f.leases().Register(f.ctx(), f.worker, "again", 1, time.Hour)
	require.Equal(t, job.CodeConflict, job.CodeOf(err))
}

func TestLeaseOutlivesAnExhaustedPool(t *testing.T) {
	t.Parallel()
	f := setup(t)
	pool := f.store.Pool()
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(f.ctx())
		require.NoError(t, err)
		defer conn.Release()
	}
	_, err := f.store.Job(within(t, 100*time.Millisecond), f.client, newID())
	require.Equal(t, job.CodeDBError, job.CodeOf(err), "the pool is exhausted")
	_, err = f.leases().Renew(f.ctx(), f.worker, time.Hour)
	require.NoError(t, err)
}

func TestLeasesReconnect(t *testing.T) {
	t.Parallel()
	f := setup(t, func(c *repo.Config) { c.ApplicationName = "leases-reconnect" })
	leases := f.leases()
	_, err := leases.Renew(f.ctx(), f.worker, time.Hour)
	require.NoError(t, err)
	// Only the lease's own connection has this statement as its latest one.
	f.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'leases-reconnect'
		AND query LIKE '%FROM jobs WHERE worker_id%'`)
	_, err = leases.Renew(f.ctx(), f.worker, time.Hour)
	require.Equal(t, job.CodeStorageUnavailable, job.CodeOf(err), "%v", err)
	_, err = leases.Renew(f.ctx(), f.worker, time.Hour)
	require.NoError(t, err)
	leases.Close()
	leases.Close()
	_, err = leases.Renew(f.ctx(), f.worker, time.Hour)
	require.NoError(t, err, "it connects again")
}

func TestRenewGivesUpWithItsCaller(t *testing.T) {
	t.Parallel()
	f := setup(t, patient)
	leases := f.leases()
	unlock := f.lock(`SELECT FROM workers FOR UPDATE`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := leases.Renew(ctx, f.worker, time.Hour); done <- err }()
	f.awaitBlocked(1)
	cancel()
	require.Equal(t, job.CodeDBError, job.CodeOf(<-done))
	unlock()
	_, err := leases.Renew(f.ctx(), f.worker, time.Hour)
	require.NoError(t, err)
}

func TestOrphansAreJobsOfDeadWorkers(t *testing.T) {
	t.Parallel()
	f := setup(t)
	alive := f.run()
	lost := f.newWorker()
	var want []job.Held
	for i := range 4 {
		l, state := f.run(), job.Running
		if i%2 == 1 {
			l, state = f.assigned(f.submit(), 1), job.Assigned
		}
		f.exec(`UPDATE jobs SET worker_id = $2 WHERE job_id = $1`, l.JobID.String(), lost.String())
		want = append(want, f.held(l, state)) // ids of version 7 come in order
	}
	got, err := f.store.Orphans(f.ctx(), 10)
	require.NoError(t, err)
	require.Empty(t, got)

	f.expireWorker(lost)
	got, err = f.store.Orphans(f.ctx(), 10)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, "DEAD", one[string](f, `SELECT state FROM workers WHERE worker_id = $1`, lost.String()))
	got, err = f.store.Orphans(f.ctx(), 3)
	require.NoError(t, err)
	require.Equal(t, want[:3], got)
	_, err = f.leases().Renew(f.ctx(), lost, time.Hour)
	require.ErrorIs(t, err, job.ErrWorkerDead, "there is no way back")

	retiring := f.newWorker()
	c, _, err := f.store.Claim(f.ctx(), retiring, f.submit(), 1)
	require.NoError(t, err)
	require.NoError(t, f.leases().Retire(f.ctx(), retiring))
	got, err = f.store.Orphans(f.ctx(), 10)
	require.NoError(t, err)
	require.Contains(t, got, f.held(c.Lease, job.Assigned), "of a retired worker as well, at once")
	require.NotContains(t, got, f.held(alive, job.Running))
}

func TestOrphansLeavesAWorkerThatIsJustRenewing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.run()
	f.expireWorker(f.worker)
	unlock := f.lock(`UPDATE workers SET expires_at = clock_timestamp() + interval '1 hour' WHERE worker_id = $1`, f.worker.String())
	got, err := f.store.Orphans(f.ctx(), 10)
	require.NoError(t, err)
	require.Empty(t, got)
	unlock()
	got, err = f.store.Orphans(f.ctx(), 10)
	require.NoError(t, err)
	require.Len(t, got, 1)
}
