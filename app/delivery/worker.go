// Package delivery has the use cases of webhooks (section 8), and the delivery worker. The worker handles one task per delivery: it
// claims the delivery, sends it, and records the result. A notifier creates the tasks of new deliveries, and a relay replaces lost ones.
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
	// Rate counts an attempt against the client's rate limit. If the limit is reached, it returns when the next attempt is allowed. nil
	// means no limit.
	Rate func(ctx context.Context, client job.ID) job.Allowance
	// Storage counts a response against the client's daily storage, in units of job.WeightUnit. nil means no limit.
	Storage func(ctx context.Context, client job.ID, units int) job.Allowance
	Tracer  trace.Tracer // nil: deliveries are not traced
	Clock   *clock.Clock // clock of a test bed; nil: the machine's clock
}

const (
	// endpointShare limits one endpoint to 1/endpointShare of the process' sends.
	endpointShare = 5
	// claimShare is the number of claims per simultaneous send. It is small, because claimed deliveries are in memory.
	claimShare = 4
	// holdMargin is how much longer a claim lasts than the timeout of a send. It covers the wait for a slot and the recording of the result.
	holdMargin = 15 * time.Second
	// sendMargin is the part of a claim that is reserved for recording after a send with the full timeout. It includes sendGrace. If the
	// sender ignores its timeout, its context ends sendGrace later.
	sendMargin = 3 * time.Second
	sendGrace  = time.Second
	// maxSlotWait limits how long a task waits for a claim slot, and then for a send slot.
	maxSlotWait = 5 * time.Second
	// maxNap limits how long a task waits for its delivery to be due. asynq stores whole seconds, so it hands out tasks up to a second
	// early.
	maxNap   = 1100 * time.Millisecond
	cutGrace = 5 * time.Second
)

// HandlersOf returns how many tasks a process handles at once: more than the simultaneous sends, because most tasks wait.
func HandlersOf(concurrency int) int { return max(concurrency, min(64*max(1, concurrency), 4096)) }

// Worker handles the tasks of deliveries (section 8). Limits for endpoints and for clients ensure that hanging endpoints do not delay
// others. Storage decides which deliveries are due, and a fencing token protects each claim. The claims of a dead process expire.
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

	open    context.Context // ended by Stop: no new claims or sends
	quit    context.CancelFunc
	sending context.Context
	cut     context.CancelFunc
	storing context.Context
	abandon context.CancelFunc

	mu      sync.Mutex     // guards additions to `running`
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

// Stop stops the worker: it stops claiming, waits for sends until ctx ends, then interrupts them, and releases unused claims. A second
// call waits as well.
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
