package batch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// handledToday are tasks as asynq gives them to done.
func handledToday(ts ...job.Task) []handled {
	all := make([]handled, len(ts))
	for i, task := range ts {
		all[i] = handled{
			id: queue.TaskName(task), at: time.Now().UnixNano(), as: taskDone,
			countKey: redisconn.QueueKey(redisconn.Jobs, "processed:2026-01-31"), countEnd: time.Now().Add(time.Hour).Unix(),
		}
	}
	return all
}

func TestFinisherRemovesOnlyActiveTasks(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	ts := redistest.Tasks(5)
	redistest.Dispatch(t, queue.New(r, queue.Config{}), ts...)
	fetcher := fetcherOf(r.Client, redistest.Within, 3, never)
	for range 3 {
		redistest.Must(fetcher.next(t.Context(), soon()))(t)
	}
	f := newFinisher(r.Client, redisconn.Jobs)
	today := handledToday(ts...)
	for _, task := range append(today, today...) {
		require.NoError(t, f.finish(task))
	}
	f.Start()
	require.NoError(t, f.Stop(t.Context()))
	left := 0
	for _, task := range ts {
		if redistest.JobState(t, r, task) == "pending" {
			left++
		}
	}
	require.Equal(t, 2, left, "what waits is not removed")
	require.Zero(t, r.Client.Exists(t.Context(), fetcher.keys.active, fetcher.keys.lease).Val())
	require.Equal(t, "3", r.Client.Get(t.Context(), today[0].countKey).Val())
	require.Equal(t, "3", r.Client.Get(t.Context(), fetcher.keys.count).Val())
	require.Positive(t, r.Client.TTL(t.Context(), today[0].countKey).Val())
}

func TestFinisherIsBounded(t *testing.T) {
	t.Parallel()
	f := newFinisher(nil, redisconn.Jobs)
	for range maxFinished {
		require.NoError(t, f.finish(handled{}))
	}
	require.ErrorIs(t, f.finish(handled{}), errFinishFull, "asynq keeps it")
}

// A task that is too old may be somebody else's by now.
func TestFinisherLeavesOldTasks(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	ts := redistest.Tasks(2)
	redistest.Dispatch(t, queue.New(r, queue.Config{}), ts...)
	fetcher := fetcherOf(r.Client, redistest.Within, 2, never)
	require.NoError(t, fetcher.fill(t.Context(), soon()))
	f := newFinisher(r.Client, redisconn.Jobs)
	today := handledToday(ts...)
	today[0].at = time.Now().Add(-finishTime - time.Second).UnixNano()
	require.NoError(t, f.end(t.Context(), today))
	require.Equal(t, "active", redistest.JobState(t, r, ts[0]))
	require.Empty(t, redistest.JobState(t, r, ts[1]))
	require.NoError(t, f.end(t.Context(), today[:1]), "there is nothing to retry")
}
