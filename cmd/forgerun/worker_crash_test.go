package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// With `slow`, jobs take real time, so that a test can act while they run.
var slow = env{"FORGERUN_TIME_SCALE": "1"}

func TestWorkerKilledWhileItsJobsRun(t *testing.T) {
	s, api, u := newService(t)
	victim := s.startWorker(quickLease, slow)
	running := []string{u.submit(api, execute("SUCCESS_SLOW")), u.submit(api, execute("RUNS_LONG"))}
	automatic := u.submit(api, execute("SUCCESS_SLOW", `"auto_retry":true`))
	s.await("RUNNING", append(running, automatic)...)

	victim.kill()
	s.await("FAILED", running...)
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
	s, api, u := newService(t, env{"FORGERUN_DB_TIMEOUT": "1s"})
	claims := s.closeGate("ASSIGNED")
	ids := u.submitMany(api, 4, execute("SUCCESS_FAST"))
	victim := s.startWorker(quickLease)
	eventually(t, "the worker claims", s.atGate)
	victim.kill()
	s.awaitCount("its statements end", 0,
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'forgerun worker'`)
	claims.open()
	s.endTaskLeases()
	require.Equal(t, 4, s.countJobs(ids, "QUEUED"))
	require.Equal(t, 8, s.count(`SELECT count(*) FROM events`), "no job has another event")

	s.startWorker()
	s.await("SUCCEEDED", ids...)
	for _, id := range ids {
		require.EqualValues(t, 1, u.get(api, id).value("attempt"))
	}
	s.checkInvariants()
}

// endTaskLeases ends asynq's leases on tasks at once, instead of after 30 s.
func (s *stack) endTaskLeases() {
	s.t.Helper()
	const leases = "asynq:{jobs}:lease"
	tasks, err := s.rdb.ZRange(s.ctx(), leases, 0, -1).Result()
	require.NoError(s.t, err)
	for _, task := range tasks {
		require.NoError(s.t, s.rdb.ZAddXX(s.ctx(), leases, redis.Z{Score: float64(time.Now().Unix()), Member: task}).Err())
	}
}

// longLease is so long that it neither ends nor is renewed during a test.
var longLease = env{"FORGERUN_LEASE_TIMEOUT": "240s"}

// pauseWorkerDuring pauses a worker after it has sent a statement that changes a job to `state`. A gate delays the statement until the
// worker is paused. Postgres then commits the change, but the worker does not see the response.
func pauseWorkerDuring(t *testing.T, state string, environment ...env) (s *stack, api *proc, u *user, worker *proc, id string) {
	t.Helper()
	s, api, u = newService(t)
	worker = s.startWorker(environment...)
	step := s.closeGate(state)
	id = u.submit(api, execute("SUCCESS_FAST"))
	eventually(t, "the worker takes the step", s.atGate)
	worker.pause()
	step.open()
	s.await(state, id)
	require.Equal(t, state, u.get(api, id).text("state"))
	return s, api, u, worker, id
}

func (s *stack) expire(worker *proc) {
	s.t.Helper()
	s.exec(`UPDATE workers SET expires_at = clock_timestamp() WHERE worker_id = $1`, worker.workerID())
}

func (s *stack) requireEvents(id string, names ...string) {
	s.t.Helper()
	require.Equal(s.t, names, s.texts(`SELECT event_name FROM events WHERE job_id = $1 ORDER BY seq`, id))
}

func TestWorkerKilledWhileItsJobsAreAssigned(t *testing.T) {
	s, api, u, victim, id := pauseWorkerDuring(t, "ASSIGNED", quickLease)
	require.Nil(t, u.get(api, id).value("started_at"))
	victim.kill()
	s.await("QUEUED", id)
	require.Equal(t, "QUEUED", u.get(api, id).text("state"))

	s.startWorker()
	s.await("SUCCEEDED", id)
	require.EqualValues(t, 1, u.get(api, id).value("attempt"), "a job that did not run used no attempt")
	s.requireEvents(id, "job.created", "job.queued", "job.assigned", "job.lease_expired", "job.assigned", "job.running", "job.succeeded")
	require.Equal(t, 3, s.count(`SELECT count(DISTINCT occurred_at) FROM events WHERE seq > 4`), "each step has its own time")
	s.checkInvariants()
}

// The worker is paused between claim and start for longer than its lease. When it continues, its start is refused, and it does not run the
// job.
func TestPausedWorkersLateStartIsFenced(t *testing.T) {
	s, api, u, sleeper, id := pauseWorkerDuring(t, "ASSIGNED", longLease)
	s.expire(sleeper)
	s.await("QUEUED", id)
	other := s.startWorker(slow)
	s.await("RUNNING", id)
	const events = `SELECT md5(string_agg(e::text, '' ORDER BY job_id, seq)) FROM events e WHERE event_name <> 'job.succeeded'`
	before := s.text(events)

	sleeper.resume()
	sleeper.logged("a write without a claim changed nothing", `"action":"start"`)
	eventually(t, "its start is fenced", func() bool { return sleeper.metric(`fenced_writes_total{operation="start"}`) == 1 })
	require.Zero(t, sleeper.metric(`jobs_running_total{work_kind="SUCCESS_FAST"}`))
	s.await("SUCCEEDED", id)
	require.Equal(t, before, s.text(events))
	require.EqualValues(t, 1, u.get(api, id).value("attempt"))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM reports WHERE worker_id = $1`, other.workerID()))
	s.checkInvariants()
}

func TestCancelOfAnAssignedJob(t *testing.T) {
	s, api, u, worker, id := pauseWorkerDuring(t, "ASSIGNED", longLease)
	u.expect(api, 200, "POST", "/v1/jobs/"+id+"/cancel", "")
	require.Equal(t, "CANCELED", u.get(api, id).text("state"))

	worker.resume()
	next := u.submit(api, execute("SUCCESS_FAST"))
	s.await("SUCCEEDED", next) // the resumed worker still works
	eventually(t, "the start is refused, or the worker was notified of the cancel before", func() bool {
		return worker.metric(`fenced_writes_total{operation="start"}`) == 1 || strings.Contains(worker.log.String(), "stopped handling a job")
	})
	require.Equal(t, 1.0, worker.metric(`jobs_running_total{work_kind="SUCCESS_FAST"}`), "of the next job")
	s.requireEvents(id, "job.created", "job.queued", "job.assigned", "job.canceled")
	report := u.call(api, "GET", "/v1/jobs/"+id+"/report", "")
	require.Equal(t, "CANCELED", report.text("outcome"), report.body)
	s.checkInvariants()
}

// After another worker has run the job, the late writes of a paused worker change nothing. The paused worker then gets a new lease and
// works again.
func TestPausedWorkersLateWriteIsFenced(t *testing.T) {
	s, api, u, sleeper, id := pauseWorkerDuring(t, "RUNNING", longLease)
	s.expire(sleeper)
	s.await("FAILED", id)
	u.requireLost(api, id, "worker-lost")
	other := s.startWorker()
	u.retry(api, id)
	s.await("SUCCEEDED", id)
	const events = `SELECT md5(string_agg(e::text, '' ORDER BY job_id, seq)) FROM events e`
	before := s.text(events)

	sleeper.resume()
	sleeper.logged("a write without a claim changed nothing")
	eventually(t, "its end is fenced", func() bool { return sleeper.metric(`fenced_writes_total{operation="finish"}`) == 1 })
	require.Equal(t, before, s.text(events))
	other.stop()
	s.await("SUCCEEDED", u.submit(api, execute("SUCCESS_FAST")))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM workers WHERE state = 'ALIVE' AND worker_id <> $1`, sleeper.workerID()))
	s.checkInvariants()
}

// If a worker has no space for temporary files, jobs that need them fail. The worker then takes no more jobs of their kind. The test
// simulates the missing space with a folder that does not exist.
func TestWorkerWithoutTempSpaceLeavesJobsToOthers(t *testing.T) {
	s, api, u := newService(t)
	dir := filepath.Join(t.TempDir(), "gone")
	poor := s.startWorker(env{"TMPDIR": dir})
	ids := u.submitMany(api, 8, execute("IO_HEAVY"))
	poor.logged("this machine lacks resources for a work kind; the worker takes no jobs of this kind", `"work_kind":"IO_HEAVY"`)
	status, ready := poor.admin("/readyz")
	require.Equal(t, http.StatusOK, status, "it takes other jobs")
	require.Contains(t, ready, `"status":"degraded"`)
	require.Contains(t, ready, "takes no jobs of [IO_HEAVY]")
	require.EqualValues(t, 1, poor.metric("worker_kinds_refused"))
	s.await("SUCCEEDED", u.submit(api, execute("SUCCESS_FAST")))

	s.startWorker()
	ids = append(ids, u.submitMany(api, 16, execute("IO_HEAVY"))...)
	s.awaitFinal(ids...)
	require.LessOrEqual(t, s.countJobs(ids, "FAILED"), 4, "the jobs that it ran concurrently")
	require.Equal(t, s.countJobs(ids, "FAILED"),
		s.count(`SELECT count(*) FROM jobs WHERE failure_reason = 'worker-exhausted' AND failure_retryable`))

	require.NoError(t, os.Mkdir(dir, 0o700))
	eventually(t, "it takes all jobs again", func() bool { return poor.metric("worker_kinds_refused") == 0 })
	_, ready = poor.admin("/readyz")
	require.Contains(t, ready, `"status":"ok"`)
	s.checkInvariants()
}
