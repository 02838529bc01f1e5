// Package delivery holds the use cases of webhooks (section 8), and the delivery worker: it handles a task for each delivery, which
// claims it, sends it, and records the result. A feeder makes the tasks of new deliveries, and a relay those that were lost.
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
)

// WorkerStore is what delivering needs of storage.
type WorkerStore interface {
	// ClaimDelivery returns nil and how long to wait for a delivery that cannot be claimed yet, and no wait if it never can.
	ClaimDelivery(ctx context.Context, id job.ID, hold time.Duration) (*job.ClaimedDelivery, time.Duration, error)
	RecordDelivery(ctx context.Context, r job.DeliveryResult) (job.Recorded, error)
	ReleaseDelivery(ctx context.Context, id job.ID, fence int) error
}

// Sender sends a delivery once and reports the result. It stops when ctx ends.
type Sender interface {
	Send(ctx context.Context, p job.ClaimedDelivery) job.Sent
}

// Rate limits how many attempts to deliver a client has per minute. It never fails.
type Rate interface {
	// Allow counts an attempt, if the client may have one now; otherwise it says when.
	Allow(ctx context.Context, client job.ID) job.Allowance
}

// Storage counts what a client has stored in a day, in units of job.WeightUnit. It never fails.
type Storage interface {
	AllowUnits(ctx context.Context, client job.ID, units int) job.Allowance
}

// WorkerConfig of a Worker.
type WorkerConfig struct {
	Concurrency int           // sends at once in this process
	Timeout     time.Duration // of one attempt, as the sender keeps it
	Policy      job.DeliveryPolicy
	Rate        Rate         // of clients; nil: there is no limit
	Storage     Storage      // for answers of receivers; nil: there is no limit
	Tracer      trace.Tracer // nil: deliveries are not traced
	Clock       *clock.Clock // of a test bed; nil: the machine's
}

const (
	// endpointShare is the part of the process' sends that one endpoint may take.
	endpointShare = 5
	// claimShare bounds the claimed deliveries, as a multiple of the sends: their data is in memory.
	claimShare = 4
	// holdMargin is how much longer than the time limit of a send a claim lasts: the delivery may wait, be sent late, and be recorded.
	holdMargin = 15 * time.Second
	// sendMargin is what must be left of a claim after a send that takes the whole time limit, to record it. sendGrace of it is the
	// sender's, who keeps the limit itself.
	sendMargin = 3 * time.Second
	sendGrace  = time.Second
	// maxSlotWait is how long a task waits to claim its delivery, and then to send it.
	maxSlotWait = 5 * time.Second
	// maxNap is how long a task waits for its delivery to be due. asynq keeps whole seconds, so it brings tasks up to a second early.
	maxNap = 1100 * time.Millisecond
	// cutGrace is how long Stop waits for what it has cut.
	cutGrace = 5 * time.Second
)

// HandlersOf returns how many tasks a process handles at once that may send so many deliveries at once. Most of them wait.
func HandlersOf(concurrency int) int { return max(concurrency, min(64*max(1, concurrency), 4096)) }

// Worker handles the tasks of deliveries (section 8): it claims the delivery, sends it, and records the result. An endpoint takes its
// share of the sends at most, and clients share them fairly: those that hang do not delay the others. Storage knows what is due, and
// guards each claim by a fence; what a worker forgets with its process is released there when the claim has ended.
type Worker struct {
	cfg     WorkerConfig
	store   WorkerStore
	sender  Sender
	queue   app.Queue
	metrics *app.Metrics
	log     *slog.Logger

	hold       time.Duration // of a claim
	admission  *admission
	claimSlots *fair.Semaphore[job.ID]
	sends      *slots

	open    context.Context // until Stop: nothing more is claimed then, and no send begins
	quit    context.CancelFunc
	sending context.Context // of sends; cut ends it
	cut     context.CancelFunc
	storing context.Context // of statements
	abandon context.CancelFunc

	mu      sync.Mutex
	running sync.WaitGroup // tasks; mu guards what is added
}

// NewWorker makes a delivery worker; Handle gives it work.
func NewWorker(cfg WorkerConfig, store WorkerStore, sender Sender, queue app.Queue, m *app.Metrics, log *slog.Logger) *Worker {
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

// Handle sends a delivery if it is due, and returns what its task is to hear: nil if it was delivered, a job.TaskFailed if not, with
// the wait for the next attempt; job.ErrTaskStale if there is nothing to do; a job.TaskEarly if it must come again later. The end of
// the context is no reason to stop: see Stop.
func (w *Worker) Handle(_ context.Context, t job.DeliveryTask) error {
	if !w.begin() {
		return &job.TaskEarly{Wait: minBusy}
	}
	defer w.running.Done()
	e, busy := w.admission.enter(t)
	if busy > 0 {
		return &job.TaskEarly{Wait: busy}
	}
	began, took := time.Now(), time.Duration(0)
	defer func() { w.admission.leave(e, took) }()
	h, err := w.claim(e, t)
	if err != nil {
		return err
	}
	defer w.claimSlots.Release(t.ClientID)
	sent, span, err := w.attempt(h)
	if err != nil {
		w.release(h)
		return err
	}
	defer span.End()
	switch sent.Attempt.Error {
	case "":
		w.learn(e, answering)
	case job.SendInternal: // it says nothing about the endpoint
	default:
		w.learn(e, failing)
	}
	err = w.record(trace.ContextWithSpan(w.storing, span), h, sent)
	took = time.Since(began)
	return err
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

// held is a claimed delivery. Its claim lasts until then by this process' clock, counted from before it was asked for.
type held struct {
	job.ClaimedDelivery
	at    *endpointTasks
	until time.Time
}

// claim claims the delivery of a task, and waits for it if it is due within a moment. With the delivery it takes a claim slot.
func (w *Worker) claim(e *endpointTasks, t job.DeliveryTask) (held, error) {
	waiting, cancel := context.WithTimeout(w.open, maxSlotWait)
	defer cancel()
	for {
		if !w.claimSlots.Acquire(t.ClientID, waiting.Done()) {
			return held{}, w.gaveUp(e)
		}
		asked := time.Now()
		d, wait, err := w.store.ClaimDelivery(w.storing, t.ID, w.hold)
		if d != nil && err == nil {
			if d.Target.Failures > 0 {
				w.learn(e, failing)
			}
			return held{*d, e, asked.Add(w.hold)}, nil
		}
		w.claimSlots.Release(t.ClientID)
		switch {
		case err != nil:
			w.log.WarnContext(w.storing, "cannot claim a delivery", "action", "deliver", "client_id", t.ClientID.String(),
				"delivery_id", t.ID.String(), app.ErrorFields(err))
			return held{}, err
		case wait == 0:
			return held{}, job.ErrTaskStale
		}
		if wait = w.cfg.Clock.Wait(wait); wait > maxNap || !app.Sleep(w.open, wait) {
			return held{}, &job.TaskEarly{Wait: wait}
		}
	}
}

// Stop ends the worker: nothing more is claimed, what is being sent is waited for until ctx ends and cut off then, and claims that were
// not used are given back. It may be called again, and waits then as well.
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
		w.log.WarnContext(ctx, "deliveries are left to the end of their claims", "action", "deliver")
	}
}
