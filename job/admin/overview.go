package admin

import (
	"time"

	"github.com/forgerun/forgerun/job"
)

// Window is for how long an overview looks back.
type Window string

// The windows of an overview.
const (
	LastQuarterHour Window = "15m"
	LastHour        Window = "1h"
	LastDay         Window = "24h"
)

// Span gives how long a window is, and the step of its history; 0 for a window that there is not.
func (w Window) Span() (length, step time.Duration) {
	switch w {
	case LastQuarterHour:
		return 15 * time.Minute, 10 * time.Second
	case LastHour:
		return time.Hour, time.Minute
	case LastDay:
		return 24 * time.Hour, 5 * time.Minute
	}
	return 0, 0
}

// Situation is what storage tells of the service at one moment.
type Situation struct {
	AsOf     job.Time     `json:"as_of"`
	Created  int          `json:"created"`
	Queued   int          `json:"queued"`
	Assigned int          `json:"assigned"`
	Running  int          `json:"running"`
	Waiting  WaitingJobs  `json:"waiting"`
	Workers  WorkerTotals `json:"workers"`
	// LostWorkers have had no lease for some seconds, and still hold LostJobs.
	LostWorkers int `json:"lost_workers"`
	LostJobs    int `json:"lost_jobs"`
	// Silent workers are alive by their lease, but have not sent three heartbeats in a row.
	Silent []SilentWorker `json:"silent"`
	// Died is how many workers were found dead in the last quarter of an hour.
	Died       int  `json:"died"`
	LeaderGone bool `json:"leader_gone"` // the leader's lease has been free for some seconds
	Throttled  int  `json:"throttled"`   // clients with jobs that wait because their client runs enough of them
	// Pauses are what operators have stopped.
	Pauses     job.Pauses        `json:"pauses"`
	Failing    WebhookTrouble    `json:"failing"`  // webhooks that are enabled and have failed FailingAfter times in a row
	Disabled   WebhookTrouble    `json:"disabled"` // webhooks that the service has disabled
	Deliveries PendingDeliveries `json:"deliveries"`
}

// FailingAfter is how many failures in a row make a webhook one that fails: fewer are usual while a receiver restarts.
const FailingAfter = 5

// WebhookTrouble counts webhooks that have a trouble, and names one of them: the one with the most failures in a row.
type WebhookTrouble struct {
	Count     int       `json:"count"`
	WebhookID *job.ID   `json:"webhook_id"`
	Failures  int       `json:"failures"`
	Since     *job.Time `json:"since"` // the first of the failures in a row
}

// SilentWorker is a worker whose heartbeats do not come.
type SilentWorker struct {
	Name        string   `json:"name"`
	Held        int      `json:"held"`
	HeartbeatAt job.Time `json:"heartbeat_at"` // the last one
	ExpiresAt   job.Time `json:"expires_at"`   // when it is taken for dead
}

// Ends counts jobs that were submitted, and how jobs ended.
type Ends struct{ Submitted, Succeeded, Failed, Canceled int }
