//go:build slow

package main

import (
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/app/schedules"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

const benchSchedules = `INSERT INTO schedules (schedule_id, client_id, name, cron, time_zone, jitter_ms, overlap, catch_up,
	catch_up_max, job,
	language, request_id, paused, created_at, updated_at, due_at, look_at)
SELECT gen_random_uuid(), md5((i % 100)::text)::uuid, '', '* * * * *', 'Europe/Berlin', 0, 'skip', 'last', 1,
	'{"type":"EXECUTE","work_kind":"SUCCESS_FAST","params":{"a":1}}', 'en', 'r', false, now(), now(), at, at
FROM generate_series(1, $1) i, (SELECT date_trunc('minute', now()) AS at) t`

func benchRunner(b *testing.B) (*schedules.Runner, *pgxpool.Pool) {
	b.Helper()
	url := repotest.URL(b)
	store := repotest.OpenURL(b, url, func(c *repo.Config) { c.Timeout = time.Minute })
	db, err := pgxpool.New(b.Context(), url)
	require.NoError(b, err)
	b.Cleanup(db.Close)
	log, metrics := slog.New(slog.DiscardHandler), app.NewMetrics(prometheus.NewRegistry())
	limits := jobs.Limits{Active: math.MaxInt32, Queued: math.MaxInt32, ClientActive: math.MaxInt32, ClientQueued: math.MaxInt32}
	service := jobs.New(jobs.Config{
		Catalogue: job.Catalogue{Types: job.Types, Kinds: job.Kinds(), MaxRuntime: time.Minute}, MaxAttempts: 4, Clock: time.Now,
	}, jobs.Deps{
		Store: store, Queue: silentQueue{}, Metrics: metrics, Log: log, Receivers: func(job.ID) int { return 0 },
		Admission: &jobs.Admission{Pauses: func() job.Pauses { return nil }, Capacity: jobs.NewCapacity(limits, store, log)},
	})
	return schedules.NewRunner(store, service, metrics, log), db
}

// BenchmarkSchedulesDueAtOnce measures how long it takes to create the jobs of 10,000 schedules due at the same time. The promise is at
// most two seconds (docs/explanation/performance.md).
func BenchmarkSchedulesDueAtOnce(b *testing.B) {
	const n = 10_000
	runner, db := benchRunner(b)
	var took time.Duration
	for b.Loop() {
		b.StopTimer()
		_, err := db.Exec(b.Context(), `DELETE FROM schedules`)
		require.NoError(b, err)
		_, err = db.Exec(b.Context(), benchSchedules, n)
		require.NoError(b, err)
		before := countJobs(b, db)
		b.StartTimer()
		began := time.Now()
		require.NoError(b, runner.Round(b.Context(), func() bool { return true }))
		took += time.Since(began)
		b.StopTimer()
		require.Equal(b, n, countJobs(b, db)-before)
		b.StartTimer()
	}
	b.ReportMetric(took.Seconds()/float64(b.N), "s/10000")
}

func countJobs(b *testing.B, db *pgxpool.Pool) (n int) {
	b.Helper()
	require.NoError(b, db.QueryRow(b.Context(), `SELECT count(*) FROM jobs`).Scan(&n))
	return n
}

type silentQueue struct{ app.Queue }

func (silentQueue) Publish(job.Notification) {}
func (silentQueue) Enqueue(job.Task)         {}
