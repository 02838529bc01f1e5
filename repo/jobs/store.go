// Package jobs stores jobs and what is made of them or makes them: batches, bulk operations and schedules; the
// leases of workers; the pauses that hold jobs back; idempotency keys. Each change of a job's state is one guarded
// statement that writes the state, the events, the report and the result together, so nothing is ever half-written.
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

var statement, variant = pg.Statements(files, map[string]string{
	"attemptColumns": AttemptColumns, "batchColumns": batchColumns, "bulkColumns": bulkColumns, "bulkItemColumns": bulkItemColumns,
	"bulkJobColumns": bulkJobColumns, "heldColumns": heldColumns, "jobColumns": jobColumns, "listColumns": listColumns,
	"pauseColumns": pauseColumns, "scenarioColumns": scenarioColumns, "scheduleColumns": scheduleColumns,
	"stepColumns": stepColumns, "taskColumns": taskColumns,
	"throttledUntil": "timestamptz '" + job.ThrottledUntil.Format(time.DateTime+"-07") + "'",
	"pausedUntil":    "timestamptz '" + job.PausedUntil.Format(time.DateTime+"-07") + "'",
})

// Store stores jobs.
type Store struct {
	db      *pg.DB
	clients *clients.Store
	maxHeld int // how many jobs of one client workers hold at once; 0: any number

	order   *order             // of flushes of new jobs
	damaged prometheus.Counter // results whose bytes do not match their digest
	inserts *pg.Batcher[insertion, job.Receipt]
	cancels *pg.Batcher[cancelRequest, job.Canceling]
	retries *pg.Batcher[retryRequest, job.Change]
	steps   *pg.Batcher[step, stepAnswer]

	batchSlots pg.Semaphore           // of transactions that insert batches
	onceSlots  pg.Semaphore           // of transactions of Once
	onceKeys   pg.KeyedMutex[onceKey] // of requests that are being done, and of batches that are being inserted
}

// MaxBatchInserts is how many batches are inserted at once. One takes long, and
// holds its connection all the time.
const MaxBatchInserts = 3

// New makes a Store. Workers hold at most maxHeld jobs of one client at once; 0: any number.
func New(db *pg.DB, c *clients.Store, maxHeld int, metrics telemetry.Factory) *Store {
	s := &Store{
		db: db, clients: c, maxHeld: maxHeld,
		order: newOrder(metrics.Counter("submissions_out_of_order_total",
			"Jobs that were handed to the queue after younger ones, because their commit took longer than a second.")),
		damaged:    metrics.Counter("results_damaged_total", "Results that were not served because their bytes do not match their digest."),
		batchSlots: make(pg.Semaphore, MaxBatchInserts), onceSlots: make(pg.Semaphore, maxOnce),
	}
	s.order.service = s.serviceTime
	s.inserts = pg.NewBatcher("insert", db, s.insertJobs, submissionKey, submissionBytes)
	s.inserts.Prepare, s.inserts.Begin = s.learnClock, s.beginInserts
	s.cancels = pg.NewBatcher("cancel", db, s.cancelJobs, func(r cancelRequest) string { return pg.KeyOf(r.id) }, nil)
	s.retries = pg.NewBatcher("retry", db, s.retryJobs, func(r retryRequest) string { return pg.KeyOf(r.id) }, nil)
	s.steps = pg.NewBatcher(exchanges, db, s.exchange, func(st step) string { return pg.KeyOf(st.job) }, stepBytes)
	s.steps.Operation = func(st step) pg.Operation { return st.operation }
	db.Start(s.inserts, s.cancels, s.retries, s.steps)
	return s
}

// KeepOrder makes flushes of new jobs wait for so long for the ones before them: tests are more patient.
func KeepOrder(s *Store, wait time.Duration) { s.order.wait = wait }

// KeysHeld gives the number of idempotency keys that callers hold, for tests.
func KeysHeld(s *Store) int { return s.onceKeys.Held() }
