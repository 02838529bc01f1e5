package batch

import (
	"context"
	"os"
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

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func dispatchAll(t *testing.T, q *queue.Queue, ts ...job.Task) {
	t.Helper()
	answers, err := q.Dispatch(t.Context(), ts)
	require.NoError(t, err)
	for _, a := range answers {
		require.Equal(t, job.TaskEnqueued, a)
	}
}

// stateOf is a task's state in Redis, "" for none.
func stateOf(t testing.TB, r *redisconn.Redis, task job.Task) string {
	t.Helper()
	return redistest.StateOf(t, r, redisconn.Jobs, queue.TaskName(task))
}

func fetcherOf(client redis.UniversalClient, timeout time.Duration, concurrency int, every time.Duration) *fetcher {
	return newFetcher(client, Config{Queue: redisconn.Jobs, Concurrency: concurrency, CheckInterval: every, Timeout: timeout})
}

func newBroker(t testing.TB, r *redisconn.Redis, concurrency int, every time.Duration) *Broker {
	t.Helper()
	b := New(r.Client, Config{
		Queue: redisconn.Jobs, Concurrency: concurrency, CheckInterval: every, Timeout: redistest.Within, Moved: func() {},
	})
	b.Start()
	b.Start()
	t.Cleanup(func() {
		require.NoError(t, b.Stop(context.Background()))
		require.NoError(t, b.Stop(context.Background()))
	})
	return b
}

// serve handles tasks by asynq servers on the client, a Broker or a plain one.
func serve(t testing.TB, client redis.UniversalClient, servers, concurrency int, handle func(id string) error) {
	t.Helper()
	for range servers {
		s := asynq.NewServerFromRedisClient(client, asynq.Config{
			Concurrency: concurrency / servers, Queues: map[string]int{redisconn.Jobs: 1}, TaskCheckInterval: time.Millisecond,
			DelayedTaskCheckInterval: 10 * time.Millisecond, ShutdownTimeout: 100 * time.Millisecond,
			Logger: redisconn.NewAsynqLog(redistest.Log(t)),
		})
		require.NoError(t, s.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			run := func() error { return handle(string(task.Payload())) }
			if b, ok := client.(*Broker); ok {
				return b.Handle(run)
			}
			return run()
		})))
		t.Cleanup(s.Shutdown)
	}
	t.Cleanup(func() { // comes first
		if b, ok := client.(*Broker); ok {
			b.Quiet()
			b.Quiet()
		}
	})
}
