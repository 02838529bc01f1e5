// Package delivery has the use cases of webhooks (API contract, section 8), and the delivery worker. The worker handles one task per
// delivery: it claims the delivery, sends it, and records the result. A Notifier creates the tasks of new deliveries. A Relay replaces lost
// tasks.
package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/internal/fair"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// Sender sends a delivery once and returns the result. It stops when ctx ends.
type Sender interface {
	Send(ctx context.Context, p job.ClaimedDelivery) job.Sent
}

// WorkerConfig has the settings of a Worker.
type WorkerConfig struct {
	Concurrency int           // simultaneous sends in this process
	Timeout     time.Duration // time limit of an attempt, enforced by the sender
	Policy      job.DeliveryPolicy
	// Rate counts an attempt against the client's rate limit. Above the limit, the Allowance contains the wait until the next attempt.
	// nil means no limit.
	Rate func(ctx context.Context, client job.ID) job.Allowance
	// Storage counts a response against the client's daily storage, in units of job.WeightUnit. nil means no limit.
	Storage func(ctx context.Context, client job.ID, units int) job.Allowance
	Tracer  trace.Tracer // nil: deliveries are not traced
	Clock   *clock.Clock // clock of a test bed; nil: the machine's clock
}

const (
	// One endpoint gets at most 1/endpointShare of the sends of a process.
	endpointShare = 5
	// claimShare is the number of claims per simultaneous send. Claimed deliveries use memory, so the factor is small.
	claimShare = 4
	// A claim lasts for the send's timeout plus holdMargin. In the margin, the worker waits for a send slot and records the result.
	holdMargin = 15 * time.Second
	// A send starts only if its claim still lasts for the timeout plus sendMargin. The context of a send ends sendGrace after the timeout.
	sendMargin = 3 * time.Second
	sendGrace  = time.Second
	// maxSlotWait limits a task's wait for a claim slot. It also limits the wait for a send slot.
	maxSlotWait = 5 * time.Second
	// maxNap is the longest wait for a delivery that is not due yet. asynq stores whole seconds, so a task may start up to a second
	// early.
	maxNap   = 1100 * time.Millisecond
	cutGrace = 5 * time.Second
)

// HandlersOf returns how many tasks a process handles at once. Most of them only wait.
func HandlersOf(concurrency int) int { return max(concurrency, min(64*max(1, concurrency), 4096)) }

// Worker handles the tasks of deliveries (API contract, section 8). Its limits keep a hanging endpoint from delaying other endpoints.
// Storage decides which deliveries are due. A fencing token protects each claim. The claims of a dead process expire.
type Worker struct {
	cfg     WorkerConfig
	store   *repo.Store
	sender  Sender
	queue   app.Queue
	metrics *app.Metrics
	log     *slog.Logger

	hold       time.Duration
	admission  *admission
	claimSlots *fair.Semaphore[job.ID]
	sends      *slots

	open    context.Context // canceled by Stop; then no claim or send starts
	quit    context.CancelFunc
	sending context.Context
	cut     context.CancelFunc
	storing context.Context
	abandon context.CancelFunc

	mu      sync.Mutex     // guards running.Add: it must not run concurrently with running.Wait
	running sync.WaitGroup // running tasks
}

// NewWorker returns a delivery worker. Call Handle for each task.
func NewWorker(cfg WorkerConfig, store *repo.Store, sender Sender, queue app.Queue, m *app.Metrics, log *slog.Logger) *Worker {
	cfg.Concurrency = max(1, cfg.Concurrency)
	share := max(1, cfg.Concurrency/endpointShare)
	w := &Worker{
		cfg: cfg, store: store, sender: sender, queue: queue, metrics: m, log: log, hold: cfg.Timeout + holdMargin,
		admission:  newAdmission(HandlersOf(cfg.Concurrency), share, m.Endpoints),
		claimSlots: fair.New[job.ID](claimShare * cfg.Concurrency), sends: newSlots(cfg.Concurrency, share),
	}
	w.open, w.quit = context.WithCancel(context.Background())
	w.sending, w.cut = context.WithCancel(context.Background())
	w.storing, w.abandon = context.WithCancel(context.Background())
	return w
}

func (w *Worker) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open.Err() != nil {
		return false
	}
	w.running.Add(1)
	return true
}

// Stop prevents new claims, waits for sends until ctx ends, and then interrupts them.
func (w *Worker) Stop(ctx context.Context) {
	w.mu.Lock()
	w.quit()
	w.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		w.running.Wait()
		close(ended)
	}()
	defer w.abandon()
	defer w.cut()
	select {
	case <-ended:
		return
	case <-ctx.Done():
		w.cut()
	}
	select {
	case <-ended:
	case <-time.After(cutGrace):
		w.log.WarnContext(ctx, "stopping before all deliveries have ended; they can be sent again after their claims expire", "action", "deliver")
	}
}
