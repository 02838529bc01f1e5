package tasks

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// listen starts workers that hand over the ids of cancelled jobs, and waits
// until they listen.
func listen(t *testing.T, r *Redis, q *Queue) <-chan job.ID {
	t.Helper()
	received := make(chan job.ID, 10000)
	w := NewJobConsumer(r, WorkersConfig{}, func(context.Context, job.Task) error { return nil }, func(id job.ID) { received <- id })
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(w.Stop)
	requireSignals(t, q, received)
	return received
}

// requireSignals signals until a signal comes through, and drains the channel.
func requireSignals(t *testing.T, q *Queue, received <-chan job.ID) {
	t.Helper()
	last := newTask().JobID
	eventually(t, func() bool {
		q.SignalCancel(last)
		select {
		case id := <-received:
			return id == last
		default:
			return false
		}
	})
	marker := newTask().JobID
	q.SignalCancel(marker)
	for receive(t, received, "the last signal") != marker {
	}
}

func TestCancelSignal(t *testing.T) {
	t.Parallel()
	server := ownRedis(t) // channels are shared by all databases of a server
	sender, receiver := connect(t, server.URL()), connect(t, server.URL())
	q := startQueue(t, sender, QueueConfig{})
	received := listen(t, receiver, q)
	also := listen(t, receiver, q)

	for _, nonsense := range []string{"", "x", "0190f3a4-7d6e-7c55-8a2b-3d1f5e6a7b8", "{}"} {
		require.NoError(t, sender.client.Publish(t.Context(), cancelChannel, nonsense).Err())
	}
	var ids []job.ID
	for _, task := range newTasks(1000) {
		ids = append(ids, task.JobID)
		q.SignalCancel(task.JobID)
	}
	for _, ch := range []<-chan job.ID{received, also} {
		for receive(t, ch, "the first signal") != ids[0] {
		}
		for _, id := range ids[1:] {
			require.Equal(t, id, receive(t, ch, "a signal"))
		}
	}
	require.Equal(t, 8., value(receiver.metrics.signals.WithLabelValues(resultBad)))
}

func TestCancelSignalAfterARestart(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	r := connect(t, server.URL())
	q := startQueue(t, r, QueueConfig{})
	received := listen(t, r, q)
	require.NoError(t, server.Kill())
	q.SignalCancel(newTask().JobID)
	eventually(t, func() bool { return value(r.metrics.signals.WithLabelValues(resultFailed)) > 0 })
	require.NoError(t, server.Start(t.Context()))
	requireSignals(t, q, received)
}
