package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

func TestSoundVariantsPass(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *world){
		"a job that is not yet due": func(w *world) { w.row(waitingJob).RunAt = w.end().Add(second) },
		"a job that became due after the rows were read": func(w *world) {
			f := w.find(storedJob, waitingJob)
			f.Shown.RunAt, f.Sent = w.end().Add(-second), w.end().Add(-2*second)
		},
		"a delivery that will be retried": func(w *world) {
			failedDelivery(func(d *history.Delivery) {
				d.State, d.Next, d.SettledAt = "PENDING", w.end().Add(2*second), time.Time{}
			})(w)
		},
		"FAILED after attempts, some of them not counted": func(w *world) {
			failedDelivery(func(d *history.Delivery) {
				d.Uncounted = 1
				if d.Attempts = 4; d.HasLog {
					d.Log = append(d.Log, client.DeliveryAttempt{Number: 4})
				}
			})(w)
		},
		"FAILED after some attempts at a service with unknown limits": func(w *world) {
			w.tried(500, 500)
			w.run.DeliveryTries = 0
		},
		"FAILED because the receiver is gone": func(w *world) { w.tried(410) },
		"FAILED because the webhook was disabled": func(w *world) {
			w.untried("FAILED", sendDisabled)
			w.run.Collected.Webhooks = map[string]time.Time{"hook-0": w.end()}
		},
		"another tenant gets no response": func(w *world) { intruder(0)(w) },
		"another tenant is rate limited":  func(w *world) { intruder(429)(w) },
		"another tenant during an outage": func(w *world) { intruder(503)(w) },
		"a temporary refusal": func(w *world) {
			w.refused().WorkKind, w.refused().Tries[0].Status = "SUCCESS_FAST", 429
		},
		"execution_at in the past": func(w *world) {
			w.refused().WorkKind, w.refused().ExecutionAt = "SUCCESS_FAST", w.start.Add(second/2)
		},
		"execution_at passed during the request": func(w *world) {
			s := w.refused()
			s.WorkKind, s.ExecutionAt, s.Tries[0].Answered = "SUCCESS_FAST", w.start.Add(2*second), w.start.Add(4*second)
		},
		"RUNS_LONG exceeds the limit on a busy machine": func(w *world) {
			w.job(1, "RUNS_LONG").claim().run().wait(2*time.Minute).ends(failed, "RFA_EXEC_TIMEOUT").close()
		},
		"RUNS_LONG exceeds an unknown limit": func(w *world) {
			w.job(1, "RUNS_LONG").claim().run().wait(2*time.Minute).ends(failed, "RFA_EXEC_TIMEOUT").close()
			w.run.MaxRuntime = 0
		},
		"an unknown limit of attempts": func(w *world) { w.run.MaxAttempts = 0 },
		"a result that was not read":   func(w *world) { w.shown(plainJob).ResultSize = nil },
		"an expired idempotency key": func(w *world) {
			w.run.KeyWindow = 30 * time.Minute
			w.row(plainJob).Keys = 0
		},
		"a worker lost early": func(w *world) {
			w.run.Killed = true
			failedWith(othersJob, codeWorkerLost)(w)
			w.run.TimeScale = new(10.0) // the test drops the other jobs, which would be too short for this time scale
			w.dropAll(not(about(othersJob)))
		},
	}
	for name, vary := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := soundWorld()
			vary(w)
			require.Empty(t, w.judge(t).Violations)
		})
	}
}

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
	failingJob // the deliveries to its callback fail
)

func soundWorld() *world {
	w := newWorld()
	w.job(0, "SUCCESS_FAST").success().close()
	w.job(0, "SCHEDULED_ON_TIME", deferred(30*second)).success().close()
	w.job(0, "RETRY_ON_FAIL").failure("RFA_DEPENDENCY_TIMEOUT").wait(second).retried().requests("retry", 200).wait(second).success().close()
	w.job(0, "CANCEL_DURING_RUN").claim().run().wait(second).ends(canceled, "").requests("cancel", 200).close()
	w.job(0, "SUCCESS_NORMAL").claim().loseLease().wait(second).success().close()
	w.job(0, "PAYLOAD_SMALL", inBatch("batch-1")).success().close()
	w.job(0, "WEBHOOK_5XX", calledBack("http://receiver/callback")).success().close()
	w.job(0, "DUPLICATE_SUBMIT_SAME_KEY").try(true).wait(second).try(true).success().close()
	exhausted := w.job(0, "RETRY_LIMIT_REACHED").failure("RFA_DEPENDENCY_TIMEOUT")
	for range 3 {
		exhausted.wait(second).retried().requests("retry", 200).wait(second).failure("RFA_DEPENDENCY_TIMEOUT")
	}
	exhausted.requests("retry", 409).close()
	w.job(1, "FAIL_IMMEDIATE").failure("RFA_INTERNAL").polled().close()
	w.job(1, "CANCEL_BEFORE_START").wait(second).ends(canceled, "").requests("cancel", 200).close()
	w.job(1, "SUCCESS_FAST").polled().claim().polled().run().polled().polled().ends(succeeded, "").polled().requests("cancel", 200).close()
	w.job(1, "RETRY_ON_FAIL", autoRetry).failure("RFA_DEPENDENCY_TIMEOUT").retried().wait(second).success().close()
	w.job(1, "SCHEDULED_FAR_FUTURE", deferred(48*time.Hour)).close()
	w.job(1, "RUNS_OVER_TIMEOUT").claim().run().wait(2*time.Minute).ends(failed, "RFA_EXEC_TIMEOUT").polled().close()
	unanswered := w.job(1, "SUCCESS_FAST")
	unanswered.sub.Tries[0] = history.Answer{Sent: unanswered.now, Status: 0, Error: "connection lost"}
	unanswered.success().close()
	w.find(history.Submitted, unansweredJob).Job = ""

	w.job(0, "SUCCESS_FAST", emits, calledBack("http://receiver/callback")).success().close()
	w.job(0, "SUCCESS_FAST", calledBack(brokenURL)).success().close()
	stranger := w.fact(history.Intruded, plainJob)
	stranger.Tenant, stranger.Action = 1, &history.Answer{Verb: "get", Sent: w.end(), Status: 404, Code: "RFA_JOB_NOT_FOUND"}
	w.add(stranger)

	refused := &history.Submission{Key: "key", Type: "EXECUTE", WorkKind: "PAYLOAD_INVALID",
		Tries: []history.Answer{{Sent: w.start, Answered: w.start, Status: 400}}}
	w.last++
	w.run.Tickets = w.last
	w.add(history.Fact{At: w.start, Kind: history.Submitted, Ticket: w.last, Submission: refused})
	w.batchCompleted()
	task := w.fact(history.QueuedTask, waitingJob)
	task.Task = &history.Task{Queue: "jobs", ID: jobName(waitingJob) + ":1", State: "scheduled", Attempt: 1}
	w.add(task)
	w.run.Counters = true
	w.run.Collected.Measured = []Measure{{Name: "jobs_submitted_total", Metric: 18, Rows: 18, Counter: true}, {Name: "job_queue_depth"}}
	w.scheduled(emittingJob, 0)
	return w
}

func (w *world) batchCompleted() {
	d := history.Delivery{ID: "batch-delivery", Webhook: "hook-0", EventID: "batch-event", EventName: "batch.completed"}
	stored := d
	stored.State, stored.Attempts, stored.Accepted = "DELIVERED", 2, 1
	w.add(history.Fact{Kind: history.StoredDeliver, At: w.end(), Delivery: &stored})
	for _, status := range []int{503, 204} {
		got := d
		got.Status, got.Body = status, "digest"
		w.add(history.Fact{Kind: history.Received, At: w.start, Delivery: &got})
	}
}

func (w *world) write(t testing.TB) *history.Store {
	t.Helper()
	dir := t.TempDir()
	out, err := history.Create(dir)
	require.NoError(t, err)
	for _, f := range w.facts {
		out.Add(f)
	}
	require.NoError(t, out.Close())
	return out
}

// All jobs are in bucket 0.
func (w *world) Jobs(bucket int) (map[string][]history.Fact, error) {
	jobs := map[string][]history.Fact{}
	if bucket != 0 {
		return jobs, nil
	}
	for _, f := range w.facts {
		if subject := f.Subject(); subject != "" {
			jobs[subject] = append(jobs[subject], f)
		}
	}
	return jobs, nil
}

func (w *world) Each(bucket int, fn func(history.Fact) error) error {
	if bucket != history.Loose {
		return nil
	}
	for _, f := range w.facts {
		if f.Job == "" {
			if err := fn(f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) judge(t testing.TB) *Verdict {
	t.Helper()
	v, err := Judge(t.Context(), w, w.run)
	require.NoError(t, err)
	return v
}
