package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slow makes jobs outlast every test that does not wait for them.
var slow = env{"FORGERUN_TIME_SCALE": "1"}

func TestWorkerKilledWhileItsJobsRun(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	victim := s.startWorker(quickLease, slow)
	running := []string{u.submit(api, execute("SUCCESS_SLOW")), u.submit(api, execute("RUNS_LONG"))}
	automatic := u.submit(api, execute("SUCCESS_SLOW", `"auto_retry":true`))
	s.await("RUNNING", append(running, automatic)...)

	victim.kill()
	killed := time.Now()
	s.await("FAILED", running...)
	require.Less(t, time.Since(killed), recoveryLimit)
	for _, id := range running {
		u.requireLost(api, id, "worker-lost")
		report := u.call(api, "GET", "/v1/jobs/"+id+"/report", "")
		require.Equal(t, "FAILED", report.text("outcome"), report.body)
		u.retry(api, id)
	}
	s.startWorker()
	s.await("SUCCEEDED", append(running, automatic)...)
	for _, id := range append(running, automatic) {
		require.EqualValues(t, 2, u.get(api, id).value("attempt"))
	}
	s.checkInvariants()
}

func TestWorkerKilledBeforeItsClaimsAreCommitted(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_DB_TIMEOUT": "3s"})
	api := s.startLeader()
	u := s.newUser(api)
	claims := s.closeGate("ASSIGNED")
	ids := u.submitMany(api, 4, execute("SUCCESS_FAST"))
	victim := s.startWorker(quickLease)
	held := func() bool {
		return s.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'`) > 0
	}
	eventually(t, "the worker claims", held)
	victim.kill()
	eventually(t, "its statements end", func() bool { return !held() })
	claims.open()
	require.Equal(t, 4, s.countJobs(ids, "QUEUED"))
	require.Equal(t, 8, s.count(`SELECT count(*) FROM events`), "nothing has happened")

	s.startWorker()
	s.await("SUCCEEDED", ids...)
	for _, id := range ids {
		require.EqualValues(t, 1, u.get(api, id).value("attempt"))
	}
	s.checkInvariants()
}

// The worker does not know that it was paused: for its own clock the lease
// goes on. What it then writes must change nothing.
func TestPausedWorkersLateWriteIsFenced(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	sleeper := s.startWorker(env{"FORGERUN_TIME_SCALE": "1", "FORGERUN_LEASE_TIMEOUT": "120s", "FORGERUN_HEARTBEAT_INTERVAL": "40s"})
	first := sleeper.workerID()
	ids := u.submitMany(api, 4, execute("SUCCESS_NORMAL")) // takes 10 s
	s.await("RUNNING", ids...)
	sleeper.pause()
	s.exec(`UPDATE workers SET expires_at = clock_timestamp() WHERE worker_id = $1`, first)
	s.await("FAILED", ids...)
	before := s.text(`SELECT md5(string_agg(e::text, '' ORDER BY job_id, seq)) FROM events e`)

	sleeper.resume()
	sleeper.logged("a late write changed nothing")
	eventually(t, "all late writes are fenced", func() bool { return sleeper.metric(`fenced_writes_total{operation="finish"}`) == 4 })
	sleeper.logged("the worker lost its lease and stops its jobs")
	eventually(t, "the worker registers anew", func() bool {
		return s.count(`SELECT count(*) FROM workers WHERE state = 'ALIVE' AND worker_id <> $1`, first) == 1
	})
	require.Equal(t, before, s.text(`SELECT md5(string_agg(e::text, '' ORDER BY job_id, seq)) FROM events e`))
	for _, id := range ids {
		u.requireLost(api, id, "worker-lost")
		u.retry(api, id)
	}
	s.await("SUCCEEDED", ids...)
	s.checkInvariants()
}

func TestPausedWorkerPastItsLeaseComesBack(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	sleeper := s.startWorker(quickLease, slow)
	ids := u.submitMany(api, 4, execute("SUCCESS_NORMAL"))
	s.await("RUNNING", ids...)
	sleeper.pause()
	s.await("FAILED", ids...)
	other := s.startWorker()
	for _, id := range ids {
		u.retry(api, id)
	}
	s.await("SUCCEEDED", ids...) // by the other worker, while the first still believes to run attempt 1

	sleeper.resume()
	sleeper.logged("the worker lost its lease and stops its jobs")
	eventually(t, "it registers under a new id", func() bool {
		return s.count(`SELECT count(*) FROM workers WHERE state = 'ALIVE' AND worker_id <> ALL($1::uuid[])`,
			[]string{sleeper.workerID(), other.workerID()}) == 1
	})
	other.terminate()
	require.Zero(t, other.exitCode())
	s.await("SUCCEEDED", u.submit(api, execute("SUCCESS_FAST"))) // by the first worker
	require.Equal(t, 4, s.countJobs(ids, "SUCCEEDED"))
	s.checkInvariants()
}

// A job that storage says the worker runs, though it does not, is failed by
// the worker itself.
func TestJobThatItsWorkerDoesNotKnowIsGivenBack(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	worker := s.startWorker(slow, env{"FORGERUN_WORKER_CONCURRENCY": "1", "FORGERUN_HEARTBEAT_INTERVAL": "500ms"})
	busy := u.submit(api, execute("SUCCESS_SLOW"))
	s.await("RUNNING", busy)
	assigned, running := u.submit(api, execute("SUCCESS_FAST")), u.submit(api, execute("SUCCESS_FAST"))
	s.forgeClaim(assigned, worker.workerID(), false)
	s.forgeClaim(running, worker.workerID(), true)

	s.await("QUEUED", assigned)
	s.await("FAILED", running)
	u.requireLost(api, running, "worker-lost")
	require.Equal(t, 1, s.countJobs([]string{busy}, "RUNNING"), "the job that it does hold goes on")
	u.call(api, "POST", "/v1/jobs/"+busy+"/cancel", "")
	u.retry(api, running)
	s.await("SUCCEEDED", assigned, running)
	s.checkInvariants()
}

// forgeClaim writes what a claim, and a start, write whose answer never comes:
// at once, for what is only claimed may be given back in between.
func (s *stack) forgeClaim(id, worker string, started bool) {
	s.t.Helper()
	tx, err := s.db.Begin(s.ctx())
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, tx.Commit(s.ctx())) }()
	step := func(name, from, to, change string) {
		_, err := tx.Exec(s.ctx(), `WITH changed AS (
				UPDATE jobs SET state = '`+to+`', updated_at = clock_timestamp(), event_seq = event_seq + 1, `+change+`
				WHERE job_id = $1 AND state = '`+from+`' RETURNING *)
			INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, data)
			SELECT job_id, client_id, event_seq, gen_random_uuid(), '`+name+`', '`+from+`', '`+to+`', attempt, updated_at, '{}' FROM changed`, id)
		require.NoError(s.t, err)
	}
	step("job.assigned", "QUEUED", "ASSIGNED", `worker_id = '`+worker+`', fence = fence + 1, assigned_at = clock_timestamp()`)
	if started {
		step("job.running", "ASSIGNED", "RUNNING", `started_at = clock_timestamp()`)
	}
}
