// Package deliveries reads events, and stores webhooks and their deliveries. Events and deliveries are written in the same transaction
// as the change that they report: the statement that makes the change writes the events, and a trigger writes the deliveries.
package deliveries

import (
	"embed"
	"strconv"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/jobs"
	"github.com/forgerun/forgerun/repo/pg"
)

//go:embed *.sql
var files embed.FS

var statement = pg.Statements(files, map[string]string{
	"batchBytes": strconv.Itoa(batchBytes), "maxClaimBytes": strconv.Itoa(maxClaimBytes),
})

// Store stores webhooks and deliveries.
type Store struct {
	db     *pg.DB
	jobs   *jobs.Store
	limits WebhookLimits

	claims  *pg.Batcher[claimRequest, claim]
	records *pg.Batcher[job.DeliveryResult, job.Recorded]

	newHooks pg.KeyedMutex[job.ID] // held while a client inserts a webhook
	orphans  pg.Walk[job.EndpointKey]
}

// New makes a Store.
func New(db *pg.DB, j *jobs.Store, limits WebhookLimits) *Store {
	s := &Store{db: db, jobs: j, limits: limits.orDefault()}
	s.claims = pg.NewBatcher("pickup", db, s.claimDeliveries, func(r claimRequest) string { return pg.KeyOf(r.id) }, nil)
	s.records = pg.NewBatcher("record", db, s.recordDeliveries,
		func(r job.DeliveryResult) string { return pg.KeyOf(r.DeliveryID) }, resultBytes)
	db.Start(s.claims, s.records)
	return s
}
