package judge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// corruption spoils a sound world so that one job violates one invariant.
type corruption struct {
	name      string
	invariant string
	job       int // 0: none
	spoil     func(w *world)
	alone     bool // it violates no other invariant
}

const (
	storedEvent  = history.StoredEvent
	storedReport = history.StoredReport
	storedJob    = history.StoredJob
)

var corruptions = []corruption{
	// accepted
	{"a lost job", accepted, plainJob, func(w *world) {
		w.dropAll(func(f *history.Fact) bool {
			return f.Job == jobName(plainJob) && f.Kind != history.Submitted && f.Kind != history.Streamed && f.Kind != history.Received
		})
	}, false},
	{"a job that the API does not list", accepted, plainJob, func(w *world) { w.drop(w.find(history.ListedJob, plainJob)) }, true},
	{"a job without a request", accepted, plainJob, func(w *world) { w.drop(w.find(history.Submitted, plainJob)) }, true},
	{"a job with another's correlation id", accepted, plainJob, func(w *world) {
		w.find(storedJob, plainJob).Told.Correlation, w.find(history.ListedJob, plainJob).Told.Correlation = "other.1", "other.1"
	}, true},
	{"a job of a ticket beyond the last", accepted, plainJob, func(w *world) {
		w.find(storedJob, plainJob).Told.Correlation, w.find(history.ListedJob, plainJob).Told.Correlation = "run1.99", "run1.99"
	}, true},
	{"a job of a refused request", accepted, unansweredJob, func(w *world) {
		w.find(history.Submitted, unansweredJob).Submission.Tries[0].Status = 429
	}, true},
	{"another job than was asked for", accepted, plainJob, func(w *world) {
		w.find(history.Submitted, plainJob).Submission.WorkKind = "CPU_BURST"
	}, true},
	{"other params than were sent", accepted, plainJob, func(w *world) { w.find(storedJob, plainJob).Told.Params = "0123456789abcdef" }, true},
	{"auto_retry that was not asked for", accepted, plainJob, func(w *world) { w.find(storedJob, plainJob).Told.AutoRetry = true }, false},
	{"events of a job that is not there", accepted, unansweredJob, func(w *world) {
		w.dropAll(kindOf(storedJob, unansweredJob))
		w.dropAll(kindOf(history.ListedJob, unansweredJob))
	}, false},

	// final
	{"a job that never ended", ended, plainJob, func(w *world) {
		for _, k := range []history.Kind{storedJob, history.ListedJob} {
			job := w.find(k, plainJob).Told
			job.State, job.Outcome, job.FinishedAt, job.ResultAttempt = running, "", nil, 0
		}
	}, false},
	{"a job that waits past its time", ended, waitingJob, func(w *world) {
		at := w.end().Add(-time.Hour / 2)
		w.find(storedJob, waitingJob).Told.RunAt = &at
	}, false},
	{"a missing report", ended, retriedJob, func(w *world) { w.drop(w.find(storedReport, retriedJob)) }, false},
	{"a report of an attempt that was not", ended, plainJob, func(w *world) {
		f := *w.find(storedReport, plainJob)
		r := *f.Report
		r.Attempt, f.Report = 2, &r
		w.add(f)
	}, false},
	{"a wrong outcome", ended, plainJob, func(w *world) { w.find(storedJob, plainJob).Told.Outcome = "FAILED" }, false},
	{"a report of another end", ended, plainJob, func(w *world) { w.find(storedReport, plainJob).Report.Outcome = "CANCELED" }, false},
	{"two terminal events", ended, plainJob, func(w *world) {
		f := *w.find(storedEvent, plainJob, named("job.succeeded"))
		e := *f.Event
		e.Seq, e.ID, f.Event = e.Seq+1, "another", &e
		w.add(f)
	}, false},
	{"no word that the retries are exhausted", ended, exhaustedJob, func(w *world) {
		w.dropAll(func(f *history.Fact) bool { return f.Job == jobName(exhaustedJob) && named(nameExhausted)(f) })
	}, false},
	{"a success without a result", ended, plainJob, func(w *world) { w.find(storedJob, plainJob).Told.ResultAttempt = 0 }, true},

	// log
	{"swapped events", logged, plainJob, func(w *world) {
		a, b := w.find(storedEvent, plainJob, named("job.assigned")), w.find(storedEvent, plainJob, named("job.running"))
		a.Event.Seq, b.Event.Seq = b.Event.Seq, a.Event.Seq
	}, false},
	{"a gap", logged, plainJob, func(w *world) { w.drop(w.find(storedEvent, plainJob, named("job.assigned"))) }, false},
	{"a forbidden transition", logged, plainJob, func(w *world) {
		w.find(storedEvent, plainJob, named("job.succeeded")).Event.Prev = assigned
		w.drop(w.find(storedEvent, plainJob, named("job.running")))
	}, false},
	{"ASSIGNED to QUEUED without the lease's event", logged, lostJob, func(w *world) {
		w.find(storedEvent, lostJob, named(nameLeaseExpired)).Event.Name = "job.queued"
	}, false},
	{"time runs backwards", logged, plainJob, func(w *world) {
		e := w.find(storedEvent, plainJob, named("job.assigned")).Event
		e.At = e.At.Add(-time.Minute)
	}, false},
	{"an event of another attempt", logged, retriedJob, func(w *world) {
		w.find(storedEvent, retriedJob, named("job.succeeded")).Event.Attempt = 1
	}, false},
	{"a state that the log does not lead to", logged, plainJob, func(w *world) {
		job := w.find(storedJob, plainJob).Told
		job.State, job.Outcome, job.ResultAttempt = failed, "FAILED", 0
	}, false},
	{"an event id twice", logged, plainJob, func(w *world) {
		w.find(storedEvent, plainJob, named("job.assigned")).Event.ID = w.find(storedEvent, plainJob, named("job.running")).Event.ID
	}, false},

	// early
	{"an early start", early, deferredJob, func(w *world) {
		for _, k := range []history.Kind{storedJob, history.ListedJob, history.Submitted} {
			f := w.find(k, deferredJob)
			if f.Told != nil {
				at := f.Told.ExecutionAt.Add(time.Millisecond)
				f.Told.ExecutionAt = &at
			} else {
				at := f.Submission.ExecutionAt.Add(time.Millisecond)
				f.Submission.ExecutionAt = &at
			}
		}
	}, true},

	// fence
	{"a claim without a fence", fenced, lostJob, func(w *world) { w.find(storedJob, lostJob).Told.Fence-- }, true},
	{"a lease that nobody counted", fenced, lostJob, func(w *world) { w.find(storedJob, lostJob).Told.LeaseExpiries = 0 }, true},
	{"a report of a stale worker", fenced, plainJob, func(w *world) {
		for _, k := range []history.Kind{storedReport, history.ToldReport} {
			r := w.find(k, plainJob).Report
			at := r.StartedAt.Add(-second)
			r.StartedAt, r.FinishedAt = &at, r.FinishedAt.Add(-second)
		}
	}, true},
	{"a result of a stale worker", fenced, retriedJob, func(w *world) { w.find(storedJob, retriedJob).Told.ResultAttempt = 1 }, true},

	// key
	{"two jobs of a ticket", keyed, plainJob, func(w *world) { twin(w, plainJob) }, false},
	{"two keys of a job", keyed, plainJob, func(w *world) { w.find(storedJob, plainJob).Told.Keys = 2 }, true},
	{"a key that was not kept", keyed, plainJob, func(w *world) { w.find(storedJob, plainJob).Told.Keys = 0 }, true},
	{"two tries that made the job", keyed, repeatedJob, func(w *world) {
		w.find(history.Submitted, repeatedJob).Submission.Tries[1].Replayed = false
	}, true},

	// foreign
	{"another's event on a stream", foreign, othersJob, func(w *world) {
		f := *w.find(history.Streamed, othersJob)
		f.Tenant = 0
		w.add(f)
	}, true},
	{"another's job in a list", foreign, othersJob, func(w *world) {
		f := *w.find(history.ListedJob, othersJob)
		f.Tenant = 0
		w.add(f)
	}, false},
	{"another's job in the answer to a submission", foreign, othersJob, func(w *world) {
		f := *w.find(history.Submitted, plainJob)
		f.Job, f.Tenant = jobName(othersJob), 0
		w.add(f)
	}, false},
	{"another's delivery", foreign, othersJob, func(w *world) { w.find(history.Received, othersJob).Tenant = 0 }, true},
	{"another's cancel", foreign, othersJob, func(w *world) {
		w.add(history.Fact{Kind: history.Acted, At: w.end(), Job: jobName(othersJob), Tenant: 0, Action: &history.Action{Verb: "cancel",
			Status: 200, State: failed, Sent: w.end()}})
	}, true},
	{"a job that nobody asked for on a stream", foreign, 99, func(w *world) {
		f := *w.find(history.Streamed, plainJob)
		f.Job = jobName(99)
		w.add(f)
	}, true},
	{"something strange", foreign, 0, func(w *world) {
		w.add(history.Fact{At: w.start, Kind: history.Strange, Note: "a delivery that nobody signed"})
	}, true},

	// delivery
	{"a missing delivery", delivered, plainJob, func(w *world) {
		w.dropAll(func(f *history.Fact) bool {
			return f.Job == jobName(plainJob) && f.Delivery != nil && f.Delivery.EventName == "job.succeeded"
		})
	}, true},
	{"a missing delivery to a callback", delivered, calledJob, func(w *world) {
		w.dropAll(func(f *history.Fact) bool {
			return f.Job == jobName(calledJob) && f.Delivery != nil && f.Delivery.URL != "" && f.Delivery.EventName == "job.succeeded"
		})
	}, true},
	{"a doubled delivery", delivered, plainJob, func(w *world) {
		f := *w.find(history.StoredDeliver, plainJob, named("job.succeeded"))
		d := *f.Delivery
		d.ID, d.State, d.Attempts, f.Delivery = "another", "FAILED", 0, &d
		w.add(f)
	}, false},
	{"DELIVERED, and nobody answered 2xx", delivered, plainJob, func(w *world) {
		w.find(history.Received, plainJob, named("job.succeeded")).Delivery.Status = 500
	}, true},
	{"DELIVERED, and nothing came", delivered, plainJob, func(w *world) {
		w.drop(w.find(history.Received, plainJob, named("job.succeeded")))
	}, true},
	{"DELIVERED without an attempt", delivered, plainJob, func(w *world) {
		w.drop(w.find(history.StoredTry, plainJob, named("job.succeeded")))
	}, true},
	{"PENDING for ever", delivered, plainJob, func(w *world) {
		d := w.find(history.StoredDeliver, plainJob, named("job.succeeded")).Delivery
		d.State, d.Next = "PENDING", w.start
	}, false},
	{"a delivery of an unknown event", delivered, plainJob, func(w *world) {
		w.find(history.StoredDeliver, plainJob, named("job.succeeded")).Delivery.EventID = "nobody's"
	}, false},
	{"DELIVERED for a batch, and nobody answered 2xx", delivered, 0, func(w *world) {
		for i := range w.facts {
			if f := &w.facts[i]; f.Kind == history.Received && f.Delivery.EventName == "batch.completed" {
				f.Delivery.Status = 503
			}
		}
	}, true},

	// metrics, queue
	{"a counter that is off", measured, 0, func(w *world) { w.run.Collected.Measured[0].Metric = 15 }, true},
	{"a gauge that is off", measured, 0, func(w *world) { w.run.Collected.Measured[1].Metric = 1 }, true},
	{"open batches", ended, 0, func(w *world) { w.run.Collected.Inconsistencies[0].Count = 2 }, true},
	{"a task without a job", tasked, 99, func(w *world) {
		w.add(history.Fact{Kind: history.QueuedTask, At: w.end(), Job: jobName(99), Task: &history.Task{Queue: "jobs",
			ID: "job-0099:1:0", State: "pending"}})
	}, true},
	{"a task of a job that has ended", tasked, plainJob, func(w *world) {
		f := w.fact(history.QueuedTask, plainJob)
		f.Task = &history.Task{Queue: "jobs", ID: "job-0001:1:0", State: "archived", Attempt: 1}
		w.add(f)
	}, true},
	{"a task of another attempt", tasked, waitingJob, func(w *world) {
		task := w.find(history.QueuedTask, waitingJob).Task
		task.State, task.Attempt = "pending", 2
	}, true},

	// answers
	{"a replay that tells another job", answered, repeatedJob, func(w *world) {
		w.find(history.Submitted, repeatedJob).Submission.Tries[2].Job = jobName(plainJob)
	}, true},
	{"a repetition that is refused as another request", answered, repeatedJob, func(w *world) {
		s := w.find(history.Submitted, repeatedJob).Submission
		s.Tries[2] = history.Try{Sent: w.start, Answered: w.start, Status: 409, Code: "RFA_EXEC_IDEMPOTENCY_CONFLICT"}
	}, true},
	{"a created_at that changes", answered, repeatedJob, func(w *world) {
		try := &w.find(history.Submitted, repeatedJob).Submission.Tries[1]
		try.CreatedAt = try.CreatedAt.Add(time.Microsecond)
	}, true},
	{"a cancel that was ignored", answered, polledJob, func(w *world) { w.find(history.Acted, polledJob).Action.State = canceled }, true},
	{"a cancel that left the job running", answered, canceledJob, func(w *world) {
		w.find(history.Acted, canceledJob).Action.State = running
	}, true},
	{"a cancel that was refused", answered, canceledJob, func(w *world) {
		a := w.find(history.Acted, canceledJob).Action
		a.Status, a.Code, a.State = 404, "RFA_JOB_NOT_FOUND", ""
	}, true},
	{"a cancel that nobody asked for", answered, canceledJob, func(w *world) { w.drop(w.find(history.Acted, canceledJob)) }, true},
	{"a retry that was lost", answered, exhaustedJob, func(w *world) {
		f := w.find(history.Acted, exhaustedJob, func(f *history.Fact) bool { return f.Action.Status == 409 })
		f.Action.Status, f.Action.State, f.Action.Attempt = 200, queued, 5
	}, true},
	{"a retry that was refused for nothing", answered, retriedJob, func(w *world) {
		a := w.find(history.Acted, retriedJob).Action
		a.Status, a.Code = 409, "RFA_JOB_CONFLICT"
	}, true},
	{"a state backwards", answered, polledJob, func(w *world) {
		early, late := w.find(history.Looked, polledJob), (*history.Fact)(nil)
		for i := range w.facts {
			if kindOf(history.Looked, polledJob)(&w.facts[i]) && w.facts[i].Told.State == running {
				late = &w.facts[i]
				break
			}
		}
		early.Told, late.Told = late.Told, early.Told
	}, true},
	{"a poll that tells what never was", answered, polledJob, func(w *world) {
		w.find(history.Looked, polledJob).Told.State = assigned
	}, true},
	{"a poll that is refused", answered, polledJob, func(w *world) {
		f := w.find(history.Looked, polledJob)
		f.Told, f.Note = &history.Job{Failure: "RFA_JOB_NOT_FOUND"}, "forgerun answered 404"
	}, true},
	{"a job twice in a list", answered, plainJob, func(w *world) { w.add(*w.find(history.ListedJob, plainJob)) }, true},
	{"a list that tells another start", answered, plainJob, func(w *world) {
		at := w.start
		w.find(history.ListedJob, plainJob).Told.StartedAt = &at
	}, true},
	{"a report that is told differently", answered, retriedJob, func(w *world) {
		w.find(history.ToldReport, retriedJob).Report.Outcome = "CANCELED"
	}, true},
	{"a report with another log", answered, retriedJob, func(w *world) {
		events := w.find(history.ToldReport, retriedJob).Report.Events
		events[2].ID = "another"
	}, true},
	{"a delivery that the API tells differently", answered, plainJob, func(w *world) {
		w.find(history.ToldDelivery, plainJob).Delivery.State = "FAILED"
	}, true},
	{"a delivery that the API does not tell", answered, plainJob, func(w *world) { w.drop(w.find(history.ToldDelivery, plainJob)) }, true},
	{"a report that the API does not tell", answered, plainJob, func(w *world) {
		f := w.find(history.ToldReport, plainJob)
		f.Report, f.Note = nil, "attempt 1: 404 RFA_JOB_NOT_FOUND"
	}, true},

	// stream
	{"a missing event on a stream", streamed, plainJob, func(w *world) {
		w.drop(w.find(history.Streamed, plainJob, named("job.assigned")))
	}, true},
	{"a missing end on a stream", streamed, plainJob, func(w *world) {
		w.drop(w.find(history.Streamed, plainJob, named("job.succeeded")))
	}, true},
	{"a missing end of an earlier attempt on a stream", streamed, retriedJob, func(w *world) {
		w.drop(w.find(history.Streamed, retriedJob, named("job.failed")))
	}, true},
	{"a doubled event on a stream", streamed, plainJob, func(w *world) {
		w.add(*w.find(history.Streamed, plainJob, named("job.assigned")))
	}, true},
	{"a doubled end on a stream", streamed, plainJob, func(w *world) {
		w.add(*w.find(history.Streamed, plainJob, named("job.succeeded")))
	}, true},
	{"swapped events on a stream", streamed, plainJob, func(w *world) {
		a, b := w.find(history.Streamed, plainJob, named("job.assigned")), w.find(history.Streamed, plainJob, named("job.running"))
		*a, *b = *b, *a
	}, true},
	{"an event on a stream before it happened", streamed, plainJob, func(w *world) {
		f := w.find(history.Streamed, plainJob, named("job.running"))
		f.At = f.At.Add(-2 * second)
	}, true},
	{"a stream without the job", streamed, othersJob, func(w *world) { w.dropAll(kindOf(history.Streamed, othersJob)) }, true},
	{"another end on a stream", streamed, plainJob, func(w *world) {
		e := w.find(history.Streamed, plainJob, named("job.succeeded")).Event
		e.Name, e.Status = "job-failed", "FAILED"
	}, true},

	// received
	{"other bytes on the second try", received, calledJob, func(w *world) {
		w.find(history.Received, calledJob, func(f *history.Fact) bool { return f.Delivery.Status == 200 }).Delivery.Body = "other"
	}, true},
	{"a delivery of an unknown event is received", received, plainJob, func(w *world) {
		w.find(history.Received, plainJob).Delivery.EventID = "nobody's"
	}, true},
	{"a delivery before its event", received, plainJob, func(w *world) {
		w.find(history.Received, plainJob).At = w.start.Add(-time.Minute)
	}, true},
	{"a wrong ce-sequence", received, plainJob, func(w *world) { w.find(history.Received, plainJob).Delivery.Seq = 3 }, true},

	// duration
	{"a wrong duration", timed, plainJob, func(w *world) {
		w.find(storedReport, plainJob).Report.DurationMS += 7
		w.find(history.ToldReport, plainJob).Report.DurationMS += 7
	}, true},
	{"work that was too quick", timed, plainJob, func(w *world) { scale := 2.0; w.run.TimeScale = &scale }, false},

	// catalogue
	{"a failing kind that succeeded", expected, plainJob, func(w *world) { rename(w, plainJob, "FAIL_IMMEDIATE") }, false},
	{"a success that failed", expected, othersJob, func(w *world) { rename(w, othersJob, "PAYLOAD_SMALL") }, false},
	{"a worker that was lost though none was killed", expected, othersJob, func(w *world) {
		for _, k := range []history.Kind{storedReport, history.ToldReport} {
			w.find(k, othersJob).Report.Failure = codeWorkerLost
		}
	}, true},
	{"a timeout below the limit", expected, othersJob, func(w *world) {
		for _, k := range []history.Kind{storedReport, history.ToldReport} {
			w.find(k, othersJob).Report.Failure = codeTimeout
		}
	}, false},
	{"an automatic retry that was lost", expected, othersJob, func(w *world) {
		w.find(history.Submitted, othersJob).Submission.AutoRetry = true
		for _, k := range []history.Kind{storedReport, history.ToldReport} {
			w.find(k, othersJob).Report.Failure = codeTimeout
		}
	}, false},
}

// twin makes another job of the same ticket, a second before the first.
func twin(w *world, job int) {
	for _, f := range w.facts {
		if f.Job != jobName(job) || f.Kind == history.Submitted {
			continue
		}
		f.Job = "twin"
		if f.Told != nil {
			told := *f.Told
			told.CreatedAt = told.CreatedAt.Add(-second)
			f.Told = &told
		}
		w.add(f)
	}
}

// rename gives the job another work kind wherever it is told.
func rename(w *world, job int, kind string) {
	for i := range w.facts {
		f := &w.facts[i]
		if f.Job != jobName(job) {
			continue
		}
		if f.Told != nil {
			f.Told.WorkKind, f.Told.DurationMS = kind, nil
		}
		if f.Submission != nil {
			f.Submission.WorkKind = kind
		}
	}
}

// Each corruption is found, as what it is, and in no other job.
func TestCorruptionsAreCaught(t *testing.T) {
	t.Parallel()
	for _, c := range slices.Concat(corruptions, moreCorruptions, scheduleCorruptions) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := soundWorld()
			c.spoil(w)
			v := w.judge(t)
			require.False(t, v.OK())
			name, found := "", false
			if c.job > 0 {
				name = jobName(c.job)
			}
			for _, violation := range v.Violations {
				found = found || violation.Invariant == c.invariant && violation.Job == name
				if c.alone {
					require.Equal(t, c.invariant, violation.Invariant, violation.What)
				}
				switch violation.Job {
				case name, "twin":
				default:
					if c.name != "work that was too quick" {
						require.Fail(t, "another job is accused", "%s: %s", violation.Job, violation.What)
					}
				}
			}
			require.True(t, found, printed(v))
		})
	}
}

// A check that cannot fail proves nothing: each invariant has a corruption.
func TestEachInvariantHasACorruption(t *testing.T) {
	t.Parallel()
	of := map[string]int{}
	for _, c := range slices.Concat(corruptions, moreCorruptions, scheduleCorruptions) {
		of[c.invariant]++
	}
	for _, invariant := range Invariants {
		require.Positive(t, of[invariant.Key], invariant.Key)
	}
	require.GreaterOrEqual(t, len(corruptions), 30, fmt.Sprint(of))
}
