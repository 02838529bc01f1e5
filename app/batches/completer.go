// Package batches completes batches in which all jobs have ended.
package batches

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

const (
	// RestInterval is the pause between two rounds. During the pause, Touch collects batches, so that one statement checks many of them.
	RestInterval = 50 * time.Millisecond
	// ChunkSize is the number of batches per statement.
	ChunkSize = 100
	// RetryInterval is the pause after a failed statement.
	RetryInterval = time.Second
)

// Completer completes batches soon after their last job has ended. After a crash, package maintenance completes them.
type Completer struct {
	store   *repo.Store
	queue   app.Queue
	metrics *app.Metrics
	log     *slog.Logger

	mu      sync.Mutex
	touched map[job.ID]struct{}
	wake    chan struct{} // receives a value when `touched` becomes non-empty
}

// NewCompleter returns a completer. Start it with Run.
func NewCompleter(store *repo.Store, queue app.Queue, m *app.Metrics, log *slog.Logger) *Completer {
	return &Completer{
		store: store, queue: queue, metrics: m, log: log,
		touched: map[job.ID]struct{}{}, wake: make(chan struct{}, 1),
	}
}

// Touch tells Run to check these batches. Call it after a job ends. It does not block and ignores the zero id.
func (s *Completer) Touch(batches ...job.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range batches {
		if !id.IsZero() {
			s.touched[id] = struct{}{}
		}
	}
	if len(s.touched) == 0 {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run completes touched batches until ctx ends. Batches touched within one RestInterval are checked together. If a statement fails, Run
// checks the batches of this statement again after RetryInterval.
func (s *Completer) Run(ctx context.Context) {
	for ; ; app.Sleep(ctx, RestInterval) {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		for batches := range slices.Chunk(s.take(), ChunkSize) {
			if _, err := s.Complete(ctx, batches); err != nil {
				s.Touch(batches...)
				if ctx.Err() == nil {
					s.log.WarnContext(ctx, "cannot complete batches", "action", "complete_batches", "batches", len(batches), app.ErrorFields(err))
				}
				if !app.Sleep(ctx, RetryInterval) {
					return
				}
			}
		}
	}
}

func (s *Completer) take() []job.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer clear(s.touched)
	return slices.Collect(maps.Keys(s.touched))
}

// Complete completes each batch in which all jobs have ended, and returns the number of such batches. Concurrent calls complete and
// announce a batch only once.
func (s *Completer) Complete(ctx context.Context, batches []job.ID) (int, error) {
	completed, err := s.store.CompleteBatches(ctx, batches)
	app.AfterCommit(ctx, func() {
		for i := range completed {
			s.publish(ctx, &completed[i])
		}
	})
	return len(completed), err
}

func (s *Completer) publish(ctx context.Context, b *job.Batch) {
	status := b.Status()
	attrs := []slog.Attr{
		slog.String("action", "batch_completed"), slog.String("request_id", b.RequestID), slog.String("client_id", b.ClientID.String()),
		slog.String("batch_id", b.ID.String()), slog.String("status", string(status)),
	}
	if b.CorrelationID != "" {
		attrs = append(attrs, slog.String("correlation_id", b.CorrelationID))
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "batch completed", attrs...)
	s.metrics.BatchesCompleted.WithLabelValues(string(status)).Inc()
	s.queue.Publish(job.Notification{ClientID: b.ClientID})
}
