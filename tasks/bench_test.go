package tasks_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/consumer"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// BenchmarkEnqueue is what the API does after a commit, until Redis has it.
func BenchmarkEnqueue(b *testing.B) {
	r := redistest.DB(b)
	q := queue.New(r, queue.Config{Buffer: b.N})
	q.Start()
	b.Cleanup(func() { _ = q.Stop(context.Background()) })
	ts := redistest.Tasks(b.N)
	used := cpuNow(b)
	b.ResetTimer()
	for _, t := range ts {
		q.Enqueue(t)
	}
	for testutil.ToFloat64(r.Metrics.Enqueued.WithLabelValues(redisconn.ResultOK)) < float64(b.N) {
		time.Sleep(100 * time.Microsecond)
	}
	perSecond(b)
	used.report(b)
}

func BenchmarkWorkers(b *testing.B) {
	for name, cfg := range map[string]consumer.Config{
		"1 server":  {Concurrency: 100, Servers: 1},
		"2 servers": {Concurrency: 100, Servers: 2},
		"4 servers": {Concurrency: 100, Servers: 4},
		"plain":     {Concurrency: 100, Servers: 2, PlainFetch: true},
	} {
		b.Run(name, func(b *testing.B) {
			r := redistest.DB(b)
			_, err := queue.New(r, queue.Config{}).Dispatch(b.Context(), redistest.Tasks(b.N))
			require.NoError(b, err)
			var done atomic.Int64
			finished := make(chan struct{})
			used := cpuNow(b)
			b.ResetTimer()
			c := consumer.NewJobs(r, cfg, func(context.Context, job.Task) error {
				if done.Add(1) == int64(b.N) {
					close(finished)
				}
				return nil
			}, func(job.ID) {})
			require.NoError(b, c.Start(b.Context()))
			b.Cleanup(func() { _ = c.Stop(context.Background()) })
			<-finished
			perSecond(b)
			used.report(b)
		})
	}
}

func perSecond(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(0, "ns/op")
}
