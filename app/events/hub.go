// Package events has the use cases of events: it notifies watchers of new events, reads histories, and finds events whose notification
// was lost.
package events

import (
	"log/slog"
	"math"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// Listener receives notifications from other processes, and calls Hub.Received. Its methods must not block. The hub calls them with its
// lock held, so they must not wait for Received or Resumed.
type Listener interface {
	Watch(client job.ID)
	Unwatch(client job.ID)
	Connected() bool // whether the connection for notifications is up
}

// MaxConcurrentReads limits how many watchers read storage at once. After a reconnect all watchers read at once, but other requests need
// connections too.
const MaxConcurrentReads = 4

// Hub tells the watchers in this process about new events. Notifications may be lost on their way to the hub. A regular sweep therefore
// reads the last position of each watched history. It notifies watchers that missed events.
type Hub struct {
	store    *repo.Store
	listener Listener
	metrics  *app.Metrics
	log      *slog.Logger
	reads    *semaphore.Weighted

	mu      sync.Mutex
	clients map[job.ID]map[job.ID]*topic
}

// topic is a watched history. If `job` is zero, the history contains the events of all jobs and batches of the client.
type topic struct {
	client, job job.ID
	watchers    map[*watcher]struct{}
	seen        job.Position // a sweep notifies the watchers only of events after this position
}

// unread is the position of a topic that was not read yet. The position is later than every event, so a sweep sends no notification. A new
// watcher reads storage anyway, so it needs no notification.
var unread = job.Position{Tx: math.MaxUint64}

type watcher struct {
	notifications chan job.Notification // only Hub.notify sends, with Hub.mu locked
	progress      bool
}

// NewHub returns a hub. Its Run method runs the sweeps.
func NewHub(store *repo.Store, listener Listener, m *app.Metrics, log *slog.Logger) *Hub {
	return &Hub{
		store: store, listener: listener, metrics: m, log: log,
		reads: semaphore.NewWeighted(MaxConcurrentReads), clients: map[job.ID]map[job.ID]*topic{},
	}
}

// Watch returns the notifications of a job until `stop` is called. If id is zero, Watch covers all jobs and batches of the client. The
// watcher must read storage after Watch and after each notification. If the watcher has not received a notification yet, the next
// notification is merged into it. So a notification with progress may also announce an event. Watchers of one job get the latest
// progress. Watchers of a client get no progress.
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
		return // the watcher has already left
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

// Resumed notifies all watchers of a client, since they may have missed notifications.
func (h *Hub) Resumed(client job.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.clients[client] {
		h.notify(t, job.Notification{ClientID: client, JobID: t.job}, app.NotifiedByResume)
	}
}

// notify sends a notification to the watchers of a topic, merged with pending ones. It never blocks: it empties the channel before it
// sends, and all senders hold Hub.mu.
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

func merge(pending, n job.Notification) job.Notification {
	if p := pending.Progress; p != nil && (n.Progress == nil || pending.Attempt > n.Attempt ||
		pending.Attempt == n.Attempt && p.Percentage > n.Progress.Percentage) {
		n.Attempt, n.Progress = pending.Attempt, p
	}
	n.Ended = n.Ended || pending.Ended
	return n
}
