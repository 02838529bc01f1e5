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
	// After a clock was set back, the search for stranded rows (see clockWatch) continues for the length of the step plus strandedTime.
	// During this time, a transaction may still write a new stranded row.
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
	least, utmost time.Duration // the watched clock minus the monotonic clock lies between these
}

// observe compares the clock's time t with the monotonic clock, which was read before and after it. It returns the smallest step that the
// clock can have made since the last call, or 0.
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

// clockWatch decides when to search for stranded rows. A row is stranded if its time was computed while Postgres' clock was ahead. After
// the correction, that time is too far in the future.
type clockWatch struct {
	began             time.Time // origin of the monotonic clock
	postgres, process stepWatch
	looked            time.Duration // when the clocks were last compared; 0: never
	until, next       time.Duration // when the search ends; when it is due next
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

// A search is due after Postgres' clock was set back. A new leader always searches: it cannot know of earlier steps.
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

// walk calls `part` until it has no more rows. If the last part was full, more rows may be stranded, so walk starts again.
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
