package consumer

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// listen starts workers that hand over the ids of cancelled jobs, and waits
// until they listen.
func listen(t *testing.T, r *redisconn.Redis, q *queue.Queue) <-chan job.ID {
	t.Helper()
	received := make(chan job.ID, 10000)
	w := NewJobs(r, Config{}, func(context.Context, job.Task) error { return nil }, func(id job.ID) { received <- id })
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() { _ = w.Stop(context.Background()) })
	requireSignals(t, q, received)
	return received
}

// requireSignals signals until a signal comes through, and drains the channel.
func requireSignals(t *testing.T, q *queue.Queue, received <-chan job.ID) {
	t.Helper()
	last := redistest.Task().JobID
	redistest.Eventually(t, func() bool {
		q.SignalCancel(last)
		select {
		case id := <-received:
			return id == last
		default:
			return false
		}
	})
	marker := redistest.Task().JobID
	q.SignalCancel(marker)
	for redistest.Receive(t, received, "the last signal") != marker {
	}
}

func TestCancelSignal(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t) // channels are shared by all databases of a server
	sender, receiver := redistest.Connect(t, server.URL()), redistest.Connect(t, server.URL())
	q := redistest.Start(t, queue.New(sender, queue.Config{}))
	received := listen(t, receiver, q)
	also := listen(t, receiver, q)

	for _, nonsense := range []string{"", "x", "0190f3a4-7d6e-7c55-8a2b-3d1f5e6a7b8", "{}"} {
		require.NoError(t, sender.Client.Publish(t.Context(), notify.CancelChannel, nonsense).Err())
	}
	var ids []job.ID
	for _, task := range redistest.Tasks(1000) {
		ids = append(ids, task.JobID)
		q.SignalCancel(task.JobID)
	}
	for _, ch := range []<-chan job.ID{received, also} {
		for redistest.Receive(t, ch, "the first signal") != ids[0] {
		}
		for _, id := range ids[1:] {
			require.Equal(t, id, redistest.Receive(t, ch, "a signal"))
		}
	}
	require.Equal(t, 8., testutil.ToFloat64(receiver.Metrics.Signals.WithLabelValues(redisconn.ResultBad)))
}
