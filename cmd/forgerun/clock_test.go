package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a step of Postgres' clock of an hour leaves when it is taken back: all that was
// written meanwhile lies in the future, for which a leader looks that begins.
// Redis may keep a task for the old time, which is dropped then: the usual invariants do not allow that.
func TestWorkThatWasWrittenWhilePostgresClockWasAhead(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	r := newReceiver(t, nil)
	old := s.startLeader()
	u := s.newUser(old)
	u.subscribe(old, r.url)
	ids := []string{u.submit(old, execute("SUCCESS_FAST")), u.submit(old, execute("SUCCESS_FAST"))}
	old.kill()
	for _, table := range []string{
		`jobs SET created_at = created_at + '1 h', updated_at = updated_at + '1 h', queued_at = queued_at + '1 h', run_at = run_at + '1 h'`,
		`events SET occurred_at = occurred_at + '1 h'`,
		`deliveries SET created_at = created_at + '1 h', next_attempt_at = next_attempt_at + '1 h'`,
		`maintenance_state SET leader_expires_at = now() + '1 h'`,
	} {
		s.exec(`UPDATE ` + table)
	}
	_, report := s.doctor(nil)
	require.Contains(t, report, "written in the future")

	s.startAPI()
	s.startWorker()
	s.startWebhooks()
	s.await("SUCCEEDED", ids...)
	s.awaitDeliveries()
	for _, id := range ids {
		require.Equal(t, life, eventNames(r.of(id)))
		require.Equal(t, 1, s.count(`SELECT count(*) FROM reports WHERE job_id = $1 AND attempt = 1`, id))
	}
}
