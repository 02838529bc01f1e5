package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestDeliveries(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	ts := redistest.Deliveries(100)
	busy, failed, givenUp := ts[0], ts[1], ts[2]
	client := asynq.NewClientFromRedisClient(r.Client)
	for _, task := range []*asynq.Task{
		asynq.NewTask(queue.DeliveryTask, nil),
		asynq.NewTask(queue.DeliveryTask, []byte(`{"client":"0190f3a4-7d6e-7c55-8a2b-3d1f5e6a7b8c"}`)),
		asynq.NewTask(queue.JobTask, []byte(`{"job":"0190f3a4-7d6e-7c55-8a2b-3d1f5e6a7b8c","attempt":1}`)),
	} {
		redistest.Must(client.Enqueue(task, asynq.Queue(redisconn.Webhooks)))(t)
	}
	require.Equal(t, 100, redistest.Must(queue.New(r, queue.Config{}).EnsureDeliveries(t.Context(), ts))(t))
	ofAJob := redistest.Task()
	enqueue(t, r, ofAJob)
	var got collector
	c := NewDeliveries(r, Config{Concurrency: 8, DelayedTaskCheckInterval: 10 * time.Millisecond},
		func(_ context.Context, task job.DeliveryTask) error {
			switch first := got.add(task.ID) == 1; {
			case task == busy && first:
				return &job.TaskEarly{Wait: time.Millisecond}
			case task == failed && first:
				return &job.TaskFailed{Text: "HTTP_5XX", Again: time.Millisecond}
			case task == givenUp:
				return &job.TaskFailed{Text: "TIMEOUT"}
			}
			return nil
		})
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	redistest.Eventually(t, func() bool {
		info := redistest.Info(t, r, redisconn.Webhooks)
		return info.Archived == 4 && info.Size == 4
	}, "what cannot be read or was given up is kept")
	for i, task := range ts {
		times := 1
		if i < 2 {
			times = 2
		}
		require.Equal(t, times, got.got[task.ID])
	}
	require.Equal(t, 100, got.count())
	require.Equal(t, 5, redistest.Info(t, r, redisconn.Webhooks).FailedTotal, "a busy endpoint does not count as a failure")
	require.Equal(t, 3., testutil.ToFloat64(r.Metrics.DeliveriesHandled.WithLabelValues(redisconn.ResultBad)))
	require.Equal(t, "pending", redistest.JobState(t, r, ofAJob), "the jobs queue is untouched")
}
