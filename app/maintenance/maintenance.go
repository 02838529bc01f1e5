// Package maintenance repairs what crashes leave behind, in the one process that
// holds the leader's lease: it queues what is due, enqueues what Redis lost, gives
// back jobs of dead workers, publishes outcomes, counts the backlog and writes the history.
package maintenance

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/app/rescue"
	"github.com/forgerun/forgerun/job"
)

// Store is what the leader needs of storage, apart from the relay's.
type Store interface {
	// Lead takes or keeps the leader's lease. From another holder it is taken when it
	// has run out for at least vacant; with a lease of 0 anybody may take it at once.
	Lead(ctx context.Context, holder job.ID, lease, vacant time.Duration) (bool, error)
	Resign(ctx context.Context, holder job.ID) error
	QueueDue(ctx context.Context, limit int) ([]job.Job, error)
	Orphans(ctx context.Context, limit int) ([]job.Held, error)
	Clean(ctx context.Context, limit int) (more bool, err error)
}

// Rounds is what one round after the other does.
type Rounds interface {
	Round(ctx context.Context, leading func() bool) error
}

// Schedules submits the jobs of schedules that are due.
type Schedules interface {
	Rounds
	Due() <-chan struct{} // has a round begun at once
}

// BacklogStore counts what there is to do in the whole system; no count goes
// beyond the limit.
type BacklogStore interface {
	Backlog(ctx context.Context, limit int) (job.Backlog, error)
}

// Cadence of the maintenance.
const (
	SchedulerInterval = 200 * time.Millisecond
	relayInterval     = 500 * time.Millisecond // a deferred job without a task starts within a second all the same
	RescuerInterval   = time.Second
	completerInterval = 3 * time.Second
	cleanerInterval   = 30 * time.Second
	deliveryInterval  = 500 * time.Millisecond
	orphanInterval    = 3 * time.Second
	publisherInterval = 200 * time.Millisecond
	bulkInterval      = 250 * time.Millisecond
	erasureInterval   = 500 * time.Millisecond
	backlogInterval   = 5 * time.Second
	backlogMemory     = time.Minute // after a leadership that was not ended

	rescuerBatch  = 500
	completerLook = 10_000 // open batches that one round of the completer looks at
	cleanerBatch  = 500
	backlogLimit  = 1_000_000
)

// Maintenance repairs what crashes leave behind: it queues jobs whose time has
// come, enqueues what the queue lost, gives back jobs of dead workers, completes
// batches that were not completed, wakes workers for due deliveries, publishes
// outcomes, removes what is past its retention, and counts what there is. It runs
// in every process, but works only in the one that holds the leader's lease. All
// of its statements are guarded: two leaders for a moment do no harm.
type Maintenance struct {
	id      job.ID
	deps    Deps
	rescuer *rescue.Rescuer
	clock   *clockWatch // nil: nobody watches it

	tasks         []*task
	completeAfter job.ID // where the completer goes on; its own

	mu       sync.Mutex
	ledUntil time.Time   // zero while this process does not lead
	lapse    *time.Timer // ends the leadership in time, and later what is shown of it

	leads   chan struct{} // closed while this process leads
	elected chan struct{} // has the backlog counted at once
}

// Deps is what Maintenance works with; all but Clock, History, Pauses, Bulk, Erasures,
// Schedules, Publisher and Tracer are required.
type Deps struct {
	Store      Store
	Claims     rescue.Store
	Backlog    BacklogStore
	Queue      app.Queue
	Relay      *Relay
	Deliveries *delivery.Relay
	Clock      ClockStore   // nil: clocks are not watched
	History    HistoryStore // nil: none is written
	Throttle   Throttle     // without a store nothing is resumed
	Pauses     PauseStore   // nil: jobs that were put aside are not resumed
	Bulk       Rounds       // nil: bulk operations are not done
	Erasures   Rounds       // nil: clients are not erased
	Schedules  Schedules    // nil: schedules are not run
	Publisher  *Publisher   // nil: outcomes are not published
	Completer  *batches.Completer
	Backoff    job.Backoff
	Metrics    *app.Metrics
	Tracer     trace.Tracer // nil: rescues are not traced
	Log        *slog.Logger
}

// New makes the maintenance of a process.
func New(d Deps) *Maintenance {
	m := &Maintenance{
		id: app.NewID(), deps: d, leads: make(chan struct{}), elected: make(chan struct{}, 1),
		rescuer: &rescue.Rescuer{
			Store: d.Claims, Queue: d.Queue, Completer: d.Completer, Backoff: d.Backoff, Metrics: d.Metrics, Tracer: d.Tracer, Log: d.Log,
			OfDead: true,
		},
	}
	if d.Clock != nil {
		m.clock = &clockWatch{store: d.Clock, began: time.Now()}
	}
	m.tasks = m.newTasks()
	return m
}

// Leading reports whether this process may work as the leader now.
func (m *Maintenance) Leading() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.ledUntil)
}

// newTasks lists what this process does while it leads.
func (m *Maintenance) newTasks() []*task {
	all := []*task{
		{name: "scheduler", interval: SchedulerInterval, vital: true, run: m.schedule},
		{name: "relay", interval: relayInterval, vital: true, wake: m.deps.Relay.Clock.Changed, run: m.deps.Relay.round},
		{name: "rescuer", interval: RescuerInterval, vital: true, run: m.rescue},
		{name: "batch_completer", interval: completerInterval, run: m.completeBatches},
		{name: "cleaner", interval: cleanerInterval, run: m.clean},
		{name: "backlog", interval: backlogInterval, wake: func() <-chan struct{} { return m.elected }, run: m.count},
		{name: "deliveries", interval: deliveryInterval, vital: true, run: m.deps.Deliveries.Round},
		{name: "orphans", interval: orphanInterval, run: m.deps.Deliveries.FailOrphans},
	}
	if m.clock != nil {
		all = append(all, &task{name: "clock", interval: clockInterval, run: m.watchClock})
	}
	if m.deps.History != nil {
		all = append(all, &task{name: "history", interval: historyInterval, run: m.writeHistory})
	}
	if m.deps.Throttle.Store != nil {
		all = append(all, m.deps.Throttle.task(m.deps.Relay))
	}
	if m.deps.Pauses != nil {
		sweep := &pauseSweep{store: m.deps.Pauses, relay: m.deps.Relay}
		all = append(all, &task{name: "pauses", interval: pauseInterval, run: sweep.round})
	}
	if m.deps.Bulk != nil {
		all = append(all, &task{name: "bulk", interval: bulkInterval, run: m.deps.Bulk.Round})
	}
	if m.deps.Erasures != nil {
		all = append(all, &task{name: "erasures", interval: erasureInterval, run: m.deps.Erasures.Round})
	}
	if m.deps.Schedules != nil {
		all = append(all, &task{name: "schedules", interval: SchedulerInterval, wake: m.deps.Schedules.Due, run: m.deps.Schedules.Round})
	}
	if m.deps.Publisher != nil {
		all = append(all, &task{name: "outcomes", interval: publisherInterval, run: m.deps.Publisher.round})
	}
	return all
}

// Run works until ctx ends, then gives the leader's lease up.
func (m *Maintenance) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { m.lead(ctx) })
	for _, t := range m.tasks {
		loops.Go(func() { m.repeat(ctx, t) })
	}
	loops.Wait()
}

// count takes the backlog. It is not shown once the leadership is over: another
// process shows its own.
func (m *Maintenance) count(ctx context.Context, _ func() bool) error {
	backlog, err := m.deps.Backlog.Backlog(ctx, backlogLimit)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.ledUntil) {
		m.deps.Metrics.Counted(backlog)
	}
	return nil
}

// rescue gives back the jobs of workers whose lease has ended.
func (m *Maintenance) rescue(ctx context.Context, leading func() bool) error {
	for leading() {
		held, err := m.deps.Store.Orphans(ctx, rescuerBatch)
		if err != nil {
			return err
		}
		if err := m.rescuer.GiveBack(ctx, held); err != nil || len(held) < rescuerBatch {
			return err
		}
	}
	return nil
}

// completeBatches ends batches whose last job ended without anybody doing so. A
// round looks at a slice of the open batches, the next one at those after it.
func (m *Maintenance) completeBatches(ctx context.Context, leading func() bool) error {
	ready, last, err := m.deps.Completer.Store.ReadyBatches(ctx, m.completeAfter, completerLook)
	if err != nil {
		return err
	}
	for batches := range slices.Chunk(ready, batches.ChunkSize) {
		if !leading() {
			return nil
		}
		n, err := m.deps.Completer.Complete(ctx, batches)
		m.deps.Metrics.Repaired.WithLabelValues("batch_completer").Add(float64(n))
		if err != nil {
			return err
		}
	}
	m.completeAfter = last
	return nil
}

// clean removes what is past its retention, in bounded batches. It rests for as
// long as each took: there may be millions, and nothing waits for their end.
func (m *Maintenance) clean(ctx context.Context, leading func() bool) error {
	for leading() {
		began := time.Now()
		more, err := m.deps.Store.Clean(ctx, cleanerBatch)
		if err != nil || !more || !app.Sleep(ctx, time.Since(began)) {
			return err
		}
	}
	return nil
}
