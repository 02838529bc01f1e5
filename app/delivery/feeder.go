package delivery

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// FeedStore finds the deliveries of new events.
type FeedStore interface {
	// NewDeliveries finds deliveries that wait for their first attempt: those of jobs, and those of the clients' other events.
	NewDeliveries(ctx context.Context, jobs, clients []job.ID) ([]job.DeliveryTask, error)
}

// Tasks is the queue as a Notifier needs it: best effort, non-blocking.
type Tasks interface {
	Enqueue(t job.Task)
	Remove(t job.Task)
	SignalCancel(id job.ID)
	Publish(n job.Notification)
	EnqueueDelivery(t job.DeliveryTask)
}

const (
	feedPause  = 5 * time.Millisecond // between two looks for new deliveries
	maxFeed    = 4096                 // jobs and clients that one look is about; the relay finds what is left out
	recentFeed = 16384                // deliveries that are remembered to have a task, twice as many at most
)

// Notifier is the queue of processes that write events. Publishing an event of a client with webhooks, and Deliver, have the event's
// deliveries looked for, and their tasks enqueued, by Run. All of it is best effort, and the relay repairs it.
type Notifier struct {
	Tasks
	subscribers *Subscribers
	store       FeedStore
	log         *slog.Logger

	mu            sync.Mutex
	jobs, clients map[job.ID]struct{} // to look at
	some          chan struct{}       // holds a token while there are any

	recent, older map[job.ID]struct{} // deliveries that have a task; Run's own
}

// NewNotifier makes a notifier on top of the queue.
func NewNotifier(q Tasks, s *Subscribers, store FeedStore, log *slog.Logger) *Notifier {
	n := &Notifier{Tasks: q, subscribers: s, store: store, log: log, some: make(chan struct{}, 1), recent: map[job.ID]struct{}{}}
	n.gather()
	return n
}

// Publish notifies watchers, and has an event of a client with webhooks delivered. Progress is no event.
func (n *Notifier) Publish(event job.Notification) {
	n.Tasks.Publish(event)
	if event.Progress == nil && n.subscribers.Has(event.ClientID) {
		n.Deliver(event.ClientID, event.JobID)
	}
}

// Deliver has the deliveries looked for that a job's events have, or with the zero job the client's other events.
func (n *Notifier) Deliver(client, jobID job.ID) {
	n.mu.Lock()
	switch {
	case len(n.jobs)+len(n.clients) >= maxFeed:
	case jobID.IsZero():
		n.clients[client] = struct{}{}
	default:
		n.jobs[jobID] = struct{}{}
	}
	n.mu.Unlock()
	select {
	case n.some <- struct{}{}:
	default:
	}
}

// gather takes what there is to look at.
func (n *Notifier) gather() (jobs, clients []job.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	jobs, clients = slices.Collect(maps.Keys(n.jobs)), slices.Collect(maps.Keys(n.clients))
	n.jobs, n.clients = map[job.ID]struct{}{}, map[job.ID]struct{}{}
	return jobs, clients
}

// Run enqueues tasks until ctx ends.
func (n *Notifier) Run(ctx context.Context) {
	app.Repeat(ctx, feedPause, n.log, "cannot look for new deliveries; the relay finds them", "deliver", func(ctx context.Context) error {
		select {
		case <-n.some:
			return n.feed(ctx)
		case <-ctx.Done():
			return nil
		}
	})
}

func (n *Notifier) feed(ctx context.Context) error {
	jobs, clients := n.gather()
	found, err := n.store.NewDeliveries(ctx, jobs, clients)
	for _, t := range found {
		_, recent := n.recent[t.ID]
		_, older := n.older[t.ID]
		if recent || older {
			continue
		}
		if len(n.recent) == recentFeed {
			n.recent, n.older = make(map[job.ID]struct{}, recentFeed), n.recent
		}
		n.recent[t.ID] = struct{}{}
		n.EnqueueDelivery(t)
	}
	return err
}
