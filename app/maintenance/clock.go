package maintenance

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

const (
	clockInterval = time.Second
	clockStep     = time.Second // a smaller step cannot be distinguished from the duration of a query
	// After a clock was set back, the search for stranded rows (see clockWatch) continues for the length of the step plus strandedTime. By
	// then all writes that were pending are visible. Until then, times computed from stranded rows may strand further rows.
	strandedTime = time.Minute
	// strandedRest is the rest after a search, as a multiple of its duration.
	strandedRest = 20

	strandedLook      = 5000 // waiting jobs per statement
	strandedEndpoints = 100  // endpoints per statement
	strandedBatch     = 1000 // deliveries moved per statement
)

// stepWatch detects that a clock was set, by comparison with the monotonic clock of this process, which cannot be set.
type stepWatch struct {
	known         bool
	least, utmost time.Duration // bounds of the difference: the clock (since 1970) minus the monotonic clock
}

// observe records that the clock showed t between two readings of the monotonic clock. It returns the smallest step since the last call
// that explains the readings, or 0 if none is needed.
func (w *stepWatch) observe(t time.Time, asked, received time.Duration) (step time.Duration) {
	if received-asked > clockStep { // the readings are too far apart to detect a step
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

// clockWatch decides when to search for stranded rows. Rows are stranded if their times were computed while Postgres' clock was ahead:
// once it is set back, they lie too far in the future.
type clockWatch struct {
	began             time.Time // origin of the monotonic clock
	postgres, process stepWatch
	looked            time.Duration // when the clocks were last compared; 0: never
	until, next       time.Duration // end of the search for stranded rows, and next round of it
}

// watchClocks detects that a clock was set, and moves stranded rows.
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

// due reports whether to search for stranded rows. It searches after Postgres' clock was set back, and when this process has just become
// the leader, because it does not know of earlier steps of the clock.
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
	m.Log.WarnContext(ctx, "a clock was set; times computed before that are off by this step", "action", "watch_clock", "clock", clock,
		"step_seconds", step.Seconds())
}

// moveStranded reads all jobs and deliveries that wait for a future time, in parts, and moves stranded ones.
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
		m.Log.WarnContext(ctx, "Postgres' clock was set back: jobs and deliveries with a time too far ahead are due now", "action", "watch_clock",
			"jobs", jobs, "deliveries", deliveries)
	}
	return jobs + deliveries, err
}

// walk calls `part` until it has no more rows. If the last call moved the maximum number of rows, walk starts again from the beginning.
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
