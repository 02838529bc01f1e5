package repo

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Bounds of the batcher, for tests.
const (
	MaxFlushItems = maxFlushItems
	Flushers      = flushers

	MaxBatchInserts = maxBatchInserts
)

// BatchKeysTaken gives the number of keys that callers hold.
func (s *Store) BatchKeysTaken() int {
	s.onceKeys.mu.Lock()
	defer s.onceKeys.mu.Unlock()
	return len(s.onceKeys.locks)
}

// ScanUTC makes a test's own connections hand out times as the store does.
var ScanUTC = scanUTC

// Pool gives tests the store's own connections, to exhaust or count them.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Queued gives the number of items that wait for a flusher.
func (s *Store) Queued(operation string) int {
	switch operation {
	case "insert":
		return s.inserts.queued()
	case "claim", "start", "finish":
		return s.steps.queued()
	case "cancel":
		return s.cancels.queued()
	case "record":
		return s.records.queued()
	}
	panic("unknown operation " + operation)
}

func (b *batcher[T, R]) queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// composed are the statements that are made of a text in sql/ and of something else.
var composed = map[string]string{
	"step": stepJobs, "stepWithin": stepJobsWithin, "stepInTime": stepJobsInTime, "stepWithinInTime": stepJobsWithinInTime,
	"emitInTime": emitEventInTime, "queueDueInTime": queueDueInTime, "dueSchedulesInTime": dueSchedulesInTime,
	"retryAnyway": retryAnyway, "insertRuns": insertRuns, "insertOwn": insertOwn,
	"listByClient": listByClient, "listByBatch": listByBatch, "listBySchedule": listBySchedule,
	"countBulkOfClient": bulkOfClient.count, "countBulkOfBatch": bulkOfBatch.count, "countBulkOfAll": bulkOfAll.count,
	"gatherBulkOfClient": bulkOfClient.gather, "gatherBulkOfBatch": bulkOfBatch.gather, "gatherBulkOfAll": bulkOfAll.gather,
	"eraseJobsDeliveries": eraseJobsDeliveries, "eraseWebhooksDeliveries": eraseWebhooksDeliveries,
	"jobsHaveDeliveries": jobsHaveDeliveries, "webhooksHaveDeliveries": webhooksHaveDeliveries, "eraseBatches": eraseBatches,
	"eraseTombstones": eraseTombstones, "countDeliveries": countDeliveries,
	"countAllWebhooks": countAllWebhooks, "countBatches": countBatches, "countTombstones": countTombstones,
	"listByWebhook": listByWebhook, "listFailed": listFailed, "listByJob": listByJob, "anyWebhooks": anyWebhooks,
	"oneWebhook": oneWebhook, "clientsWebhooks": clientsWebhooks, "anyDeliveries": anyDeliveries,
	"webhookDeliveries": webhookDeliveries, "jobDeliveries": jobDeliveries,
	"anyJobs": anyJobs.list, "clientJobs": clientJobs.list, "batchJobs": batchJobs.list, "endedJobs": endedJobs.list,
	"queuedJobs": queuedJobs.list, "scheduledJobs": scheduledJobs.list, "heldJobs": heldJobs.list,
	"anyJobsCount": anyJobs.count, "clientJobsCount": clientJobs.count, "batchJobsCount": batchJobs.count,
	"endedJobsCount": endedJobs.count, "queuedJobsCount": queuedJobs.count, "scheduledJobsCount": scheduledJobs.count,
	"heldJobsCount": heldJobs.count,
}

// Statements are all texts that are sent, by the names that they have in sql/ or in composed.
var Statements = func() map[string]string {
	all := maps.Clone(composed)
	for _, name := range regexp.MustCompile(`statement\("(\w+)"\)`).FindAllStringSubmatch(goSources(), -1) {
		all[name[1]] = statement(name[1])
	}
	return all
}()

func goSources() string {
	files, err := filepath.Glob("*.go")
	var all strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") || err != nil {
			continue
		}
		var text []byte
		text, err = os.ReadFile(f)
		all.Write(text)
	}
	if err != nil {
		panic(err)
	}
	return all.String()
}

// Sources gives the code of the package, without tests.
var Sources = goSources

// Verb names a statement for its span.
var Verb = verb

// KeepOrder makes flushes of new jobs wait for so long for the ones before them.
func (s *Store) KeepOrder(wait time.Duration) { s.order.wait = wait }

// CreatedNow is created_at of a job that is submitted now: Postgres' time, or a little less.
func (s *Store) CreatedNow() time.Time {
	now, _ := s.order.clock.now()
	return now
}
