package batch

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func fetcherOf(client redis.UniversalClient, timeout time.Duration, concurrency int, every time.Duration) *fetcher {
	return newFetcher(client, Config{Queue: redisconn.Jobs, Concurrency: concurrency, CheckInterval: every, Timeout: timeout})
}

// stops has what is to be called before the servers of a Broker are shut down.
var stops sync.Map

func newBroker(t testing.TB, r *redisconn.Redis, concurrency int, every time.Duration) *Broker {
	t.Helper()
	stopping := make(chan struct{})
	b := New(r.Client, Config{
		Queue: redisconn.Jobs, Concurrency: concurrency, CheckInterval: every, DelayedCheckInterval: 10 * time.Millisecond,
		Timeout: redistest.Within, Moved: func() {}, Stopping: stopping,
	})
	stops.Store(b, sync.OnceFunc(func() { close(stopping) }))
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
			DelayedTaskCheckInterval: time.Millisecond, ShutdownTimeout: 100 * time.Millisecond,
			Logger: redisconn.NewAsynqLog(redistest.Log(t)),
		})
		require.NoError(t, s.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			run := func() error { return handle(string(task.Payload())) }
			b, ok := client.(*Broker)
			if !ok {
				return run()
			}
			if err := b.Handle(ctx, run); !errors.Is(err, job.ErrTaskStale) {
				return err
			}
			return nil
		})))
		t.Cleanup(s.Shutdown)
	}
	t.Cleanup(func() { // comes first
		if b, ok := client.(*Broker); ok {
			b.Quiet()
			b.Quiet()
			stop, _ := stops.Load(b)
			stop.(func())()
		}
	})
}
