package admin

import (
	"time"

	"github.com/forgerun/forgerun/job"
)

// Window is how far an overview looks back.
type Window string

// Windows of an overview.
const (
	LastQuarterHour Window = "15m"
	LastHour        Window = "1h"
	LastDay         Window = "24h"
)

// Span returns the length of the window and the time between two points of its history. Both are 0 for an unknown window.
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

// Situation is the state of the service at one moment, as read from the database.
type Situation struct {
	AsOf     job.Time     `json:"as_of"`
	Created  int          `json:"created"`
	Queued   int          `json:"queued"`
	Assigned int          `json:"assigned"`
	Running  int          `json:"running"`
	Waiting  WaitingJobs  `json:"waiting"`
	Workers  WorkerTotals `json:"workers"`
	// LostWorkers counts workers that still have jobs some seconds after the worker's lease ended. LostJobs counts these jobs.
	LostWorkers int `json:"lost_workers"`
	LostJobs    int `json:"lost_jobs"`
	// Silent are workers with a valid lease that missed three heartbeats in a row.
	Silent []SilentWorker `json:"silent"`
	// Died is the number of workers found dead in the last quarter of an hour.
	Died       int               `json:"died"`
	LeaderGone bool              `json:"leader_gone"` // there has been no leader for some seconds
	Throttled  int               `json:"throttled"`   // clients that run their maximum number of jobs and have more jobs waiting
	Pauses     job.Pauses        `json:"pauses"`
	Failing    WebhookTrouble    `json:"failing"`  // enabled webhooks that have failed FailingAfter times in a row
	Disabled   WebhookTrouble    `json:"disabled"` // webhooks that the service has disabled
	Deliveries PendingDeliveries `json:"deliveries"`
}

// FailingAfter is how many failures in a row make a webhook count as failing. Fewer are normal while a receiver restarts.
const FailingAfter = 5

// WebhookTrouble counts webhooks with problems. WebhookID is the webhook with the most failures in a row.
type WebhookTrouble struct {
	Count     int       `json:"count"`
	WebhookID *job.ID   `json:"webhook_id"`
	Failures  int       `json:"failures"`
	Since     *job.Time `json:"since"` // when that webhook's failures in a row began
}

// SilentWorker is a worker that missed heartbeats. Held is the number of jobs that the worker holds.
type SilentWorker struct {
	Name        string   `json:"name"`
	Held        int      `json:"held"`
	HeartbeatAt job.Time `json:"heartbeat_at"` // latest heartbeat
	ExpiresAt   job.Time `json:"expires_at"`   // when the worker counts as dead
}

// Ends counts submitted jobs, and ended jobs in each final state.
type Ends struct{ Submitted, Succeeded, Failed, Canceled int }
