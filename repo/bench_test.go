package repo_test

import (
	"context"
	"crypto/sha256"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// benchClients is how many goroutines call the store at once, as in the
// benchmark over HTTP.
const benchClients = 64

// benchFixture is a store on a durable server of its own.
func benchFixture(b *testing.B) *fixture {
	b.Helper()
	return setupAt(b, repotest.Server(b).URL())
}

// measure calls f for 0 to n-1 from benchClients goroutines and reports the
// rate.
func measure(b *testing.B, fx *fixture, f func(ctx context.Context, i int) error) {
	b.Helper()
	ctx := within(b, 10*time.Minute)
	var next atomic.Int64
	var clients sync.WaitGroup
	var failed atomic.Pointer[error]
	b.ResetTimer()
	for range benchClients {
		clients.Go(func() {
			for i := int(next.Add(1)) - 1; i < b.N; i = int(next.Add(1)) - 1 {
				if err := f(ctx, i); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	clients.Wait()
	b.StopTimer()
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	for _, operation := range []string{"insert", "claim", "start", "finish"} {
		if n, items, seconds := fx.flushes(operation); n > 0 {
			b.ReportMetric(float64(items)/float64(n), operation+"s/stmt")
			b.ReportMetric(1000*seconds/float64(n), operation+"-ms/stmt")
		}
	}
}

func BenchmarkInsertJob(b *testing.B) {
	f := benchFixture(b)
	subs := make([]job.Submission, b.N)
	for i := range subs {
		subs[i] = f.submission()
	}
	measure(b, f, func(ctx context.Context, i int) error {
		_, err := f.store.InsertJob(ctx, subs[i])
		return err
	})
}

func BenchmarkInsertJobWithKey(b *testing.B) {
	f := benchFixture(b)
	subs := make([]job.Submission, b.N)
	for i := range subs {
		subs[i] = f.submission()
		subs[i].IdempotencyKey = subs[i].Job.ID.String()
	}
	measure(b, f, func(ctx context.Context, i int) error {
		_, err := f.store.InsertJob(ctx, subs[i])
		return err
	})
}

// BenchmarkCycle measures claim, start and finish of jobs that wait already.
func BenchmarkCycle(b *testing.B) {
	f := benchFixture(b)
	ids := manyJobs(b, f, b.N)
	body := make([]byte, 1024)
	result := &job.Result{MediaType: "application/octet-stream", Body: body, SHA256: sha256.Sum256(body)}
	measure(b, f, func(ctx context.Context, i int) error {
		return cycle(ctx, f.store, f.worker, ids[i], result)
	})
}

// BenchmarkWholePath measures jobs from insert to finish, all steps at once.
func BenchmarkWholePath(b *testing.B) {
	f := benchFixture(b)
	subs := f.submissions(b.N)
	body := make([]byte, 1024)
	result := &job.Result{MediaType: "application/octet-stream", Body: body, SHA256: sha256.Sum256(body)}
	measure(b, f, func(ctx context.Context, i int) error {
		if _, err := f.store.InsertJob(ctx, subs[i]); err != nil {
			return err
		}
		return cycle(ctx, f.store, f.worker, subs[i].Job.ID, result)
	})
}

func cycle(ctx context.Context, s *repo.Store, worker, id job.ID, result *job.Result) error {
	c, _, err := s.Claim(ctx, worker, id, 1)
	if err != nil {
		return err
	}
	if _, err = s.Start(ctx, c.Lease); err != nil {
		return err
	}
	_, err = s.Finish(ctx, job.Finish{Lease: c.Lease, State: job.Succeeded, Result: result})
	return err
}

func manyJobs(b *testing.B, f *fixture, n int) []job.ID {
	b.Helper()
	ids := make([]job.ID, n)
	var inserts sync.WaitGroup
	var next atomic.Int64
	for range 4 * runtime.NumCPU() * 16 {
		inserts.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				ids[i] = f.submit()
			}
		})
	}
	inserts.Wait()
	require.NotContains(b, ids, job.ID{})
	return ids
}
