package repo_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/jobs"
)

func (f *fixture) becomeLeader(holder job.ID) bool {
	return must(f.store.Lead(f.ctx(), holder, time.Hour, 0))(f.t)
}

func TestLeadHasOneHolder(t *testing.T) {
	f := setup(t)
	a, b := newID(), newID()
	require.True(t, f.becomeLeader(a))
	require.InDelta(t, time.Hour.Seconds(), one[float64](f, `SELECT extract(epoch FROM leader_expires_at - clock_timestamp())::float8
		FROM maintenance_state`), 60)
	require.False(t, f.becomeLeader(b))
	require.True(t, f.becomeLeader(a), "the leader keeps the lease")

	require.NoError(t, f.store.Resign(f.ctx(), b), "only the leader can resign")
	require.False(t, f.becomeLeader(b))
	f.exec(`UPDATE maintenance_state SET leader_expires_at = clock_timestamp()`)
	require.True(t, f.becomeLeader(b), "the lease has expired")
	require.False(t, f.becomeLeader(a))
	require.NoError(t, f.store.Resign(f.ctx(), a))
	require.False(t, f.becomeLeader(a))
	require.NoError(t, f.store.Resign(f.ctx(), b))
	require.True(t, f.becomeLeader(a), "the lease is free after the resignation")

	// With a lease of zero duration, the holder leads until another process takes over.
	f.exec(`UPDATE maintenance_state SET leader_id = NULL, leader_expires_at = '-infinity'`)
	for _, step := range []struct {
		holder        job.ID
		lease, vacant time.Duration
		leads         bool
	}{
		{a, 0, time.Hour, true},  // no process has ever led
		{b, 0, time.Hour, false}, // the lease of `a` expired less than an hour ago
		{a, 0, time.Hour, true}, {b, time.Minute, 0, true}, {a, 0, 0, false},
	} {
		require.Equal(t, step.leads, must(f.store.Lead(f.ctx(), step.holder, step.lease, step.vacant))(t), "%+v", step)
	}
}

func TestLoadCountsUnfinishedJobs(t *testing.T) {
	f := setup(t)
	load := func(limit int) job.Load { return must(f.store.Load(f.ctx(), limit))(t).Jobs }
	require.Equal(t, job.Load{}, load(100))
	for _, s := range job.States {
		f.force(s)
	}
	f.force(job.Queued)
	require.Equal(t, job.Load{Active: 5, Queued: 2}, load(100))
	require.Equal(t, job.Load{Active: 5, Queued: 2}, load(3))
	other := newID()
	f.exec(`UPDATE jobs SET client_id = $1 WHERE state IN ('CREATED', 'SUCCEEDED')`, other.String())
	busy := map[job.ID]job.Load{f.client: {Active: 4, Queued: 2}}
	require.Equal(t, busy, must(f.store.LoadByClient(f.ctx(), 100, 1))(t))
	busy[other] = job.Load{Active: 1}
	require.Equal(t, busy, must(f.store.LoadByClient(f.ctx(), 100, 0))(t))
	for range 20 {
		f.force(job.Queued)
		f.force(job.Running)
	}
	bounded := load(4)
	require.Greater(t, bounded.Active, 4, "at least one above the limit")
	require.LessOrEqual(t, bounded.Active, 2*(4+1), "no row beyond the limit of each kind is read")
}

func (f *fixture) waitingJobs(after job.QueueCursor, age time.Duration, limit int) []job.Task {
	return must(f.store.Waiting(f.ctx(), after, age, limit))(f.t)
}

func (f *fixture) taskOf(id job.ID) job.Task {
	j := f.job(id)
	return job.Task{JobID: id, Attempt: j.Attempt, RunAt: j.RunAt, ClientID: j.ClientID, WorkKind: j.WorkKind}
}

func (f *fixture) waiting(ago ...time.Duration) []job.Task {
	return each(ago, func(d time.Duration) job.Task {
		id := f.submit()
		f.exec(`UPDATE jobs SET run_at = clock_timestamp() - $2::interval WHERE job_id = $1`, id.String(), d)
		return f.taskOf(id)
	})
}

func (f *fixture) walkWaiting(limit int) []job.Task {
	tasks, _ := walk(f, func(after job.QueueCursor) (page []job.Task, last job.QueueCursor) {
		page = f.waitingJobs(after, 0, limit)
		require.LessOrEqual(f.t, len(page), limit)
		if len(page) > 0 {
			last = job.QueueCursor{RunAt: page[len(page)-1].RunAt, JobID: page[len(page)-1].JobID}
		}
		return page, last
	})
	return tasks
}

func TestWaitingJobsInOrder(t *testing.T) {
	f := setup(t)
	tasks := f.waiting(3*time.Second, 2*time.Second, time.Second)
	f.submit(deferred(2 * time.Hour))
	for _, s := range []job.State{job.Assigned, job.Running, job.Succeeded, job.Failed, job.Canceled} {
		f.at(s)
	}
	require.Equal(t, tasks, f.waitingJobs(job.QueueCursor{}, 0, 10))
	require.Empty(t, f.waitingJobs(job.QueueCursor{}, time.Minute, 10), "the jobs are younger than the minimum age")
	f.exec(`UPDATE jobs SET created_at = created_at - interval '1 minute' WHERE job_id = $1`, tasks[1].JobID.String())
	require.Equal(t, tasks[1:2], f.waitingJobs(job.QueueCursor{}, 30*time.Second, 10))
	f.exec(`UPDATE jobs SET created_at = created_at + interval '1 hour' WHERE job_id = $1`, tasks[2].JobID.String())
	require.Equal(t, tasks[1:], f.waitingJobs(job.QueueCursor{}, 30*time.Second, 10), "the clock was set back")
	require.Equal(t, tasks, f.walkWaiting(2), "page by page")

	f.exec(`DELETE FROM jobs`)
	ids := taskIDs(f.waiting(0, 0, 0, 0, 0))
	f.exec(`UPDATE jobs SET run_at = '2026-01-01'`)
	require.ElementsMatch(t, ids, taskIDs(f.walkWaiting(1)), "jobs with equal times")
}

func (f *fixture) leases() *jobs.Leases {
	l := f.store.NewLeases()
	f.t.Cleanup(l.Close)
	return l
}

func (f *fixture) held(c job.ClaimID, s job.State) job.Held {
	return job.Held{ClaimID: c, ClientID: f.client, RequestID: "r-1", State: s, WorkKind: job.SuccessFast, MaxAttempts: 4}
}

func TestRenewReturnsClaimsOfTheWorker(t *testing.T) {
	f := setup(t)
	leases := f.leases()
	got := must(leases.Renew(f.ctx(), f.worker, time.Minute))(t)
	require.Empty(t, got)

	assigned, running := f.assigned(f.submit(), 1), f.run(func(s *job.Submission) { s.Job.AutoRetry = true })
	f.exec(`UPDATE jobs SET lease_expiries = 3 WHERE job_id = $1`, assigned.JobID.String())
	f.at(job.Succeeded)
	released := f.assigned(f.submit(), 1)
	f.release(released)
	must2(f.store.Claim(f.ctx(), f.newWorker(), released.JobID, 1))(t)

	got = must(leases.Renew(f.ctx(), f.worker, time.Minute))(t)
	wantAssigned, wantRunning := f.held(assigned, job.Assigned), f.held(running, job.Running)
	wantAssigned.LeaseExpiries, wantRunning.AutoRetry = 3, true
	require.ElementsMatch(t, []job.ClaimID{assigned, running}, got)
	gone := running
	gone.Fence--
	held := must(leases.Held(f.ctx(), f.worker, []job.ClaimID{assigned, gone, running, released, {JobID: newID(), Attempt: 1, Fence: 1}}))(t)
	require.ElementsMatch(t, []job.Held{wantAssigned, wantRunning}, held)
	require.True(t, one[bool](f, `SELECT expires_at - heartbeat_at BETWEEN interval '59 s' AND interval '61 s' FROM workers
		WHERE worker_id = $1`, f.worker.String()))
}

func TestRenewNeedsALiveLease(t *testing.T) {
	f := setup(t)
	gone := f.goneWorkers()
	gone["unknown"], gone["none"] = newID(), job.ID{}
	for name, id := range gone {
		require.ErrorIs(t, errOf(f.leases().Renew(f.ctx(), id, time.Hour)), job.ErrWorkerDead, name)
	}
	require.Equal(t, 1, must(f.store.LiveWorkers(f.ctx()))(t))
	require.Zero(t, f.storageErrors())
	require.Equal(t, job.CodeConflict, codeOf(f.leases().Register(f.ctx(), f.worker, "again", 1, time.Hour)))
}

func TestLeasesReconnect(t *testing.T) {
	f := setup(t, func(c *repo.Config) { c.ApplicationName = "leases-reconnect" })
	leases := f.leases()
	must(leases.Renew(f.ctx(), f.worker, time.Hour))(t)
	// The condition on the column `query` finds the connection of `leases`.
	f.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'leases-reconnect'
		AND query LIKE '%FROM jobs WHERE worker_id%'`)
	require.Equal(t, job.CodeStorageUnavailable, codeOf(leases.Renew(f.ctx(), f.worker, time.Hour)))
	must(leases.Renew(f.ctx(), f.worker, time.Hour))(t)
	leases.Close()
	leases.Close()
	require.NoError(t, errOf(leases.Renew(f.ctx(), f.worker, time.Hour)), "it connects again")
}

func TestRenewEndsWithItsCaller(t *testing.T) {
	f := setup(t, patient)
	leases := f.leases()
	unlock := f.lock(`SELECT FROM workers FOR UPDATE`)
	ctx, cancel := context.WithCancel(t.Context())
	renewed := begin(func() error { return errOf(leases.Renew(ctx, f.worker, time.Hour)) })
	f.awaitBlocked(1)
	cancel()
	require.Equal(t, job.CodeDBError, job.CodeOf(<-renewed))
	unlock()
	must(leases.Renew(f.ctx(), f.worker, time.Hour))(t)
}

func TestOrphansAreJobsOfDeadWorkers(t *testing.T) {
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
		want = append(want, f.held(l, state)) // Orphans sorts by job id, and job ids (UUIDv7) are in order of creation
	}
	require.Empty(t, f.orphans(10))
	f.expireWorker(lost)
	require.Equal(t, want, f.orphans(10))
	require.Equal(t, "DEAD", one[string](f, `SELECT state FROM workers WHERE worker_id = $1`, lost.String()))
	require.Equal(t, want[:3], f.orphans(3))
	require.ErrorIs(t, errOf(f.leases().Renew(f.ctx(), lost, time.Hour)), job.ErrWorkerDead, "a dead worker stays dead")

	retiring := f.newWorker()
	c, _ := must2(f.store.Claim(f.ctx(), retiring, f.submit(), 1))(t)
	require.NoError(t, f.leases().Retire(f.ctx(), retiring))
	got := f.orphans(10)
	require.Contains(t, got, f.held(c.ClaimID, job.Assigned), "jobs of a retired worker are orphans immediately")
	require.NotContains(t, got, f.held(alive, job.Running))

	f.expireWorker(f.worker)
	unlock := f.lock(`UPDATE workers SET expires_at = clock_timestamp() + interval '1 hour' WHERE worker_id = $1`, f.worker.String())
	require.NotContains(t, f.orphans(10), f.held(alive, job.Running))
	unlock()
	require.Contains(t, f.orphans(10), f.held(alive, job.Running))
}
