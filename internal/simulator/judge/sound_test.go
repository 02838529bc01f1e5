package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// What is near to a corruption and is none is not accused.
func TestSoundVariantsPass(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *world){
		"a job whose time is to come": func(w *world) {
			at := w.end().Add(second)
			w.row(waitingJob).RunAt = &at
		},
		"a job whose time came after the rows were read": func(w *world) {
			at := w.end().Add(-second)
			f := w.find(storedJob, waitingJob)
			f.Told.RunAt, f.Sent = &at, w.end().Add(-2*second)
		},
		"a delivery that is to be tried again": func(w *world) {
			last(func(d *history.Delivery) {
				d.State, d.Next, d.SettledAt = "PENDING", w.end().Add(2*second), time.Time{}
			})(w)
		},
		"FAILED after tries of which some do not count": func(w *world) {
			try := w.again(history.StoredTry, failingJob, named("job.succeeded"), toBroken).Delivery
			try.Error, try.Status = sendInternal, 0
			last(func(d *history.Delivery) {
				if d.Attempts = 4; d.HasLog {
					d.Log = append(d.Log, history.LoggedTry{Number: 4})
				}
			})(w)
		},
		"FAILED after some tries of a service with unknown limits": func(w *world) {
			w.tried(500, 500)
			w.run.DeliveryTries = 0
		},
		"FAILED, since the receiver is gone": func(w *world) { w.tried(410) },
		"FAILED, since the webhook was disabled": func(w *world) {
			w.untried("FAILED", sendDisabled)
			w.run.Collected.Webhooks = map[string]time.Time{"hook-0": w.end()}
		},
		"a stranger without an answer":       func(w *world) { intruder(0)(w) },
		"a stranger who asks too often":      func(w *world) { intruder(429)(w) },
		"a stranger and a service that fell": func(w *world) { intruder(503)(w) },
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
		"a result that was not read":   func(w *world) { w.shown(plainJob).ResultSize = nil },
		"a key that has expired": func(w *world) {
			w.run.KeyWindow = 30 * time.Minute
			w.row(plainJob).Keys = 0
		},
		"a worker that was lost early": func(w *world) {
			w.run.Killed = true
			failedWith(othersJob, codeWorkerLost)(w)
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
