package main

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// Redis hangs before the api connects to it, so nothing can be enqueued.
func TestAPIKilledAfterCommitBeforeEnqueue(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	require.NoError(t, s.redis.Pause())
	api := s.startAPI()
	u := s.newUser(api)
	ids := u.submitMany(api, 10, execute("SUCCESS_FAST"))
	api.kill()
	require.NoError(t, s.redis.Resume())
	require.Empty(t, s.tasks())

	s.startWorker()
	s.await("SUCCEEDED", ids...)
	s.checkInvariants()
}

func TestAPIKilledAfterEnqueue(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startAPI()
	u := s.newUser(api)
	ids := u.submitMany(api, 10, execute("SUCCESS_FAST"))
	eventually(t, "tasks are enqueued", func() bool { return len(s.tasks()) == 10 })
	api.kill()
	s.startWorker()
	s.await("SUCCEEDED", ids...)
	s.checkInvariants()
}

// The statement is on its way when the process dies: nobody knows whether it
// will be committed. The same key finds out.
func TestAPIKilledBeforeCommit(t *testing.T) {
	t.Parallel()
	s := newStack(t, patient)
	doomed := s.startAPI()
	u := s.newUser(doomed)
	bodies := make([]string, 5)
	for i := range bodies {
		bodies[i] = execute("SUCCESS_FAST", `"idempotency_key":"`+uuid.NewString()+`"`)
	}
	unlock := s.lock(`LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE`)
	var flying errgroup.Group
	for _, body := range bodies {
		flying.Go(func() error {
			require.Error(t, u.trySubmit(doomed, body).err, "nothing is acknowledged before its commit")
			return nil
		})
	}
	eventually(t, "the insert waits", func() bool {
		return s.count(`SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INTO idempotency_keys%'
			AND datname = current_database()`) > 0
	})
	doomed.kill()
	require.NoError(t, flying.Wait())
	unlock()

	api := s.startAPI()
	s.startWorker()
	var ids []string
	for _, body := range bodies {
		ids = append(ids, u.submit(api, body))
	}
	s.await("SUCCEEDED", ids...)
	require.Equal(t, len(bodies), s.count(`SELECT count(*) FROM jobs`))
	s.checkInvariants()
}

func TestThousandConcurrentRequestsWithOneKey(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	apis := []*proc{s.startAPI(), s.startAPI()}
	u := s.newUser(apis[0])
	s.startWorker()
	body := execute("SUCCESS_FAST", `"idempotency_key":"the-only-one"`)
	const requests, atOnce = 1000, 100
	var group errgroup.Group
	group.SetLimit(atOnce)
	var fresh atomic.Int32
	for i := range requests {
		group.Go(func() error {
			a := u.trySubmit(apis[i%2], body)
			for a.status == http.StatusServiceUnavailable { // the winner was in flight
				a = u.trySubmit(apis[i%2], body)
			}
			if a.header.Get("Idempotency-Replayed") == "" {
				fresh.Add(1)
			}
			if a.status != http.StatusAccepted {
				t.Errorf("answer %d: %s %v", a.status, a.body, a.err)
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.EqualValues(t, 1, fresh.Load(), "answers that are not replays")
	require.Len(t, s.acceptedIDs(), 1, "all answers name one job")
	require.Equal(t, 1, s.count(`SELECT count(*) FROM jobs`))
	conflict := u.trySubmit(apis[1], execute("SUCCESS_SLOW", `"idempotency_key":"the-only-one"`))
	conflict.requireProblem(t, http.StatusConflict, "RFA_EXEC_IDEMPOTENCY_CONFLICT")
	s.await("SUCCEEDED", s.acceptedIDs()...)
	s.checkInvariants()
}
