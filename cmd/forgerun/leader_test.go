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
	u := s.newUser(old)
	missed := u.submit(old, deferred(6*time.Second))
	old.kill()
	killed := time.Now()
	s.startAPI()
	s.await("QUEUED", missed)
	require.Less(t, time.Since(killed), leaderLimit)
	s.startWorker()
	s.await("SUCCEEDED", missed)
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
