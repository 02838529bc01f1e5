package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// longLease outlasts every test; the worker does not look at it meanwhile.
var longLease = env{"FORGERUN_LEASE_TIMEOUT": "120s", "FORGERUN_HEARTBEAT_INTERVAL": "40s"}

// assignedWorker starts a worker and pauses it between the claim and the start of
// a job: the claim is committed, and the worker does not know it yet.
func assignedWorker(t *testing.T, environment ...env) (s *stack, api *proc, u *user, worker *proc, id string) {
	t.Helper()
	s = newStack(t, patient)
	api = s.startLeader()
	u = s.newUser(api)
	worker = s.startWorker(environment...)
	claims := s.closeGate("ASSIGNED")
	id = u.submit(api, execute("SUCCESS_FAST"))
	eventually(t, "the worker claims", func() bool {
		return s.count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) > 0
	})
	worker.pause()
	claims.open()
	s.await("ASSIGNED", id)
	seen := u.get(api, id)
	require.Equal(t, "ASSIGNED", seen.text("state"))
	require.Nil(t, seen.value("started_at"))
	return s, api, u, worker, id
}

func (s *stack) requireEvents(id string, names ...string) {
	s.t.Helper()
	rows, err := s.db.Query(s.ctx(), `SELECT event_name FROM events WHERE job_id = $1 ORDER BY seq`, id)
	require.NoError(s.t, err)
	defer rows.Close()
	var found []string
	for rows.Next() {
		var name string
		require.NoError(s.t, rows.Scan(&name))
		found = append(found, name)
	}
	require.NoError(s.t, rows.Err())
	require.Equal(s.t, names, found)
}

func TestWorkerKilledWhileItsJobsAreAssigned(t *testing.T) {
	t.Parallel()
	s, api, u, victim, id := assignedWorker(t, quickLease)
	victim.kill()
	killed := time.Now()
	s.await("QUEUED", id)
	require.Less(t, time.Since(killed), recoveryLimit)
	require.Equal(t, "QUEUED", u.get(api, id).text("state"))

	s.startWorker()
	s.await("SUCCEEDED", id)
	require.EqualValues(t, 1, u.get(api, id).value("attempt"), "a job that did not run has used no attempt")
	s.requireEvents(id, "job.created", "job.queued", "job.assigned", "job.lease_expired", "job.assigned", "job.running", "job.succeeded")
	require.Equal(t, 3, s.count(`SELECT count(DISTINCT occurred_at) FROM events WHERE seq > 4`), "each step has a time of its own")
	s.checkInvariants()
}

// The worker is paused between claim and start for longer than its lease. When
// it goes on, its start is refused, and it does not run the job.
func TestPausedWorkersLateStartIsFenced(t *testing.T) {
	t.Parallel()
	s, api, u, sleeper, id := assignedWorker(t, longLease)
	first := sleeper.workerID()
	s.exec(`UPDATE workers SET expires_at = clock_timestamp() WHERE worker_id = $1`, first)
	s.await("QUEUED", id)
	other := s.startWorker(slow)
	s.await("RUNNING", id)
	const events = `SELECT md5(string_agg(e::text, '' ORDER BY job_id, seq)) FROM events e WHERE event_name <> 'job.succeeded'`
	before := s.text(events) // the other worker may succeed at any moment

	sleeper.resume()
	sleeper.logged("a late write changed nothing", `"action":"start"`)
	eventually(t, "its start is fenced", func() bool { return sleeper.metric(`fenced_writes_total{operation="start"}`) == 1 })
	require.Zero(t, sleeper.metric(`jobs_running_total{work_kind="SUCCESS_FAST"}`))
	s.await("SUCCEEDED", id)
	require.Equal(t, before, s.text(events))
	require.EqualValues(t, 1, u.get(api, id).value("attempt"))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM reports WHERE worker_id = $1`, other.workerID()))
	s.checkInvariants()
}

func TestCancelOfAnAssignedJob(t *testing.T) {
	t.Parallel()
	s, api, u, worker, id := assignedWorker(t, longLease)
	canceled := u.call(api, "POST", "/v1/jobs/"+id+"/cancel", "")
	require.Equal(t, 200, canceled.status, canceled.body)
	require.Equal(t, "CANCELED", u.get(api, id).text("state"))

	worker.resume()
	next := u.submit(api, execute("SUCCESS_FAST"))
	s.await("SUCCEEDED", next) // the worker goes on
	eventually(t, "its start is refused", func() bool { return worker.metric(`fenced_writes_total{operation="start"}`) == 1 })
	require.Equal(t, 1.0, worker.metric(`jobs_running_total{work_kind="SUCCESS_FAST"}`), "of the next job")
	s.requireEvents(id, "job.created", "job.queued", "job.assigned", "job.canceled")
	report := u.call(api, "GET", "/v1/jobs/"+id+"/report", "")
	require.Equal(t, "CANCELED", report.text("outcome"), report.body)
	s.checkInvariants()
}
