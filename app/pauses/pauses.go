// Package pauses has the use cases for pausing and resuming work. Its Watch caches the current pauses. Claims do not use this cache,
// because their SQL reads the pauses itself.
package pauses

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// Service pauses and resumes work for operators; the embedded Store reads the pauses.
type Service struct {
	*repo.Store
	log *slog.Logger
}

// New returns a Service.
func New(store *repo.Store, log *slog.Logger) *Service { return &Service{store, log} }

// Pause stores p. If an equal pause exists, Pause returns it, and `added` is false.
func (s *Service) Pause(ctx context.Context, p job.Pause) (stored job.Pause, added bool, err error) {
	p.ID = app.NewID()
	stored, added, err = s.Store.AddPause(ctx, p)
	if added {
		s.logPause(ctx, "paused", "pause", stored)
	}
	return stored, added, err
}

// Resume ends a pause.
func (s *Service) Resume(ctx context.Context, id job.ID) error {
	p, err := s.Store.RemovePause(ctx, id)
	if err == nil {
		s.logPause(ctx, "resumed", "resume", p)
	}
	return err
}

func (s *Service) logPause(ctx context.Context, message, action string, p job.Pause) {
	s.log.InfoContext(ctx, message, "action", action, "pause_id", p.ID.String(), "scope", string(p.Scope), "target", p.Target,
		"mode", string(p.Mode), "operator", p.Operator, "reason", p.Reason)
}

// watchInterval is the time between two reads of the pauses.
const watchInterval = 500 * time.Millisecond

// Watch reads the pauses periodically. While Postgres is down, it keeps the last pauses. Outdated pauses do no harm then, because no work
// can start without Postgres.
type Watch struct {
	store *repo.Store

	mu    sync.Mutex
	known job.Pauses

	calling   sync.Mutex // locked while followers are called, so that they get the pauses in order
	followers []func(job.Pauses)
}

// NewWatch returns a Watch. Run reads the pauses.
func NewWatch(store *repo.Store) *Watch { return &Watch{store: store} }

// Now returns the pauses of the last read. A nil Watch has none.
func (w *Watch) Now() job.Pauses {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known
}

// Follow calls f immediately, and again after each read of the pauses. A slow f delays the other followers and the next read.
func (w *Watch) Follow(f func(job.Pauses)) {
	w.calling.Lock()
	defer w.calling.Unlock()
	w.followers = append(w.followers, f)
	f(w.Now())
}

// Run reads the pauses until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	for w.read(ctx); app.Sleep(ctx, watchInterval); {
		w.read(ctx)
	}
}

func (w *Watch) read(ctx context.Context) {
	now, err := w.store.Pauses(ctx)
	if err != nil {
		return
	}
	w.mu.Lock()
	w.known = now
	w.mu.Unlock()
	w.calling.Lock()
	defer w.calling.Unlock()
	for _, f := range w.followers {
		f(now)
	}
}
