package judge

import (
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Numbers of the jobs of a sound world.
const (
	plainJob = iota + 1
	deferredJob
	retriedJob
	canceledJob
	lostJob
	batchJob
	calledJob
	repeatedJob
	exhaustedJob
	othersJob
	othersCanceledJob
	polledJob
	autoJob
	waitingJob
	timedOutJob
	unansweredJob
	emittingJob
	failingJob // to be delivered to its callback
)

// soundWorld tells of one job of each sort.
func soundWorld() *world {
	w := newWorld()
	w.job(0, "SUCCESS_FAST").success().close()
	w.job(0, "SCHEDULED_ON_TIME", deferred(30*second)).success().close()
	w.job(0, "RETRY_ON_FAIL").failure("RFA_DEPENDENCY_TIMEOUT").wait(second).retried().acts("retry", 200).wait(second).success().close()
	w.job(0, "CANCEL_DURING_RUN").claim().run().wait(second).ends(canceled, "").acts("cancel", 200).close()
	w.job(0, "SUCCESS_NORMAL").claim().loseLease().wait(second).success().close()
	w.job(0, "PAYLOAD_SMALL", inBatch("batch-1")).success().close()
	w.job(0, "WEBHOOK_5XX", calledBack("http://receiver/callback")).success().close()
	w.job(0, "DUPLICATE_SUBMIT_SAME_KEY").try(true).wait(second).try(true).success().close()
	exhausted := w.job(0, "RETRY_LIMIT_REACHED").failure("RFA_DEPENDENCY_TIMEOUT")
	for range 3 {
		exhausted.wait(second).retried().acts("retry", 200).wait(second).failure("RFA_DEPENDENCY_TIMEOUT")
	}
	exhausted.acts("retry", 409).close()
	w.job(1, "FAIL_IMMEDIATE").failure("RFA_INTERNAL").looks().close()
	w.job(1, "CANCEL_BEFORE_START").wait(second).ends(canceled, "").acts("cancel", 200).close()
	w.job(1, "SUCCESS_FAST").looks().claim().looks().run().looks().looks().ends(succeeded, "").looks().acts("cancel", 200).close()
	w.job(1, "RETRY_ON_FAIL", autoRetry).failure("RFA_DEPENDENCY_TIMEOUT").retried().wait(second).success().close()
	w.job(1, "SCHEDULED_FAR_FUTURE", deferred(48*time.Hour)).close()
	w.job(1, "RUNS_OVER_TIMEOUT").claim().run().wait(2*time.Minute).ends(failed, "RFA_EXEC_TIMEOUT").looks().close()
	unanswered := w.job(1, "SUCCESS_FAST")
	unanswered.sub.Tries[0] = history.Try{Sent: unanswered.now, Status: 0, Error: "connection lost"}
	unanswered.success().close()
	w.find(history.Submitted, unansweredJob).Job = ""

	w.job(0, "SUCCESS_FAST", emits, calledBack("http://receiver/callback")).success().close()
	w.job(0, "SUCCESS_FAST", calledBack(brokenURL)).success().close()
	stranger := w.fact(history.Intruded, plainJob)
	stranger.Tenant, stranger.Action = 1, &history.Action{Verb: "get", Sent: w.end(), Status: 404, Code: "RFA_JOB_NOT_FOUND"}
	w.add(stranger)

	refused := &history.Submission{Key: "key", Type: "EXECUTE", WorkKind: "PAYLOAD_INVALID",
		Tries: []history.Try{{Sent: w.start, Answered: w.start, Status: 400}}}
	w.last++
	w.run.Tickets = w.last
	w.add(history.Fact{At: w.start, Kind: history.Submitted, Ticket: w.last, Submission: refused})
	w.batchCompleted()
	task := w.fact(history.QueuedTask, waitingJob)
	task.Task = &history.Task{Queue: "jobs", ID: jobName(waitingJob) + ":1:0", State: "scheduled", Attempt: 1}
	w.add(task)
	w.run.Counters = true
	w.run.Collected.Measured = []Measure{{Name: "jobs_submitted_total", Metric: 18, Rows: 18, Counter: true}, {Name: "job_queue_depth"}}
	w.run.Collected.Inconsistencies = []Inconsistency{{Invariant: ended, What: "open batches"}}
	w.scheduled(emittingJob, 0)
	return w
}

// batchCompleted tells of an event of no job, delivered on the second try.
func (w *world) batchCompleted() {
	d := history.Delivery{ID: "batch-delivery", Webhook: "hook-0", EventID: "batch-event", EventName: "batch.completed"}
	stored := d
	stored.State, stored.Attempts = "DELIVERED", 2
	w.add(history.Fact{Kind: history.StoredDeliver, At: w.end(), Delivery: &stored})
	for _, status := range []int{503, 204} {
		tried, got := d, d
		tried.Status, got.Status, got.Body = status, status, "digest"
		w.add(history.Fact{Kind: history.StoredTry, At: w.end(), Delivery: &tried})
		w.add(history.Fact{Kind: history.Received, At: w.start, Delivery: &got})
	}
}
