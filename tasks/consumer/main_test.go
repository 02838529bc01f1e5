package consumer

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// Short forms of clients.
var anna, bert = job.ID{15: 0xa}, job.ID{15: 0xb}

func startQueue(t testing.TB, r *redisconn.Redis, cfg queue.Config) *queue.Queue {
	t.Helper()
	q := queue.New(r, cfg)
	q.Start()
	t.Cleanup(func() { _ = q.Stop(context.Background()) })
	return q
}

func dispatchAll(t *testing.T, q *queue.Queue, ts ...job.Task) {
	t.Helper()
	answers, err := q.Dispatch(t.Context(), ts)
	require.NoError(t, err)
	for _, a := range answers {
		require.Equal(t, job.TaskEnqueued, a)
	}
}

func startWorkers(t testing.TB, r *redisconn.Redis, cfg Config, handle func(context.Context, job.Task) error) *Consumer {
	t.Helper()
	w := NewJobs(r, cfg, handle, func(job.ID) {})
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() { _ = w.Stop(context.Background()) })
	return w
}

// payloadOf is a task as the queue writes it.
func payloadOf(task job.Task) []byte {
	return fmt.Appendf(nil, `{"job":%q,"attempt":%d}`, task.JobID, task.Attempt)
}

func inspector(r *redisconn.Redis) *asynq.Inspector { return asynq.NewInspector(r) }

// stateOf is a task's state in Redis, "" for none.
func stateOf(t testing.TB, r *redisconn.Redis, task job.Task) string {
	t.Helper()
	return redistest.StateOf(t, r, redisconn.Jobs, queue.TaskName(task))
}

// deliveryNames is how many delivery tasks of a client there can be in Redis.
const deliveryNames = 3
