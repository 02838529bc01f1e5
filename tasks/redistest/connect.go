package redistest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// DB connects to an empty database of the shared server.
func DB(t testing.TB) *redisconn.Redis {
	t.Helper()
	return Connect(t, URL(t))
}

// Mini connects to an embedded Redis of the test's own.
func Mini(t testing.TB) *redisconn.Redis {
	t.Helper()
	return Connect(t, MiniURL(t))
}

// Connect makes a patient connection: a machine under load is no fault.
func Connect(t testing.TB, url string) *redisconn.Redis {
	t.Helper()
	r, _ := ConnectCounted(t, url, Within)
	return r
}

// ConnectHanging is for tests in which Redis hangs.
func ConnectHanging(t testing.TB, url string) *redisconn.Redis {
	t.Helper()
	r, _ := ConnectCounted(t, url, 2*time.Second)
	return r
}

// ConnectCounted gives the connection's metrics too.
func ConnectCounted(t testing.TB, url string, timeout time.Duration) (*redisconn.Redis, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	r, err := redisconn.Connect(url, redisconn.Options{Registry: registry, Timeout: timeout, Logger: Log(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r, registry
}

// SeriesOf gives the number of series by the metric's name.
func SeriesOf(t testing.TB, g prometheus.Gatherer) map[string]int {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	series := map[string]int{}
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
	}
	return series
}

// Gauge reads the only series of a gauge.
func Gauge(t testing.TB, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			require.Len(t, f.GetMetric(), 1)
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.FailNow(t, "no metric "+name)
	return 0
}

// StateOf is the asynq state of a task in a queue, "" if there is no such task.
func StateOf(t testing.TB, r *redisconn.Redis, queue, id string) string {
	t.Helper()
	state, err := r.Client.HGet(context.Background(), redisconn.TaskKey(queue, id), "state").Result()
	if err != nil {
		require.ErrorIs(t, err, redis.Nil)
	}
	return state
}

// JobState is the state of a job's task in Redis, "" for none.
func JobState(t testing.TB, r *redisconn.Redis, task job.Task) string {
	t.Helper()
	return StateOf(t, r, redisconn.Jobs, fmt.Sprintf("%s:%d:%d", task.JobID, task.Attempt, task.Dispatch))
}

// DeliveryStates are the asynq states of a client's delivery tasks, of which there are three at most, without missing ones at the
// end.
func DeliveryStates(t testing.TB, r *redisconn.Redis, client job.ID) []string {
	t.Helper()
	states := []string{}
	for _, suffix := range []string{"", ":1", ":2", ":3"} {
		states = append(states, StateOf(t, r, redisconn.Webhooks, client.String()+suffix))
	}
	for len(states) > 0 && states[len(states)-1] == "" {
		states = states[:len(states)-1]
	}
	return states
}

// WakeUps is how many wake-ups of deliveries had the result.
func WakeUps(r *redisconn.Redis, result string) float64 {
	return testutil.ToFloat64(r.Metrics.WakeUps.WithLabelValues(result))
}
