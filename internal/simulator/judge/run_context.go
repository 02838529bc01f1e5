package judge

import (
	"cmp"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Ground is what is known of a run beside its facts.
type RunContext struct {
	Run     string // correlation ids are {Run}.{ticket}
	Tenants int
	Tickets int64 // tickets are numbered from 1 to this

	TimeScale  *float64      // of the service; nil: not known, durations are not judged by it
	MaxRuntime time.Duration // execution limit of the service before the time scale; 0: not known
	KeyWindow  time.Duration // for how long the service keeps an idempotency key; 0: 24 h

	MaxAttempts   int // of each job: 1 and the retries that the service allows; 0: not known
	DeliveryTries int // of a delivery: 1 and the retries that the service makes; 0: not known, at least 2

	// Chaos: faults were injected. Killed: worker processes died, hung or were
	// shut down, so attempts may be lost to RFA_EXEC_WORKER_UNAVAILABLE.
	Chaos, Killed bool
	// Interrupted: the run was cut short, so that nothing need have ended.
	Interrupted bool
	// Counters: all processes of the service lived from the first row of the
	// database to the end, so that what they counted must equal the rows.
	Counters bool

	ClockSlack time.Duration // by how much the simulator's and Postgres' clocks may differ; 0: 1 s
	Overdue    time.Duration // by how much a task in the queue may be late at the end; 0: 30 s

	Webhooks  []Webhook
	Streams   []Stream
	Collected Collected
}

// Webhook is a subscription that the simulator registered before the first
// submission.
type Webhook struct {
	Tenant int
	ID     string
	URL    string
	Events []string // names, or patterns such as job.* and *

	// Loosened is from when on it need not get each event: it was disabled,
	// changed or deleted then. Zero: never. Collect tells it of the rows.
	ExemptSince time.Time
}

// Stream is a reader of a tenant's event stream. If a tenant has several, its
// facts (Streamed) have the reader's Name as their Note.
type Stream struct {
	Tenant int
	Name   string
	// Whole: it was connected before the tenant's first submission and was read
	// until the end, so that each event must be on it.
	Whole bool
}

func (run *RunContext) slack() time.Duration     { return cmp.Or(run.ClockSlack, time.Second) }
func (run *RunContext) overdue() time.Duration   { return cmp.Or(run.Overdue, 30*time.Second) }
func (run *RunContext) keyWindow() time.Duration { return cmp.Or(run.KeyWindow, 24*time.Hour) }

// limit is the service's scaled execution limit, 0 when it is not known.
func (run *RunContext) limit() time.Duration {
	if run.MaxRuntime <= 0 || run.TimeScale == nil {
		return 0
	}
	return max(leastLimit, scaled(run.MaxRuntime, *run.TimeScale))
}

func scaled(d time.Duration, scale float64) time.Duration {
	return time.Duration(float64(d) * scale)
}

// whole tells whether all that a source has to say is in the history.
func (run *RunContext) complete(s Source) bool {
	_, missing := run.Collected.Missing[s]
	return !missing && run.Collected.Asked[s]
}

// asOf is the latest time of which it is certain that what a fact tells was so
// later, by Postgres' clock.
func (run *RunContext) asOf(f *history.Fact) time.Time {
	at := f.At
	if !f.Sent.IsZero() {
		at = f.Sent
	}
	if f.Kind == history.StoredJob || f.Kind == history.StoredDeliver {
		return at
	}
	return at.Add(-run.slack())
}

// changed reports whether the webhook may have been disabled, changed or deleted
// during the run.
func (run *RunContext) changed(webhook string) bool {
	for _, w := range run.Webhooks {
		if w.ID == webhook {
			_, loosened := run.Collected.Webhooks[webhook]
			return loosened || !w.ExemptSince.IsZero() || !run.complete(Rows)
		}
	}
	return true
}
