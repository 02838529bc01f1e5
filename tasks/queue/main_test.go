package queue

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// Short forms of clients.
var anna, bert = job.ID{15: 0xa}, job.ID{15: 0xb}

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func startQueue(t testing.TB, r *redisconn.Redis, cfg Config) *Queue {
	t.Helper()
	q := New(r, cfg)
	q.Start()
	t.Cleanup(func() { _ = q.Stop(context.Background()) })
	return q
}

func inspector(r *redisconn.Redis) *asynq.Inspector { return asynq.NewInspector(r) }

// stateOf is a task's state in Redis, "" for none.
func stateOf(t testing.TB, r *redisconn.Redis, task job.Task) string {
	t.Helper()
	return redistest.StateOf(t, r, redisconn.Jobs, TaskName(task))
}

// serve handles the tasks of a queue with nothing but asynq.
func serve(t testing.TB, r *redisconn.Redis, name string, handle func(context.Context, string) error) *asynq.Server {
	t.Helper()
	server := asynq.NewServerFromRedisClient(r.Client, asynq.Config{
		Concurrency: 10, Queues: map[string]int{name: 1}, TaskCheckInterval: 5 * time.Millisecond,
		DelayedTaskCheckInterval: 10 * time.Millisecond,
		ShutdownTimeout:          100 * time.Millisecond, Logger: redisconn.NewAsynqLog(r.Log),
	})
	require.NoError(t, server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		return handle(ctx, string(t.Payload()))
	})))
	t.Cleanup(server.Shutdown)
	return server
}

// startDeliveries gives the client of each delivery task that is handled.
func startDeliveries(t testing.TB, r *redisconn.Redis) <-chan job.ID {
	t.Helper()
	handled := make(chan job.ID, 10000)
	serve(t, r, redisconn.Webhooks, func(_ context.Context, payload string) error {
		client, err := ParseDelivery(payload)
		require.NoError(t, err)
		handled <- client
		return nil
	})
	return handled
}
