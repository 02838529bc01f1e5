//go:build slow

package consumer

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// asynq tries every five seconds to remove a task whose handler ended while Redis was down.
func TestHandledTasksAreRemovedOnceRedisIsBack(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	_, task, release := startHeld(t, r, Config{})
	require.NoError(t, server.Stop())
	release()
	redistest.Eventually(t, func() bool { return testutil.ToFloat64(r.Metrics.Handled.WithLabelValues(redisconn.ResultOK)) == 1 })
	require.NoError(t, server.Start(t.Context()))
	redistest.Eventually(t, func() bool { return redistest.JobState(t, r, task) == "" })
}
