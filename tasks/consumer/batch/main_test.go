package batch

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// newDB connects to an empty database of the shared server.
func newDB(t testing.TB) *redisconn.Redis {
	t.Helper()
	return connect(t, redistest.URL())
}

// connect makes a patient connection: a machine under load is no fault.
func connect(t testing.TB, url string) *redisconn.Redis {
	t.Helper()
	return connectFor(t, url, redistest.Within)
}

// connectHanging is for tests in which Redis hangs.
func connectHanging(t testing.TB, url string) *redisconn.Redis {
	t.Helper()
	return connectFor(t, url, 2*time.Second)
}

func connectFor(t testing.TB, url string, timeout time.Duration) *redisconn.Redis {
	t.Helper()
	r, err := redisconn.Connect(url, redisconn.Options{Registry: prometheus.NewRegistry(), Timeout: timeout, Logger: redistest.Log(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

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
	fields, err := r.Client.HGetAll(context.Background(), redisconn.TaskKey(redisconn.Jobs, queue.TaskName(task))).Result()
	require.NoError(t, err)
	return fields["state"]
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
