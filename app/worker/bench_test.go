package worker

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/job"
)

// instantStore grants every claim and takes every write.
type instantStore struct {
	ClaimStore
	LeaseStore
	job job.Job
}

func (s *instantStore) Claim(_ context.Context, _, id job.ID, attempt int) (*job.Claim, job.NotClaimed, error) {
	c := &job.Claim{Lease: job.Lease{JobID: id, Attempt: attempt, Fence: 1}, Job: s.job}
	c.Job.ID = id
	return c, job.NotClaimed{}, nil
}

func (s *instantStore) Finish(_ context.Context, f job.Finish) (job.Finished, error) {
	return job.Finished{Lease: f.Lease, State: f.State, WorkKind: s.job.WorkKind}, nil
}

// BenchmarkHandle is what a job costs the worker itself, with storage and work
// that take no time.
func BenchmarkHandle(b *testing.B) {
	for name, log := range map[string]*slog.Logger{
		"quiet":  slog.New(slog.DiscardHandler),
		"logged": slog.New(slog.NewJSONHandler(io.Discard, nil)),
	} {
		b.Run(name, func(b *testing.B) {
			d := apptest.DefinitionOf(job.PayloadSmall)
			result := apptest.GoodResult(*d)
			store := &instantStore{job: job.Job{
				ClientID: apptest.ClientA, Type: job.Execute, WorkKind: d.WorkKind, Definition: d, Attempt: 1, MaxAttempts: 4, RequestID: "request-1",
			}}
			run := apptest.RunnerFunc(func(context.Context, job.Definition, int) (*job.Result, error) { return result, nil })
			queue, metrics := apptest.SilentQueue{}, app.NewMetrics(prometheus.NewRegistry())
			w := New(Config{Concurrency: 100, Lease: apptest.LeaseTime, Heartbeat: apptest.Heartbeat, Limit: apptest.Limit,
				Backoff: apptest.Backoff},
				store, store, queue, batches.NewCompleter(nil, queue, metrics, log), run, metrics, log)
			w.id = app.NewID()
			task := job.Task{Attempt: 1}
			b.ReportAllocs()
			for b.Loop() {
				task.JobID[0]++
				if err := w.Handle(context.Background(), task); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
