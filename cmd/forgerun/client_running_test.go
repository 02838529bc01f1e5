package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// heldAtOnce tells how many jobs of a client workers held at once, at most, as the events say it.
func (s *stack) heldAtOnce(client string) int {
	s.t.Helper()
	return s.count(`SELECT coalesce(max(held), 0)::int FROM (
		SELECT sum(change) OVER (ORDER BY occurred_at, change ROWS UNBOUNDED PRECEDING) AS held FROM (
			SELECT occurred_at, CASE WHEN event_name = 'job.assigned' THEN 1 ELSE -1 END AS change FROM events
			WHERE client_id::text = $1 AND (event_name = 'job.assigned'
				OR prev_state IN ('ASSIGNED', 'RUNNING') AND next_state NOT IN ('ASSIGNED', 'RUNNING'))
		) changes
	) sums`, client)
}

// TestOneClientRunsNoMoreThanItsLimit: over several workers, one of which is killed, and with an emptied Redis. Its
// other jobs say what they wait for, those of others pass them, and all of them run in the end.
func TestOneClientRunsNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	const most, jobs = 3, 40
	s := newStack(t, env{"FORGERUN_CLIENT_MAX_RUNNING": fmt.Sprint(most), "FORGERUN_TIME_SCALE": "0.6"})
	api := s.startLeader()
	greedy, other := s.newUser(api), s.newUser(api)
	body := `{"type":"EXECUTE","work_kind":"SUCCESS_FAST","auto_retry":true}`
	workers := []*proc{s.startWorker(), s.startWorker(), s.startWorker()} // first, however long that takes: most jobs must wait at once
	ids := greedy.submitMany(api, jobs, body)

	throttled := func() int {
		return s.count(`SELECT count(*) FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND run_at > now() + interval '1 year'`)
	}
	eventually(t, "what does not fit waits in Postgres alone", func() bool { return throttled() >= jobs/2 })
	waits := s.text(`SELECT job_id::text FROM jobs WHERE run_at > now() + interval '1 year' ORDER BY job_id DESC LIMIT 1`)
	require.Equal(t, map[string]any{"reason": "CLIENT_LIMIT", "until": nil}, greedy.get(api, waits).value("waiting"))

	quick := other.submitMany(api, 5, execute("PAYLOAD_SMALL"))
	s.awaitFinal(quick...)
	require.Positive(t, throttled(), "others did not wait for the greedy one's jobs")

	eventually(t, "places were given anew", func() bool { return s.countJobs(ids, "SUCCEEDED") > most })
	require.NoError(t, s.rdb.FlushAll(s.ctx()).Err())
	workers[0].kill()
	s.awaitFinal(ids...)
	require.Equal(t, jobs, s.countJobs(ids, "SUCCEEDED"))
	require.Equal(t, most, s.heldAtOnce(greedy.id))
	s.checkInvariants()
}

// TestALimitThatIsTakenAway: what waits because of it goes on.
func TestALimitThatIsTakenAway(t *testing.T) {
	t.Parallel()
	limit := env{"FORGERUN_CLIENT_MAX_RUNNING": "1", "FORGERUN_TIME_SCALE": "1"}
	s := newStack(t)
	api, worker := s.startLeader(limit), s.startWorker(limit)
	u := s.newUser(api)
	ids := u.submitMany(api, 20, execute("SUCCESS_FAST"))
	eventually(t, "all but one wait", func() bool {
		return s.count(`SELECT count(*) FROM jobs WHERE run_at > now() + interval '1 year'`) >= 15
	})
	api.terminate()
	worker.terminate()
	require.Zero(t, worker.exitCode())
	require.Zero(t, api.exitCode())
	s.startLeader()
	s.startWorker()
	s.awaitFinal(ids...)
	s.checkInvariants()
}
