package maintenance

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

const (
	clockInterval = time.Second
	clockStep     = time.Second // a smaller step cannot be told from the time an answer takes
	// strandedTime is how long stranded rows are looked for after a clock was set back, in addition to the step: by then what was
	// being written is visible, and what follows from rows of the future lies in the future too.
	strandedTime = time.Minute
	// strandedRest is the rest after a search, as a multiple of the search's time.
	strandedRest = 20

	strandedLook      = 5000 // waiting jobs that one statement looks at
	strandedEndpoints = 100  // and endpoints
	strandedBatch     = 1000 // deliveries that one statement moves
)

// stepWatch notices when a clock is set, by the monotonic clock of this process, which cannot be set.
type stepWatch struct {
	known         bool
	least, utmost time.Duration // bounds of what the clock shows (since 1970) minus the monotonic clock
}

// observe notes that the clock showed t between two moments of the monotonic one. It returns by how much the clock was set, at
// least, since the last look; 0: it was not.
func (w *stepWatch) observe(t time.Time, asked, received time.Duration) (step time.Duration) {
	if received-asked > clockStep { // says too little
		return 0
	}
	shown := time.Duration(t.UnixNano())
	least, utmost := shown-received, shown-asked
	switch {
	case !w.known:
	case least-w.utmost >= clockStep:
		step = least - w.utmost
	case utmost-w.least <= -clockStep:
		step = utmost - w.least
	}
	w.known, w.least, w.utmost = true, least, utmost
	return step
}

// clockWatch decides when to look for stranded rows. A step of Postgres' clock leaves times behind that were computed while it was
// ahead: they come late once it is set back.
type clockWatch struct {
	began             time.Time // origin of the monotonic clock
	postgres, process stepWatch
	looked            time.Duration // when the clocks were read last; 0: never
	until, next       time.Duration // until when, and from when on, stranded rows are looked for
}

// watchClocks notices when a clock was set, and moves stranded rows.
func (m *Maintenance) watchClocks(ctx context.Context, leading func() bool) error {
	w := &m.clocks
	asked := time.Since(w.began)
	shown, err := m.Store.ReadClock(ctx)
	if err != nil {
		return err
	}
	received := time.Since(w.began)
	m.reportStep(ctx, app.ProcessClock, w.process.observe(time.Now(), received, received))
	step := w.postgres.observe(shown, asked, received)
	m.reportStep(ctx, app.PostgresClock, step)
	if !w.due(step, asked, received) {
		return nil
	}
	moved, err := m.moveStranded(ctx, leading)
	w.searched(moved, received, time.Since(w.began))
	return err
}

// due reports whether stranded rows are to be looked for: when Postgres' clock was set back, and when this process has just begun
// to lead, because it does not know what happened before.
func (w *clockWatch) due(step, asked, received time.Duration) bool {
	if w.looked == 0 || asked-w.looked > leaderLease {
		w.until, w.next = max(w.until, received+strandedTime), received
	}
	w.looked = received
	if step < 0 {
		w.until, w.next = max(w.until, received-step+strandedTime), received
	}
	return w.next <= received && received <= w.until
}

// searched plans the next search.
func (w *clockWatch) searched(moved int, began, ended time.Duration) {
	w.next = ended + strandedRest*(ended-began)
	if moved > 0 {
		w.until = max(w.until, ended+strandedTime)
	}
}

func (m *Maintenance) reportStep(ctx context.Context, clock string, step time.Duration) {
	if step == 0 {
		return
	}
	m.Metrics.ClockSteps.WithLabelValues(clock).Inc()
	m.Log.WarnContext(ctx, "a clock was set; times that were computed by it are wrong by that", "action", "watch_clock", "clock", clock,
		"step_seconds", step.Seconds())
}

// moveStranded walks over everything that waits for a future time, a part at a time.
func (m *Maintenance) moveStranded(ctx context.Context, leading func() bool) (moved int, err error) {
	if !leading() {
		return 0, nil
	}
	if err := m.Store.EndStrandedLeases(ctx); err != nil {
		return 0, err
	}
	jobs, err := walk(leading, strandedLook, func(after job.QueueCursor) (int, job.QueueCursor, error) {
		return m.Store.MoveStrandedJobs(ctx, after, strandedLook)
	})
	m.Metrics.Repaired.WithLabelValues(app.RepairStranded).Add(float64(jobs))
	if err != nil {
		return jobs, err
	}
	deliveries, err := walk(leading, strandedBatch, func(after job.EndpointKey) (int, job.EndpointKey, error) {
		return m.Store.MoveStrandedDeliveries(ctx, after, strandedEndpoints, strandedBatch)
	})
	m.Metrics.DeliveriesRepaired.WithLabelValues(app.RepairStranded).Add(float64(deliveries))
	if jobs+deliveries > 0 {
		m.Log.WarnContext(ctx, "what waited for a time that Postgres' clock had shown too early is due again", "action", "watch_clock",
			"jobs", jobs, "deliveries", deliveries)
	}
	return jobs + deliveries, err
}

// walk does one part after the other until one was the last. A part that moved the full number may be repeated from the start.
func walk[Cursor comparable](leading func() bool, full int, part func(after Cursor) (int, Cursor, error)) (moved int, err error) {
	var first, after Cursor
	for leading() {
		n, last, err := part(after)
		moved += n
		if err != nil || last == first && n < full {
			return moved, err
		}
		after = last
	}
	return moved, nil
}
