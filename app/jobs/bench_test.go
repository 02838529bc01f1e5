package jobs

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// acceptingStore takes every job.
type acceptingStore struct{ JobStore }

func (acceptingStore) InsertJob(_ context.Context, s job.Submission) (job.Receipt, error) {
	receipt := job.Receipt{JobID: s.Job.ID, State: job.Queued, CreatedAt: time.Now()}
	s.Committed(receipt)
	return receipt, nil
}

// BenchmarkSubmit is what a submission costs the use case itself, with storage
// and a queue that take no time.
func BenchmarkSubmit(b *testing.B) {
	for name, log := range map[string]*slog.Logger{
		"quiet":  slog.New(slog.DiscardHandler),
		"logged": slog.New(slog.NewJSONHandler(io.Discard, nil)),
	} {
		b.Run(name, func(b *testing.B) {
			queue, metrics := apptest.SilentQueue{}, app.NewMetrics(prometheus.NewRegistry())
			s := New(Config{Catalogue: job.Catalogue{Types: job.Types, Kinds: job.Kinds(), MaxRuntime: apptest.Limit}, MaxAttempts: 4}, Deps{
				Jobs: acceptingStore{}, Queue: queue, Capacity: NewCapacity(oneClient(1<<40, 1<<40), nil, log), Metrics: metrics, Log: log,
			})
			r := job.Request{ClientID: apptest.ClientA, Type: job.Execute, WorkKind: job.PayloadSmall, RequestID: app.NewID().String(),
				ReceivedAt: time.Now()}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Submit(context.Background(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
