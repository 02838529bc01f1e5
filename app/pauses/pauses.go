// Package pauses holds the use cases by which operators pause and resume work, and the Watch that tells a process which pauses hold.
// Claims look at storage for themselves; the Watch is for what is asked without a statement.
package pauses

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// Store is what pauses need of storage.
type Store interface {
	AddPause(ctx context.Context, p job.Pause) (stored job.Pause, added bool, err error)
	RemovePause(ctx context.Context, id job.ID) (job.Pause, error)
	Pauses(ctx context.Context) (job.Pauses, error)
}

// Service is the use cases of operators.
type Service struct {
	store Store
	log   *slog.Logger
}

// New makes the use cases.
func New(store Store, log *slog.Logger) *Service { return &Service{store, log} }

// Pause stops what p says. What is stopped already stays as it is; added is false then.
func (s *Service) Pause(ctx context.Context, p job.Pause) (stored job.Pause, added bool, err error) {
	p.ID = app.NewID()
	stored, added, err = s.store.AddPause(ctx, p)
	if added {
		s.say(ctx, "paused", "pause", stored)
	}
	return stored, added, err
}

// Resume ends a pause.
func (s *Service) Resume(ctx context.Context, id job.ID) error {
	p, err := s.store.RemovePause(ctx, id)
	if err == nil {
		s.say(ctx, "resumed", "resume", p)
	}
	return err
}

// Pauses lists all, the oldest first.
func (s *Service) Pauses(ctx context.Context) (job.Pauses, error) { return s.store.Pauses(ctx) }

func (s *Service) say(ctx context.Context, message, action string, p job.Pause) {
	s.log.InfoContext(ctx, message, "action", action, "pause_id", p.ID.String(), "scope", string(p.Scope), "target", p.Target,
		"mode", string(p.Mode), "operator", p.Operator, "reason", p.Reason)
}

// watchInterval bounds how late a process learns of a change.
const watchInterval = 500 * time.Millisecond

// Watch is what a process knows of the pauses. While storage does not answer it is what was known last: without storage nothing
// is started or accepted anyway.
type Watch struct {
	store Store

	mu    sync.Mutex
	known job.Pauses

	telling sync.Mutex // of who calls followers: one after the other, and the latest look last
	follow  []func(job.Pauses)
}

// NewWatch makes a watch; Run keeps it fresh.
func NewWatch(store Store) *Watch { return &Watch{store: store} }

// Now gives the pauses; a nil watch knows none.
func (w *Watch) Now() job.Pauses {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known
}

// Follow calls f with the pauses, now and after each look. Only the next look waits for f.
func (w *Watch) Follow(f func(job.Pauses)) {
	w.telling.Lock()
	defer w.telling.Unlock()
	w.follow = append(w.follow, f)
	f(w.Now())
}

// Run reads the pauses again and again until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	for {
		if now, err := w.store.Pauses(ctx); err == nil {
			w.learn(now)
		}
		if !app.Sleep(ctx, watchInterval) {
			return
		}
	}
}

func (w *Watch) learn(now job.Pauses) {
	w.mu.Lock()
	w.known = now
	w.mu.Unlock()
	w.telling.Lock()
	defer w.telling.Unlock()
	for _, f := range w.follow {
		f(now)
	}
}
