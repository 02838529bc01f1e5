package judge

import (
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// deliveryCorruptions spoil deliveries, as they are stored, shown, tried and received.
var deliveryCorruptions = []corruption{
	{"event 5 (job.succeeded) has no delivery to webhook hook-0", delivered, plainJob, func(w *world) {
		w.dropAll(func(f *history.Fact) bool {
			return f.Job == jobName(plainJob) && f.Delivery != nil && named("job.succeeded")(f)
		})
	}, true},
	{"event 5 (job.succeeded) has no delivery to the callback", delivered, calledJob, func(w *world) {
		w.dropAll(func(f *history.Fact) bool {
			return f.Job == jobName(calledJob) && f.Delivery != nil && f.Delivery.URL != "" && named("job.succeeded")(f)
		})
	}, true},
	{"event 5 (job.succeeded) has two deliveries to hook-0", delivered, plainJob, func(w *world) {
		d := w.again(storedDelivery, plainJob, named("job.succeeded")).Delivery
		d.ID, d.State, d.Attempts = "another", "FAILED", 0
	}, false},
	{"is of event nobody's, which the job does not have", delivered, plainJob, func(w *world) {
		w.find(storedDelivery, plainJob, named("job.succeeded")).Delivery.EventID = "nobody's"
	}, false},
	{"shows event 5 (job.succeeded) as 4 (job.succeeded)", delivered, plainJob, func(w *world) {
		w.change(plainJob, func(f *history.Fact) { f.Delivery.Seq = 4 }, of(storedDelivery, toldDelivery), named("job.succeeded"))
	}, true},
	{"has 1 answers with 2xx on record, the receiver gave 0", delivered, plainJob, func(w *world) {
		w.got("job.succeeded").Status = 500
	}, true},
	{"is DELIVERED, but its receiver never answered with 2xx", delivered, plainJob, func(w *world) {
		w.drop(w.find(came, plainJob, named("job.succeeded")))
	}, true},
	{"counts 1 attempts, 0 are recorded", delivered, plainJob, func(w *world) {
		w.drop(w.find(history.StoredTry, plainJob, named("job.succeeded")))
	}, true},
	{`is "ODD"`, delivered, failingJob, last(func(d *history.Delivery) { d.State = "ODD" }), true},
	{"batch-delivery has 1 answers with 2xx on record, the receiver gave 0", delivered, 0, func(w *world) {
		w.change(0, func(f *history.Fact) { f.Delivery.Status = 503 }, of(came), named("batch.completed"))
	}, true},
	{"event batch-event (batch.completed) has two deliveries to webhook hook-0", delivered, 0, func(w *world) {
		w.change(0, func(f *history.Fact) {
			d := *f.Delivery
			d.ID, f.Delivery = "another", &d
			w.add(*f)
		}, of(storedDelivery), named("batch.completed"))
	}, false},
	{"delivery batch-delivery came, and there is none of that id", received, 0, func(w *world) {
		w.dropAll(func(f *history.Fact) bool { return f.Kind == storedDelivery && named("batch.completed")(f) })
	}, true},

	{"is PENDING, and was due at 04:04:04.000000Z", delivered, failingJob, func(w *world) {
		last(func(d *history.Delivery) { d.State, d.Next, d.SettledAt = "PENDING", w.end().Add(-second), time.Time{} })(w)
	}, true},
	{"is PENDING, and was due at (none)", delivered, failingJob, last(func(d *history.Delivery) { d.State = "PENDING" }), true},
	{"is FAILED (HTTP_5XX, last status 503) after 2 attempts of 3", delivered, failingJob, func(w *world) { w.tried(500, 503) }, true},
	{"is FAILED (HTTP_5XX, last status 500) after 1 attempts of 0", delivered, failingJob, func(w *world) {
		w.tried(500)
		w.run.DeliveryTries = 0
	}, true},
	{"is FAILED, and 1 of its attempts were answered with 2xx", delivered, failingJob, func(w *world) { w.tried(500, 503, 204) }, true},
	{"is FAILED (HTTP_5XX, last status 410) after 1 attempts of 3", delivered, failingJob, func(w *world) { // and the receiver is not gone
		w.tried(500)
		last(func(d *history.Delivery) { d.Status = 410 })(w)
	}, true},
	{"is FAILED (WEBHOOK_DISABLED, last status 0)", delivered, plainJob, func(w *world) { w.untried("FAILED", sendDisabled) }, true},
	{"is FAILED (WEBHOOK_DISABLED, last status 500)", delivered, failingJob, func(w *world) { // and callbacks cannot be disabled
		w.tried(500)
		last(func(d *history.Delivery) { d.Error = sendDisabled })(w)
	}, true},

	{`it is DELIVERED with last_error "HTTP_5XX"`, delivered, plainJob, logged1(func(d *history.Delivery) { d.Error = "HTTP_5XX" }), true},
	{"it is DELIVERED with settled_at (none)", delivered, plainJob, logged1(func(d *history.Delivery) { d.SettledAt = time.Time{} }), true},
	{"it has 1 attempts and a log of 0", delivered, plainJob, logged1(func(d *history.Delivery) { d.Log = nil }), true},
	{"entry 1 of the log of tries has number 2", delivered, plainJob, logged1(func(d *history.Delivery) { d.Log[0].Number = 2 }), true},
	{"try 1 is logged with status 200, the receiver answered 204", delivered, plainJob, logged1(func(d *history.Delivery) {
		d.Log[0].Status = 200
	}), true},
	{"try 1 is logged with 0s, the receiver took 10ms", delivered, plainJob, logged1(func(d *history.Delivery) { d.Log[0].Took = 0 }), true},
	{"try 1 was given up after 20ms, the receiver answers after 10ms", delivered, plainJob, logged1(func(d *history.Delivery) {
		d.Log[0].Status = 0
	}), true},
	{"it was settled 0s after its event, before the receiver answered", delivered, plainJob, logged1(func(d *history.Delivery) {
		d.SettledAt = d.CreatedAt
	}), true},
	{"the service counts 1 tries, the receiver saw 2", delivered, plainJob, func(w *world) {
		w.again(came, plainJob, named("job.succeeded"))
	}, true},
	{"it was sent again after the receiver had accepted it", delivered, calledJob, func(w *world) {
		w.find(came, calledJob, named("job.succeeded"), ofCallback).Delivery.Status = 200
	}, true},
	{"the API shows 4 deliveries of the job, 5 are stored", answered, plainJob, func(w *world) {
		w.drop(w.find(toldDelivery, plainJob))
	}, true},
	{"differently than it is stored", answered, plainJob, logged1(func(d *history.Delivery) { d.Webhook = "hook-9" }), true},

	{"came again with other bytes", received, calledJob, func(w *world) {
		w.find(came, calledJob, func(f *history.Fact) bool { return f.Delivery.Status == 200 }).Delivery.Body = "other"
	}, true},
	{"brought event nobody's, which the job does not have", received, plainJob, func(w *world) {
		w.got("job.created").EventID = "nobody's"
	}, true},
	{"came, and there is none of that id", received, plainJob, func(w *world) { w.got("job.created").ID = "nobody's" }, false},
	{"came 1m1s before its event", received, plainJob, func(w *world) { w.find(came, plainJob).At = w.start.Add(-time.Minute) }, true},
	{"brought event 1 (job.created) as 3 (job.created)", received, plainJob, func(w *world) { w.got("job.created").Seq = 3 }, true},
	{`brings "simulated 1" as the client's own event`, received, emittingJob, func(w *world) {
		w.find(came, emittingJob, named(nameEmitted)).Delivery.Emitted = "simulated 1"
	}, true},
	{"of job.running has no duration", received, plainJob, func(w *world) { w.got("job.running").Scenario.DurationMS = nil }, true},
	{"of job.succeeded has a duration of 7 ms", received, plainJob, func(w *world) {
		ms := int64(7)
		w.got("job.succeeded").Scenario.DurationMS = &ms
	}, true},
	{`of job.succeeded has the attribute workkind "CPU_BURST"`, received, plainJob, func(w *world) {
		w.got("job.succeeded").WorkKind = "CPU_BURST"
	}, true},
	{`of job.failed shows jobStatus "TIMED_OUT"`, received, othersJob, func(w *world) {
		w.find(came, othersJob, named("job.failed")).Delivery.JobStatus = "TIMED_OUT"
	}, true},
}

// got is what the receiver got of an event of the plain job.
func (w *world) got(event string) *history.Delivery {
	return w.find(came, plainJob, named(event)).Delivery
}

// logged1 spoils the delivery of the plain job's success as the API shows it, with its log of tries.
func logged1(fn func(d *history.Delivery)) func(w *world) {
	return func(w *world) { fn(w.find(toldDelivery, plainJob, named("job.succeeded")).Delivery) }
}

// last spoils the delivery of the failing job's last event to its callback, as it is stored and told.
func last(fn func(d *history.Delivery)) func(w *world) {
	return func(w *world) {
		w.change(failingJob, func(f *history.Fact) { fn(f.Delivery) }, of(storedDelivery, toldDelivery), named("job.succeeded"), toBroken)
	}
}

func toBroken(f *history.Fact) bool   { return f.Delivery != nil && f.Delivery.URL == brokenURL }
func ofCallback(f *history.Fact) bool { return f.Delivery.URL != "" }

// tried leaves only the first tries of that delivery, with these answers.
func (w *world) tried(answers ...int) {
	for _, k := range []history.Kind{history.StoredTry, came} {
		n := 0
		w.dropAll(func(f *history.Fact) bool {
			if f.Kind != k || f.Job != jobName(failingJob) || !named("job.succeeded")(f) || !toBroken(f) {
				return false
			}
			n++
			if n <= len(answers) {
				f.Delivery.Status = answers[n-1]
			}
			return n > len(answers)
		})
	}
	last(func(d *history.Delivery) {
		d.Attempts, d.Status = len(answers), answers[len(answers)-1]
		if d.HasLog {
			d.Log = d.Log[:len(answers)]
			for i := range d.Log {
				d.Log[i].Status = answers[i]
			}
		}
	})(w)
}

// untried makes the delivery of the plain job's success one that was never tried.
func (w *world) untried(state, code string) {
	w.change(plainJob, func(f *history.Fact) {
		d := f.Delivery
		d.State, d.Error, d.Attempts, d.Log = state, code, 0, nil
	}, of(storedDelivery, toldDelivery), named("job.succeeded"))
	w.drop(w.find(history.StoredTry, plainJob, named("job.succeeded")))
	w.drop(w.find(came, plainJob, named("job.succeeded")))
}
