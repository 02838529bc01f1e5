package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// SubscriberStore lists the clients that have enabled webhooks, once for each of these.
type SubscriberStore interface {
	Subscribers(ctx context.Context) ([]job.ID, error)
}

// subscribersInterval is how often the subscribers are read again. What is
// missed in between, the relay finds in about the same time.
const subscribersInterval = time.Second

// Subscribers knows how many enabled webhooks each client has, as of a moment ago:
// clients without one have nothing to deliver, and what a submission costs depends on it.
type Subscribers struct {
	store SubscriberStore
	log   *slog.Logger

	mu    sync.RWMutex
	known map[job.ID]int
	added map[job.ID]int // since the reading under way began: it may not have seen them
}

// NewSubscribers makes an empty set; Run fills it.
func NewSubscribers(store SubscriberStore, log *slog.Logger) *Subscribers {
	return &Subscribers{store: store, log: log, known: map[job.ID]int{}, added: map[job.ID]int{}}
}

// Has reports whether a client is known to have an enabled webhook.
func (s *Subscribers) Has(client job.ID) bool { return s.Webhooks(client) > 0 }

// Webhooks returns how many enabled webhooks a client is known to have.
func (s *Subscribers) Webhooks(client job.ID) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.known[client]
}

// Add says that a client has one more enabled webhook now.
func (s *Subscribers) Add(client job.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[client]++
	s.added[client]++
}

// Run keeps the set current until ctx ends. While storage fails it stays as it
// was: to look for deliveries that are not there costs little.
func (s *Subscribers) Run(ctx context.Context) {
	app.Repeat(ctx, subscribersInterval, s.log, "cannot read who has webhooks; the relay finds what has to be delivered", "deliver", s.read)
}

func (s *Subscribers) read(ctx context.Context) error {
	s.mu.Lock()
	s.added = map[job.ID]int{}
	s.mu.Unlock()
	clients, err := s.store.Subscribers(ctx)
	if err != nil {
		return err
	}
	known := make(map[job.ID]int, len(clients))
	for _, id := range clients {
		known[id]++
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.added { // they may be counted twice until the next reading
		known[id] += n
	}
	s.known = known
	return nil
}
