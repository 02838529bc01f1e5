package queue

import (
	"context"
	"os"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// Short forms of clients.
var anna, bert = job.ID{15: 0xa}, job.ID{15: 0xb}

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func startQueue(t testing.TB, r *redisconn.Redis, cfg Config) *Queue {
	t.Helper()
	q := New(r, cfg)
	q.Start()
	t.Cleanup(func() { _ = q.Stop(context.Background()) })
	return q
}

func inspector(r *redisconn.Redis) *asynq.Inspector { return asynq.NewInspector(r) }

// stateOf is a task's state in Redis, "" for none.
func stateOf(t testing.TB, r *redisconn.Redis, task job.Task) string {
	t.Helper()
	return redistest.StateOf(t, r, redisconn.Jobs, TaskName(task))
}
