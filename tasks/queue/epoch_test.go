package queue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestEpoch(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	epoch, runID := redistest.Epoch(t, q)
	require.Zero(t, epoch)
	require.Len(t, runID, 40)

	require.NoError(t, q.SetEpoch(t.Context(), 7))
	epoch, again := redistest.Epoch(t, q)
	require.Equal(t, int64(7), epoch)
	require.Equal(t, runID, again)
	queues := redistest.Must(inspector(r).Queues())(t)
	require.ElementsMatch(t, redisconn.Queues, queues, "registered for the dashboard")

	require.NoError(t, r.Client.FlushDB(t.Context()).Err())
	epoch, again = redistest.Epoch(t, q)
	require.Zero(t, epoch, "a flush takes the sentinel along")
	require.Equal(t, runID, again)
	require.NoError(t, q.SetEpoch(t.Context(), 8))
	queues = redistest.Must(inspector(r).Queues())(t)
	require.ElementsMatch(t, redisconn.Queues, queues)

	require.NoError(t, r.Client.Set(t.Context(), epochKey, "nonsense", 0).Err())
	epoch, _ = redistest.Epoch(t, q)
	require.Zero(t, epoch)
}

func TestEpochTellsOfARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.Connect(t, server.URL())
	q := New(r, Config{})
	require.NoError(t, q.SetEpoch(t.Context(), 3))
	_, before := redistest.Epoch(t, q)
	require.NoError(t, server.Stop())
	_, _, err := q.Epoch(t.Context())
	require.Error(t, err, "no answer is not an empty Redis")
	require.NoError(t, server.Start(t.Context()))
	var epoch int64
	var after string
	redistest.Eventually(t, func() bool {
		epoch, after, err = q.Epoch(t.Context())
		return err == nil
	})
	require.Equal(t, int64(3), epoch, "the append-only file has it")
	require.NotEqual(t, before, after)
}
