package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// deferred is a request for a job that is due after d.
func deferred(d time.Duration) string {
	at := time.Now().Add(d).UTC().Format(time.RFC3339Nano)
	return `{"type":"DEFERRED","work_kind":"SCHEDULED_ON_TIME","execution_at":"` + at + `"}`
}

// leaderLimit is the leader's lease of 5 s, the promised 2 s, and what a busy
// machine may take on top.
const leaderLimit = 5*time.Second + 2*time.Second + 13*time.Second

func TestPausedLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	old := s.startLeader()
	other := s.startAPI()
	u := s.newUser(other)
	leader := s.text(`SELECT leader_id::text FROM maintenance_state`)
	old.pause()
	paused := time.Now()
	due := u.submit(other, deferred(4*time.Second))
	s.await("QUEUED", due) // no worker runs: only the scheduler can have queued it
	require.Less(t, time.Since(paused), leaderLimit)
	require.NotEqual(t, leader, s.text(`SELECT leader_id::text FROM maintenance_state`))

	old.resume()
	s.startWorker()
	next := u.submit(old, deferred(4*time.Second))
	s.await("SUCCEEDED", due, next)
	require.NotEqual(t, leader, s.text(`SELECT leader_id::text FROM maintenance_state`), "the old leader asks nobody to step back")
	s.checkInvariants()
}

func TestKilledLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	old := s.startLeader()
	s.startAPI()
	u := s.newUser(old)
	missed := u.submit(old, deferred(6*time.Second))
	old.kill()
	killed := time.Now()
	s.await("QUEUED", missed)
	require.Less(t, time.Since(killed), leaderLimit)
	s.startWorker()
	s.await("SUCCEEDED", missed)
	s.checkInvariants()
}

// resignLimit is the promised 10 s, and what a machine may take on top that runs
// ten of these tests. The fault lasts until after it was measured.
const resignLimit = 10*time.Second + 20*time.Second

// requireLed checks that another process leads than the first one.
func (s *stack) requireLed(old string, since time.Time) {
	s.t.Helper()
	require.Less(s.t, time.Since(since), resignLimit)
	require.NotEqual(s.t, old, s.text(`SELECT leader_id::text FROM maintenance_state`))
}

// The leader loses Redis, and nobody else does: only another relay can give the
// jobs to the queue that it could not enqueue.
func TestLeaderWithoutRedisIsReplaced(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	redis := newWire(t, s.rdb.Options().Addr)
	old := s.startLeader(env{"FORGERUN_REDIS_URL": "redis://" + redis.listener.Addr().String()})
	s.startAPI()
	s.startWorker()
	u := s.newUser(old)
	s.await("SUCCEEDED", u.submit(old, execute("SUCCESS_FAST")))
	leader := s.text(`SELECT leader_id::text FROM maintenance_state`)
	redis.setCut(true)
	cut := time.Now()
	ids := u.submitMany(old, 100, execute("SUCCESS_FAST"))
	s.await("SUCCEEDED", ids...)
	s.requireLed(leader, cut)
	eventually(t, "it tells of its obstacle", func() bool { return old.metric(`maintenance_blocked{task="relay"}`) == 1 })
	redis.setCut(false)
	old.logged("a task of the leader gets on again", `"task":"relay"`)
	s.checkInvariants()
}

// All statements work for the leader, but not the scheduler's.
func TestLeaderThatCannotScheduleIsReplaced(t *testing.T) {
	t.Parallel()
	s, proxy, through := behindProxy(t)
	old := s.startLeader(through)
	other := s.startAPI()
	u := s.newUser(other)
	leader := s.text(`SELECT leader_id::text FROM maintenance_state`)
	proxy.breakOn(`state = 'CREATED' AND execution_at <= now()`)
	broken := time.Now()
	s.await("QUEUED", u.submit(other, deferred(3*time.Second)))
	s.requireLed(leader, broken)
	proxy.breakOn("")
	old.logged("a task of the leader gets on again", `"task":"scheduler"`)
	s.checkInvariants()
}

// The leader's rescuer waits for an answer that never comes.
func TestLeaderWhoseRescuerHangsIsReplaced(t *testing.T) {
	t.Parallel()
	s, proxy, through := behindProxy(t)
	old := s.startLeader(through, patient)
	other := s.startAPI()
	u := s.newUser(other)
	worker := s.startWorker(quickLease, slow)
	id := u.submit(other, execute("SUCCESS_SLOW"))
	s.await("RUNNING", id)
	leader := s.text(`SELECT leader_id::text FROM maintenance_state`)
	proxy.hangOn(`UPDATE workers SET state = 'DEAD'`)
	hung := time.Now()
	worker.kill()
	s.await("FAILED", id)
	s.requireLed(leader, hung)
	eventually(t, "it tells of its obstacle", func() bool { return old.metric(`maintenance_blocked{task="rescuer"}`) == 1 })
	s.checkInvariants()
}

// A leader that has nobody to step back for goes on with what works.
func TestLeaderWithoutRedisGoesOnAlone(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	redis := newWire(t, s.rdb.Options().Addr)
	api := s.startLeader(env{"FORGERUN_REDIS_URL": "redis://" + redis.listener.Addr().String()})
	u := s.newUser(api)
	redis.setCut(true)
	api.logged("a task of the leader does not get on here; another process may lead", `"task":"relay"`)
	s.await("QUEUED", u.submit(api, deferred(3*time.Second)))
	require.NotContains(t, api.log.String(), `"leading":false`)
	_, report := s.doctor(nil)
	require.Contains(t, report, "a task of its does not get on")
	redis.setCut(false)
	api.logged("a task of the leader gets on again", `"task":"relay"`)
	s.checkInvariants()
}

// The lease is broken again and again, so that several processes believe that
// they lead.
func TestContendingLeadersDoNoHarm(t *testing.T) {
	t.Parallel()
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
	for range 5 {
		for _, api := range apis {
			ids = append(ids, u.submitMany(api, 10, execute("PAYLOAD_SMALL"))...)
			ids = append(ids, u.submitMany(api, 5, deferred(4*time.Second))...)
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
