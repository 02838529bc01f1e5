package judge

import (
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// logCorruptions spoil the log of events, and what streams show of it.
var logCorruptions = []corruption{
	{"event 3 (job.running) leaves", logged, plainJob, func(w *world) {
		a, b := w.event(plainJob, "job.assigned"), w.event(plainJob, "job.running")
		a.Seq, b.Seq = b.Seq, a.Seq
	}, false},
	{"event 3 (job.running) has seq 4", logged, plainJob, func(w *world) {
		w.drop(w.find(storedEvent, plainJob, named("job.assigned")))
	}, false},
	{`goes from "QUEUED" to "CREATED", which is not allowed`, logged, plainJob, func(w *world) {
		w.event(plainJob, "job.assigned").Next = created
	}, false},
	{`goes from "ASSIGNED" to "QUEUED", which has another name`, logged, lostJob, func(w *world) {
		w.event(lostJob, nameLeaseExpired).Name = "job.queued"
	}, false},
	{"is no transition, and goes from", logged, exhaustedJob, func(w *world) {
		w.event(exhaustedJob, nameExhausted).Next = failed
	}, false},
	{"event 3 (job.assigned) is earlier than the one before", logged, plainJob, func(w *world) {
		e := w.event(plainJob, "job.assigned")
		e.At = e.At.Add(-time.Minute)
	}, false},
	{"event 9 (job.succeeded) is of attempt 1, not of 2", logged, retriedJob, func(w *world) {
		w.event(retriedJob, "job.succeeded").Attempt = 1
	}, false},
	{"has an id that is not its own", logged, plainJob, func(w *world) {
		w.event(plainJob, "job.assigned").ID = w.event(plainJob, "job.running").ID
	}, false},
	{"the job has no events", logged, plainJob, func(w *world) { w.dropAll(kindOf(storedEvent, plainJob)) }, false},
	{"the job is FAILED, but its log ends in SUCCEEDED", logged, plainJob, func(w *world) {
		w.told(plainJob, func(j *history.Job) { j.State, j.Outcome, j.ResultAttempt = failed, "FAILED", 0 })
	}, false},
	{"the job is at attempt 2, but its log at 1", logged, plainJob, func(w *world) {
		w.told(plainJob, func(j *history.Job) { j.Attempt = 2 })
	}, false},
	{"event_seq is 9 with 5 events", logged, plainJob, func(w *world) { w.row(plainJob).EventSeq = 9 }, true},
	{`is "simulated 1", which the client did not ask for`, logged, emittingJob, func(w *world) {
		w.event(emittingJob, nameEmitted).Emitted = "simulated 1"
	}, false},
	{`is "simulated 17", which the client did not ask for`, logged, emittingJob, func(w *world) { w.typed(emittingJob, "EXECUTE") }, false},
	{"0 events are the client's own, expected 1", logged, plainJob, func(w *world) { w.typed(plainJob, emitEvent) }, false},

	{"event 4 (job.running) came, and not event 3 before it", streamed, plainJob, func(w *world) {
		w.drop(w.find(streams, plainJob, named("job.assigned")))
	}, true},
	{"event 6 (job.retried) came, and not event 5 before it", streamed, retriedJob, func(w *world) {
		w.drop(w.find(streams, retriedJob, named("job.failed")))
	}, true},
	{"the stream ends before event 5 of 5", streamed, plainJob, func(w *world) {
		w.drop(w.find(streams, plainJob, named("job.succeeded")))
	}, true},
	{"event 3 (job.assigned) came again", streamed, plainJob, func(w *world) { w.again(streams, plainJob, named("job.assigned")) }, true},
	{"job.succeeded came as event 6, the log has only 5", streamed, plainJob, func(w *world) {
		w.again(streams, plainJob, named("job.succeeded"))
	}, true},
	{"job.running came without a seq", streamed, plainJob, func(w *world) { w.onStream(plainJob, "job.running").Seq = 0 }, true},
	{"event 4 (job.running) came 1.98s before it happened", streamed, plainJob, func(w *world) {
		f := w.find(streams, plainJob, named("job.running"))
		f.At = f.At.Add(-2 * second)
	}, true},
	{"job.failed of attempt 1 came as event 5, which is job.succeeded", streamed, plainJob, func(w *world) {
		e := w.onStream(plainJob, "job.succeeded")
		e.Name, e.Status = "job-failed", "FAILED"
	}, true},
	{`event 5 (event.emitted) is "simulated"`, streamed, emittingJob, func(w *world) {
		w.onStream(emittingJob, nameEmitted).Emitted = "simulated"
	}, true},
	{`job.succeeded of attempt 1 has expected outcome "FAILED"`, streamed, plainJob, func(w *world) {
		w.onStream(plainJob, "job.succeeded").Expected = failed
	}, true},
	{"job.failed of attempt 1 has jobStatus FAILED", streamed, timedOutJob, func(w *world) {
		w.onStream(timedOutJob, "job.failed").Status = "FAILED"
	}, true},
}
