// Package jobs stores jobs and related data: batches, bulk operations, schedules, worker leases, pauses and idempotency keys. Each change
// of a job's state is one SQL statement that checks the job's current state. The statement writes the state, the events, the report and the
// result atomically.
package jobs

import (
	"embed"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/clients"
	"github.com/forgerun/forgerun/repo/pg"
)

//go:embed *.sql
var files embed.FS

var statement = pg.Statements(files, map[string]string{
	"throttledUntil": "timestamptz '" + job.ThrottledUntil.Format(time.DateTime+"-07") + "'",
	"pausedUntil":    "timestamptz '" + job.PausedUntil.Format(time.DateTime+"-07") + "'",
})

// Store stores jobs.
type Store struct {
	db      *pg.DB
	clients *clients.Store
	maxHeld int // limit of one client's ASSIGNED and RUNNING jobs; 0 for no limit

	order   *order
	damaged prometheus.Counter // results that do not match their digest
	inserts *pg.Batcher[insertion, job.Receipt]
	cancels *pg.Batcher[cancelRequest, job.Canceling]
	retries *pg.Batcher[retryRequest, job.Change]
	steps   *pg.Batcher[step, stepAnswer]

	batchSlots pg.Semaphore           // limits concurrent batch inserts
	onceSlots  pg.Semaphore           // limits concurrent transactions of Store.Once
	onceKeys   pg.KeyedMutex[onceKey] // idempotency keys of unfinished requests
}

// MaxBatchInserts limits the batches that are inserted at the same time. Each insert is slow and holds a connection until it ends.
const MaxBatchInserts = 3

// New makes a Store. `maxHeld` limits the ASSIGNED and RUNNING jobs of one client; 0 means no limit.
func New(db *pg.DB, c *clients.Store, maxHeld int, metrics telemetry.Factory) *Store {
	s := &Store{
		db: db, clients: c, maxHeld: maxHeld,
		order: newOrder(metrics.Counter("submissions_out_of_order_total",
			"Jobs that entered the queue after newer ones, because their commit took longer than a second.")),
		damaged:    metrics.Counter("results_damaged_total", "Results that were not served because their bytes do not match their digest."),
		batchSlots: make(pg.Semaphore, MaxBatchInserts), onceSlots: make(pg.Semaphore, maxOnce),
	}
	s.order.service = s.serviceTime
	s.inserts = pg.NewBatcher("insert", db, s.insertJobs, submissionKey, submissionBytes)
	s.inserts.Prepare, s.inserts.Begin = s.ensureClock, s.beginInserts
	s.cancels = pg.NewBatcher("cancel", db, s.cancelJobs, func(r cancelRequest) string { return pg.KeyOf(r.id) }, nil)
	s.retries = pg.NewBatcher("retry", db, s.retryJobs, func(r retryRequest) string { return pg.KeyOf(r.id) }, nil)
	s.steps = pg.NewBatcher(stepBatcher, db, s.writeSteps, func(st step) string { return pg.KeyOf(st.job) }, stepBytes)
	s.steps.Operation = func(st step) pg.Operation { return st.operation }
	db.Start(s.inserts, s.cancels, s.retries, s.steps)
	return s
}

// KeepOrder is for tests. It sets how long a flush of new jobs waits for earlier flushes.
func KeepOrder(s *Store, wait time.Duration) { s.order.wait = wait }

// KeysHeld is for tests. It returns the number of idempotency keys that callers hold or wait for.
func KeysHeld(s *Store) int { return s.onceKeys.Held() }
