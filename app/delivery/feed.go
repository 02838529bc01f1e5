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
	"github.com/forgerun/forgerun/repo"
)

// Queue holds the tasks of jobs and deliveries. Methods without an error result do not block, and may fail silently.
type Queue interface {
	Enqueue(t job.Task)
	Remove(t job.Task)
	SignalCancel(id job.ID)
	Publish(n job.Notification)
	EnqueueDelivery(t job.DeliveryTask)
	// EnsureDeliveries creates missing tasks of deliveries, and returns how many were missing.
	EnsureDeliveries(ctx context.Context, ts []job.DeliveryTask) (made int, err error)
	RemoveDeliveries(ids ...job.ID)
}

const (
	feedPause  = 5 * time.Millisecond
	maxFeed    = 4096  // maximum number of jobs and clients per read; the relay finds the deliveries of all others
	recentFeed = 16384 // maximum size of `recent` and of `older`
)

// Notifier is a Queue that also enqueues the deliveries of published events. The notifier is best effort: the relay replaces missing
// tasks.
type Notifier struct {
	Queue
	subscribers *Subscribers
	store       *repo.Store
	log         *slog.Logger

	mu            sync.Mutex
	jobs, clients map[job.ID]struct{}
	some          chan struct{} // contains a value while jobs or clients are pending

	recent, older map[job.ID]struct{} // deliveries that have a task; used by Run only
}

// NewNotifier returns a notifier on top of the queue.
func NewNotifier(q Queue, s *Subscribers, store *repo.Store, log *slog.Logger) *Notifier {
	n := &Notifier{Queue: q, subscribers: s, store: store, log: log, some: make(chan struct{}, 1), recent: map[job.ID]struct{}{}}
	n.gather()
	return n
}

// Publish notifies watchers. If the client has webhooks, Publish also calls Deliver, except for progress.
func (n *Notifier) Publish(event job.Notification) {
	n.Queue.Publish(event)
	if event.Progress == nil && n.subscribers.Webhooks(event.ClientID) > 0 {
		n.Deliver(event.ClientID, event.JobID)
	}
}

// Deliver makes Run look for deliveries of the job's events. If jobID is zero, Run looks for deliveries of the client's events that belong
// to no job.
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

func (n *Notifier) gather() (jobs, clients []job.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	jobs, clients = slices.Collect(maps.Keys(n.jobs)), slices.Collect(maps.Keys(n.clients))
	n.jobs, n.clients = map[job.ID]struct{}{}, map[job.ID]struct{}{}
	return jobs, clients
}

// Run enqueues tasks until ctx ends.
func (n *Notifier) Run(ctx context.Context) {
	app.Repeat(ctx, feedPause, n.log, "cannot look for new deliveries; the leader will find them", "deliver", func(ctx context.Context) error {
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
