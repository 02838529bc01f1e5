package judge

import (
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// answerCorruptions spoil what the API answers.
var answerCorruptions = []corruption{
	{"the refusal names a job (/v1/jobs/1)", answered, 0, func(w *world) { w.refused().Tries[0].Location = "/v1/jobs/1" }, true},
	{"the submission was answered with 202 and cannot be read", answered, 0, func(w *world) { w.refused().Tries[0].Status = 202 }, true},
	{"the acceptance has no created_at", answered, plainJob, func(w *world) { w.sub(plainJob).Tries[0].CreatedAt = time.Time{} }, true},
	{`the acceptance has Location ""`, answered, plainJob, func(w *world) { w.sub(plainJob).Tries[0].Location = "" }, true},
	{"the job was accepted as RUNNING", answered, plainJob, func(w *world) { w.sub(plainJob).Tries[0].State = running }, false},
	{"the job was accepted as QUEUED", answered, deferredJob, func(w *world) { w.sub(deferredJob).Tries[0].State = queued }, false},
	{"a repetition of the request was answered with job job-0001", answered, repeatedJob, func(w *world) {
		w.sub(repeatedJob).Tries[2].Job = jobName(plainJob)
	}, true},
	{"a repetition of the same request was refused as another one", answered, repeatedJob, func(w *world) {
		w.sub(repeatedJob).Tries[2] = history.Try{Sent: w.start, Answered: w.start, Status: 409, Code: "RFA_EXEC_IDEMPOTENCY_CONFLICT"}
	}, true},
	{"a try shows created_at 03:04:13.000001Z", answered, repeatedJob, func(w *world) {
		try := &w.sub(repeatedJob).Tries[1]
		try.CreatedAt = try.CreatedAt.Add(time.Microsecond)
	}, true},
	{"a valid request was refused with 400", answered, 0, func(w *world) { w.refused().WorkKind = "SUCCESS_FAST" }, true},
	{"a valid request was refused with 400", answered, repeatedJob, func(w *world) {
		w.sub(repeatedJob).Tries[2] = history.Try{Sent: w.start, Answered: w.start, Status: 400}
	}, true},
	{"a valid request was refused with 400", answered, 0, func(w *world) {
		at := w.start.Add(2 * second)
		w.refused().WorkKind, w.refused().ExecutionAt = "SUCCESS_FAST", &at
	}, true},

	{"the answer to cancel is about job x", answered, canceledJob, acted(canceledJob, func(a *history.Action) { a.Job = "x" }), true},
	{"the answer to cancel cannot be read: odd", answered, canceledJob, acted(canceledJob, func(a *history.Action) { a.Error = "odd" }), true},
	{"the answer to cancel has no updated_at", answered, canceledJob, acted(canceledJob, func(a *history.Action) {
		a.UpdatedAt = time.Time{}
	}), true},
	{"the cancel was answered with CANCELED, and the job is SUCCEEDED", answered, polledJob, acted(polledJob, func(a *history.Action) {
		a.State = canceled
	}), true},
	{"the job is RUNNING after its cancel was answered", answered, canceledJob, acted(canceledJob, func(a *history.Action) {
		a.State = running
	}), true},
	{"the cancel was refused with 404 RFA_JOB_NOT_FOUND", answered, canceledJob, acted(canceledJob, func(a *history.Action) {
		a.Status, a.Code, a.State = 404, "RFA_JOB_NOT_FOUND", ""
	}), true},
	{"the job is CANCELED, and nobody asked for that", answered, canceledJob, func(w *world) {
		w.drop(w.find(history.Acted, canceledJob))
	}, true},
	{"the answer to retry shows QUEUED (attempt 5)", answered, exhaustedJob, func(w *world) {
		a := w.find(history.Acted, exhaustedJob, func(f *history.Fact) bool { return f.Action.Status == 409 }).Action
		a.Status, a.State, a.Attempt = 200, queued, 5
	}, true},
	{"the retry was refused with 403", answered, retriedJob, acted(retriedJob, func(a *history.Action) { a.Status = 403 }), true},
	{"though the job could be retried", answered, retriedJob, acted(retriedJob, func(a *history.Action) {
		a.Status, a.Code = 409, "RFA_JOB_CONFLICT"
	}), true},

	{"a poll shows ASSIGNED, but a poll before it had shown RUNNING already", answered, polledJob, func(w *world) {
		a, b := w.poll(polledJob, queued), w.poll(polledJob, running)
		*a, *b = *b, *a
	}, true},
	{"a poll shows ASSIGNED (attempt 1), which the job was not at that time", answered, polledJob, func(w *world) {
		w.poll(polledJob, queued).State = assigned
	}, true},
	{"the owner's poll was refused: forgerun answered 404", answered, polledJob, func(w *world) {
		f := w.find(history.Looked, polledJob)
		f.Told, f.Note = &history.Job{Failure: "RFA_JOB_NOT_FOUND"}, "forgerun answered 404"
	}, true},
	{`a poll shows SUCCEEDED with outcome "FAILED"`, answered, polledJob, polled(func(j *history.Job) { j.Outcome = "FAILED" }), true},
	{"of kind CPU_BURST with execution_at (none)", answered, polledJob, polled(func(j *history.Job) { j.WorkKind = "CPU_BURST" }), false},
	{"a poll shows created_at 00:00:00", answered, polledJob, polled(func(j *history.Job) { j.CreatedAt = time.Unix(0, 0).UTC() }), true},
	{"not at all or in the wrong order", answered, polledJob, polled(func(j *history.Job) { j.UpdatedAt = time.Unix(0, 0).UTC() }), true},
	{"a poll shows a time that is not in UTC", answered, polledJob, polled(func(j *history.Job) {
		j.UpdatedAt = j.UpdatedAt.In(time.FixedZone("", 3600))
	}), true},
	{"a poll shows max_attempts 0 at attempt 1", answered, polledJob, polled(func(j *history.Job) { j.MaxAttempts = 0 }), true},
	{"the result has no checksum", answered, polledJob, polled(func(j *history.Job) { j.Result.Checksum = false }), true},
	{"result.size_bytes is 1, expected 4096", expected, polledJob, polled(func(j *history.Job) { j.Result.Size = 1 }), true},
	{"definition.duration_ms is 1, the catalogue has 1000", expected, polledJob, polled(func(j *history.Job) { *j.DurationMS = 1 }), true},
	{"definition.should_fail is true", expected, polledJob, polled(func(j *history.Job) { j.ShouldFail = true }), true},
	{"definition.payload_size is 7, the catalogue has 4096", expected, polledJob, polled(func(j *history.Job) { *j.PayloadSize = 7 }), true},
	{"the SUCCEEDED job carries a failure", answered, polledJob, polled(func(j *history.Job) { j.Document = &history.Failure{} }), true},

	{"the failed job carries no failure", answered, othersJob, func(w *world) { w.poll(othersJob, failed).Document = nil }, true},
	{`failure.jobId is "x"`, answered, othersJob, document(othersJob, func(d *history.Failure) { d.Job = "x" }), true},
	{`failure.jobStatus is "FAILED" with the code RFA_EXEC_TIMEOUT`, answered, timedOutJob, document(timedOutJob, func(d *history.Failure) {
		d.Status = "FAILED"
	}), true},
	{"failure.retryable is true, expected false", answered, othersJob, document(othersJob, func(d *history.Failure) {
		d.Retryable = true
	}), true},
	{"failure.retryable is false, expected true", answered, timedOutJob, document(timedOutJob, func(d *history.Failure) {
		d.Retryable = false
	}), true},
	{"without a retryAfter of at least 1", answered, timedOutJob, document(timedOutJob, func(d *history.Failure) {
		d.RetryAfter = nil
	}), true},
	{"failure.code is E_OOPS, the report of the attempt has", answered, othersJob, document(othersJob, func(d *history.Failure) {
		d.Code = "E_OOPS"
	}), true},

	{"the list of jobs has the job 2 times", answered, plainJob, func(w *world) { w.again(listed, plainJob) }, true},
	{"the list of jobs shows the job differently", answered, plainJob, func(w *world) {
		w.find(listed, plainJob).Told.StartedAt = &w.start
	}, true},

	{"the API shows another report of attempt 1 than is stored", answered, retriedJob, func(w *world) {
		w.shown(retriedJob).Outcome = "CANCELED"
	}, true},
	{"the API shows no report: 404", answered, plainJob, func(w *world) {
		f := w.find(toldReport, plainJob)
		f.Report, f.Note = nil, "404"
	}, true},
	{"the API does not give the result: damaged", answered, plainJob, func(w *world) {
		w.shown(plainJob).ResultSize, w.shown(plainJob).ResultError = nil, "damaged"
	}, true},
	{`the report of attempt 1 is of job "x"`, answered, plainJob, func(w *world) { w.shown(plainJob).Job = "x" }, true},
	{"the report of attempt 1 lacks finished_at", answered, plainJob, func(w *world) { w.shown(plainJob).FinishedAt = time.Time{} }, true},
	{"the report of attempt 1 has no events", answered, plainJob, func(w *world) { w.shown(plainJob).Events = nil }, true},
	{"the report of attempt 1 has 4 events, the attempt ended with event 5", answered, plainJob, func(w *world) {
		w.shown(plainJob).Events = slices.Delete(w.shown(plainJob).Events, 4, 5)
	}, true},
	{"with seq 3 as event 3, which the log does not have there", answered, plainJob, told(2, func(e *history.Event) {
		e.ID = "another"
	}), true},
	{`event 3 (job.assigned) is of job "x"`, answered, plainJob, told(2, func(e *history.Event) { e.Job = "x" }), true},
	{`event 3 (job.assigned) has work kind ""`, expected, plainJob, told(2, func(e *history.Event) { e.WorkKind = "" }), true},
}

// acted spoils the first answer to a cancel or a retry.
func acted(job int, fn func(a *history.Action)) func(w *world) {
	return func(w *world) { fn(w.find(history.Acted, job).Action) }
}

// poll is the first poll that shows the job in the state.
func (w *world) poll(job int, state string) *history.Job {
	return w.find(history.Looked, job, func(f *history.Fact) bool { return f.Told.State == state }).Told
}

// polled spoils the poll that shows the job at its end.
func polled(fn func(j *history.Job)) func(w *world) {
	return func(w *world) { fn(w.poll(polledJob, succeeded)) }
}

// document spoils the failure that a poll shows.
func document(job int, fn func(d *history.Failure)) func(w *world) {
	return func(w *world) { fn(w.poll(job, failed).Document) }
}

// told spoils an event of the report that the API shows, counted from 0.
func told(n int, fn func(e *history.Event)) func(w *world) {
	return func(w *world) { fn(&w.shown(plainJob).Events[n]) }
}
