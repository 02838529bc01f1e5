package judge

import (
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

var answerCorruptions = []corruption{
	{"the submission returned 202, but the response cannot be read", answered, 0, func(w *world) { w.refused().Tries[0].Status = 202 }, true},
	{"the 202 response has no created_at", answered, plainJob, func(w *world) { w.sub(plainJob).Tries[0].CreatedAt = time.Time{} }, true},
	{`the 202 response has Location ""`, answered, plainJob, func(w *world) { w.sub(plainJob).Tries[0].Location = "" }, true},
	{"the 202 response shows the new job as RUNNING", answered, plainJob, func(w *world) { w.sub(plainJob).Tries[0].State = running }, false},
	{"shows the new job as QUEUED", answered, deferredJob, func(w *world) { w.sub(deferredJob).Tries[0].State = queued }, false},
	{"a repetition of the request returned another job, job-0001", answered, repeatedJob,
		func(w *world) { w.sub(repeatedJob).Tries[2].Job = jobName(plainJob) }, true},
	{"a repetition of the same request was refused as a different request", answered, repeatedJob, func(w *world) {
		w.sub(repeatedJob).Tries[2] = history.Answer{Sent: w.start, Answered: w.start, Status: 409, Code: "RFA_EXEC_IDEMPOTENCY_CONFLICT"}
	}, true},
	{"a response to the submission shows the wrong created_at 03:04:13.000001Z", answered, repeatedJob, func(w *world) {
		try := &w.sub(repeatedJob).Tries[1]
		try.CreatedAt = try.CreatedAt.Add(time.Microsecond)
	}, true},
	{"a valid request was refused with 400", answered, 0, func(w *world) { w.refused().WorkKind = "SUCCESS_FAST" }, true},

	{"the answer to cancel is about job x", answered, canceledJob, acted(canceledJob, func(a *history.Answer) { a.Job = "x" }), true},
	{"the answer to cancel cannot be read: odd", answered, canceledJob, acted(canceledJob, func(a *history.Answer) { a.Error = "odd" }), true},
	{"the answer to cancel has no updated_at", answered, canceledJob,
		acted(canceledJob, func(a *history.Answer) { a.UpdatedAt = time.Time{} }), true},
	{"the cancel request returned CANCELED, but the job is SUCCEEDED", answered, polledJob,
		acted(polledJob, func(a *history.Answer) { a.State = canceled }), true},
	{"the job is RUNNING after its cancel request returned", answered, canceledJob,
		acted(canceledJob, func(a *history.Answer) { a.State = running }), true},
	{"the cancel request was refused with 404 RFA_JOB_NOT_FOUND", answered, canceledJob,
		acted(canceledJob, func(a *history.Answer) { a.Status, a.Code, a.State = 404, "RFA_JOB_NOT_FOUND", "" }), true},
	{"the job is CANCELED, but no cancel request was sent", answered, canceledJob,
		func(w *world) { w.drop(w.find(history.Acted, canceledJob)) }, true},
	{"the answer to retry shows QUEUED (attempt 5)", answered, exhaustedJob, func(w *world) {
		a := w.find(history.Acted, exhaustedJob, func(f *history.Fact) bool { return f.Action.Status == 409 }).Action
		a.Status, a.State, a.Attempt = 200, queued, 5
	}, true},
	{"the retry was refused with 403", answered, retriedJob, acted(retriedJob, func(a *history.Answer) { a.Status = 403 }), true},
	{"though the job could be retried", answered, retriedJob,
		acted(retriedJob, func(a *history.Answer) { a.Status, a.Code = 409, "RFA_JOB_CONFLICT" }), true},

	{"a poll shows ASSIGNED, although a poll had already shown the later state RUNNING", answered, polledJob, func(w *world) {
		a, b := w.poll(polledJob, queued), w.poll(polledJob, running)
		*a, *b = *b, *a
	}, true},
	{"a poll shows ASSIGNED (attempt 1), but the job did not have this state at that time", answered, polledJob,
		func(w *world) { w.poll(polledJob, queued).State = assigned }, true},
	{"the owner's poll was refused: forgerun answered 404", answered, polledJob, func(w *world) {
		f := w.find(history.Looked, polledJob)
		f.Shown, f.Note = &history.Job{}, "forgerun answered 404"
	}, true},
	{`SUCCEEDED with the wrong outcome "FAILED"`, answered, polledJob, lastPoll(func(j *history.Job) { j.Outcome = "FAILED" }), true},
	{"of kind CPU_BURST with execution_at (none)", answered, polledJob, lastPoll(func(j *history.Job) { j.WorkKind = "CPU_BURST" }), false},
	{"a poll shows created_at 00:00:00", answered, polledJob, lastPoll(func(j *history.Job) { j.CreatedAt = time.Unix(0, 0).UTC() }), true},
	{"a poll shows a time that is not in UTC", answered, polledJob,
		lastPoll(func(j *history.Job) { j.UpdatedAt = j.UpdatedAt.In(time.FixedZone("", 3600)) }), true},
	{"a poll shows max_attempts 0, but attempt 1", answered, polledJob, lastPoll(func(j *history.Job) { j.MaxAttempts = 0 }), true},
	{"the result has no checksum", answered, polledJob, lastPoll(func(j *history.Job) { j.Result.Checksum.Value = "" }), true},
	{"result.size_bytes is 1, expected 4096", expected, polledJob, lastPoll(func(j *history.Job) { j.Result.SizeBytes = 1 }), true},
	{"definition.duration_ms is 1, expected 1000", expected, polledJob,
		lastPoll(func(j *history.Job) { j.Definition.DurationMS = 1 }), true},
	{"definition.should_fail is true", expected, polledJob, lastPoll(func(j *history.Job) { j.Definition.ShouldFail = true }), true},
	{"definition.payload_size is 7, expected 4096", expected, polledJob,
		lastPoll(func(j *history.Job) { j.Definition.PayloadSize = 7 }), true},
	{"SUCCEEDED, but has a `failure` member", answered, polledJob, lastPoll(func(j *history.Job) { j.Failure = &client.Outcome{} }), true},

	{"the failed job has no `failure` member", answered, othersJob, func(w *world) { w.poll(othersJob, failed).Failure = nil }, true},
	{`failure.jobId is "x"`, answered, othersJob, document(othersJob, func(d *client.Outcome) { d.JobID = "x" }), true},
	{`failure.jobStatus "FAILED" does not fit the code RFA_EXEC_TIMEOUT`, answered, timedOutJob,
		document(timedOutJob, func(d *client.Outcome) { d.JobStatus = "FAILED" }), true},
	{"failure.retryable is true, expected false", answered, othersJob,
		document(othersJob, func(d *client.Outcome) { *d = *documentOf(d.JobID, d.Code, true) }), true},
	{"failure.retryable is false, expected true", answered, timedOutJob,
		document(timedOutJob, func(d *client.Outcome) { *d = *documentOf(d.JobID, d.Code, false) }), true},
	{"retryAfter is missing or below 1", answered, timedOutJob, document(timedOutJob, func(d *client.Outcome) { d.RetryAfter = nil }), true},
	{"failure.code is E_OOPS, but the report of the attempt has", answered, othersJob,
		document(othersJob, func(d *client.Outcome) { d.Code = "E_OOPS" }), true},

	{"the list of jobs contains the job 2 times", answered, plainJob, func(w *world) { w.again(listed, plainJob) }, true},
	{"the list of jobs shows the job differently", answered, plainJob,
		func(w *world) { w.find(listed, plainJob).Shown.StartedAt = w.start }, true},

	{"the API shows a report of attempt 1 that differs from the stored one", answered, plainJob,
		func(w *world) { w.shown(plainJob).DurationMS++ }, true},
	{"its events say SUCCEEDED of attempt 1", ended, plainJob, func(w *world) { w.shown(plainJob).Outcome = "CANCELED" }, false},
	{"does not match event 3 of the log", answered, plainJob, reportEvent(2, func(e *history.Event) { e.ID = "another" }), true},
	{`in the report of attempt 1 belongs to job "x"`, answered, plainJob, reportEvent(2, func(e *history.Event) { e.Job = "x" }), true},
	{`has work kind ""`, expected, plainJob, reportEvent(2, func(e *history.Event) { e.WorkKind = "" }), true},
	{"is out of order: seq 7", logged, plainJob, reportEvent(2, func(e *history.Event) { e.Seq = 7 }), false},
	{`leads from "QUEUED" to "ASSIGNED"`, logged, plainJob, reportEvent(2, func(e *history.Event) { e.Name = "job.queued" }), false},
	{"the API shows no report: 404", answered, plainJob, func(w *world) {
		f := w.find(apiReport, plainJob)
		f.Report, f.Note = nil, "404"
	}, true},
	{"the API does not give the result: damaged", answered, plainJob,
		func(w *world) { w.shown(plainJob).ResultSize, w.shown(plainJob).ResultError = nil, "damaged" }, true},
	{`the report of attempt 1 names job "x"`, answered, plainJob, func(w *world) { w.shown(plainJob).Job = "x" }, true},
}

func acted(job int, fn func(a *history.Answer)) func(w *world) {
	return func(w *world) { fn(w.find(history.Acted, job).Action) }
}

func (w *world) poll(job int, state string) *history.Job {
	return w.find(history.Looked, job, func(f *history.Fact) bool { return f.Shown.State == state }).Shown
}

func lastPoll(fn func(j *history.Job)) func(w *world) {
	return func(w *world) { fn(w.poll(polledJob, succeeded)) }
}

func document(job int, fn func(d *client.Outcome)) func(w *world) {
	return func(w *world) { fn(w.poll(job, failed).Failure) }
}

func reportEvent(n int, fn func(e *history.Event)) func(w *world) {
	return func(w *world) { fn(&w.shown(plainJob).Events[n]) }
}

var deliveryCorruptions = []corruption{
	{"event 5 (job.succeeded) has no delivery to webhook hook-0", delivered, plainJob, withoutDelivery, true},
	{"event 5 (job.succeeded) has no delivery to the callback", delivered, calledJob,
		func(w *world) { w.dropAll(about(calledJob), hasDelivery, ofCallback, named("job.succeeded")) }, true},
	{"event 5 (job.succeeded) has two deliveries to hook-0", delivered, plainJob, func(w *world) {
		d := w.again(storedDelivery, plainJob, named("job.succeeded")).Delivery
		d.ID, d.State, d.Attempts = "another", "FAILED", 0
	}, false},
	{"is for event 5 (job.succeeded), which the job does not have", delivered, plainJob,
		func(w *world) { w.find(storedDelivery, plainJob, named("job.succeeded")).Delivery.EventID = "nobody's" }, false},
	{"has 1 recorded 2xx responses, but the receiver sent 0", delivered, plainJob,
		func(w *world) { w.message("job.succeeded").Status = 500 }, true},
	{"is DELIVERED, but its receiver never returned 2xx", delivered, plainJob,
		func(w *world) { w.drop(w.find(arrived, plainJob, named("job.succeeded"))) }, true},
	{`is "ODD"`, delivered, failingJob, failedDelivery(func(d *history.Delivery) { d.State = "ODD" }), true},
	{"batch-delivery has 1 recorded 2xx responses, but the receiver sent 0", delivered, 0,
		func(w *world) {
			w.change(0, func(f *history.Fact) { f.Delivery.Status = 503 }, of(arrived), named("batch.completed"))
		}, true},
	{"delivery batch-delivery arrived, but the service has no record of it", received, 0,
		func(w *world) { w.dropAll(of(storedDelivery), named("batch.completed")) }, true},

	{"is PENDING, although it was due at 04:04:04.000000Z", delivered, failingJob, func(w *world) {
		failedDelivery(func(d *history.Delivery) { d.State, d.Next, d.SettledAt = "PENDING", w.end().Add(-second), time.Time{} })(w)
	}, true},
	{"FAILED (HTTP_5XX, last status 503) after 2 attempts; the limit is 3", delivered, failingJob, func(w *world) { w.tried(500, 503) }, true},
	{"must not be FAILED (HTTP_5XX, last status 500) after 1 attempts; the limit is 0", delivered, failingJob, func(w *world) {
		w.tried(500)
		w.run.DeliveryTries = 0
	}, true},
	{"is FAILED, but 1 of its attempts got 2xx", delivered, failingJob, func(w *world) { w.tried(500, 503, 204) }, true},
	{"(HTTP_5XX, last status 410) after 1 attempts; the limit is 3", delivered, failingJob, func(w *world) { // but the receiver returned 500
		w.tried(500)
		failedDelivery(func(d *history.Delivery) { d.Status = 410 })(w)
	}, true},
	{"must not be FAILED (WEBHOOK_DISABLED, last status 0)", delivered, plainJob, func(w *world) { w.untried("FAILED", sendDisabled) }, true},
	{"must not be FAILED (WEBHOOK_DISABLED, last status 500)", delivered, failingJob, func(w *world) { // a callback cannot be disabled
		w.tried(500)
		failedDelivery(func(d *history.Delivery) { d.Error = sendDisabled })(w)
	}, true},

	{`it is DELIVERED, but has last_error "HTTP_5XX"`, delivered, plainJob,
		shownDelivery(func(d *history.Delivery) { d.Error = "HTTP_5XX" }), true},
	{"it is DELIVERED, but has settled_at (none)", delivered, plainJob,
		shownDelivery(func(d *history.Delivery) { d.SettledAt = time.Time{} }), true},
	{"it has 1 attempts, but 0 log entries", delivered, plainJob, shownDelivery(func(d *history.Delivery) { d.Log = nil }), true},
	{"entry 1 of its attempt log has number 2", delivered, plainJob, shownDelivery(func(d *history.Delivery) { d.Log[0].Number = 2 }), true},
	{"try 1 is logged with status 200, but the receiver returned 204", delivered, plainJob,
		shownDelivery(func(d *history.Delivery) { d.Log[0].Status = 200 }), true},
	{"try 1 took 0s by its log, but the receiver took 10ms", delivered, plainJob,
		shownDelivery(func(d *history.Delivery) { d.Log[0].DurationMS = 0 }), true},
	{"try 1 was given up after 20ms, but the receiver responds after 10ms", delivered, plainJob,
		shownDelivery(func(d *history.Delivery) { d.Log[0].Status = 0 }), true},
	{"it was settled 0s after its event, before the receiver responded", delivered, plainJob,
		shownDelivery(func(d *history.Delivery) { d.SettledAt = d.CreatedAt }), true},
	{"the service counts 1 tries, but the receiver saw 2", delivered, plainJob,
		func(w *world) { w.again(arrived, plainJob, named("job.succeeded")) }, true},
	{"it was sent again after the receiver had accepted it", delivered, calledJob,
		func(w *world) { w.find(arrived, calledJob, named("job.succeeded"), ofCallback).Delivery.Status = 200 }, true},
	{"the API shows 4 deliveries of the job, but 5 are stored", answered, plainJob,
		func(w *world) { w.drop(w.find(apiDelivery, plainJob)) }, true},
	{"differently than it is stored", answered, plainJob, shownDelivery(func(d *history.Delivery) { d.Webhook = "hook-9" }), true},

	{"was repeated with different bytes", received, calledJob,
		func(w *world) {
			w.find(arrived, calledJob, func(f *history.Fact) bool { return f.Delivery.Status == 200 }).Delivery.Body = "other"
		}, true},
	{"contained event nobody's as number 1 (job.created), which the job does not have", received, plainJob,
		func(w *world) { w.message("job.created").EventID = "nobody's" }, true},
	{"arrived, but the service has no record of it", received, plainJob, func(w *world) { w.message("job.created").ID = "nobody's" }, false},
	{"arrived 1m1s before its event", received, plainJob, func(w *world) { w.find(arrived, plainJob).At = w.start.Add(-time.Minute) }, true},
	{`has the wrong event of the client: "simulated 1"`, received, emittingJob,
		func(w *world) { w.find(arrived, emittingJob, named(nameEmitted)).Delivery.Emitted = "simulated 1" }, true},
	{"of job.running has no duration", received, plainJob, func(w *world) { w.message("job.running").Scenario.DurationMS = 0 }, true},
	{"of job.succeeded has a duration of 7 ms", received, plainJob,
		func(w *world) { w.message("job.succeeded").Scenario.DurationMS = 7 }, true},
	{`of job.succeeded has the attribute workkind "CPU_BURST"`, received, plainJob,
		func(w *world) { w.message("job.succeeded").WorkKind = "CPU_BURST" }, true},
	{`of job.failed has the wrong jobStatus "TIMED_OUT"`, received, othersJob,
		func(w *world) { w.find(arrived, othersJob, named("job.failed")).Delivery.JobStatus = "TIMED_OUT" }, true},
}

func (w *world) message(event string) *history.Delivery {
	return w.find(arrived, plainJob, named(event)).Delivery
}

func shownDelivery(fn func(d *history.Delivery)) func(w *world) {
	return func(w *world) { fn(w.find(apiDelivery, plainJob, named("job.succeeded")).Delivery) }
}

func failedDelivery(fn func(d *history.Delivery)) func(w *world) {
	return func(w *world) {
		w.change(failingJob, func(f *history.Fact) { fn(f.Delivery) }, of(storedDelivery, apiDelivery), named("job.succeeded"), toBroken)
	}
}

func toBroken(f *history.Fact) bool   { return f.Delivery != nil && f.Delivery.URL == brokenURL }
func ofCallback(f *history.Fact) bool { return f.Delivery.URL != "" }

func (w *world) tried(answers ...int) {
	n, accepted := 0, 0
	w.dropAll(of(arrived), about(failingJob), named("job.succeeded"), toBroken, func(f *history.Fact) bool {
		if n++; n <= len(answers) {
			f.Delivery.Status = answers[n-1]
			accepted += count(isSuccess(answers[n-1]))
		}
		return n > len(answers)
	})
	failedDelivery(func(d *history.Delivery) {
		d.Attempts, d.Status, d.Accepted = len(answers), answers[len(answers)-1], accepted
		if d.HasLog {
			d.Log = d.Log[:len(answers)]
			for i := range d.Log {
				d.Log[i].Status = answers[i]
			}
		}
	})(w)
}

func (w *world) untried(state, code string) {
	w.change(plainJob, func(f *history.Fact) {
		d := f.Delivery
		d.State, d.Error, d.Attempts, d.Accepted, d.Log = state, code, 0, 0, nil
	}, of(storedDelivery, apiDelivery), named("job.succeeded"))
	w.drop(w.find(arrived, plainJob, named("job.succeeded")))
}
