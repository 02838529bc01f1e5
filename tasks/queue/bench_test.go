package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/tasks/redistest"
)

// BenchmarkEnqueueByAsynq is the yardstick: a round trip a task.
func BenchmarkEnqueueByAsynq(b *testing.B) {
	r := redistest.DB(b)
	q := New(r, Config{})
	ts := redistest.Tasks(b.N)
	b.ResetTimer()
	for _, t := range ts {
		byAsynq(b, r, q, t)
	}
	perSecond(b)
}

func BenchmarkDispatch(b *testing.B) {
	q := New(redistest.DB(b), Config{})
	ts := redistest.Tasks(b.N)
	b.ResetTimer()
	for len(ts) > 0 {
		n := min(500, len(ts))
		_, err := q.Dispatch(b.Context(), ts[:n])
		require.NoError(b, err)
		ts = ts[n:]
	}
	perSecond(b)
}

// BenchmarkWake is what a process does after each commit, by how many clients
// the commits are of.
func BenchmarkWake(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint(n, " clients"), func(b *testing.B) {
			q := startQueue(b, redistest.DB(b), Config{})
			clients := redistest.IDs(n)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				q.WakeDelivery(clients[i%n])
			}
		})
	}
}

// BenchmarkWakeAll wakes as many clients, until Redis has it.
func BenchmarkWakeAll(b *testing.B) {
	q := New(redistest.DB(b), Config{})
	clients := redistest.IDs(b.N)
	b.ResetTimer()
	require.NoError(b, q.WakeDeliveries(b.Context(), clients))
	perSecond(b)
}

func perSecond(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(0, "ns/op")
}
