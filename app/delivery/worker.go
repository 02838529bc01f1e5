// Package delivery holds the use cases of webhooks (section 8), and the delivery
// worker: it claims what is due, sends it, records the result, and retries. A relay
// repairs what was lost.
package delivery

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/internal/fair"
	"github.com/forgerun/forgerun/job"
)

// WorkerStore is what delivering needs of storage.
type WorkerStore interface {
	DueEndpoints(ctx context.Context, client job.ID) ([]job.ID, error)
	// ClaimDeliveries claims at most n due deliveries. If there may be more, fewer
	// than n, or none, is no sign of the end.
	ClaimDeliveries(ctx context.Context, client, endpoint job.ID, n int, hold time.Duration) (job.DeliveryClaim, error)
	RecordDelivery(ctx context.Context, r job.DeliveryResult) (job.Recorded, error)
	ReleaseDeliveries(ctx context.Context, deliveries []job.ClaimedDelivery) error
}

// Sender sends a delivery once and reports the result. It stops when ctx
// ends.
type Sender interface {
	Send(ctx context.Context, p job.ClaimedDelivery) job.Sent
}

// Rate limits how many attempts to deliver a client has per minute. It never fails.
type Rate interface {
	// Allow counts an attempt, if the client may have one now; otherwise it says when.
	Allow(ctx context.Context, client job.ID) job.Allowance
}

// Storage counts what a client has stored in a day, in units of job.WeightUnit. It never fails.
type Storage interface {
	AllowUnits(ctx context.Context, client job.ID, units int) job.Allowance
}

// Tasks are the deliveries that the queue shows to people: those that wait for
// another attempt, which such a task begins, and those that were given up. Best
// effort, non-blocking.
type Tasks interface {
	// Attempted counts an attempt that was recorded, and shows the delivery as it
	// is after it.
	Attempted(d job.Delivery)
	// DropDeliveries removes what waits for an endpoint to which nothing is sent
	// any more.
	DropDeliveries(endpoint job.ID)
}

// WorkerConfig of a Worker.
type WorkerConfig struct {
	Concurrency int           // sends at once in this process
	Timeout     time.Duration // of one attempt, as the sender keeps it
	Policy      job.DeliveryPolicy
	Rate        Rate         // of clients; nil: there is no limit
	Storage     Storage      // for answers of receivers; nil: there is no limit
	Tracer      trace.Tracer // nil: deliveries are not traced
	Clock       *clock.Clock // of a test bed; nil: the machine's
}

const (
	// endpointShare is the part of the process' sends that one endpoint may take.
	endpointShare = 5
	// dispatcherShare bounds the dispatchers, as a multiple of the sends.
	dispatcherShare = 20
	// busyPause is how long wake-ups stay with the queue while all sends are taken:
	// another process may have some left.
	busyPause = time.Second
	// holdMargin is how much longer than the time limit of a send a claim lasts:
	// the delivery may wait for a send slot, be sent late, and be recorded. That is a
	// round at the time limit and a little more.
	holdMargin = 15 * time.Second
	// sendMargin is what must be left of a claim after a send that takes the
	// whole time limit, to record it. sendGrace of it is the sender's, who keeps
	// the limit itself.
	sendMargin = 3 * time.Second
	sendGrace  = time.Second
	// unrecordedShare bounds the results that wait for storage, as a multiple of
	// the sends: when storage is slow, sending slows down with it.
	unrecordedShare = 4
	// cutGrace is how long Stop waits for what it has cut.
	cutGrace = 5 * time.Second
)

// These make the queue offer a wake-up again, perhaps to another process.
var (
	errStopping         = errors.New("the delivery worker is stopping")
	errTooManyEndpoints = errors.New("the worker works for too many endpoints")
)

// Worker sends what is due to the clients for which it is woken (section 8). For
// each endpoint with something due a dispatcher claims deliveries and sends them. An
// endpoint takes its share of the process at most, and clients share dispatchers and
// sends fairly: those that hang do not delay the others. Storage knows what is
// due, and guards each claim by a fence; what a worker forgets with its process
// is released there when the claim has ended.
type Worker struct {
	cfg     WorkerConfig
	store   WorkerStore
	sender  Sender
	queue   app.Queue
	tasks   Tasks
	metrics *app.Metrics
	log     *slog.Logger

	hold            time.Duration // of a claim
	sendSlots       *fair.Semaphore[job.ID]
	dispatcherSlots *fair.Semaphore[job.ID]
	origins         *origins
	unrecorded      chan struct{} // a token for each send until its result is recorded

	quit    chan struct{}   // closed by Stop: nothing more is claimed, no send begins
	sending context.Context // of sends; cut ends it
	cut     context.CancelFunc
	storing context.Context // of statements
	abandon context.CancelFunc
	running sync.WaitGroup // dispatchers, and deliveries that are sent or recorded

	mu          sync.Mutex
	dispatchers map[job.EndpointKey]*endpointDispatcher
	stopping    bool
}

// NewWorker makes a delivery worker; Handle gives it work.
func NewWorker(cfg WorkerConfig, store WorkerStore, sender Sender, queue app.Queue, tasks Tasks, m *app.Metrics,
	log *slog.Logger) *Worker {
	cfg.Concurrency = max(1, cfg.Concurrency)
	c := &Worker{
		cfg: cfg, store: store, sender: sender, queue: queue, tasks: tasks, metrics: m, log: log, hold: cfg.Timeout + holdMargin,
		sendSlots: fair.New[job.ID](cfg.Concurrency), dispatcherSlots: fair.New[job.ID](dispatcherShare * cfg.Concurrency),
		origins:    newOrigins(max(1, cfg.Concurrency/endpointShare)),
		unrecorded: make(chan struct{}, unrecordedShare*cfg.Concurrency),
		quit:       make(chan struct{}), dispatchers: map[job.EndpointKey]*endpointDispatcher{},
	}
	c.sending, c.cut = context.WithCancel(context.Background())
	c.storing, c.abandon = context.WithCancel(context.Background())
	return c
}

// Handle looks what is due to a client, and has it sent. It returns when that
// is under way. While all sends of this process are taken it waits a moment, so
// that the wake-up may go to another one; not longer, because other wake-ups
// wait for it. A client that has many endpoints gets some of them served now; for
// the others the wake-up is to come again.
func (c *Worker) Handle(ctx context.Context, client job.ID) error {
	c.awaitSendSlot(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	endpoints, err := c.store.DueEndpoints(ctx, client)
	if err != nil {
		c.log.WarnContext(ctx, "cannot look for deliveries", "action", "deliver", "client_id", client.String(), app.ErrorFields(err))
		return err
	}
	// In any order: otherwise the same ones would be left out each time.
	rand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
	for _, endpoint := range endpoints {
		switch e := c.wake(job.EndpointKey{Client: client, Endpoint: endpoint}); {
		case errors.Is(e, errStopping):
			return e
		case e != nil:
			err = e // those that have a dispatcher are woken all the same
		}
	}
	return err
}

// Try begins the next attempt of what is due to an endpoint, or soon will be. It
// returns when that is under way. Many deliveries of an endpoint may come to
// their time at once: only the first one waits for a send slot here.
func (c *Worker) Try(ctx context.Context, at job.EndpointKey) error {
	if !c.works(at) {
		c.awaitSendSlot(ctx)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.wake(at)
}

// works reports whether the endpoint has a dispatcher.
func (c *Worker) works(at job.EndpointKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dispatchers[at] != nil
}

// awaitSendSlot waits until a send slot is free, for busyPause at most. It asks on
// behalf of no client.
func (c *Worker) awaitSendSlot(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, busyPause)
	defer cancel()
	noClient := job.ID{}
	if c.sendSlots.Acquire(noClient, ctx.Done()) {
		c.sendSlots.Release(noClient)
	}
}

// wake has an endpoint's dispatcher look for what is due, after it has begun to run
// if none does. It fails with errStopping, or with errTooManyEndpoints if there are too many
// dispatchers.
func (c *Worker) wake(at job.EndpointKey) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return errStopping
	}
	p := c.dispatchers[at]
	if p == nil {
		if !c.dispatcherSlots.TryAcquire(at.Client) {
			return errTooManyEndpoints
		}
		p = newDispatcher(c, at)
		c.dispatchers[at] = p
		c.metrics.Dispatchers.Set(float64(len(c.dispatchers)))
		c.running.Go(p.run)
	}
	select {
	case p.woken <- struct{}{}:
	default: // it was woken before, and has not looked since
	}
	return nil
}

// leave ends a dispatcher, unless it was woken in the meantime.
func (c *Worker) leave(p *endpointDispatcher) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p.woken) > 0 && !c.stopping {
		return false
	}
	delete(c.dispatchers, p.endpoint)
	c.dispatcherSlots.Release(p.endpoint.Client)
	c.metrics.Dispatchers.Set(float64(len(c.dispatchers)))
	return true
}

// share is how many deliveries one dispatcher may hold when all hold the same.
func (c *Worker) share() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(2, 2*c.cfg.Concurrency/max(1, len(c.dispatchers)))
}

func (c *Worker) stopped() bool {
	select {
	case <-c.quit:
		return true
	default:
		return false
	}
}

// Stop ends the worker: nothing more is claimed, what is being sent is waited
// for until ctx ends and cut off then, and claims that were not used are given
// back. It may be called again, and waits then as well.
func (c *Worker) Stop(ctx context.Context) {
	c.mu.Lock()
	if !c.stopping {
		c.stopping = true
		close(c.quit)
	}
	c.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		c.running.Wait()
		close(ended)
	}()
	defer c.abandon()
	defer c.cut()
	select {
	case <-ended:
		return
	case <-ctx.Done():
		c.cut()
	}
	grace := time.NewTimer(cutGrace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		c.log.WarnContext(ctx, "deliveries are left to the end of their claims", "action", "deliver")
	}
}

// pause waits, but not when the worker stops.
func (c *Worker) pause(d time.Duration) { app.Rest(context.Background(), d, c.quit) }
