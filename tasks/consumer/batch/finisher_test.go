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

// handledNow are tasks that are done.
func handledNow(ts ...job.Task) []handled {
	all := make([]handled, len(ts))
	for i, task := range ts {
		all[i] = handled{queue.TaskName(task), time.Now().UnixNano(), taskDone, ""}
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
	for _, task := range append(ts, ts...) {
		require.NoError(t, f.finish(queue.TaskName(task), taskDone, ""))
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
	counts := redistest.Must(r.Client.Keys(t.Context(), redisconn.QueueKey(redisconn.Jobs, "processed:*")).Result())(t)
	require.Len(t, counts, 1, "a day's")
	require.Positive(t, r.Client.TTL(t.Context(), counts[0]).Val())
	for _, key := range append(counts, redisconn.QueueKey(redisconn.Jobs, "processed")) {
		require.Equal(t, "3", r.Client.Get(t.Context(), key).Val())
	}
}

func TestFinisherIsBounded(t *testing.T) {
	t.Parallel()
	f := newFinisher(nil, redisconn.Jobs)
	for range maxFinished {
		require.NoError(t, f.finish("", taskDone, ""))
	}
	require.ErrorIs(t, f.finish("", taskDone, ""), errFinishFull, "asynq keeps it")
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
	now := handledNow(ts...)
	now[0].at = time.Now().Add(-finishTime - time.Second).UnixNano()
	require.NoError(t, f.end(t.Context(), now))
	require.Equal(t, "active", redistest.JobState(t, r, ts[0]))
	require.Empty(t, redistest.JobState(t, r, ts[1]))
	require.NoError(t, f.end(t.Context(), now[:1]), "there is nothing to retry")
}
