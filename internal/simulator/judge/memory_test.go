package judge

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// manyJobs is a history of many sound jobs, made up as it is read, in parts of at
// most as many jobs as the reader of real files would give.
type manyJobs struct{ jobs int64 }

func (c manyJobs) Jobs(bucket int, fn func(map[string][]history.Fact) error) error {
	const part = 50 // 2 MB, at 40 kB a job that is as busy as these
	jobs := map[string][]history.Fact{}
	for n := int64(bucket); n < c.jobs; n += history.Buckets {
		w := newWorld()
		w.last = n
		t := w.job(0, "SUCCESS_FAST").success().close()
		jobs[t.id] = w.facts
		if len(jobs) == part {
			if err := fn(jobs); err != nil {
				return err
			}
			jobs = map[string][]history.Fact{}
		}
	}
	return fn(jobs)
}

func (manyJobs) Each(int, func(history.Fact) error) error { return nil }

func (c manyJobs) run() RunContext {
	run := newWorld().run
	run.Tickets = c.jobs
	return run
}

// peakOf gives the most memory that is in use while the crowd is judged.
func peakOf(t *testing.T, c manyJobs) uint64 {
	t.Helper()
	runtime.GC()
	done, peak := make(chan struct{}), make(chan uint64)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		most := uint64(0)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-done:
				peak <- most
				return
			case <-tick.C:
			}
		}
	}()
	v, err := Judge(t.Context(), c, c.run())
	close(done)
	most := <-peak
	require.NoError(t, err)
	require.Empty(t, printed(v))
	require.Equal(t, c.jobs, v.Jobs)
	return most
}

// Ten times as many jobs take hardly more memory: what is held of them is a byte
// a ticket, and a part of a file a goroutine. It does not run in parallel, for
// the other tests' memory would be counted.
func TestMemoryStaysFlat(t *testing.T) {
	few, many := peakOf(t, manyJobs{1_000}), peakOf(t, manyJobs{10_000}) // of 40 kB each
	t.Logf("peak heap: %d MiB with 1,000 jobs, %d MiB with 10,000", few>>20, many>>20)
	const allowed = 16 << 20
	require.Less(t, many, few+allowed)
}

// BenchmarkJudge judges jobs from the disk, each with all that is seen of it and
// a webhook for every event: a job an operation.
func BenchmarkJudge(b *testing.B) {
	w := newWorld()
	for range 2000 {
		w.job(0, "SUCCESS_FAST").success().close()
	}
	r := w.write(b)
	b.ReportAllocs()
	b.ResetTimer()
	judged := int64(0)
	for judged < int64(b.N) {
		v, err := Judge(b.Context(), r, w.run)
		require.NoError(b, err)
		require.True(b, v.OK(), printed(v))
		judged += v.Jobs
	}
	b.ReportMetric(float64(judged)/b.Elapsed().Seconds(), "jobs/s")
}
