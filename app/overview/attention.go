package overview

import (
	"fmt"
	"slices"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

// Codes of what asks for attention.
const (
	NoLeader         = "no_leader"
	NoWorkers        = "no_workers"
	LostWorkers      = "lost_workers"
	JobsLate         = "jobs_late"
	ManyFailures     = "many_failures"
	WebhooksDisabled = "webhooks_disabled"
	DeliveriesLate   = "deliveries_late"
	ClientsThrottled = "clients_throttled"
	Paused           = "paused"
)

// What asks for attention, and what does not yet.
const (
	jobLate      = time.Minute     // since a job's time came
	deliveryLate = 5 * time.Minute // since a delivery's did
	failedShare  = 0.2             // of the jobs that ran to their end
	fewestEnded  = 5               // jobs that say anything about a share
)

// The console's pages.
const (
	pageQueued     = "#/jobs?state=QUEUED"
	pageWorkers    = "#/workers"
	pageFailures   = "#/failures"
	pageWebhooks   = "#/webhooks"
	pageDeliveries = "#/deliveries?state=PENDING"
	pageSystem     = "#/system"
	pageQueues     = "#/queues"
)

// many reports whether more than the usual share of jobs failed.
func many(e admin.Ends) bool {
	ended := e.Succeeded + e.Failed
	return ended >= fewestEnded && float64(e.Failed) > failedShare*float64(ended)
}

// attention says what an operator should look at, the most pressing first. failing is nil unless many jobs failed.
func attention(now admin.Situation, failing *failures) []admin.Attention {
	found := []admin.Attention{}
	add := func(code, href, format string, args ...any) {
		found = append(found, admin.Attention{Code: code, Text: fmt.Sprintf(format, args...), Href: href})
	}
	if now.LeaderGone {
		add(NoLeader, pageSystem, "No process leads the maintenance: what is scheduled, lost or retried waits until one does.")
	}
	for _, p := range now.Pauses {
		add(Paused, pageQueues, "%s has %s: %s", p.Operator, stopped(p), p.Reason)
	}
	late := since(now.AsOf, now.Waiting.OldestRunAt)
	if now.Workers.Alive == 0 && now.Waiting.OldestRunAt != nil {
		add(NoWorkers, pageWorkers, "No worker is alive, and jobs wait for one.")
	}
	if now.LostWorkers > 0 {
		add(LostWorkers, pageWorkers, "%s without a lease still %s %s: the leader should have given them back.",
			count(now.LostWorkers, "worker"), verb(now.LostWorkers, "holds", "hold"), count(now.LostJobs, "job"))
	}
	if late > jobLate && !allPaused(now.Pauses) {
		add(JobsLate, pageQueued, "The job that waits longest could have run %s ago.", roughly(late))
	}
	if failing != nil {
		text := fmt.Sprintf("%d %% of the jobs that ended in the last 15 minutes failed: %d of %d.",
			100*failing.Failed/(failing.Succeeded+failing.Failed), failing.Failed, failing.Succeeded+failing.Failed)
		if m := failing.most; m != nil {
			text += fmt.Sprintf(" Most often %s with %s (%d).", m.WorkKind, m.Code, m.Count)
		}
		add(ManyFailures, pageFailures, "%s", text)
	}
	if now.Disabled > 0 {
		add(WebhooksDisabled, pageWebhooks, "%s %s disabled by the service, because %s receiver failed or is gone.",
			count(now.Disabled, "webhook"), verb(now.Disabled, "is", "are"), verb(now.Disabled, "its", "their"))
	}
	if late := since(now.AsOf, now.OldestDeliveryAt); late > deliveryLate {
		add(DeliveriesLate, pageDeliveries, "The delivery that waits longest was due %s ago.", roughly(late))
	}
	if now.Throttled > 0 {
		add(ClientsThrottled, pageQueued, "%s %s as many jobs as one client may: more of theirs wait until some end.",
			count(now.Throttled, "client"), verb(now.Throttled, "runs", "run"))
	}
	return found
}

func allPaused(pauses []admin.Pause) bool {
	return slices.ContainsFunc(pauses, func(p admin.Pause) bool { return p.Scope == job.PauseAll && p.Mode == job.ModePause })
}

// stopped says what a pause does.
func stopped(p admin.Pause) string {
	of := map[job.PauseScope]string{
		job.PauseAll: "all jobs", job.PauseKind: "jobs of kind " + p.Target, job.PauseClient: "jobs of client " + p.Target,
		job.PauseWorker: "worker " + p.Target,
	}[p.Scope]
	switch {
	case p.Scope == job.PauseWorker:
		return "drained " + of
	case p.Mode == job.ModeDrain:
		return "stopped submissions of " + of
	}
	return "paused " + of
}

// since is 0 for a moment that there is not.
func since(now job.Time, then *job.Time) time.Duration {
	if then == nil {
		return 0
	}
	return time.Time(now).Sub(time.Time(*then))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func verb(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

// roughly writes a time as people say it.
func roughly(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return count(int(d/time.Second), "second")
	case d < 2*time.Hour:
		return count(int(d/time.Minute), "minute")
	case d < 48*time.Hour:
		return count(int(d/time.Hour), "hour")
	}
	return count(int(d/(24*time.Hour)), "day")
}
