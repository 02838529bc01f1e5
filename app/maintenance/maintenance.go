// Package maintenance repairs what crashes leave behind, in the one process that
// holds the leader's lease: it queues what is due, enqueues what Redis lost, gives
// back jobs of dead workers, publishes outcomes and counts the backlog.
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
	Lead(ctx context.Context, holder job.ID, lease time.Duration) (bool, error)
	Resign(ctx context.Context, holder job.ID) error
	QueueDue(ctx context.Context, limit int) ([]job.Job, error)
	Orphans(ctx context.Context, limit int) ([]job.Held, error)
	Clean(ctx context.Context, limit int) (more bool, err error)
}

// BacklogStore counts what there is to do in the whole system; no count goes
// beyond the limit.
type BacklogStore interface {
	Backlog(ctx context.Context, limit int) (job.Backlog, error)
}

// Cadence of the maintenance.
const (
	leaderLease       = 5 * time.Second
	leaderInterval    = time.Second
	SchedulerInterval = 200 * time.Millisecond
	relayInterval     = 500 * time.Millisecond
	probeInterval     = 2 * time.Second
	RescuerInterval   = time.Second
	completerInterval = 3 * time.Second
	cleanerInterval   = 30 * time.Second
	deliveryInterval  = 500 * time.Millisecond
	orphanInterval    = 3 * time.Second
	publisherInterval = 200 * time.Millisecond
	backlogInterval   = 5 * time.Second
	backlogMemory     = time.Minute // after a leadership that nobody ended

	rescuerBatch  = 500
	completerLook = 10_000 // open batches that one round of the completer looks at
	cleanerBatch  = 500
	backlogLimit  = 1_000_000
)

// Maintenance repairs what crashes leave behind: it queues jobs whose time has
// come, dispatches what the queue lost, gives back jobs of dead workers, completes
// batches that nobody completed, wakes workers for due deliveries, publishes
// outcomes, removes what is past its retention, and counts what there is. It runs
// in every process, but works only in the one that holds the leader's lease. All
// of its statements are guarded: two leaders for a moment do no harm.
type Maintenance struct {
	id         job.ID
	store      Store
	backlog    BacklogStore
	queue      app.Queue
	relay      *Relay
	deliveries *delivery.Relay
	publisher  *Publisher
	rescuer    *rescue.Rescuer
	completer  *batches.Completer
	metrics    *app.Metrics
	log        *slog.Logger

	completeAfter job.ID // where the completer goes on; its own

	mu       sync.Mutex
	ledUntil time.Time   // zero while this process does not lead
	lapse    *time.Timer // ends the leadership in time, and later what is shown of it

	leads   chan struct{} // closed while this process leads
	elected chan struct{} // has the backlog counted at once
}

// Deps is what Maintenance works with; all but Publisher and
// Tracer are required.
type Deps struct {
	Store      Store
	Claims     rescue.Store
	Backlog    BacklogStore
	Queue      app.Queue
	Relay      *Relay
	Deliveries *delivery.Relay
	Publisher  *Publisher // nil: outcomes are not published
	Completer  *batches.Completer
	Backoff    job.Backoff
	Metrics    *app.Metrics
	Tracer     trace.Tracer // nil: rescues are not traced
	Log        *slog.Logger
}

// New makes the maintenance of a process.
func New(d Deps) *Maintenance {
	return &Maintenance{
		id: app.NewID(), leads: make(chan struct{}), elected: make(chan struct{}, 1), store: d.Store, backlog: d.Backlog, queue: d.Queue,
		relay: d.Relay, deliveries: d.Deliveries, publisher: d.Publisher,
		completer: d.Completer, metrics: d.Metrics, log: d.Log,
		rescuer: &rescue.Rescuer{
			Store: d.Claims, Queue: d.Queue, Completer: d.Completer, Backoff: d.Backoff, Metrics: d.Metrics, Tracer: d.Tracer, Log: d.Log,
			OfDead: true,
		},
	}
}

// Leading reports whether this process may work as the leader now.
func (m *Maintenance) Leading() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.ledUntil)
}

// Run works until ctx ends, then gives the leader's lease up.
func (m *Maintenance) Run(ctx context.Context) {
	var tasks sync.WaitGroup
	every := func(interval time.Duration, name string, task func(context.Context) error) {
		tasks.Go(func() { m.every(ctx, interval, nil, name, task) })
	}
	tasks.Go(func() { m.lead(ctx) })
	every(SchedulerInterval, "scheduler", m.schedule)
	every(relayInterval, "relay", m.redispatch)
	every(probeInterval, "probe", m.relay.probe)
	every(RescuerInterval, "rescuer", m.rescue)
	every(completerInterval, "batch_completer", m.completeBatches)
	every(cleanerInterval, "cleaner", m.clean)
	tasks.Go(func() { m.every(ctx, backlogInterval, m.elected, "backlog", m.count) })
	every(deliveryInterval, "deliveries", func(ctx context.Context) error { return m.deliveries.Round(ctx, m.Leading) })
	every(orphanInterval, "orphans", func(ctx context.Context) error { return m.deliveries.FailOrphans(ctx, m.Leading) })
	if m.publisher != nil {
		every(publisherInterval, "outcomes", func(ctx context.Context) error { return m.publisher.round(ctx, m.Leading) })
	}
	tasks.Wait()
}

// every runs a task at its interval while this process leads, and when trigger
// says so.
func (m *Maintenance) every(ctx context.Context, interval time.Duration, trigger <-chan struct{}, name string,
	task func(context.Context) error) {
	for m.awaitLead(ctx) && app.Rest(ctx, interval, trigger) {
		if !m.Leading() {
			continue
		}
		began := time.Now()
		err := task(ctx)
		if ctx.Err() != nil {
			return
		}
		m.metrics.Round(name, time.Since(began), err)
		if err != nil {
			m.log.WarnContext(ctx, "maintenance failed", "action", "maintain", "task", name, app.ErrorFields(err))
		}
	}
}

// awaitLead waits until this process leads: one that does not is not woken for
// nothing several times a second. It reports whether ctx goes on.
func (m *Maintenance) awaitLead(ctx context.Context) bool {
	m.mu.Lock()
	leads := m.leads
	m.mu.Unlock()
	select {
	case <-leads:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// lead keeps trying to get or keep the lease. It is counted from before each
// request, so this side gives up before storage does.
func (m *Maintenance) lead(ctx context.Context) {
	for ctx.Err() == nil {
		asked := time.Now()
		leads, err := m.store.Lead(ctx, m.id, leaderLease)
		if ctx.Err() == nil {
			m.metrics.Round("leader", time.Since(asked), err)
		}
		switch {
		case err == nil:
			m.setLeading(leads, asked)
		case ctx.Err() == nil:
			m.log.WarnContext(ctx, "leader election failed", "action", "lead", app.ErrorFields(err))
		}
		if !app.Sleep(ctx, leaderInterval) {
			break
		}
	}
	m.setLeading(false, time.Time{})
	resigning, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaderInterval)
	defer cancel()
	if err := m.store.Resign(resigning, m.id); err != nil {
		m.log.WarnContext(ctx, "cannot resign as leader; the lease will run out", "action", "resign", app.ErrorFields(err))
	}
}

// setLeading notes the answer to an election that was asked for at the given
// moment.
func (m *Maintenance) setLeading(leads bool, asked time.Time) {
	until := asked.Add(leaderLease)
	leads = leads && time.Now().Before(until) // an answer may come too late to be of use
	if !leads {
		until = time.Time{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leadUntil(until)
	if !leads {
		m.metrics.ForgetBacklog()
	}
}

// leadUntil notes until when this process leads; the zero time: it does not. The
// caller holds the lock.
func (m *Maintenance) leadUntil(until time.Time) {
	leads, led := !until.IsZero(), !m.ledUntil.IsZero()
	m.ledUntil = until
	m.metrics.Leads(leads)
	if m.lapse != nil {
		m.lapse.Stop()
	}
	if leads {
		m.lapse = time.AfterFunc(time.Until(until), m.lapsed)
	}
	if leads == led {
		return
	}
	m.log.Info("leadership changed", "action", "lead", "leading", leads)
	if !leads {
		m.leads = make(chan struct{})
		return
	}
	close(m.leads)
	select {
	case m.elected <- struct{}{}:
	default:
	}
}

// lapsed ends a leadership that was not renewed in time, also while the
// election's answer is still out. What was counted last is shown for a while
// longer: nobody may be there to count anew.
func (m *Maintenance) lapsed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ledUntil.IsZero() || time.Now().Before(m.ledUntil) {
		return
	}
	m.leadUntil(time.Time{})
	m.lapse = time.AfterFunc(backlogMemory, m.forget)
}

// forget ends the showing of an old backlog.
func (m *Maintenance) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ledUntil.IsZero() {
		m.metrics.ForgetBacklog()
	}
}

// count takes the backlog. It is not shown once the leadership is over: another
// process shows its own.
func (m *Maintenance) count(ctx context.Context) error {
	backlog, err := m.backlog.Backlog(ctx, backlogLimit)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.ledUntil) {
		m.metrics.Counted(backlog)
	}
	return nil
}

// redispatch gives the queue what it does not have.
func (m *Maintenance) redispatch(ctx context.Context) error { return m.relay.round(ctx, m.Leading) }

// rescue gives back the jobs of workers whose lease has ended.
func (m *Maintenance) rescue(ctx context.Context) error {
	for m.Leading() {
		held, err := m.store.Orphans(ctx, rescuerBatch)
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
func (m *Maintenance) completeBatches(ctx context.Context) error {
	ready, last, err := m.completer.Store.ReadyBatches(ctx, m.completeAfter, completerLook)
	if err != nil {
		return err
	}
	for batches := range slices.Chunk(ready, batches.ChunkSize) {
		if !m.Leading() {
			return nil
		}
		n, err := m.completer.Complete(ctx, batches)
		m.metrics.Repaired.WithLabelValues("batch_completer").Add(float64(n))
		if err != nil {
			return err
		}
	}
	m.completeAfter = last
	return nil
}

// clean removes what is past its retention, in bounded batches. It rests for as
// long as each took: there may be millions, and nobody waits for their end.
func (m *Maintenance) clean(ctx context.Context) error {
	for m.Leading() {
		began := time.Now()
		more, err := m.store.Clean(ctx, cleanerBatch)
		if err != nil || !more || !app.Sleep(ctx, time.Since(began)) {
			return err
		}
	}
	return nil
}
