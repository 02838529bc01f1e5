package maintenance

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// ClockStore is what the watch over the clocks needs of storage.
type ClockStore interface {
	// ReadClock gives Postgres' time.
	ReadClock(ctx context.Context) (time.Time, error)
	// MoveStrandedJobs and MoveStrandedDeliveries move what was written while Postgres'
	// clock was ahead, of a part of what waits, and say where to go on.
	MoveStrandedJobs(ctx context.Context, after job.QueueCursor, look int) (moved int, last job.QueueCursor, err error)
	MoveStrandedDeliveries(ctx context.Context, after job.EndpointKey, look, limit int) (moved int, last job.EndpointKey, err error)
	// EndStrandedLeases does so for leases of workers and claims of deliveries.
	EndStrandedLeases(ctx context.Context) error
}

const (
	clockInterval = time.Second
	clockStep     = time.Second // what is less is not told from an answer's way
	// strandedTime is for how long stranded rows are looked for after a clock was set back, beside the time by which it
	// was: what was being written then comes to light, and what follows from rows of the future lies there too.
	strandedTime = time.Minute
	// strandedRest is how many times as long as a search the rest after it is.
	strandedRest = 20

	strandedLook      = 5000 // waiting jobs that one statement looks at
	strandedEndpoints = 100  // and endpoints
	strandedBatch     = 1000 // deliveries that one statement moves
)

// stepWatch notices when a clock is set, by one that cannot be: the monotonic one of
// this process.
type stepWatch struct {
	known         bool
	least, utmost time.Duration // by how much the clock was ahead of the monotonic one, from 1970 on
}

// observe learns that the clock showed t between two moments of the monotonic one, and
// gives by how much it was set, at least, since it was looked at last; 0: it was
// not.
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

// clockWatch sees to what a step of Postgres' clock leaves behind: times that were
// computed while it was ahead, which come late once it is set back.
type clockWatch struct {
	store ClockStore

	// Used by the leader's loop alone.
	began             time.Time // the origin of the monotonic clock
	postgres, process stepWatch
	looked            time.Duration // when the latest round was; 0: there was none
	until, next       time.Duration // until when, and from when on, stranded rows are looked for
}

func (w *clockWatch) monotonic() time.Duration { return time.Since(w.began) }

// watchClock looks whether a clock was set. The leader looks for stranded rows when that of
// Postgres was set back; and when it has just begun to lead, because it does not know
// what was before.
func (m *Maintenance) watchClock(ctx context.Context, leading func() bool) error {
	w := m.clock
	asked := w.monotonic()
	shown, err := w.store.ReadClock(ctx)
	if err != nil {
		return err
	}
	received := w.monotonic()
	m.stepped(ctx, app.ProcessClock, w.process.observe(time.Now(), received, received))
	step := w.postgres.observe(shown, asked, received)
	m.stepped(ctx, app.PostgresClock, step)
	if w.looked == 0 || asked-w.looked > leaderLease {
		w.until, w.next = max(w.until, received+strandedTime), received
	}
	w.looked = received
	if step < 0 {
		w.until, w.next = max(w.until, received-step+strandedTime), received
	}
	if received > w.until || received < w.next {
		return nil
	}
	moved, err := m.moveStranded(ctx, leading)
	ended := w.monotonic()
	w.next = ended + strandedRest*(ended-received)
	if moved > 0 {
		w.until = max(w.until, ended+strandedTime)
	}
	return err
}

// stepped tells of a clock that was set; 0: it was not.
func (m *Maintenance) stepped(ctx context.Context, clock string, step time.Duration) {
	if step == 0 {
		return
	}
	m.deps.Metrics.ClockSteps.WithLabelValues(clock).Inc()
	m.deps.Log.WarnContext(ctx, "a clock was set; times that were computed by it are wrong by that", "action", "watch_clock", "clock", clock,
		"step_seconds", step.Seconds())
}

// moveStranded goes through all that waits for a time to come, a part of it at a time.
func (m *Maintenance) moveStranded(ctx context.Context, leading func() bool) (moved int, err error) {
	if !leading() {
		return 0, nil
	}
	if err := m.clock.store.EndStrandedLeases(ctx); err != nil {
		return 0, err
	}
	jobs, err := walk(leading, strandedLook, func(after job.QueueCursor) (int, job.QueueCursor, error) {
		return m.clock.store.MoveStrandedJobs(ctx, after, strandedLook)
	})
	m.deps.Metrics.Repaired.WithLabelValues(app.RepairStranded).Add(float64(jobs))
	if err != nil {
		return jobs, err
	}
	deliveries, err := walk(leading, strandedBatch, func(after job.EndpointKey) (int, job.EndpointKey, error) {
		return m.clock.store.MoveStrandedDeliveries(ctx, after, strandedEndpoints, strandedBatch)
	})
	m.deps.Metrics.DeliveriesRepaired.WithLabelValues(app.RepairStranded).Add(float64(deliveries))
	if jobs+deliveries > 0 {
		m.deps.Log.WarnContext(ctx, "what waited for a time that Postgres' clock had shown too early is due again", "action", "watch_clock",
			"jobs", jobs, "deliveries", deliveries)
	}
	return jobs + deliveries, err
}

// walk has parts done, one after the other, until one says that there is none after it.
// One that moved the full number may be repeated from the start.
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
