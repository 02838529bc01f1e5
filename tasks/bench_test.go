package tasks

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// BenchmarkEnqueue is what the API does after a commit, until Redis has it.
func BenchmarkEnqueue(b *testing.B) {
	r := newDB(b)
	q := startQueue(b, r, QueueConfig{Buffer: b.N})
	ts := newTasks(b.N)
	used := cpuNow(b)
	b.ResetTimer()
	for _, t := range ts {
		q.Enqueue(t)
	}
	for value(r.metrics.enqueued.WithLabelValues(resultOK)) < float64(b.N) {
		time.Sleep(100 * time.Microsecond)
	}
	perSecond(b)
	used.report(b)
}

// BenchmarkEnqueueOneByOne is the yardstick: a round trip a task.
func BenchmarkEnqueueOneByOne(b *testing.B) {
	r := newDB(b)
	q := NewQueue(r, QueueConfig{})
	q.client = asynq.NewClientFromRedisClient(r.client)
	ts := newTasks(b.N)
	b.ResetTimer()
	for _, t := range ts {
		require.NoError(b, q.enqueue(b.Context(), t))
	}
	perSecond(b)
}

func BenchmarkDispatch(b *testing.B) {
	q := NewQueue(newDB(b), QueueConfig{})
	ts := newTasks(b.N)
	b.ResetTimer()
	for len(ts) > 0 {
		n := min(500, len(ts))
		_, err := q.Dispatch(b.Context(), ts[:n])
		require.NoError(b, err)
		ts = ts[n:]
	}
	perSecond(b)
}

func BenchmarkWorkers(b *testing.B) {
	for name, cfg := range map[string]WorkersConfig{
		"1 server":  {Concurrency: 100, Servers: 1},
		"2 servers": {Concurrency: 100, Servers: 2},
		"4 servers": {Concurrency: 100, Servers: 4},
	} {
		b.Run(name, func(b *testing.B) {
			r := newDB(b)
			_, err := NewQueue(r, QueueConfig{}).Dispatch(b.Context(), newTasks(b.N))
			require.NoError(b, err)
			var done atomic.Int64
			finished := make(chan struct{})
			used := cpuNow(b)
			b.ResetTimer()
			startWorkers(b, r, cfg, func(context.Context, job.Task) error {
				if done.Add(1) == int64(b.N) {
					close(finished)
				}
				return nil
			})
			<-finished
			perSecond(b)
			used.report(b)
		})
	}
}

// BenchmarkAnnounce is what a process does for each event or step of progress,
// of 1,000 jobs of 10 clients, until Redis has it.
func BenchmarkAnnounce(b *testing.B) {
	for name, progress := range map[string]*job.Progress{"event": nil, "progress": {Percentage: 50, Phase: "RENDERING"}} {
		b.Run(name, func(b *testing.B) {
			r := newDB(b)
			q := startQueue(b, r, QueueConfig{})
			clients, jobs := newTasks(10), newTasks(1000)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				for len(q.news) == newsBuffer {
					time.Sleep(10 * time.Microsecond)
				}
				q.Publish(job.Notification{ClientID: clients[i%10].JobID, JobID: jobs[i%1000].JobID, Attempt: 1, Progress: progress})
			}
			for newsOf(r, resultOK) < float64(b.N) {
				time.Sleep(100 * time.Microsecond)
			}
			perSecond(b)
		})
	}
}

func BenchmarkAllow(b *testing.B) {
	l := newLimiter(b, newDB(b), LimiterConfig{PerMinute: maxPerMinute})
	client := newTask().JobID
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !l.Allow(b.Context(), client).OK {
				b.Fail()
			}
		}
	})
	perSecond(b)
}

func perSecond(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkWake is what a process does after each commit, by how many clients
// the commits are of.
func BenchmarkWake(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint(n, " clients"), func(b *testing.B) {
			q := startQueue(b, newDB(b), QueueConfig{})
			clients := newClients(n)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				q.WakeDelivery(clients[i%n])
			}
		})
	}
}

// BenchmarkWakeAll is the way of hints of as many clients into Redis.
func BenchmarkWakeAll(b *testing.B) {
	q := NewQueue(newDB(b), QueueConfig{})
	clients := newClients(b.N)
	b.ResetTimer()
	require.NoError(b, q.WakeDeliveries(b.Context(), clients))
	perSecond(b)
}
