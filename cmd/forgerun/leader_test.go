package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func deferred(d time.Duration) string {
	at := time.Now().Add(d).UTC().Format(time.RFC3339Nano)
	return `{"type":"DEFERRED","work_kind":"SCHEDULED_ON_TIME","execution_at":"` + at + `"}`
}

func (s *stack) leader() string {
	s.t.Helper()
	return s.text(`SELECT leader_id::text FROM maintenance_state`)
}

func (s *stack) endLead() {
	s.t.Helper()
	s.exec(`UPDATE maintenance_state SET leader_expires_at = clock_timestamp()`)
}

func TestPausedLeaderIsReplaced(t *testing.T) {
	s := newStack(t)
	old := s.startLeader()
	other := s.startAPI()
	u := s.newUser(other)
	leader := s.leader()
	old.pause()
	s.endLead()
	due := u.submit(other, deferred(time.Second))
	s.await("QUEUED", due) // the new leader's scheduler queued the job; no worker runs yet
	require.NotEqual(t, leader, s.leader())

	old.resume()
	s.startWorker()
	next := u.submit(old, deferred(time.Second))
	s.await("SUCCEEDED", due, next)
	require.NotEqual(t, leader, s.leader(), "the old leader does not take the lease back")
	s.checkInvariants()
}

// The killed leader's lease expires after 5 s. The test waits for that instead of ending the lease.
func TestKilledLeaderIsReplaced(t *testing.T) {
	s := newStack(t)
	old := s.startLeader()
	s.startAPI()
	u := s.newUser(old)
	missed := u.submit(old, deferred(time.Second))
	old.kill()
	s.await("QUEUED", missed)
	s.startWorker()
	s.await("SUCCEEDED", missed)
	s.checkInvariants()
}

func TestLeaderWithoutRedisIsReplaced(t *testing.T) {
	s := newStack(t)
	redis := newRelay(t, s.rdb.Options().Addr)
	old := s.startLeader(env{"FORGERUN_REDIS_URL": redis.through(t, s.redis.URL())})
	s.startAPI()
	s.startWorker()
	u := s.newUser(old)
	s.await("SUCCEEDED", u.submit(old, execute("SUCCESS_FAST")))
	leader := s.leader()
	redis.setCut(true)
	ids := u.submitMany(old, 100, execute("SUCCESS_FAST"))
	s.await("SUCCEEDED", ids...)
	require.NotEqual(t, leader, s.leader())
	eventually(t, "the blocked task is reported", func() bool { return old.metric(`maintenance_blocked{task="relay"}`) == 1 })
	redis.setCut(false)
	old.logged("this process can do one of the leader's tasks again", `"task":"relay"`)
	s.checkInvariants()
}

// The leader loses its lease again and again, so several processes believe that they lead.
func TestContendingLeadersDoNoHarm(t *testing.T) {
	s := newStack(t, env{"FORGERUN_TIME_SCALE": "0.01"})
	apis := []*proc{s.startLeader(), s.startAPI(), s.startAPI()}
	u := s.newUser(apis[0])
	s.startWorker()
	done := make(chan struct{})
	var breaking errgroup.Group
	breaking.Go(func() error {
		for n := 0; ; n++ {
			if _, err := s.db.Exec(s.ctx(), `UPDATE maintenance_state SET leader_expires_at = '-infinity'`); err != nil {
				return err
			}
			const flushEvery = 60
			if n%flushEvery == flushEvery-1 {
				if err := s.rdb.FlushAll(s.ctx()).Err(); err != nil {
					return err
				}
			}
			select {
			case <-done:
				return nil
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	var ids []string
	for range 3 {
		for _, api := range apis {
			ids = append(ids, u.submitMany(api, 10, execute("PAYLOAD_SMALL"))...)
			ids = append(ids, u.submitMany(api, 5, deferred(2*time.Second))...)
		}
	}
	s.await("SUCCEEDED", ids...)
	eventually(t, "several processes have led", func() bool {
		led := 0
		for _, api := range apis {
			if strings.Contains(api.log.String(), `"leading":true`) {
				led++
			}
		}
		return led > 1
	})
	close(done)
	require.NoError(t, breaking.Wait())
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE fence <> 1 OR attempt <> 1`))
	s.checkInvariants()
}

// Postgres' clock was an hour ahead and is set back. For a new leader, the stored times are in the future. Redis may keep tasks with these
// times, so the test does not call checkInvariants.
func TestPostgresClockGoesAheadAndBack(t *testing.T) {
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
	require.Contains(t, report, "have times in the future")

	s.startAPI()
	s.startWorker()
	s.startDeliverer()
	s.await("SUCCEEDED", ids...)
	s.awaitDeliveries()
	for _, id := range ids {
		require.Equal(t, life, eventNames(r.of(id)))
		require.Equal(t, 1, s.count(`SELECT count(*) FROM reports WHERE job_id = $1 AND attempt = 1`, id))
	}
}
