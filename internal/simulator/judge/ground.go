package judge

import (
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Ground is what is known of a run beside its facts.
type Ground struct {
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
	// DeliveryOverdue is by how much the next try of a delivery may be late at the end.
	DeliveryOverdue time.Duration

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
	Loosened time.Time
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

func (g *Ground) slack() time.Duration     { return orDefault(g.ClockSlack, time.Second) }
func (g *Ground) overdue() time.Duration   { return orDefault(g.Overdue, 30*time.Second) }
func (g *Ground) keyWindow() time.Duration { return orDefault(g.KeyWindow, 24*time.Hour) }

func orDefault(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// limit is the service's scaled execution limit, 0 when it is not known.
func (g *Ground) limit() time.Duration {
	if g.MaxRuntime <= 0 || g.TimeScale == nil {
		return 0
	}
	return max(leastLimit, scaled(g.MaxRuntime, *g.TimeScale))
}

func scaled(d time.Duration, scale float64) time.Duration {
	return time.Duration(float64(d) * scale)
}

// whole tells whether all that a source has to say is in the history.
func (g *Ground) whole(s Source) bool {
	_, missing := g.Collected.Missing[s]
	return !missing && g.Collected.Asked[s]
}

// asOf is the latest time of which it is certain that what a fact tells was so
// later, by Postgres' clock.
func (g *Ground) asOf(f *history.Fact) time.Time {
	at := f.At
	if !f.Sent.IsZero() {
		at = f.Sent
	}
	if f.Kind == history.StoredJob || f.Kind == history.StoredDeliver {
		return at
	}
	return at.Add(-g.slack())
}

// changed reports whether the webhook may have been disabled, changed or deleted
// during the run.
func (g *Ground) changed(webhook string) bool {
	for _, w := range g.Webhooks {
		if w.ID == webhook {
			_, loosened := g.Collected.Webhooks[webhook]
			return loosened || !w.Loosened.IsZero() || !g.whole(Rows)
		}
	}
	return true
}

// Source is where facts at the end come from.
type Source string

// The sources.
const (
	Lists   Source = "job lists"
	Reports Source = "reports"
	Rows    Source = "rows"
	Queue   Source = "queue"
	Metrics Source = "metrics"
)

// Collected is what Collect found beside facts, and what it could not find.
type Collected struct {
	Facts   int64             // that were added
	Asked   map[Source]bool   // sources that were asked
	Missing map[Source]string // why a source told nothing, or not everything

	Webhooks map[string]time.Time // id to Loosened, of webhooks that were changed
	Oddities []Oddity             // of rows that must not be there
	Measured []Measure            // metrics with what the rows say of the same
}

// Oddity tells of rows that contradict an invariant and belong to no one job.
type Oddity struct {
	Invariant string
	What      string
	Count     int64
}

// Measure is a metric, added up over all processes, and the number of rows that
// it must equal.
type Measure struct {
	Name    string
	Metric  float64
	Rows    float64
	Counter bool // counts from the start of its process
}
