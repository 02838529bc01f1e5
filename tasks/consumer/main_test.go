package consumer

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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

// Short forms of clients.
var anna, bert = job.ID{15: 0xa}, job.ID{15: 0xb}

func startQueue(t testing.TB, r *redisconn.Redis, cfg queue.Config) *queue.Queue {
	t.Helper()
	q := queue.New(r, cfg)
	q.Start()
	t.Cleanup(func() { _ = q.Stop(context.Background()) })
	return q
}

func dispatchAll(t *testing.T, q *queue.Queue, ts ...job.Task) {
	t.Helper()
	answers, err := q.Dispatch(t.Context(), ts)
	require.NoError(t, err)
	for _, a := range answers {
		require.Equal(t, job.TaskEnqueued, a)
	}
}

func startWorkers(t testing.TB, r *redisconn.Redis, cfg Config, handle func(context.Context, job.Task) error) *Consumer {
	t.Helper()
	w := NewJobs(r, cfg, handle, func(job.ID) {})
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() { _ = w.Stop(context.Background()) })
	return w
}

func inspector(r *redisconn.Redis) *asynq.Inspector { return asynq.NewInspector(r) }

// stateOf is a task's state in Redis, "" for none.
func stateOf(t testing.TB, r *redisconn.Redis, task job.Task) string {
	t.Helper()
	return stateOfID(t, r, redisconn.Jobs, queue.TaskName(task))
}

func stateOfID(t testing.TB, r *redisconn.Redis, name, id string) string {
	t.Helper()
	state, err := r.Client.HGet(context.Background(), redisconn.TaskKey(name, id), "state").Result()
	if err != nil {
		require.ErrorIs(t, err, redis.Nil)
	}
	return state
}

// deliveryNames is how many delivery tasks of a client there can be in Redis.
const deliveryNames = 3

// deliveryStates are the asynq states of the client's tasks in Redis, "" for none,
// without the empty ones at the end.
func deliveryStates(t testing.TB, r *redisconn.Redis, client job.ID) []string {
	t.Helper()
	states := []string{}
	for _, suffix := range []string{"", ":1", ":2", ":3"} {
		states = append(states, stateOfID(t, r, redisconn.Webhooks, client.String()+suffix))
	}
	for len(states) > 0 && states[len(states)-1] == "" {
		states = states[:len(states)-1]
	}
	return states
}

// wakeUpsOf is how many wake-ups of a result were counted.
func wakeUpsOf(r *redisconn.Redis, result string) float64 {
	return testutil.ToFloat64(r.Metrics.WakeUps.WithLabelValues(result))
}
