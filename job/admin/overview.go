package admin

import (
	"time"

	"github.com/forgerun/forgerun/job"
)

// Window is how far an overview looks back.
type Window string

// The windows of an overview.
const (
	LastQuarterHour Window = "15m"
	LastHour        Window = "1h"
	LastDay         Window = "24h"
)

// Span returns the length of a window, and the step of its history; 0 for an unknown window.
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
	// LostWorkers are workers without a lease for some seconds that still hold LostJobs.
	LostWorkers int `json:"lost_workers"`
	LostJobs    int `json:"lost_jobs"`
	// Silent workers are alive by their lease, but missed three heartbeats in a row.
	Silent []SilentWorker `json:"silent"`
	// Died is the number of workers found dead in the last quarter of an hour.
	Died       int  `json:"died"`
	LeaderGone bool `json:"leader_gone"` // the leader's lease has been free for some seconds
	Throttled  int  `json:"throttled"`   // clients with jobs that wait because their client runs enough of them
	// Pauses are what operators have stopped.
	Pauses     job.Pauses        `json:"pauses"`
	Failing    WebhookTrouble    `json:"failing"`  // webhooks that are enabled and have failed FailingAfter times in a row
	Disabled   WebhookTrouble    `json:"disabled"` // webhooks that the service has disabled
	Deliveries PendingDeliveries `json:"deliveries"`
}

// FailingAfter is the number of failures in a row that make a webhook failing: fewer are usual while a receiver restarts.
const FailingAfter = 5

// WebhookTrouble counts troubled webhooks, and names the one with the most failures in a row.
type WebhookTrouble struct {
	Count     int       `json:"count"`
	WebhookID *job.ID   `json:"webhook_id"`
	Failures  int       `json:"failures"`
	Since     *job.Time `json:"since"` // first of the failures in a row
}

// SilentWorker is a worker without heartbeats.
type SilentWorker struct {
	Name        string   `json:"name"`
	Held        int      `json:"held"`
	HeartbeatAt job.Time `json:"heartbeat_at"` // latest heartbeat
	ExpiresAt   job.Time `json:"expires_at"`   // when it counts as dead
}

// Ends counts jobs that were submitted, and how jobs ended.
type Ends struct{ Submitted, Succeeded, Failed, Canceled int }
