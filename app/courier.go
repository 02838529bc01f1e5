package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

// CourierStore is what delivering needs of storage.
type CourierStore interface {
	DueEndpoints(ctx context.Context, client job.ID) ([]job.ID, error)
	ClaimDeliveries(ctx context.Context, client, endpoint job.ID, n int, hold time.Duration) ([]job.Parcel, error)
	RecordDelivery(ctx context.Context, r job.DeliveryResult) (job.Recorded, error)
	ReleaseDeliveries(ctx context.Context, parcels []job.Parcel) error
}

// Sender sends a parcel once and tells what became of it. It stops when ctx
// ends.
type Sender interface {
	Send(ctx context.Context, p job.Parcel) job.Sent
}

// CourierConfig of a Courier.
type CourierConfig struct {
	Concurrency int           // sends at once in this process
	Timeout     time.Duration // of one attempt, as the sender keeps it
	Hold        time.Duration // how long a claim lasts; never less than Timeout and holdMargin
	Policy      job.DeliveryPolicy
}

const (
	// endpointShare is the part of the process' sends that one endpoint may take,
	// and clientShare that of all endpoints of one client.
	endpointShare = 5
	clientShare   = 2
	// holdMargin is how long a claimed delivery may wait for its turn, be sent
	// late, and be recorded: a round at the time limit and a little more.
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

// errStopping makes the queue offer a hint to another process.
var errStopping = errors.New("the courier takes no hints any more")

// Courier sends what is due to the clients that it hears of (section 8). For
// each endpoint with something due a pump claims deliveries and sends them. An
// endpoint takes its share of the process at most, and so does a client: those
// that hang delay nobody else. Storage knows what is due, and guards each claim
// by a fence; what a courier forgets with its process is released there when
// the claim has ended.
type Courier struct {
	cfg     CourierConfig
	store   CourierStore
	sender  Sender
	queue   Queue
	metrics *Metrics
	log     *slog.Logger

	slots      chan struct{} // a token for each send
	unrecorded chan struct{} // a token for each send until its result is recorded

	quit    chan struct{}   // closed by Stop: nothing more is claimed, no send begins
	sending context.Context // of sends; cut ends it
	cut     context.CancelFunc
	storing context.Context // of statements
	abandon context.CancelFunc
	running sync.WaitGroup // pumps, and parcels that are sent or recorded

	mu       sync.Mutex
	pumps    map[place]*pump
	clients  map[job.ID]*clientPumps
	stopping bool
}

// clientPumps is the part of a client in a courier, as long as it has pumps.
type clientPumps struct {
	pumps int
	turns chan struct{} // a token for each send
}

// place is an endpoint of a client.
type place struct{ client, endpoint job.ID }

// NewCourier makes a courier; it works on what Handle is told of.
func NewCourier(cfg CourierConfig, store CourierStore, sender Sender, queue Queue, m *Metrics, log *slog.Logger) *Courier {
	cfg.Concurrency = max(1, cfg.Concurrency)
	cfg.Hold = max(cfg.Hold, cfg.Timeout+holdMargin) // a shorter one would be given back unsent, again and again
	c := &Courier{
		cfg: cfg, store: store, sender: sender, queue: queue, metrics: m, log: log,
		slots: make(chan struct{}, cfg.Concurrency), unrecorded: make(chan struct{}, unrecordedShare*cfg.Concurrency),
		quit: make(chan struct{}), pumps: map[place]*pump{}, clients: map[job.ID]*clientPumps{},
	}
	c.sending, c.cut = context.WithCancel(context.Background())
	c.storing, c.abandon = context.WithCancel(context.Background())
	return c
}

// Handle looks what is due to a client, and has it sent. It returns when that
// is under way. Before, it waits for its turn among the sends: while this
// process is busy, hints stay in the queue for others.
func (c *Courier) Handle(ctx context.Context, client job.ID) error {
	select {
	case c.slots <- struct{}{}:
		<-c.slots
	case <-c.quit:
		return errStopping
	case <-ctx.Done():
		return ctx.Err()
	}
	endpoints, err := c.store.DueEndpoints(ctx, client)
	if err != nil {
		c.log.Warn("cannot look for deliveries", "action", "deliver", "client_id", client.String(), "error", err)
		return err
	}
	for _, endpoint := range endpoints {
		if !c.wake(place{client, endpoint}) {
			return errStopping
		}
	}
	return nil
}

// wake has an endpoint's pump look for what is due, after it has begun to run
// if none does. It reports false when the courier stops.
func (c *Courier) wake(at place) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return false
	}
	p := c.pumps[at]
	if p == nil {
		p = newPump(c, at, c.join(at.client))
		c.pumps[at] = p
		c.metrics.pumps.Set(float64(len(c.pumps)))
		c.running.Go(p.run)
	}
	select {
	case p.woken <- struct{}{}:
	default: // it was told before, and has not looked since
	}
	return true
}

// join counts a pump of a client, and gives the turns of its sends. The caller
// holds the lock.
func (c *Courier) join(client job.ID) (turns chan struct{}) {
	part := c.clients[client]
	if part == nil {
		part = &clientPumps{turns: make(chan struct{}, max(1, c.cfg.Concurrency/clientShare))}
		c.clients[client] = part
	}
	part.pumps++
	return part.turns
}

// leave ends a pump, unless it was woken in the meantime.
func (c *Courier) leave(p *pump) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p.woken) > 0 && !c.stopping {
		return false
	}
	delete(c.pumps, p.place)
	part := c.clients[p.place.client]
	if part.pumps--; part.pumps == 0 {
		delete(c.clients, p.place.client)
	}
	c.metrics.pumps.Set(float64(len(c.pumps)))
	return true
}

// share is how many parcels one pump may hold when all hold the same.
func (c *Courier) share() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(2, 2*c.cfg.Concurrency/max(1, len(c.pumps)))
}

// Stop ends the courier: nothing more is claimed, what is being sent is waited
// for until ctx ends and cut off then, and claims that were not used are given
// back. It may be called again, and waits then as well.
func (c *Courier) Stop(ctx context.Context) {
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
		c.log.Warn("deliveries are left to the end of their claims")
	}
}
