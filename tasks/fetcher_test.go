package tasks

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// soon is a lease's end as asynq gives it.
func soon() int64 { return time.Now().Add(30 * time.Second).Unix() }

func TestFetcherTakesNoMoreThanItHasSlots(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	ts := newTasks(10)
	dispatchAll(t, NewQueue(r, QueueConfig{}), ts...)
	f := newFetcher(r.client, within, queueJobs, 3, never)
	active := func() int64 { return r.client.LLen(t.Context(), queueKey(queueJobs, "active")).Val() }
	for range 3 {
		_, err := f.next(t.Context(), soon())
		require.NoError(t, err)
		require.Equal(t, int64(3), active())
	}
	f.slots.leave()
	f.slots.leave()
	_, err := f.next(t.Context(), soon())
	require.NoError(t, err)
	require.Equal(t, int64(5), active())
	require.Equal(t, int64(5), r.client.ZCard(t.Context(), queueKey(queueJobs, "lease")).Val(), "asynq runs them again when a worker is lost")
}

func TestFetcherPutsBackWhatItDidNotHandOver(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	ts := newTasks(6)
	q := NewQueue(r, QueueConfig{})
	for _, task := range ts { // in this order
		dispatchAll(t, q, task)
	}
	f := newFetcher(r.client, within, queueJobs, 4, never)
	first, err := f.fetch(t.Context(), soon())
	require.NoError(t, err)
	require.Contains(t, first, taskName(ts[0]))
	close(f.quiet)
	f.silence()
	f.silence()
	_, err = f.fetch(t.Context(), soon())
	require.ErrorIs(t, err, redis.Nil, "it is quiet")
	require.Equal(t, "active", stateOf(t, r, ts[0]))
	require.Equal(t, int64(1), r.client.ZCard(t.Context(), queueKey(queueJobs, "lease")).Val())

	f = newFetcher(r.client, within, queueJobs, 10, never)
	for _, task := range ts[1:] {
		require.Equal(t, "pending", stateOf(t, r, task))
	}
	for _, task := range ts[1:] {
		message, err := f.fetch(t.Context(), soon())
		require.NoError(t, err)
		require.Contains(t, message, taskName(task), "in their order")
	}
}

func TestFetcherOfAPausedQueue(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	task := newTask()
	dispatchAll(t, NewQueue(r, QueueConfig{}), task)
	require.NoError(t, inspector(r).PauseQueue(queueJobs))
	f := newFetcher(r.client, within, queueJobs, 1, time.Millisecond)
	_, err := f.fetch(t.Context(), soon())
	require.ErrorIs(t, err, redis.Nil)
	require.NoError(t, inspector(r).UnpauseQueue(queueJobs))
	_, err = f.fetch(t.Context(), soon())
	require.NoError(t, err)
}

// All wait for the bell, and one of them keeps watch.
func TestFetcherWakesAll(t *testing.T) {
	t.Parallel()
	f := newFetcher(newDB(t).client, within, queueJobs, 5, never)
	var waiting sync.WaitGroup
	for range 5 {
		waiting.Go(func() { _, _ = f.fetch(t.Context(), soon()) })
	}
	eventually(t, func() bool { return len(f.watch) == 1 })
	eventually(t, func() bool {
		f.bell.ring()
		return waitFor(&waiting, time.Millisecond)
	})
	require.Empty(t, f.watch)
}
