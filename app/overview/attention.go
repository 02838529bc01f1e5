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
	SilentWorker     = "silent_worker"
	WorkersDied      = "workers_died"
	JobsLate         = "jobs_late"
	ManyFailures     = "many_failures"
	WebhooksFailing  = "webhooks_failing"
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
	pageDied       = "#/workers?state=DEAD"
	pageFailures   = "#/failures"
	pageWebhook    = "#/webhooks/"
	pageFailing    = "#/webhooks?enabled=true"
	pageDisabled   = "#/webhooks?enabled=false"
	pageDeliveries = "#/deliveries?state=PENDING"
	pageSystem     = "#/system"
	pageQueues     = "#/queues"
)

// many reports whether more than the usual share of jobs failed.
func many(e admin.Ends) bool {
	ended := e.Succeeded + e.Failed
	return ended >= fewestEnded && float64(e.Failed) > failedShare*float64(ended)
}

// attention says what an operator should look at, the most pressing first.
func attention(now admin.Situation, last recent) []admin.Attention {
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
	switch {
	case now.Workers.Alive > 0:
	case now.Waiting.Due > 0:
		add(NoWorkers, pageWorkers, "No worker is alive, and %s %s for one.",
			count(now.Waiting.Due, "job"), verb(now.Waiting.Due, "waits", "wait"))
	default:
		add(NoWorkers, pageWorkers, "No worker is alive: nothing that is submitted runs.")
	}
	if now.LostWorkers > 0 {
		add(LostWorkers, pageWorkers, "%s without a lease still %s %s: the leader should have given them back.",
			count(now.LostWorkers, "worker"), verb(now.LostWorkers, "holds", "hold"), count(now.LostJobs, "job"))
	}
	for _, w := range now.Silent {
		add(SilentWorker, pageWorkers, "Worker %s has sent no heartbeat for %s, and holds %s: it is taken for dead in %s.", w.Name,
			roughly(since(now.AsOf, &w.HeartbeatAt)), count(w.Held, "job"), roughly(max(0, -since(now.AsOf, &w.ExpiresAt))))
	}
	if late := since(now.AsOf, now.Waiting.OldestRunAt); late > jobLate && !allPaused(now.Pauses) {
		add(JobsLate, pageQueued, "%s %s due and %s for a worker; the one that waits longest could have run %s ago. "+
			"In the last 15 minutes %d were submitted, and %d ended.", count(now.Waiting.Due, "job"), verb(now.Waiting.Due, "is", "are"),
			verb(now.Waiting.Due, "waits", "wait"), roughly(late), last.Submitted, last.Succeeded+last.Failed+last.Canceled)
	}
	if many(last.Ends) {
		text := fmt.Sprintf("%d %% of the jobs that ended in the last 15 minutes failed: %d of %d.",
			100*last.Failed/(last.Succeeded+last.Failed), last.Failed, last.Succeeded+last.Failed)
		if m := last.most; m != nil {
			text += fmt.Sprintf(" Most often %s with %s (%d).", m.WorkKind, m.Code, m.Count)
		}
		add(ManyFailures, pageFailures, "%s", text)
	}
	if f := now.Failing; f.Count > 0 {
		add(WebhooksFailing, oneWebhook(f, pageFailing), "%s %s: %d attempts in a row failed%s, the first of them %s ago.",
			count(f.Count, "webhook"), verb(f.Count, "fails", "fail"), f.Failures, verb(f.Count, "", " at one"),
			roughly(since(now.AsOf, f.Since)))
	}
	if d := now.Disabled; d.Count > 0 {
		add(WebhooksDisabled, oneWebhook(d, pageDisabled), "%s %s disabled by the service, because %s receiver failed or is gone.",
			count(d.Count, "webhook"), verb(d.Count, "is", "are"), verb(d.Count, "its", "their"))
	}
	if late := since(now.AsOf, now.Deliveries.FirstDueAt); late > deliveryLate {
		add(DeliveriesLate, pageDeliveries, "The delivery that waits longest was due %s ago.", roughly(late))
	}
	if now.Throttled > 0 {
		add(ClientsThrottled, pageQueued, "%s %s as many jobs as one client may: more of theirs wait until some end.",
			count(now.Throttled, "client"), verb(now.Throttled, "runs", "run"))
	}
	if now.Died > 0 {
		add(WorkersDied, pageDied, "%s died in the last 15 minutes: the heartbeats ended without a shutdown.", count(now.Died, "worker"))
	}
	return found
}

// oneWebhook is the page of the webhook that has a trouble, or that of all if there are several.
func oneWebhook(t admin.WebhookTrouble, all string) string {
	if t.Count > 1 || t.WebhookID == nil {
		return all
	}
	return pageWebhook + t.WebhookID.String()
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
