package tasks_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/consumer"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestWorkersWithoutPubSub(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	url := proxy(t, server.Port(), func(sent []byte) bool { return !bytes.Contains(sent, []byte("subscribe")) })
	r := redistest.ConnectHanging(t, url)
	handled, _ := startJobs(t, r, consumer.Config{ShutdownTimeout: 50 * time.Millisecond})
	q := redistest.Start(t, queue.New(r, queue.Config{}))
	for range 3 {
		task := redistest.Task()
		q.Enqueue(task)
		require.Equal(t, task, redistest.Receive(t, handled, "the task"))
	}
}

// An asynq server waits for the answer to its first subscription for ever.
func TestWorkersStopWhileASubscriptionHangs(t *testing.T) {
	t.Parallel()
	subscribed := make(chan struct{}, 100)
	url := proxy(t, redistest.Own(t).Port(), func(sent []byte) bool {
		if !bytes.Contains(sent, []byte("subscribe")) {
			return true
		}
		subscribed <- struct{}{}
		return false
	})
	c := consumer.NewJobs(redistest.ConnectHanging(t, url), consumer.Config{ShutdownTimeout: 50 * time.Millisecond},
		func(context.Context, job.Task) error { return nil }, func(job.ID) {})
	require.NoError(t, c.Start(t.Context()))
	redistest.Receive(t, subscribed, "our subscription or asynq's")
	redistest.Receive(t, subscribed, "the other one")
	ctx, cancel := context.WithTimeout(t.Context(), redistest.Within)
	defer cancel()
	require.NoError(t, c.Stop(ctx))
}
