// Package events holds the use cases of events: it notifies watchers of new ones,
// reads histories, and finds by itself events whose notification was lost.
package events

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// Listener receives what other processes publish about the clients that it
// watches, and hands it to Hub.Received. None of its methods waits for
// anything, least of all for Received or Resumed to return.
type Listener interface {
	Watch(client job.ID)
	Unwatch(client job.ID)
	Connected() bool // notifications come in now
}

// SweepStore knows how far histories have come.
type SweepStore interface {
	// EventSeqs gives the seq of each job's latest event; deleted jobs are
	// missing.
	EventSeqs(ctx context.Context, jobs []job.ID) (map[job.ID]int, error)
	// LatestPositions gives the position of each client's latest event; clients
	// without events are missing.
	LatestPositions(ctx context.Context, clients []job.ID) (map[job.ID]job.Position, error)
}

// Bounds of the hub.
const (
	SweepInterval = time.Second // while no notifications come in
	calmRounds    = 5           // intervals from one sweep to the next while it does
	sweepChunk    = 1000        // histories in one query

	// MaxConcurrentReads is how many watchers read storage at once. All of them want to
	// when notifications come in again; others need connections too.
	MaxConcurrentReads = 4
)

// Hub notifies the watchers of this process of new events. Notifications may be
// lost on their way here. A sweep makes up for that: it asks storage, once
// for all watchers, how far the watched histories have come, and notifies
// those who have not seen that.
type Hub struct {
	store    SweepStore
	listener Listener
	metrics  *app.Metrics
	log      *slog.Logger
	reads    *semaphore.Weighted // watchers that read

	mu      sync.Mutex
	clients map[job.ID]map[job.ID]*topic // by client, then by job
}

// topic is a watched history: a job's, or with the zero job all of a client's.
type topic struct {
	client, job job.ID
	watchers    map[*watcher]struct{}
	// seen is a position that each watcher has read up to, or been notified of
	// since it has not: what comes after it, somebody may not know.
	seen job.Position
}

// unread is the position of a topic that has not been read: its watchers are about
// to, so there is nothing to notify them of.
var unread = job.Position{Tx: math.MaxUint64}

type watcher struct {
	notifications chan job.Notification // only Hub.notify sends, with the lock held
	progress      bool
}

// NewHub makes a hub; Run sweeps.
func NewHub(store SweepStore, listener Listener, m *app.Metrics, log *slog.Logger) *Hub {
	return &Hub{
		store: store, listener: listener, metrics: m, log: log,
		reads: semaphore.NewWeighted(MaxConcurrentReads), clients: map[job.ID]map[job.ID]*topic{},
	}
}

// inTurn reads storage for a watcher, as one of MaxConcurrentReads at most. An
// error may mean that ctx ended before its turn.
func inTurn[T any](ctx context.Context, h *Hub, read func() (T, error)) (answer T, err error) {
	if err := h.reads.Acquire(ctx, 1); err != nil {
		return answer, err
	}
	defer h.reads.Release(1)
	return read()
}

// Watch receives the notifications of one job, or with the zero id of all of a client's jobs and
// batches, until stop is called. The watcher reads storage after Watch, and
// again with each notification, also if it brings progress: those that come faster
// than they are received are merged, and a merged one stands for an event as well.
// Progress is received of single jobs only, and is the latest.
func (h *Hub) Watch(client, id job.ID) (notifications <-chan job.Notification, stop func()) {
	return h.watch(client, id, !id.IsZero())
}

func (h *Hub) watch(client, id job.ID, progress bool) (notifications <-chan job.Notification, stop func()) {
	w := &watcher{notifications: make(chan job.Notification, 1), progress: progress}
	h.mu.Lock()
	defer h.mu.Unlock()
	topics := h.clients[client]
	if topics == nil {
		topics = map[job.ID]*topic{}
		h.clients[client] = topics
		h.listener.Watch(client)
	}
	t := topics[id]
	if t == nil {
		t = &topic{client: client, job: id, watchers: map[*watcher]struct{}{}, seen: unread}
		topics[id] = t
	}
	t.watchers[w] = struct{}{}
	h.metrics.Watchers.WithLabelValues(t.kind()).Inc()
	return w.notifications, func() { h.leave(t, w) }
}

func (h *Hub) leave(t *topic, w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := t.watchers[w]; !ok {
		return // it has left before
	}
	delete(t.watchers, w)
	h.metrics.Watchers.WithLabelValues(t.kind()).Dec()
	if len(t.watchers) > 0 {
		return
	}
	topics := h.clients[t.client]
	delete(topics, t.job)
	if len(topics) == 0 {
		delete(h.clients, t.client)
		h.listener.Unwatch(t.client)
	}
}

func (t *topic) kind() string {
	if t.job.IsZero() {
		return "client"
	}
	return "job"
}

// Received passes a notification on to the watchers.
func (h *Hub) Received(n job.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	topics := h.clients[n.ClientID]
	if t := topics[n.JobID]; t != nil {
		h.notify(t, n, app.NotifiedByEvent)
	}
	if t := topics[job.ID{}]; t != nil && !n.JobID.IsZero() {
		h.notify(t, n, app.NotifiedByEvent)
	}
}

// Resumed notifies everybody who watches something of a client: earlier ones of
// it may have been missed.
func (h *Hub) Resumed(client job.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.clients[client] {
		h.notify(t, job.Notification{ClientID: client, JobID: t.job}, app.NotifiedByResume)
	}
}

// notify hands a notification to the watchers of a topic, merged with what they have not
// received yet. It does not wait: the lock is held, so no other sender fills the
// channel.
func (h *Hub) notify(t *topic, n job.Notification, source string) {
	for w := range t.watchers {
		if n.Progress != nil && !w.progress {
			continue
		}
		next := n
		select {
		case pending := <-w.notifications:
			next = merge(pending, n)
		default:
		}
		w.notifications <- next
		h.metrics.Notifications.WithLabelValues(source).Inc()
	}
}

// merge makes one notification of two, with the progress that is further.
func merge(pending, n job.Notification) job.Notification {
	if p := pending.Progress; p != nil && (n.Progress == nil || pending.Attempt > n.Attempt ||
		pending.Attempt == n.Attempt && p.Percentage > n.Progress.Percentage) {
		n.Attempt, n.Progress = pending.Attempt, p
	}
	n.Ended = n.Ended || pending.Ended
	return n
}

// saw notes that somebody has read a history up to p and no further, so that
// the next sweep notifies of what came later.
func (h *Hub) saw(client, id job.ID, p job.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.clients[client][id]; t != nil && p.Before(t.seen) {
		t.seen = p
	}
}

// Run sweeps until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	failed := false
	for round := 1; app.Sleep(ctx, SweepInterval); round++ {
		if h.listener.Connected() && round%calmRounds != 0 && !failed {
			continue
		}
		err := h.sweep(ctx)
		failed = err != nil
		if failed && ctx.Err() == nil {
			h.log.WarnContext(ctx, "cannot look for missed events", "action", "watch", app.ErrorFields(err))
		}
	}
}

func (h *Hub) sweep(ctx context.Context) error {
	jobs, feeds := h.watched()
	for topics := range slices.Chunk(jobs, sweepChunk) {
		ids := make([]job.ID, len(topics))
		for i, t := range topics {
			ids[i] = t.job
		}
		seqs, err := h.store.EventSeqs(ctx, ids)
		if err != nil {
			return err
		}
		h.compare(topics, func(t *topic) (job.Position, bool) {
			seq, ok := seqs[t.job]
			return job.Position{Seq: seq}, ok
		})
	}
	for topics := range slices.Chunk(feeds, sweepChunk) {
		ids := make([]job.ID, len(topics))
		for i, t := range topics {
			ids[i] = t.client
		}
		latest, err := h.store.LatestPositions(ctx, ids)
		if err != nil {
			return err
		}
		h.compare(topics, func(t *topic) (job.Position, bool) { return latest[t.client], true })
	}
	return nil
}

// watched lists what is watched: jobs, and all of a client's.
func (h *Hub) watched() (jobs, feeds []*topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, topics := range h.clients {
		for id, t := range topics {
			if id.IsZero() {
				feeds = append(feeds, t)
			} else {
				jobs = append(jobs, t)
			}
		}
	}
	return jobs, feeds
}

// compare notifies the watchers of topics that have come further than was seen,
// or that are gone.
func (h *Hub) compare(topics []*topic, latest func(*topic) (p job.Position, there bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range topics {
		p, there := latest(t)
		missed := !there || t.seen.Before(p)
		if there && (missed || t.seen == unread) {
			t.seen = p
		}
		if missed {
			h.notify(t, job.Notification{ClientID: t.client, JobID: t.job}, app.NotifiedBySweep)
		}
	}
}
