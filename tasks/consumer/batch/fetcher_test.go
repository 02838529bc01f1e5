package batch

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// never is a check interval with which only a wake-up brings tasks.
const never = time.Hour

// soon is a lease's end as asynq gives it.
func soon() int64 { return time.Now().Add(30 * time.Second).Unix() }

func TestFetcherTakesNoMoreThanItHasSlots(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	ts := redistest.Tasks(10)
	dispatchAll(t, queue.New(r, queue.Config{}), ts...)
	f := fetcherOf(r.Client, redistest.Within, 3, never)
	active := func() int64 { return r.Client.LLen(t.Context(), redisconn.QueueKey(redisconn.Jobs, "active")).Val() }
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
	require.Equal(t, int64(5), r.Client.ZCard(t.Context(), redisconn.QueueKey(redisconn.Jobs, "lease")).Val(),
		"asynq runs them again when a worker is lost")
}

func TestFetcherPutsBackWhatItDidNotHandOver(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	ts := redistest.Tasks(6)
	q := queue.New(r, queue.Config{})
	for _, task := range ts { // in this order
		dispatchAll(t, q, task)
	}
	f := fetcherOf(r.Client, redistest.Within, 4, never)
	first, err := f.fetch(t.Context(), soon())
	require.NoError(t, err)
	require.Contains(t, first, queue.TaskName(ts[0]))
	f.silence()
	f.silence()
	_, err = f.fetch(t.Context(), soon())
	require.ErrorIs(t, err, redis.Nil, "it is quiet")
	require.Equal(t, "active", stateOf(t, r, ts[0]))
	require.Equal(t, int64(1), r.Client.ZCard(t.Context(), redisconn.QueueKey(redisconn.Jobs, "lease")).Val())

	f = fetcherOf(r.Client, redistest.Within, 10, never)
	for _, task := range ts[1:] {
		require.Equal(t, "pending", stateOf(t, r, task))
	}
	for _, task := range ts[1:] {
		message, err := f.fetch(t.Context(), soon())
		require.NoError(t, err)
		require.Contains(t, message, queue.TaskName(task), "in their order")
	}
}

func TestFetcherOfAPausedQueue(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	task := redistest.Task()
	dispatchAll(t, queue.New(r, queue.Config{}), task)
	require.NoError(t, asynq.NewInspector(r).PauseQueue(redisconn.Jobs))
	f := fetcherOf(r.Client, redistest.Within, 1, time.Millisecond)
	_, err := f.fetch(t.Context(), soon())
	require.ErrorIs(t, err, redis.Nil)
	require.NoError(t, asynq.NewInspector(r).UnpauseQueue(redisconn.Jobs))
	_, err = f.fetch(t.Context(), soon())
	require.NoError(t, err)
}

// What was taken goes back while the consumer is held, in its order, and comes when it goes on.
func TestFetcherOnHold(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	ts := redistest.Tasks(3)
	q := queue.New(r, queue.Config{})
	for _, task := range ts { // in this order
		dispatchAll(t, q, task)
	}
	f := fetcherOf(r.Client, redistest.Within, 3, never)
	next := func() (string, error) { return f.next(t.Context(), soon()) }
	first, err := next()
	require.NoError(t, err)
	require.Contains(t, first, queue.TaskName(ts[0]))
	woken := f.signal.wait()
	for range 2 {
		f.hold(true)
		_, err = next()
		require.ErrorIs(t, err, redis.Nil)
		for _, task := range ts[1:] {
			require.Equal(t, "pending", stateOf(t, r, task))
		}
	}
	f.hold(false)
	<-woken // who waits for tasks looks at once
	for _, task := range ts[1:] {
		message, err := next()
		require.NoError(t, err)
		require.Contains(t, message, queue.TaskName(task))
	}
}

// A fetch that was on its way when the consumer became quiet brings tasks that
// nobody gets.
func TestFetchThatReturnsAfterQuiet(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	task := redistest.Task()
	dispatchAll(t, queue.New(r, queue.Config{}), task)
	f := fetcherOf(r.Client, redistest.Within, 1, never)
	require.NoError(t, f.fill(t.Context(), soon()))
	close(f.quiet)
	_, err := f.next(t.Context(), soon())
	require.ErrorIs(t, err, redis.Nil)
	f.putBack()
	require.Equal(t, "pending", stateOf(t, r, task))
}

// A word to give tasks back may come twice, and the second time too late.
func TestGivingBackTakesFromNobodyElse(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	task := redistest.Task()
	dispatchAll(t, queue.New(r, queue.Config{}), task)
	f, other := fetcherOf(r.Client, redistest.Within, 1, never), fetcherOf(r.Client, redistest.Within, 1, never)
	first := soon()
	require.NoError(t, f.fill(t.Context(), first))
	given := f.ready
	f.putBack()
	_, err := other.next(t.Context(), first+1)
	require.NoError(t, err)
	f.ready = given
	f.putBack()
	require.Equal(t, "active", stateOf(t, r, task))
	require.Equal(t, float64(first+1), r.Client.ZScore(t.Context(), f.keys.lease, queue.TaskName(task)).Val())
	require.Equal(t, []string{queue.TaskName(task)}, r.Client.LRange(t.Context(), f.keys.active, 0, -1).Val())
	require.Zero(t, r.Client.LLen(t.Context(), f.keys.pending).Val())
}

// Redis executes what it had received before it hung. Those tasks nobody has.
func TestLostFetchesTakeFewTasks(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	q, ts := queue.New(r, queue.Config{}), redistest.Tasks(200)
	dispatchAll(t, q, ts...)
	const timeout = 300 * time.Millisecond
	o := r.ClientOptions(timeout, 16)
	o.MaxRetries = 1
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, fetchScript.Load(t.Context(), client).Err())
	var blocked sync.WaitGroup // opens connections
	for range o.PoolSize {
		blocked.Go(func() { client.BLPop(t.Context(), 100*time.Millisecond, "nothing") })
	}
	blocked.Wait()

	f := fetcherOf(client, timeout, 100, never)
	lease := time.Now().Add(10 * time.Second).Unix()
	require.NoError(t, server.Pause())
	for range 6 {
		_, err := f.next(t.Context(), lease)
		require.Error(t, err)
	}
	require.NoError(t, server.Resume())
	active := func() int { return int(r.Client.LLen(t.Context(), f.keys.active).Val()) }
	redistest.Eventually(t, func() bool { return active() == maxFetch+5 })
	missing, err := q.Missing(t.Context(), ts)
	require.NoError(t, err)
	require.Len(t, missing, maxFetch+5, "their worker does not renew the lease")

	f.client, f.timeout = r.Client, redistest.Within
	_, err = f.next(t.Context(), soon())
	require.NoError(t, err)
	require.Equal(t, maxFetch+5+1, active())
	require.NoError(t, f.fill(t.Context(), soon()))
	require.Len(t, f.ready, maxFetch)
}

func TestRedisForgetsTheScripts(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.Own(t).URL())
	q, ts := queue.New(r, queue.Config{}), redistest.Tasks(3)
	for _, task := range ts {
		dispatchAll(t, q, task)
	}
	forget := func() { require.NoError(t, r.Client.ScriptFlush(t.Context()).Err()) }
	f, done := fetcherOf(r.Client, redistest.Within, 5, never), newFinisher(r.Client, redisconn.Jobs)
	for range 2 { // the second time go-redis believes that Redis knows them
		forget()
		_, err := f.next(t.Context(), soon())
		require.NoError(t, err)
		require.Equal(t, "active", stateOf(t, r, ts[2]))
		forget()
		f.putBack()
		require.Equal(t, "pending", stateOf(t, r, ts[2]))
		forget()
		require.NoError(t, done.end(t.Context(), handledToday(ts...)))
		depth, err := q.Depth(t.Context())
		require.NoError(t, err)
		require.Zero(t, depth["active"])
		ts = append(ts[1:], redistest.Task())
		dispatchAll(t, q, ts[2])
	}
}

func TestFetcherForgetsTasksThatAreGone(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	gone, task := redistest.Task(), redistest.Task()
	q := queue.New(r, queue.Config{})
	dispatchAll(t, q, gone)
	dispatchAll(t, q, task)
	require.NoError(t, r.Client.Del(t.Context(), redisconn.TaskKey(redisconn.Jobs, queue.TaskName(gone))).Err())
	f := fetcherOf(r.Client, redistest.Within, 5, never)
	message, err := f.next(t.Context(), soon())
	require.NoError(t, err)
	require.Contains(t, message, queue.TaskName(task))
	require.Empty(t, stateOf(t, r, gone))
	require.Equal(t, []string{queue.TaskName(task)}, r.Client.LRange(t.Context(), f.keys.active, 0, -1).Val())
	require.Equal(t, int64(1), r.Client.ZCard(t.Context(), f.keys.lease).Val())
}

// asynq never calls a handler for a message that it cannot read.
func TestUnreadableTasksCostNoSlots(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	ts := redistest.Tasks(4)
	dispatchAll(t, queue.New(r, queue.Config{}), ts...)
	for _, task := range ts[1:] {
		require.NoError(t, r.Client.HSet(t.Context(), redisconn.TaskKey(redisconn.Jobs, queue.TaskName(task)), "msg", "\xff").Err())
	}
	handling, release := make(chan struct{}), make(chan struct{})
	b := newBroker(t, r, 5, never)
	t.Cleanup(func() { close(release) }) // after the servers' end
	serve(t, b, 1, 5, func(string) error {
		close(handling)
		<-release
		return nil
	})
	redistest.Receive(t, handling, "the handler")
	s := b.fetcher.slots
	redistest.Eventually(t, func() bool { return s.free() == 1 }, "three may be on their way")
	s.mu.Lock()
	require.Len(t, s.starting, 3)
	for i := range s.starting {
		s.starting[i] = s.starting[i].Add(-startTime)
	}
	s.mu.Unlock()
	require.Equal(t, 4, s.free())
}

// A look that found tasks is no reason for suspicion when a wake-up comes after
// it, nor when another fetch came first.
func TestSuspicionOfLostWakeUps(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	dispatchAll(t, queue.New(r, queue.Config{}), redistest.Tasks(2)...)
	f := fetcherOf(r.Client, redistest.Within, 1, never)
	look := func() {
		f.looked = time.Now()
		_, err := f.next(t.Context(), soon())
		require.NoError(t, err)
	}
	look()
	require.Equal(t, missedWatch, f.interval())
	f.wakeUp()
	require.Equal(t, never, f.interval())
	f.ready = append(f.ready, fetched{"x", "y"})
	look()
	_, err := f.next(t.Context(), soon())
	require.NoError(t, err)
	require.Equal(t, never, f.interval())
}

// All wait for a wake-up, and one of them keeps watch.
func TestFetcherWakesAll(t *testing.T) {
	t.Parallel()
	f := fetcherOf(redistest.Mini(t).Client, redistest.Within, 5, never)
	var waiting sync.WaitGroup
	for range 5 {
		waiting.Go(func() { _, _ = f.fetch(t.Context(), soon()) })
	}
	redistest.Eventually(t, func() bool { return len(f.watch) == 1 })
	redistest.Eventually(t, func() bool {
		f.signal.fire()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		return redisconn.WaitFor(ctx, waiting.Wait) == nil
	})
	require.Empty(t, f.watch)
}

// No wake-up comes: the queue was not started. After that wake-ups are not
// trusted for a while.
func TestTasksWithoutAWakeUp(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.URL(t))
	var handled atomic.Int32
	b := newBroker(t, r, 8, 50*time.Millisecond)
	serve(t, b, 4, 8, func(string) error {
		handled.Add(1)
		return nil
	})
	f := b.fetcher
	redistest.Eventually(t, func() bool { return b.Idle() })
	require.Equal(t, 50*time.Millisecond, f.interval())
	dispatchAll(t, queue.New(r, queue.Config{}), redistest.Tasks(20)...)
	redistest.Eventually(t, func() bool { return handled.Load() == 20 })
	redistest.Eventually(t, func() bool { return f.interval() == missedWatch })
	redistest.Eventually(t, func() bool { return f.interval() == 50*time.Millisecond }, "trusted again")
}
