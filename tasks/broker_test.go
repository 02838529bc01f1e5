package tasks

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// All tasks are running; of those that the dashboard shows there is a bound.
func TestShownTasksAreBounded(t *testing.T) {
	t.Parallel()
	args := make([]any, 2+2*(maxShown+1))
	keys := []string{"asynq:servers:{a:1:b}", "asynq:workers:{a:1:b}"}
	require.Len(t, shown(keys, args), 2+2*maxShown)
	require.Len(t, shown(keys, args[:6]), 6)
	require.Len(t, shown([]string{"x", "y"}, args), len(args), "any other script")
}

// asynq takes a server's word for the tasks that it still runs: all leases are
// extended, however many are shown.
func TestWorkersShowWhatTheyRun(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	dispatchAll(t, NewQueue(r, QueueConfig{}), newTasks(3)...)
	started, release := make(chan struct{}, 3), make(chan struct{})
	t.Cleanup(func() { close(release) })
	startWorkers(t, r, WorkersConfig{Concurrency: 3}, func(context.Context, job.Task) error {
		started <- struct{}{}
		<-release
		return nil
	})
	for range 3 {
		receive(t, started, "a handler")
	}
	eventually(t, func() bool {
		servers, err := inspector(r).Servers()
		return err == nil && len(servers) == 1 && len(servers[0].ActiveWorkers) == 3
	})
}
