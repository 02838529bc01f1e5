package tasks

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// soon is a lease's end as asynq gives it.
func soon() int64 { return time.Now().Add(30 * time.Second).Unix() }

func TestFetcherTakesNoMoreThanItHasSlots(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	ts := newTasks(10)
	dispatchAll(t, NewQueue(r, QueueConfig{}), ts...)
	f := newFetcher(r.client, within, queueJobs, 3, never)
	active := func() int64 { return r.client.LLen(t.Context(), queueKey(queueJobs, "active")).Val() }
	for range 3 {
		_, err := f.next(t.Context(), soon())
		require.NoError(t, err)
		require.Equal(t, int64(3), active())
	}
	for range 2 {
		f.slots.enter()
		f.slots.leave()
	}
	_, err := f.next(t.Context(), soon())
	require.NoError(t, err)
	require.Equal(t, int64(5), active())
	require.Equal(t, int64(5), r.client.ZCard(t.Context(), queueKey(queueJobs, "lease")).Val(), "asynq runs them again when a worker is lost")
}

func TestFetcherPutsBackWhatItDidNotHandOver(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	ts := newTasks(6)
	q := NewQueue(r, QueueConfig{})
	for _, task := range ts { // in this order
		dispatchAll(t, q, task)
	}
	f := newFetcher(r.client, within, queueJobs, 4, never)
	first, err := f.fetch(t.Context(), soon())
	require.NoError(t, err)
	require.Contains(t, first, taskName(ts[0]))
	close(f.quiet)
	f.silence()
	f.silence()
	_, err = f.fetch(t.Context(), soon())
	require.ErrorIs(t, err, redis.Nil, "it is quiet")
	require.Equal(t, "active", stateOf(t, r, ts[0]))
	require.Equal(t, int64(1), r.client.ZCard(t.Context(), queueKey(queueJobs, "lease")).Val())

	f = newFetcher(r.client, within, queueJobs, 10, never)
	for _, task := range ts[1:] {
		require.Equal(t, "pending", stateOf(t, r, task))
	}
	for _, task := range ts[1:] {
		message, err := f.fetch(t.Context(), soon())
		require.NoError(t, err)
		require.Contains(t, message, taskName(task), "in their order")
	}
}

func TestFetcherOfAPausedQueue(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	task := newTask()
	dispatchAll(t, NewQueue(r, QueueConfig{}), task)
	require.NoError(t, inspector(r).PauseQueue(queueJobs))
	f := newFetcher(r.client, within, queueJobs, 1, time.Millisecond)
	_, err := f.fetch(t.Context(), soon())
	require.ErrorIs(t, err, redis.Nil)
	require.NoError(t, inspector(r).UnpauseQueue(queueJobs))
	_, err = f.fetch(t.Context(), soon())
	require.NoError(t, err)
}

// A fetch that was on its way when the consumer became quiet brings tasks that
// nobody gets.
func TestFetchThatReturnsAfterQuiet(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	task := newTask()
	dispatchAll(t, NewQueue(r, QueueConfig{}), task)
	f := newFetcher(r.client, within, queueJobs, 1, never)
	require.NoError(t, f.fill(t.Context(), soon()))
	close(f.quiet)
	_, err := f.next(t.Context(), soon())
	require.ErrorIs(t, err, redis.Nil)
	f.silence()
	require.Equal(t, "pending", stateOf(t, r, task))
}

// A word to give tasks back may come twice, and the second time too late.
func TestGivingBackTakesFromNobodyElse(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	task := newTask()
	dispatchAll(t, NewQueue(r, QueueConfig{}), task)
	f, other := newFetcher(r.client, within, queueJobs, 1, never), newFetcher(r.client, within, queueJobs, 1, never)
	first := soon()
	require.NoError(t, f.fill(t.Context(), first))
	given := f.ready
	f.silence()
	_, err := other.next(t.Context(), first+1)
	require.NoError(t, err)
	f.ready = given
	f.silence()
	require.Equal(t, "active", stateOf(t, r, task))
	require.Equal(t, float64(first+1), r.client.ZScore(t.Context(), f.keys.lease, taskName(task)).Val())
	require.Equal(t, []string{taskName(task)}, r.client.LRange(t.Context(), f.keys.active, 0, -1).Val())
	require.Zero(t, r.client.LLen(t.Context(), f.keys.pending).Val())
}

// Redis executes what it had received before it hung. Those tasks nobody has.
func TestLostFetchesTakeFewTasks(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	r := connectHanging(t, server.URL())
	q, ts := NewQueue(r, QueueConfig{}), newTasks(200)
	dispatchAll(t, q, ts...)
	const patience = 300 * time.Millisecond
	o := r.options(patience, 16)
	o.MaxRetries = 1
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, fetchScript.Load(t.Context(), client).Err())
	var blocked sync.WaitGroup // opens connections
	for range o.PoolSize {
		blocked.Go(func() { client.BLPop(t.Context(), 100*time.Millisecond, "nothing") })
	}
	blocked.Wait()

	f := newFetcher(client, patience, queueJobs, 100, never)
	lease := time.Now().Add(leaseRest / 2).Unix()
	require.NoError(t, server.Pause())
	for range 6 {
		_, err := f.next(t.Context(), lease)
		require.Error(t, err)
	}
	require.NoError(t, server.Resume())
	active := func() int { return int(r.client.LLen(t.Context(), f.keys.active).Val()) }
	eventually(t, func() bool { return active() == maxFetch+5 })
	missing, err := q.Missing(t.Context(), ts)
	require.NoError(t, err)
	require.Len(t, missing, maxFetch+5, "their worker does not renew the lease")

	f.client, f.patience = r.client, within
	_, err = f.next(t.Context(), soon())
	require.NoError(t, err)
	require.Equal(t, maxFetch+5+1, active())
	require.NoError(t, f.fill(t.Context(), soon()))
	require.Len(t, f.ready, maxFetch)
}

func TestRedisForgetsTheScripts(t *testing.T) {
	t.Parallel()
	r := connect(t, ownRedis(t).URL())
	q, ts := NewQueue(r, QueueConfig{}), newTasks(3)
	for _, task := range ts {
		dispatchAll(t, q, task)
	}
	forget := func() { require.NoError(t, r.client.ScriptFlush(t.Context()).Err()) }
	f, done := newFetcher(r.client, within, queueJobs, 5, never), newFinisher(r.client, queueJobs)
	for range 2 { // the second time go-redis believes that Redis knows them
		forget()
		_, err := f.next(t.Context(), soon())
		require.NoError(t, err)
		require.Equal(t, "active", stateOf(t, r, ts[2]))
		forget()
		f.silence()
		require.Equal(t, "pending", stateOf(t, r, ts[2]))
		forget()
		for _, task := range ts {
			require.NoError(t, done.finish(taskName(task), aDay))
		}
		done.flush(nil)
		depth, err := q.Depth(t.Context())
		require.NoError(t, err)
		require.Zero(t, depth["active"])
		ts = append(ts[1:], newTask())
		dispatchAll(t, q, ts[2])
	}
}

func TestFetcherForgetsTasksThatAreGone(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	gone, task := newTask(), newTask()
	q := NewQueue(r, QueueConfig{})
	dispatchAll(t, q, gone)
	dispatchAll(t, q, task)
	require.NoError(t, r.client.Del(t.Context(), taskKey(queueJobs, taskName(gone))).Err())
	f := newFetcher(r.client, within, queueJobs, 5, never)
	message, err := f.next(t.Context(), soon())
	require.NoError(t, err)
	require.Contains(t, message, taskName(task))
	require.Empty(t, stateOf(t, r, gone))
	require.Equal(t, []string{taskName(task)}, r.client.LRange(t.Context(), f.keys.active, 0, -1).Val())
	require.Equal(t, int64(1), r.client.ZCard(t.Context(), f.keys.lease).Val())
}

// asynq never calls a handler for a message that it cannot read.
func TestUnreadableTasksCostNoSlots(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	ts := newTasks(4)
	dispatchAll(t, NewQueue(r, QueueConfig{}), ts...)
	for _, task := range ts[1:] {
		require.NoError(t, r.client.HSet(t.Context(), taskKey(queueJobs, taskName(task)), "msg", "\xff").Err())
	}
	handling, release := make(chan struct{}), make(chan struct{})
	w := startWorkers(t, r, WorkersConfig{Concurrency: 5}, func(context.Context, job.Task) error {
		close(handling)
		<-release
		return nil
	})
	t.Cleanup(func() { close(release) })
	receive(t, handling, "the handler")
	s := w.broker.fetcher.slots
	eventually(t, func() bool { return s.free() == 1 }, "three may be on their way")
	s.mu.Lock()
	require.Len(t, s.starting, 3)
	for i := range s.starting {
		s.starting[i] = s.starting[i].Add(-startTime)
	}
	s.mu.Unlock()
	require.Equal(t, 4, s.free())
}

// A look that found tasks is no reason for suspicion when the bell is heard after
// it, nor when another fetch came first.
func TestSuspicionOfTheBell(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	dispatchAll(t, NewQueue(r, QueueConfig{}), newTasks(2)...)
	f := newFetcher(r.client, within, queueJobs, 1, never)
	look := func() {
		f.looked = time.Now()
		_, err := f.next(t.Context(), soon())
		require.NoError(t, err)
	}
	look()
	require.Equal(t, missedWatch, f.interval())
	f.tell()
	require.Equal(t, never, f.interval())
	f.ready = append(f.ready, fetched{"x", "y"})
	look()
	_, err := f.next(t.Context(), soon())
	require.NoError(t, err)
	require.Equal(t, never, f.interval())
}

// All wait for the bell, and one of them keeps watch.
func TestFetcherWakesAll(t *testing.T) {
	t.Parallel()
	f := newFetcher(newDB(t).client, within, queueJobs, 5, never)
	var waiting sync.WaitGroup
	for range 5 {
		waiting.Go(func() { _, _ = f.fetch(t.Context(), soon()) })
	}
	eventually(t, func() bool { return len(f.watch) == 1 })
	eventually(t, func() bool {
		f.bell.ring()
		return waitFor(&waiting, time.Millisecond)
	})
	require.Empty(t, f.watch)
}
