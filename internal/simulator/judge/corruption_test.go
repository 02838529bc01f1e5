package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// corruption makes one job of a valid history violate one invariant.
type corruption struct {
	what      string // the expected violation text, or a part of it
	invariant string
	job       int // number of the damaged job, which the violation must name; 0: none
	corrupt   func(w *world)
	alone     bool // true if no other invariant is violated
}

var corruptions = slices.Concat(jobCorruptions, logCorruptions, answerCorruptions, deliveryCorruptions, scheduleCorruptions)

var jobCorruptions = []corruption{
	{"the job was accepted, but no longer exists", accepted, plainJob,
		func(w *world) { w.dropAll(about(plainJob), not(of(submitted, streams, arrived))) }, false},
	{"the database has the job, but the API does not list it", accepted, plainJob, func(w *world) { w.drop(w.find(listed, plainJob)) }, true},
	{"the API lists the job, but the database does not have it", accepted, plainJob,
		func(w *world) { w.drop(w.find(storedJob, plainJob)) }, false},
	{"the job names submission 1, which was never sent", accepted, plainJob, func(w *world) { w.drop(w.find(submitted, plainJob)) }, true},
	{`the job has correlation id "other.1", which was never sent`, accepted, plainJob, correlated("other.1"), true},
	{"the response to submission 1 shows the job of submission 19", accepted, plainJob, correlated("run1.19"), true},
	{"submission 16 was refused, but its job exists", accepted, unansweredJob,
		func(w *world) { w.sub(unansweredJob).Tries[0].Status = 429 }, true},
	{"the client sent type DEFERRED", accepted, plainJob, func(w *world) { w.sub(plainJob).Type = "DEFERRED" }, true},
	{"the client sent work kind CPU_BURST", accepted, plainJob, func(w *world) { w.sub(plainJob).WorkKind = "CPU_BURST" }, true},
	{"the client sent execution_at 03:04:05.000000Z", accepted, plainJob, func(w *world) { w.sub(plainJob).ExecutionAt = w.start }, false},
	{"the client sent params of digest", accepted, plainJob, func(w *world) { w.row(plainJob).ParamsDigest = "0123456789abcdef" }, true},
	{"the client sent auto_retry false", accepted, plainJob, func(w *world) { w.row(plainJob).AutoRetry = true }, false},
	{"the client sent batch", accepted, plainJob, func(w *world) { w.sub(plainJob).Batch = "batch-9" }, true},

	{"the job is RUNNING, but all jobs should have ended", ended, plainJob, func(w *world) {
		w.changeJob(plainJob, func(j *history.Job) { j.State, j.Outcome, j.FinishedAt = running, "", time.Time{} })
	}, false},
	{"the job is CREATED, but all jobs should have ended", ended, waitingJob,
		func(w *world) { w.row(waitingJob).RunAt = w.end().Add(-second) }, true},
	{"final: a rule is broken by rows", fenced, plainJob, func(w *world) {
		f := w.fact(history.Contradiction, plainJob)
		f.Note = "fence: final: a rule is broken by rows"
		w.add(f)
	}, true},
	{`finished_at (none)`, ended, plainJob, func(w *world) { w.row(plainJob).FinishedAt = time.Time{} }, false},
	{"the number of events about exhausted retries is 0", ended, exhaustedJob,
		func(w *world) { w.dropAll(about(exhaustedJob), named(nameExhausted)) }, false},

	{"event 2 (job.queued) came 1ms before execution_at", early, deferredJob, func(w *world) {
		at := w.row(deferredJob).ExecutionAt.Add(time.Millisecond)
		w.changeJob(deferredJob, func(j *history.Job) { j.ExecutionAt = at })
		w.sub(deferredJob).ExecutionAt = at
	}, true},
	{"the job started at 03:04:05.000000Z, before execution_at", early, deferredJob,
		func(w *world) { w.changeJob(deferredJob, func(j *history.Job) { j.StartedAt = w.start }) }, false},

	{"submission 1 has more than one job", keyed, plainJob, func(w *world) { twin(w, plainJob) }, false},
	{"the job's idempotency key is not stored", keyed, plainJob, func(w *world) { w.row(plainJob).Keys = 0 }, true},
	{"2 tries with the same key each got a 202 response, as if each had created the job", keyed, repeatedJob,
		func(w *world) { w.sub(repeatedJob).Tries[1].Replayed = false }, true},

	{"a stream of tenant 0 shows the job of tenant 1", foreign, othersJob, func(w *world) { w.again(streams, othersJob).Tenant = 0 }, true},
	{"a list of tenant 0 shows the job of tenant 1", foreign, othersJob, func(w *world) { w.again(listed, othersJob).Tenant = 0 }, false},
	{"an answer to a submission of tenant 0 shows the job of tenant 1", foreign, othersJob,
		func(w *world) { w.again(submitted, plainJob).Job = jobName(othersJob) }, false},
	{"a delivery of tenant 0 shows the job of tenant 1", foreign, othersJob, func(w *world) { w.find(arrived, othersJob).Tenant = 0 }, true},
	{"goes to a webhook of tenant 1, but the job belongs to tenant 0", foreign, plainJob, func(w *world) {
		w.change(plainJob, func(f *history.Fact) { f.Delivery.Webhook = "hook-1" }, of(storedDelivery, apiDelivery), named("job.succeeded"))
	}, false},
	{"tenant 0 could cancel the job of tenant 1", foreign, othersJob, func(w *world) {
		w.add(history.Fact{Kind: history.Acted, At: w.end(), Job: jobName(othersJob), Tenant: 0, Action: &history.Answer{Verb: "cancel",
			Status: 200, State: failed, Sent: w.end()}})
	}, true},
	{"a stream of tenant 0 shows a job that was never submitted", foreign, 99,
		func(w *world) { w.again(streams, plainJob).Job = jobName(99) }, true},
	{"tenant 0 saw data that no client may see: a delivery that nobody signed", foreign, 0,
		func(w *world) {
			w.add(history.Fact{At: w.start, Kind: history.Forbidden, Note: "a delivery that nobody signed"})
		}, true},
	{"and got 200", foreign, plainJob, intruder(200), true},
	{"and got 410", foreign, plainJob, intruder(410), true},

	{"jobs_submitted_total is 15, but the database rows", measured, 0, func(w *world) { w.run.Collected.Measured[0].Metric = 15 }, true},
	{"but its job does not exist", tasked, 99, func(w *world) {
		w.add(history.Fact{Kind: history.QueuedTask, At: w.end(), Job: jobName(99), Task: &history.Task{Queue: "jobs", ID: "job-0099:1"}})
	}, true},
	{"task odd: it cannot be read", tasked, 0, func(w *world) {
		w.add(history.Fact{Kind: history.QueuedTask, At: w.end(), Note: "it cannot be read", Task: &history.Task{Queue: "jobs", ID: "odd"}})
	}, true},
	{"but its job is SUCCEEDED at attempt 1", tasked, plainJob, func(w *world) {
		f := w.fact(history.QueuedTask, plainJob)
		f.Task = &history.Task{Queue: "jobs", ID: "job-0001:1", State: "archived", Attempt: 1}
		w.add(f)
	}, true},
	{"but its job is CREATED at attempt 1", tasked, waitingJob, func(w *world) {
		task := w.find(history.QueuedTask, waitingJob).Task
		task.State, task.Attempt = "pending", 2
	}, true},

	{"attempt 1 ended as SUCCESS after 1.03s, but its work takes 1.975s", timed, plainJob, func(w *world) {
		w.run.TimeScale = new(2.0)
		w.dropAll(not(about(plainJob)))
	}, false},
	{"attempt 1 ended as FAILED after 100ms, but its work takes 490ms", timed, othersJob, func(w *world) {
		w.reports(othersJob, func(r *history.Report) {
			r.StartedAt, r.DurationMS = r.FinishedAt.Add(-100*time.Millisecond), 100
		})
	}, false},

	{"attempt 1 of work kind FAIL_IMMEDIATE succeeded", expected, plainJob, func(w *world) { rename(w, plainJob, "FAIL_IMMEDIATE") }, false},
	{"attempt 1 of work kind PAYLOAD_SMALL must not fail with RFA_INTERNAL", expected, othersJob,
		func(w *world) { rename(w, othersJob, "PAYLOAD_SMALL") }, false},
	{"FAIL_IMMEDIATE must not fail with RFA_EXEC_WORKER_UNAVAILABLE", expected, othersJob, failedWith(othersJob, codeWorkerLost), false},
	{"FAIL_IMMEDIATE must not fail with RFA_EXEC_TIMEOUT", expected, othersJob, failedWith(othersJob, codeTimeout), false},
	{"was not retried, although auto_retry is set", expected, othersJob, func(w *world) {
		w.sub(othersJob).AutoRetry = true
		failedWith(othersJob, codeTimeout)(w)
	}, false},
	{"definition.duration_ms is 7, ", expected, plainJob, func(w *world) { w.row(plainJob).Definition.DurationMS = 7 }, false},
	{"a job has work kind PAYLOAD_INVALID", expected, plainJob, func(w *world) { rename(w, plainJob, payloadInvalid) }, false},
	{"but was accepted as job job-0001", expected, plainJob, func(w *world) { rename(w, plainJob, payloadInvalid) }, false},
	{"the job has max_attempts 1, but the service allows 4", expected, emittingJob,
		func(w *world) { w.changeJob(emittingJob, func(j *history.Job) { j.MaxAttempts = 1 }) }, false},
	{"the job reached attempt 4, but max_attempts is 3", expected, exhaustedJob, func(w *world) {
		w.run.MaxAttempts = 0
		w.changeJob(exhaustedJob, func(j *history.Job) { j.MaxAttempts = 3 })
	}, false},
	{"the result of work kind SUCCESS_FAST has 1 bytes", expected, plainJob, func(w *world) { w.shown(plainJob).ResultSize = new(1) }, true},
}

func TestCorruptionsAreCaught(t *testing.T) {
	t.Parallel()
	of := map[string]int{}
	for _, c := range corruptions {
		of[c.invariant]++
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			w := soundWorld()
			c.corrupt(w)
			v := w.judge(t)
			name := ""
			if c.job > 0 {
				name = jobName(c.job)
			}
			require.True(t, slices.ContainsFunc(v.Violations, func(v Violation) bool {
				return v.Invariant == c.invariant && v.Job == name && strings.Contains(v.What, c.what)
			}), v.Violations)
			for _, violation := range v.Violations {
				require.Contains(t, []string{name, "a-twin", ""}, violation.Job, "another job is accused: %s", violation.What)
				if c.alone {
					require.Equal(t, c.invariant, violation.Invariant, violation.What)
				}
			}
		})
	}
	for _, invariant := range Invariants {
		require.Positive(t, of[invariant.Key], "a check that cannot fail proves nothing: %s", invariant.Key)
	}
}

var logCorruptions = []corruption{
	{`is "simulated 1", which the client did not ask for`, logged, emittingJob,
		func(w *world) { w.event(emittingJob, nameEmitted).Emitted = "simulated 1" }, false},
	{"0 events were emitted for the client, expected 1", logged, plainJob, func(w *world) { w.typed(plainJob, emitEvent) }, false},

	{"the stream has event 4 (job.running), but not event 3 before it", streamed, plainJob,
		func(w *world) { w.drop(w.find(streams, plainJob, named("job.assigned"))) }, true},
	{"the stream ends before event 5 of 5", streamed, plainJob,
		func(w *world) { w.drop(w.find(streams, plainJob, named("job.succeeded"))) }, true},
	{"event 3 (job.assigned) came again", streamed, plainJob, func(w *world) { w.again(streams, plainJob, named("job.assigned")) }, true},
	{"the stream has job.succeeded as event 6, but the log has only 5", streamed, plainJob,
		func(w *world) { w.again(streams, plainJob, named("job.succeeded")) }, true},
	{"the stream has job.running without a seq", streamed, plainJob, func(w *world) { w.onStream(plainJob, "job.running").Seq = 0 }, true},
	{"event 4 (job.running) came 1.98s before it happened", streamed, plainJob, func(w *world) {
		f := w.find(streams, plainJob, named("job.running"))
		f.At = f.At.Add(-2 * second)
	}, true},
	{"the stream has job.failed of attempt 1 as event 5, which in the log is job.succeeded", streamed, plainJob, func(w *world) {
		e := w.onStream(plainJob, "job.succeeded")
		e.Name, e.Status = "job.failed", "FAILED"
	}, true},
	{`event 5 (event.emitted) is "simulated"`, streamed, emittingJob,
		func(w *world) { w.onStream(emittingJob, nameEmitted).Emitted = "simulated" }, true},
	{`job.succeeded of attempt 1 has expected_outcome "FAILED"`, streamed, plainJob,
		func(w *world) { w.onStream(plainJob, "job.succeeded").ExpectedOutcome = failed }, true},
	{"job.failed of attempt 1 has the wrong jobStatus FAILED", streamed, timedOutJob,
		func(w *world) { w.onStream(timedOutJob, "job.failed").Status = "FAILED" }, true},
}
