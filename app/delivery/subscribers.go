package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// subscribersInterval is how often the subscribers are read. If a read missed a new webhook, the relay creates the tasks of its deliveries
// about a second later.
const subscribersInterval = time.Second

// Subscribers has the enabled webhooks of each client, up to about a second old.
type Subscribers struct {
	store *repo.Store
	log   *slog.Logger

	mu    sync.RWMutex
	known subscriptions
	added []job.EndpointKey // webhooks added since the current read began; the read may have missed them
}

type subscriptions map[job.ID]map[job.ID]struct{}

func (s subscriptions) add(at job.EndpointKey) {
	if s[at.Client] == nil {
		s[at.Client] = map[job.ID]struct{}{}
	}
	s[at.Client][at.Endpoint] = struct{}{}
}

// NewSubscribers returns an empty set; Run fills it.
func NewSubscribers(store *repo.Store, log *slog.Logger) *Subscribers {
	return &Subscribers{store: store, log: log, known: subscriptions{}}
}

// Webhooks returns the number of a client's enabled webhooks.
func (s *Subscribers) Webhooks(client job.ID) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.known[client])
}

// Add adds a client's enabled webhook.
func (s *Subscribers) Add(at job.EndpointKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.add(at)
	s.added = append(s.added, at)
}

// Run reads the enabled webhooks every second until ctx ends. While storage fails, the set does not change.
func (s *Subscribers) Run(ctx context.Context) {
	const failed = "cannot read the webhooks of clients; the leader creates the deliveries later"
	app.Repeat(ctx, subscribersInterval, s.log, failed, "deliver", s.read)
}

func (s *Subscribers) read(ctx context.Context) error {
	s.mu.Lock()
	s.added = nil
	s.mu.Unlock()
	enabled, err := s.store.Subscribers(ctx)
	if err != nil {
		return err
	}
	s.replace(enabled)
	return nil
}

func (s *Subscribers) replace(enabled []job.EndpointKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = subscriptions{}
	for _, at := range append(enabled, s.added...) {
		s.known.add(at)
	}
}
