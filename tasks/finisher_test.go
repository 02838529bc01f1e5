package tasks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

var aDay = dayCount{queueKey(queueJobs, "processed:2026-01-31"), time.Now().Add(time.Hour).Unix()}

func TestFinisherRemovesOnlyActiveTasks(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	ts := newTasks(5)
	dispatchAll(t, NewQueue(r, QueueConfig{}), ts...)
	fetcher := newFetcher(r.client, within, queueJobs, 3, never)
	for range 3 {
		_, err := fetcher.next(t.Context(), soon())
		require.NoError(t, err)
	}
	f := newFinisher(r.client, queueJobs)
	left := 0
	for _, task := range ts {
		require.NoError(t, f.finish(taskName(task), aDay))
		require.NoError(t, f.finish(taskName(task), aDay))
	}
	f.flush(nil)
	for _, task := range ts {
		if stateOf(t, r, task) == "pending" {
			left++
		}
	}
	require.Equal(t, 2, left, "what waits is not removed")
	require.Zero(t, r.client.Exists(t.Context(), fetcher.keys.active, fetcher.keys.lease).Val())
	require.Equal(t, "3", r.client.Get(t.Context(), aDay.key).Val())
	require.Equal(t, "3", r.client.Get(t.Context(), fetcher.keys.count).Val())
	require.Positive(t, r.client.TTL(t.Context(), aDay.key).Val())
}

func TestHandledTasksAreRemovedOnceRedisIsBack(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	r := connectHanging(t, server.URL())
	task := newTask()
	dispatchAll(t, NewQueue(r, QueueConfig{}), task)
	started, release := make(chan struct{}), make(chan struct{})
	startWorkers(t, r, WorkersConfig{}, func(context.Context, job.Task) error {
		close(started)
		<-release
		return nil
	})
	receive(t, started, "the handler")
	require.NoError(t, server.Stop())
	close(release)
	eventually(t, func() bool { return value(r.metrics.handled.WithLabelValues(resultOK)) == 1 })
	require.NoError(t, server.Start(t.Context()))
	eventually(t, func() bool { return stateOf(t, r, task) == "" })
}

func TestFinisherIsBounded(t *testing.T) {
	t.Parallel()
	f := newFinisher(nil, queueJobs)
	for range maxFinished {
		require.NoError(t, f.finish("x", aDay))
	}
	require.ErrorIs(t, f.finish("x", aDay), errFinishFull, "asynq keeps it")
	f.waiting[0].at = time.Now().Add(-finishTime - time.Second)
	f.waiting[1].id = "y"
	tasks, _ := f.take()
	require.Len(t, tasks, maxFinish)
	require.Equal(t, "y", tasks[0].id, "the old one may be somebody else's by now")
	f.putBack(tasks)
	require.Len(t, f.waiting, maxFinished-1)
}
