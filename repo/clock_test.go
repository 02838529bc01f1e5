package repo_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// shiftJob leaves a job as if Postgres' clock had been ahead when it was written.
func (f *fixture) shiftJob(id job.ID, by time.Duration) {
	f.t.Helper()
	f.exec(`UPDATE jobs SET created_at = created_at + $2::interval, updated_at = updated_at + $2::interval,
		queued_at = queued_at + $2::interval, run_at = CASE WHEN run_at = execution_at THEN run_at ELSE run_at + $2::interval END
		WHERE job_id = $1`, id.String(), by)
}

// moveJobs goes through all that waits, as the leader does.
func (f *fixture) moveJobs(look int) (moved int) {
	f.t.Helper()
	var at job.QueueCursor
	for calls := 0; ; calls++ {
		require.Less(f.t, calls, 100, "the walk ends")
		n, last, err := f.store.MoveStrandedJobs(f.ctx(), at, look)
		require.NoError(f.t, err)
		moved += n
		if at = last; last == (job.QueueCursor{}) {
			return moved
		}
	}
}

func (f *fixture) requireWait(id job.ID, wait time.Duration) {
	f.t.Helper()
	at := one[time.Time](f, `SELECT run_at FROM jobs WHERE job_id = $1`, id.String())
	require.WithinDuration(f.t, one[time.Time](f, `SELECT clock_timestamp()`).Add(wait), at, patience/2)
}

func TestJobsOfAClockThatWasAheadAreDueAgain(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var instant []job.ID
	for range 5 {
		instant = append(instant, f.submit())
	}
	retried, longWait := f.run(), f.run()
	f.finish(withRetry(failure(retried, job.FailedOnce), 10*time.Minute))
	f.finish(withRetry(failure(longWait, job.FailedOnce), 3*time.Hour))
	asked := f.submit(deferred(30 * time.Minute))
	for _, id := range append(instant, retried.JobID, longWait.JobID, asked) {
		f.shiftJob(id, time.Hour)
	}
	backoff := f.run()
	f.finish(withRetry(failure(backoff, job.FailedOnce), 45*time.Minute))
	unchanged := []job.ID{longWait.JobID, asked, backoff.JobID}
	before := map[job.ID]string{}
	for _, id := range unchanged {
		before[id] = f.all(id)
	}

	unlock := f.lock(`SELECT FROM jobs WHERE job_id = $1 FOR UPDATE`, instant[4].String())
	require.Equal(t, 5, f.moveJobs(2), "but for the one that is locked")
	unlock()
	require.Equal(t, 1, f.moveJobs(100))
	require.Zero(t, f.moveJobs(100))
	for _, id := range unchanged {
		require.Equal(t, before[id], f.all(id))
	}
	f.requireWait(retried.JobID, 10*time.Minute)
	for _, id := range instant {
		f.assigned(id, 1)
	}
	want := make([]string, len(instant))
	for i, id := range instant {
		want[i] = id.String()
	}
	require.Equal(t, strings.Join(want, " "), one[string](f, `SELECT string_agg(job_id::text, ' ' ORDER BY run_at) FROM jobs
		WHERE dispatch = 1 AND attempt = 1`), "in their order")
	require.Equal(t, 1, one[int](f, `SELECT dispatch FROM jobs WHERE job_id = $1`, instant[0].String()), "a task for the old time is another")
}

func TestDeliveriesOfAClockThatWasAheadAreDueAgain(t *testing.T) {
	t.Parallel()
	f := setup(t)
	hook, other := f.subscribe(job.EventCreated), f.subscribe(job.EventCreated)
	f.submit()
	f.record(refused(f.claimAll(hook, 1)[0], 10*time.Minute))
	f.exec(`UPDATE deliveries SET created_at = created_at + interval '1 h', tried_at = tried_at + interval '1 h',
		next_attempt_at = next_attempt_at + interval '1 h'`)
	moved := func() (moved int) {
		var at job.EndpointKey
		for {
			n, last, err := f.store.MoveStrandedDeliveries(f.ctx(), at, 1, 100)
			require.NoError(t, err)
			moved += n
			if at = last; last == (job.EndpointKey{}) {
				return moved
			}
		}
	}
	require.Equal(t, 2, moved())
	require.Zero(t, moved())
	require.Len(t, f.claimAll(other, 1), 1)
	next := one[time.Time](f, `SELECT next_attempt_at FROM deliveries WHERE webhook_id = $1`, hook.String())
	require.WithinDuration(t, time.Now().Add(10*time.Minute), next, patience/2)
	f.exec(`UPDATE deliveries SET tried_at = now() WHERE webhook_id = $1`, hook.String())
	require.Zero(t, moved(), "a wait of this clock")
}

func TestLeasesOfAClockThatWasAheadEnd(t *testing.T) {
	t.Parallel()
	f := setup(t)
	hook := f.subscribe(job.EventCreated)
	f.submit()
	require.Len(t, f.claimAll(hook, 1), 1)
	f.exec(`UPDATE deliveries SET claimed_until = claimed_until + interval '1 h'`)
	f.exec(`UPDATE workers SET heartbeat_at = heartbeat_at + interval '1 h', expires_at = heartbeat_at + interval '1 h 30 s'`)
	require.NoError(t, f.store.EndStrandedLeases(f.ctx()))
	require.True(t, one[bool](f, `SELECT expires_at BETWEEN now() AND now() + interval '30 s' FROM workers`))
	require.True(t, one[bool](f, `SELECT claimed_until <= now() + interval '6 min' FROM deliveries`))

	holder := newID()
	led, err := f.store.Lead(f.ctx(), newID(), 5*time.Second, 0)
	require.True(t, led && err == nil)
	f.exec(`UPDATE maintenance_state SET leader_expires_at = leader_expires_at + interval '1 h'`)
	led, err = f.store.Lead(f.ctx(), holder, 5*time.Second, 0)
	require.True(t, led && err == nil, "who leads has renewed it since")
}
