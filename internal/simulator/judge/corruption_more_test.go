package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// change spoils all facts of the kinds about a job that pass the tests.
func (w *world) change(job int, fn func(f *history.Fact), tests ...func(*history.Fact) bool) {
	for i := range w.facts {
		f := &w.facts[i]
		ok := f.Job == jobName(job)
		for _, test := range tests {
			ok = ok && test(f)
		}
		if ok {
			fn(f)
		}
	}
}

func of(kinds ...history.Kind) func(*history.Fact) bool {
	return func(f *history.Fact) bool {
		for _, k := range kinds {
			if f.Kind == k {
				return true
			}
		}
		return false
	}
}

// delivery changes a delivery of the failing job's last event to its callback, as
// it is stored and told.
func (w *world) delivery(fn func(d *history.Delivery)) {
	w.change(failingJob, func(f *history.Fact) { fn(f.Delivery) },
		of(history.StoredDeliver, history.ToldDelivery), named("job.succeeded"), toCallback)
}

func toCallback(f *history.Fact) bool { return f.Delivery != nil && f.Delivery.URL == brokenURL }

// tried leaves only the first tries of that delivery, with these answers.
func (w *world) tried(answers ...int) {
	for _, k := range []history.Kind{history.StoredTry, history.Received} {
		n := 0
		w.dropAll(func(f *history.Fact) bool {
			if f.Kind != k || f.Job != jobName(failingJob) || !named("job.succeeded")(f) || !toCallback(f) {
				return false
			}
			n++
			if n <= len(answers) {
				f.Delivery.Status = answers[n-1]
			}
			return n > len(answers)
		})
	}
	w.delivery(func(d *history.Delivery) { d.Attempts, d.Status = len(answers), answers[len(answers)-1] })
}

// ended makes the delivery of a job's success one that was never tried.
func (w *world) ended(state, code string, attempts int) {
	for _, k := range []history.Kind{history.StoredDeliver, history.ToldDelivery} {
		d := w.find(k, plainJob, named("job.succeeded")).Delivery
		d.State, d.Error, d.Attempts = state, code, attempts
	}
	w.drop(w.find(history.StoredTry, plainJob, named("job.succeeded")))
	w.drop(w.find(history.Received, plainJob, named("job.succeeded")))
}

func (w *world) refused() *history.Submission {
	for i := range w.facts {
		if s := w.facts[i].Submission; s != nil && s.WorkKind == payloadInvalid {
			return s
		}
	}
	panic("nothing was refused")
}

func (w *world) fails(job int, code string) {
	w.change(job, func(f *history.Fact) { f.Report.Failure = code }, of(storedReport, history.ToldReport))
}

func (w *world) typed(job int, name string) {
	w.change(job, func(f *history.Fact) {
		if f.Told != nil {
			f.Told.Type = name
		} else {
			f.Submission.Type = name
		}
	}, of(storedJob, history.ListedJob, history.Submitted))
}

func (w *world) intruder(status int) {
	w.change(plainJob, func(f *history.Fact) { f.Action.Status = status }, of(history.Intruded))
}

var moreCorruptions = []corruption{
	{"a job that waits a second past its time", ended, waitingJob, func(w *world) {
		at := w.end().Add(-second)
		w.find(storedJob, waitingJob).Told.RunAt = &at
	}, true},
	{"PENDING a second past its time", delivered, failingJob, func(w *world) {
		w.delivery(func(d *history.Delivery) { d.State, d.Next = "PENDING", w.end().Add(-second) })
	}, true},
	{"PENDING for no time", delivered, failingJob, func(w *world) {
		w.delivery(func(d *history.Delivery) { d.State = "PENDING" })
	}, true},

	{"FAILED too early", delivered, failingJob, func(w *world) { w.tried(500, 503) }, true},
	{"FAILED after one try of a service with unknown limits", delivered, failingJob, func(w *world) {
		w.tried(500)
		w.run.DeliveryTries = 0
	}, true},
	{"FAILED, and answered with 2xx", delivered, failingJob, func(w *world) { w.tried(500, 503, 204) }, true},
	{"FAILED as gone, and the receiver is not", delivered, failingJob, func(w *world) {
		w.tried(500)
		w.delivery(func(d *history.Delivery) { d.Status = 410 })
	}, true},
	{"FAILED as disabled, and nobody disabled it", delivered, plainJob, func(w *world) { w.ended("FAILED", sendDisabled, 0) }, true},
	{"a callback that is FAILED as disabled", delivered, failingJob, func(w *world) {
		w.tried(500)
		w.delivery(func(d *history.Delivery) { d.Error = sendDisabled })
	}, true},
	{"a batch's that is FAILED too early", delivered, 0, func(w *world) {
		for i := range w.facts {
			if d := w.facts[i].Delivery; d != nil && d.EventName == "batch.completed" {
				if d.State == "DELIVERED" {
					d.State = "FAILED"
				}
				d.Status = 503
			}
		}
	}, true},

	{"a stranger's poll", foreign, plainJob, func(w *world) { w.intruder(200) }, true},
	{"a stranger who is told that it is gone", foreign, plainJob, func(w *world) { w.intruder(410) }, true},
	{"a stranger who is told that it is not his", foreign, plainJob, func(w *world) { w.intruder(403) }, true},

	{"a valid request that was refused", answered, 0, func(w *world) { w.refused().WorkKind = "SUCCESS_FAST" }, true},
	{"a repetition that was refused", answered, repeatedJob, func(w *world) {
		w.find(history.Submitted, repeatedJob).Submission.Tries[2] = history.Try{Sent: w.start, Answered: w.start, Status: 400}
	}, true},
	{"a time ahead that was refused", answered, 0, func(w *world) {
		at := w.start.Add(2 * second)
		w.refused().WorkKind, w.refused().ExecutionAt = "SUCCESS_FAST", &at
	}, true},
	{"an invalid request that was accepted", expected, plainJob, func(w *world) { rename(w, plainJob, payloadInvalid) }, true},

	{"a failure with another's code", expected, othersJob, func(w *world) { w.fails(othersJob, codeDependency) }, true},
	{"a crash", expected, exhaustedJob, func(w *world) { w.fails(exhaustedJob, codeInternal) }, true},
	{"another limit of attempts", expected, emittingJob, func(w *world) {
		w.change(emittingJob, func(f *history.Fact) { f.Told.MaxAttempts = 1 }, of(storedJob, history.ListedJob))
	}, false},
	{"an attempt above the limit", expected, exhaustedJob, func(w *world) {
		w.run.MaxAttempts = 0
		w.change(exhaustedJob, func(f *history.Fact) { f.Told.MaxAttempts = 3 }, of(storedJob, history.ListedJob))
	}, false},
	{"a list that tells another limit", answered, plainJob, func(w *world) { w.find(history.ListedJob, plainJob).Told.MaxAttempts = 3 }, true},

	{"a result of another size", expected, plainJob, func(w *world) {
		size := 1
		w.find(history.ToldReport, plainJob).Report.ResultSize = &size
	}, true},
	{"a result that is not what its digest says", answered, plainJob, func(w *world) {
		r := w.find(history.ToldReport, plainJob).Report
		r.ResultSize, r.ResultError = nil, "the bytes do not match their digest"
	}, true},

	{"another event than the client's own", logged, emittingJob, func(w *world) {
		w.change(emittingJob, func(f *history.Fact) { f.Event.Emitted = "simulated 1" }, of(storedEvent), named(nameEmitted))
	}, false},
	{"an event of the client's own that nobody asked for", logged, emittingJob, func(w *world) { w.typed(emittingJob, "EXECUTE") }, false},
	{"no event of the client's own", logged, plainJob, func(w *world) { w.typed(plainJob, emitEvent) }, true},
	{"another event than the client's own on a stream", streamed, emittingJob, func(w *world) {
		w.find(history.Streamed, emittingJob, named(nameEmitted)).Event.Emitted = "simulated"
	}, true},
	{"another event than the client's own in a delivery", received, emittingJob, func(w *world) {
		w.find(history.Received, emittingJob, named(nameEmitted)).Delivery.Emitted = "simulated 1"
	}, true},
	{"no event of the client's own in a delivery", received, emittingJob, func(w *world) {
		w.find(history.Received, emittingJob, named(nameEmitted)).Delivery.Emitted = ""
	}, true},

	{"a delivery without a scenario", received, plainJob, func(w *world) {
		w.find(history.Received, plainJob, named("job.running")).Delivery.Scenario = nil
	}, true},
	{"a delivery of another duration", received, plainJob, func(w *world) {
		ms := int64(7)
		w.find(history.Received, plainJob, named("job.succeeded")).Delivery.Scenario.DurationMS = &ms
	}, true},
	{"a delivery with another attribute workkind", received, plainJob, func(w *world) {
		w.find(history.Received, plainJob, named("job.succeeded")).Delivery.WorkKind = "CPU_BURST"
	}, true},
	{"a stream's event without a scenario", streamed, plainJob, func(w *world) {
		w.find(history.Streamed, plainJob, named("job.running")).Event.Scenario = history.Scenario{}
	}, true},
	{"a stream's document that expects another outcome", streamed, plainJob, func(w *world) {
		w.find(history.Streamed, plainJob, named("job.succeeded")).Event.Expected = failed
	}, true},
	{"a delivery with another jobStatus", received, plainJob, func(w *world) {
		w.find(history.Received, plainJob, named("job.running")).Delivery.JobStatus = "ACCEPTED"
	}, true},
	{"a delivery without a jobStatus", received, plainJob, func(w *world) {
		w.find(history.Received, plainJob, named("job.succeeded")).Delivery.JobStatus = ""
	}, true},
	{"a timeout that is delivered as FAILED", received, timedOutJob, func(w *world) {
		w.find(history.Received, timedOutJob, named("job.failed")).Delivery.JobStatus = "FAILED"
	}, true},
	{"a failure that is delivered as TIMED_OUT", received, othersJob, func(w *world) {
		w.find(history.Received, othersJob, named("job.failed")).Delivery.JobStatus = "TIMED_OUT"
	}, true},
	{"a timeout that is FAILED on a stream", streamed, timedOutJob, func(w *world) {
		w.find(history.Streamed, timedOutJob, named("job.failed")).Event.Status = "FAILED"
	}, true},
	{"a failure that is TIMED_OUT on a stream", streamed, othersJob, func(w *world) {
		w.find(history.Streamed, othersJob, named("job.failed")).Event.Status = "TIMED_OUT"
	}, true},

	{"a failure that came too quickly", timed, othersJob, func(w *world) {
		for _, k := range []history.Kind{storedReport, history.ToldReport} {
			r := w.find(k, othersJob).Report
			at := r.FinishedAt.Add(-100 * time.Millisecond)
			r.StartedAt, r.DurationMS = &at, 100
		}
	}, false},
}

// What is near to a corruption and is none is not accused.
func TestSoundVariantsPass(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *world){
		"a job whose time is to come": func(w *world) {
			at := w.end().Add(second)
			w.find(storedJob, waitingJob).Told.RunAt = &at
		},
		"a job whose time came after the rows were read": func(w *world) {
			at := w.end().Add(-second)
			f := w.find(storedJob, waitingJob)
			f.Told.RunAt, f.Sent = &at, w.end().Add(-2*second)
		},
		"a delivery that is to be tried again": func(w *world) {
			w.delivery(func(d *history.Delivery) { d.State, d.Next = "PENDING", w.end().Add(2*second) })
		},
		"FAILED after tries of which some do not count": func(w *world) {
			f := *w.find(history.StoredTry, failingJob, named("job.succeeded"), toCallback)
			d := *f.Delivery
			d.Error, d.Status, f.Delivery = sendInternal, 0, &d
			w.add(f)
			w.delivery(func(d *history.Delivery) { d.Attempts = 4 })
		},
		"FAILED after some tries of a service with unknown limits": func(w *world) {
			w.tried(500, 500)
			w.run.DeliveryTries = 0
		},
		"FAILED, since the receiver is gone": func(w *world) { w.tried(410) },
		"FAILED, since the webhook was disabled": func(w *world) {
			w.ended("FAILED", sendDisabled, 0)
			w.run.Collected.Webhooks = map[string]time.Time{"hook-0": w.end()}
		},
		"a stranger without an answer":       func(w *world) { w.intruder(0) },
		"a stranger who asks too often":      func(w *world) { w.intruder(429) },
		"a stranger and a service that fell": func(w *world) { w.intruder(503) },
		"a refusal for now": func(w *world) {
			w.refused().WorkKind, w.refused().Tries[0].Status = "SUCCESS_FAST", 429
		},
		"a time that had passed": func(w *world) {
			at := w.start.Add(second / 2)
			w.refused().WorkKind, w.refused().ExecutionAt = "SUCCESS_FAST", &at
		},
		"a time that passed while the request was on its way": func(w *world) {
			at := w.start.Add(2 * second)
			s := w.refused()
			s.WorkKind, s.ExecutionAt, s.Tries[0].Answered = "SUCCESS_FAST", &at, w.start.Add(4*second)
		},
		"RUNS_LONG on a machine so busy that it met the limit": func(w *world) {
			w.job(1, "RUNS_LONG").claim().run().wait(2*time.Minute).ends(failed, "RFA_EXEC_TIMEOUT").close()
		},
		"the same with a limit that nobody knows": func(w *world) {
			w.job(1, "RUNS_LONG").claim().run().wait(2*time.Minute).ends(failed, "RFA_EXEC_TIMEOUT").close()
			w.run.MaxRuntime = 0
		},
		"an unknown limit of attempts": func(w *world) { w.run.MaxAttempts = 0 },
		"a result that was not read":   func(w *world) { w.find(history.ToldReport, plainJob).Report.ResultSize = nil },
		"a key that has expired": func(w *world) {
			w.run.KeyWindow = 30 * time.Minute
			w.find(storedJob, plainJob).Told.Keys = 0
		},
		"a worker that was lost early": func(w *world) {
			w.run.Killed = true
			w.fails(othersJob, codeWorkerLost)
			scale := 10.0 // which makes the others too quick
			w.run.TimeScale = &scale
			w.dropAll(func(f *history.Fact) bool { return f.Job != jobName(othersJob) })
		},
	}
	for name, vary := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := soundWorld()
			vary(w)
			require.Empty(t, printed(w.judge(t)))
		})
	}
}
