package overview

import (
	"fmt"
	"slices"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

const (
	jobLate      = time.Minute // a job is late if it has waited longer than this since its due time
	deliveryLate = 5 * time.Minute
	failedShare  = 0.2 // attention reports failures if more than this share of the ended jobs failed
	fewestEnded  = 5   // minimum number of ended jobs for such a report
)

func manyFailed(e admin.Ends) bool {
	ended := e.Succeeded + e.Failed
	return ended >= fewestEnded && float64(e.Failed) > failedShare*float64(ended)
}

type findings []admin.Attention

func (f *findings) add(code, href, format string, args ...any) {
	*f = append(*f, admin.Attention{Code: code, Text: fmt.Sprintf(format, args...), Href: href})
}

func (f *findings) addWebhooks(now admin.Situation) {
	if t := now.Failing; t.Count > 0 {
		f.add("webhooks_failing", oneWebhook(t, "#/webhooks?enabled=true"), "%s %s: %d attempts in a row failed%s, the first of them %s ago.",
			count(t.Count, "webhook"), verb(t.Count, "fails", "fail"), t.Failures, verb(t.Count, "", " at one"),
			roughly(since(now.AsOf, t.Since)))
	}
	if d := now.Disabled; d.Count > 0 {
		f.add("webhooks_disabled", oneWebhook(d, "#/webhooks?enabled=false"),
			"%s %s disabled by the service, because %s receiver kept failing or is gone.",
			count(d.Count, "webhook"), verb(d.Count, "is", "are"), verb(d.Count, "its", "their"))
	}
}

// attention returns what an operator should look at, most urgent first. `failures` are the groups of recent failures, largest first, or
// nil if few jobs failed.
func attention(now admin.Situation, recent admin.Ends, failures []admin.FailureGroup) []admin.Attention {
	found := findings{}
	if now.LeaderGone {
		found.add("no_leader", "#/system", "No process is the leader: scheduled, lost and retried jobs wait until one takes over.")
	}
	for _, p := range now.Pauses {
		found.add("paused", "#/queues", "%s has %s: %s", p.Operator, stopped(p), p.Reason)
	}
	switch {
	case now.Workers.Alive > 0:
	case now.Waiting.Due > 0:
		found.add("no_workers", "#/workers", "No worker is alive, and %s %s for one.",
			count(now.Waiting.Due, "job"), verb(now.Waiting.Due, "waits", "wait"))
	default:
		found.add("no_workers", "#/workers", "No worker is alive: submitted jobs do not run.")
	}
	if now.LostWorkers > 0 {
		found.add("lost_workers", "#/workers", "%s without a lease still %s %s: the leader should have requeued them.",
			count(now.LostWorkers, "worker"), verb(now.LostWorkers, "holds", "hold"), count(now.LostJobs, "job"))
	}
	for _, w := range now.Silent {
		found.add("silent_worker", "#/workers", "Worker %s has sent no heartbeat for %s and holds %s. It counts as dead in %s.", w.Name,
			roughly(since(now.AsOf, &w.HeartbeatAt)), count(w.Held, "job"), roughly(max(0, -since(now.AsOf, &w.ExpiresAt))))
	}
	if late := since(now.AsOf, now.Waiting.OldestRunAt); late > jobLate && !allPaused(now.Pauses) {
		found.add("jobs_late", "#/jobs?state=QUEUED", "%s %s due and %s for a worker; the oldest could have run %s ago. In the last 15 "+
			"minutes %d were submitted, and %d ended.", count(now.Waiting.Due, "job"), verb(now.Waiting.Due, "is", "are"),
			verb(now.Waiting.Due, "waits", "wait"), roughly(late), recent.Submitted, recent.Succeeded+recent.Failed+recent.Canceled)
	}
	if manyFailed(recent) {
		ended, most := recent.Succeeded+recent.Failed, ""
		if len(failures) > 0 {
			most = fmt.Sprintf(" Most often %s with %s (%d).", failures[0].WorkKind, failures[0].Code, failures[0].Count)
		}
		found.add("many_failures", "#/failures", "%d %% of the jobs that ended in the last 15 minutes failed: %d of %d.%s",
			100*recent.Failed/ended, recent.Failed, ended, most)
	}
	found.addWebhooks(now)
	if late := since(now.AsOf, now.Deliveries.FirstDueAt); late > deliveryLate {
		found.add("deliveries_late", "#/deliveries?state=PENDING", "The oldest waiting delivery was due %s ago.", roughly(late))
	}
	if now.Throttled > 0 {
		found.add("clients_throttled", "#/jobs?state=QUEUED",
			"%s %s the maximum number of running jobs per client: more jobs wait until some end.",
			count(now.Throttled, "client"), verb(now.Throttled, "runs", "run"))
	}
	if now.Died > 0 {
		found.add("workers_died", "#/workers?state=DEAD", "%s died in the last 15 minutes: heartbeats stopped without a shutdown.",
			count(now.Died, "worker"))
	}
	return found
}

func oneWebhook(t admin.WebhookTrouble, all string) string {
	if t.Count > 1 || t.WebhookID == nil {
		return all
	}
	return "#/webhooks/" + t.WebhookID.String()
}

func allPaused(pauses job.Pauses) bool {
	return slices.ContainsFunc(pauses, func(p job.Pause) bool { return p.Scope == job.PauseAll && p.Mode == job.ModePause })
}

func stopped(p job.Pause) string {
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
