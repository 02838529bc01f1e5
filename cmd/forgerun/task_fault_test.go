package main

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

// Every task comes three times, in no order, and those of jobs that wait for
// their time come too early.
func TestTasksDuplicatedReorderedAndEarly(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	ids := u.submitMany(api, 50, execute("PAYLOAD_SMALL"))
	for range 10 {
		ids = append(ids, u.submit(api, deferred(8*time.Second)))
	}
	s.awaitRelayed(ids)
	connection := asynq.RedisClientOpt{Addr: strings.TrimSuffix(strings.TrimPrefix(s.redis.URL(), "redis://"), "/0")}
	inspector, client := asynq.NewInspector(connection), asynq.NewClient(connection)
	t.Cleanup(func() { require.NoError(t, inspector.Close()); require.NoError(t, client.Close()) })
	pending, err := inspector.ListPendingTasks("jobs", asynq.PageSize(100))
	require.NoError(t, err)
	require.Len(t, pending, 50)
	scheduled, err := inspector.ListScheduledTasks("jobs", asynq.PageSize(100))
	require.NoError(t, err)
	require.Len(t, scheduled, 10)
	var duplicates []func() error
	for _, task := range append(pending, scheduled...) {
		for _, copied := range []string{"a", "b"} {
			duplicates = append(duplicates, func() error {
				_, err := client.Enqueue(asynq.NewTask(task.Type, task.Payload), asynq.TaskID(task.ID+copied), asynq.Queue("jobs"),
					asynq.MaxRetry(1000))
				return err
			})
		}
	}
	rand.Shuffle(len(duplicates), func(i, j int) { duplicates[i], duplicates[j] = duplicates[j], duplicates[i] })
	for _, enqueue := range duplicates {
		require.NoError(t, enqueue())
	}
	worker := s.startWorker()
	s.await("SUCCEEDED", ids...)
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE fence <> 1 OR attempt <> 1`))
	eventually(t, "the others are dropped and counted", func() bool { return worker.metric(`tasks_dropped_total{reason="stale"}`) >= 100 })
	s.checkInvariants()
}
