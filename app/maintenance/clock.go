package maintenance

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

const (
	clockInterval = time.Second
	clockStep     = time.Second // smaller changes of a clock are not detected
	// After Postgres' clock was set back by d, the searches for stranded rows continue for d plus strandedTime. Transactions that began
	// before the change may still write due times that are too late.
	strandedTime = time.Minute
	// strandedRest is the pause after a search, as a multiple of the search's duration.
	strandedRest = 20

	strandedLook      = 5000 // waiting jobs per statement
	strandedEndpoints = 100  // endpoints per statement
	strandedBatch     = 1000 // deliveries moved per statement
)

// stepWatch detects sudden changes of a clock. It compares the clock with the monotonic clock.
type stepWatch struct {
	known         bool
	least, utmost time.Duration // bounds of the difference: watched clock minus monotonic clock
}

// observe compares t with the monotonic times before and after the clock was read. If the clock changed suddenly since the last call, it
// returns a lower bound of the change, otherwise 0.
func (w *stepWatch) observe(t time.Time, asked, received time.Duration) (step time.Duration) {
	if received-asked > clockStep { // reading took too long to detect a change
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

// clockWatch decides when to search for stranded rows. A row is stranded if its due time is too late, because Postgres' clock was ahead.
type clockWatch struct {
	began             time.Time // origin of the monotonic clock
	postgres, process stepWatch
	looked            time.Duration // when the clocks were last compared; 0: never
	until, next       time.Duration // when the repeated searches end; when the next search is due
}

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

// due reports whether to search now. After Postgres' clock was set back, searches are repeated for some time. A new leader also searches,
// because it has not observed earlier changes of the clock.
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

// walk calls `part` with the cursor that the previous call returned; a zero cursor means the end. If the last call moved `full` rows, it
// may have left out some, so walk starts again.
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
