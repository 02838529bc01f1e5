package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestCancelsAreCounted(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		began := time.Now()
		running := w.Add(func(r *apptest.Row) { r.State, r.StartedAt = job.Running, &began })
		retried := w.Add(func(r *apptest.Row) { r.Attempt = 2 })
		apptest.Pass(3 * time.Second)
		for range 2 { // the second time nothing is canceled
			for _, task := range []job.Task{running, retried} {
				_, err := s.Cancel(context.Background(), apptest.ClientA, task.JobID)
				require.NoError(t, err)
			}
		}
		n, sum := w.Executions(job.Canceled)
		require.Equal(t, []any{uint64(1), 3.0}, []any{n, sum}, "only one of them ran")
		require.Equal(t, 2.0, w.Metric(w.Metrics.Canceled.WithLabelValues("SUCCESS_FAST")))
		require.Equal(t, 1.0, w.Metric(w.Metrics.RetryOutcomes.WithLabelValues("CANCELED")))
	})
}
