package batch

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// never is a check interval with which only a wake-up brings tasks.
const never = time.Hour

// soon is a lease's end as asynq gives it.
func soon() int64 { return time.Now().Add(30 * time.Second).Unix() }

// fetching is a fetcher, and tasks that wait in this order.
type fetching struct {
	*fetcher
	t  *testing.T
	r  *redisconn.Redis
	ts []job.Task
}

func newFetching(t *testing.T, tasks, concurrency int) *fetching {
	t.Helper()
	r := redistest.Mini(t)
	f := &fetching{fetcherOf(r.Client, redistest.Within, concurrency, never), t, r, redistest.Tasks(tasks)}
	q := queue.New(r, queue.Config{})
	for _, task := range f.ts {
		redistest.Dispatch(t, q, task)
	}
	return f
}

// requireNext fetches these tasks.
func (f *fetching) requireNext(ts ...job.Task) {
	f.t.Helper()
	for _, task := range ts {
		message, err := f.next(f.t.Context(), soon())
		require.NoError(f.t, err)
		require.Contains(f.t, message, queue.TaskName(task))
	}
}

// requireNone fetches nothing, and these tasks wait.
func (f *fetching) requireNone(waiting ...job.Task) {
	f.t.Helper()
	_, err := f.next(f.t.Context(), soon())
	require.ErrorIs(f.t, err, redis.Nil)
	for _, task := range waiting {
		require.Equal(f.t, "pending", redistest.JobState(f.t, f.r, task))
	}
}

// requireTaken wants so many tasks taken, each with a lease: asynq runs them again when a worker is lost.
func (f *fetching) requireTaken(n int64) {
	f.t.Helper()
	require.Equal(f.t, n, f.r.Client.LLen(f.t.Context(), f.keys.active).Val())
	require.Equal(f.t, n, f.r.Client.ZCard(f.t.Context(), f.keys.lease).Val())
}

func TestFetcherTakesNoMoreThanItHasSlots(t *testing.T) {
	t.Parallel()
	f := newFetching(t, 10, 3)
	for _, task := range f.ts[:3] {
		f.requireNext(task)
		f.requireTaken(3)
	}
	for range 2 {
		f.slots.enter()
		f.slots.leave()
	}
	f.requireNext(f.ts[3])
	f.requireTaken(5)
}

func TestFetcherPutsBackWhatItDidNotHandOver(t *testing.T) {
	t.Parallel()
	f := newFetching(t, 6, 4)
	f.requireNext(f.ts[0])
	f.silence()
	f.silence()
	f.requireNone(f.ts[1:]...)
	require.Equal(t, "active", redistest.JobState(t, f.r, f.ts[0]))
	f.requireTaken(1)
	f.fetcher = fetcherOf(f.r.Client, redistest.Within, 10, never)
	f.requireNext(f.ts[1:]...) // in their order
}

func TestFetcherOfAPausedQueue(t *testing.T) {
	t.Parallel()
	f := newFetching(t, 1, 1)
	f.every = time.Millisecond
	require.NoError(t, asynq.NewInspector(f.r).PauseQueue(redisconn.Jobs))
	_, err := f.fetch(t.Context(), soon())
	require.ErrorIs(t, err, redis.Nil)
	require.NoError(t, asynq.NewInspector(f.r).UnpauseQueue(redisconn.Jobs))
	f.requireNext(f.ts...)
}

// What was taken goes back while the consumer is held, in its order, and comes when it goes on.
func TestFetcherOnHold(t *testing.T) {
	t.Parallel()
	f := newFetching(t, 3, 3)
	f.requireNext(f.ts[0])
	woken := f.signal.wait()
	for range 2 {
		f.hold(true)
		f.requireNone(f.ts[1:]...)
	}
	f.hold(false)
	<-woken // who waits for tasks looks at once
	f.requireNext(f.ts[1:]...)
}

// A fetch that was on its way when the consumer became quiet brings tasks that nobody gets.
func TestFetchThatReturnsAfterQuiet(t *testing.T) {
	t.Parallel()
	f := newFetching(t, 1, 1)
	require.NoError(t, f.fill(t.Context(), soon()))
	close(f.quiet)
	f.requireNone()
	f.putBack()
	require.Equal(t, "pending", redistest.JobState(t, f.r, f.ts[0]))
}

// A word to give tasks back may come twice, and the second time too late.
func TestGivingBackTakesFromNobodyElse(t *testing.T) {
	t.Parallel()
	f := newFetching(t, 1, 1)
	first := soon()
	require.NoError(t, f.fill(t.Context(), first))
	given := f.ready
	f.putBack()
	redistest.Must(fetcherOf(f.r.Client, redistest.Within, 1, never).next(t.Context(), first+1))(t)
	f.ready = given
	f.putBack()
	require.Equal(t, "active", redistest.JobState(t, f.r, f.ts[0]))
	f.requireTaken(1)
	require.Equal(t, float64(first+1), f.r.Client.ZScore(t.Context(), f.keys.lease, queue.TaskName(f.ts[0])).Val())
	require.Zero(t, f.r.Client.LLen(t.Context(), f.keys.pending).Val())
}

// Redis executes what it had received before it hung. Those tasks nobody has.
func TestLostFetchesTakeFewTasks(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	q, ts := queue.New(r, queue.Config{}), redistest.Tasks(200)
	redistest.Dispatch(t, q, ts...)
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
	missing := redistest.Must(q.Missing(t.Context(), ts))(t)
	require.Len(t, missing, maxFetch+5, "their worker does not renew the lease")

	f.client, f.timeout = r.Client, redistest.Within
	redistest.Must(f.next(t.Context(), soon()))(t)
	require.Equal(t, maxFetch+5+1, active())
	require.NoError(t, f.fill(t.Context(), soon()))
	require.Len(t, f.ready, maxFetch)
}

func TestRedisForgetsTheScripts(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.Own(t).URL())
	q, ts := queue.New(r, queue.Config{}), redistest.Tasks(3)
	for _, task := range ts {
		redistest.Dispatch(t, q, task)
	}
	forget := func() { require.NoError(t, r.Client.ScriptFlush(t.Context()).Err()) }
	f, done := fetcherOf(r.Client, redistest.Within, 5, never), newFinisher(r.Client, redisconn.Jobs)
	for range 2 { // the second time go-redis believes that Redis knows them
		forget()
		redistest.Must(f.next(t.Context(), soon()))(t)
		require.Equal(t, "active", redistest.JobState(t, r, ts[2]))
		forget()
		f.putBack()
		require.Equal(t, "pending", redistest.JobState(t, r, ts[2]))
		forget()
		require.NoError(t, done.end(t.Context(), handledNow(ts...)))
		depth := redistest.Must(q.Depth(t.Context()))(t)
		require.Zero(t, depth["active"])
		ts = append(ts[1:], redistest.Task())
		redistest.Dispatch(t, q, ts[2])
	}
}

func TestFetcherForgetsTasksThatAreGone(t *testing.T) {
	t.Parallel()
	f := newFetching(t, 2, 5)
	require.NoError(t, f.r.Client.Del(t.Context(), redisconn.TaskKey(redisconn.Jobs, queue.TaskName(f.ts[0]))).Err())
	f.requireNext(f.ts[1])
	require.Empty(t, redistest.JobState(t, f.r, f.ts[0]))
	f.requireTaken(1)
}

// asynq never calls a handler for a message that it cannot read.
func TestUnreadableTasksCostNoSlots(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	ts := redistest.Tasks(4)
	redistest.Dispatch(t, queue.New(r, queue.Config{}), ts...)
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
	redistest.Dispatch(t, queue.New(r, queue.Config{}), redistest.Tasks(20)...)
	redistest.Eventually(t, func() bool { return handled.Load() == 20 })

	missed := func(at time.Time) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.missed = at
	}
	missed(time.Time{})
	redistest.Eventually(t, func() bool { // another server may be the one to find a task: then it was not looked for
		redistest.Dispatch(t, queue.New(r, queue.Config{}), redistest.Tasks(1)...)
		f.mu.Lock()
		defer f.mu.Unlock()
		return !f.missed.IsZero()
	}, "tasks that were found without a wake-up are noticed")
	missed(time.Now().Add(time.Hour))
	require.Equal(t, missedWatch, f.interval())
	missed(time.Now().Add(-missedTime))
	require.Equal(t, 50*time.Millisecond, f.interval(), "wake-ups are trusted again")
}
