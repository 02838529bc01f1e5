package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

// ClaimStore is what executing a job needs of storage.
type ClaimStore interface {
	Claim(ctx context.Context, worker, id job.ID, attempt int) (*job.Claim, job.NotClaimed, error)
	Start(ctx context.Context, l job.Lease) (time.Time, error)
	Finish(ctx context.Context, f job.Finish) (job.Finished, error)
	Release(ctx context.Context, leases []job.Lease, waits []time.Duration) ([]job.Task, error)
	Redispatch(ctx context.Context, tasks []job.Task) ([]job.Task, error)
}

// LeaseStore keeps a worker's lease.
type LeaseStore interface {
	Register(ctx context.Context, worker job.ID, name string, concurrency int, lease time.Duration) error
	Renew(ctx context.Context, worker job.ID, lease time.Duration) ([]job.Held, error)
	Retire(ctx context.Context, worker job.ID) error
}

// Runner does the work of a job.
type Runner interface {
	Run(ctx context.Context, d job.Definition, attempt int, progress func(job.Progress)) (*job.Result, error)
}

// WorkerConfig of a Worker.
type WorkerConfig struct {
	Name        string        // shown in the workers table
	Concurrency int           // jobs at once
	Lease       time.Duration // without a heartbeat for this long, the worker counts as dead
	Heartbeat   time.Duration
	Limit       time.Duration // execution limit
	Backoff     job.Backoff
	Clock       Clock // time.Now if nil
}

// Why a running job is stopped.
var (
	errTimeLimit = errors.New("the execution limit is over")
	errCanceled  = errors.New("the job was canceled")
	errLeaseLost = errors.New("the lease was lost")
	errShutdown  = errors.New("the worker shuts down")
)

// errBusy makes the queue offer a task again later.
var errBusy = errors.New("the worker takes no jobs at the moment")

// Worker executes jobs under one lease. Only the lease, the execution limit, a
// cancel and shutdown stop the work; the queue's opinion does not.
type Worker struct {
	cfg     WorkerConfig
	store   ClaimStore
	leases  LeaseStore
	queue   Queue
	runner  Runner
	rescuer *rescuer
	metrics *Metrics
	log     *slog.Logger

	slots chan struct{}

	mu       sync.Mutex
	id       job.ID // current identity; zero while there is no valid lease
	draining bool
	holding  map[job.ID]*holding
	idle     sync.Cond // signalled when holding shrinks

	suspects map[job.Lease]bool // held by storage's account only, at the last beat
}

// holding is a job that this worker claimed and has not ended yet.
type holding struct {
	lease job.Lease
	lose  context.CancelCauseFunc // the claim is gone: nothing more may be written
	stop  context.CancelCauseFunc // the work must end; its outcome is still written
	since time.Time
}

// NewWorker makes a worker; Run gives it a lease.
func NewWorker(cfg WorkerConfig, store ClaimStore, leases LeaseStore, queue Queue, runner Runner, m *Metrics, log *slog.Logger) *Worker {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	w := &Worker{
		cfg: cfg, store: store, leases: leases, queue: queue, runner: runner, metrics: m, log: log,
		rescuer: &rescuer{store: store, queue: queue, backoff: cfg.Backoff, metrics: m, log: log},
		slots:   make(chan struct{}, cfg.Concurrency), holding: map[job.ID]*holding{},
	}
	w.idle.L = &w.mu
	return w
}

// Alive reports whether the worker has a valid lease.
func (w *Worker) Alive() bool { return !w.identity().IsZero() }

func (w *Worker) identity() job.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining {
		return job.ID{}
	}
	return w.id
}

// Run keeps the lease until ctx ends: it registers, beats, and when the lease
// is lost stops everything and registers under a new id. When ctx ends, the
// lease is given up; Drain must have come before.
func (w *Worker) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if !w.register(ctx) {
			if !sleep(ctx, w.pause()) {
				return
			}
			continue
		}
		w.beat(ctx)
	}
}

// pause is the wait after a failed attempt to reach storage.
func (w *Worker) pause() time.Duration { return w.cfg.Heartbeat / 5 }

func (w *Worker) register(ctx context.Context) bool {
	id := newID()
	if err := w.leases.Register(ctx, id, w.cfg.Name, w.cfg.Concurrency, w.cfg.Lease); err != nil {
		if ctx.Err() == nil {
			w.log.Warn("cannot register the worker", "error", err)
		}
		return false
	}
	w.mu.Lock()
	w.id, w.suspects = id, nil
	w.mu.Unlock()
	w.log.Info("worker registered", "worker_id", id.String(), "concurrency", w.cfg.Concurrency)
	return true
}

// beat renews the lease until it is lost or ctx ends. The lease is counted
// from before each request, so this side always gives up before storage does:
// one that cannot renew stops its work in time.
func (w *Worker) beat(ctx context.Context) {
	w.mu.Lock()
	id := w.id
	w.mu.Unlock()
	margin := w.cfg.Lease / 10
	until := time.Now().Add(w.cfg.Lease - margin)
	wait := w.cfg.Heartbeat
	for sleep(ctx, min(wait, time.Until(until))) {
		asked := time.Now()
		renewing, cancel := context.WithDeadline(ctx, until)
		held, err := w.leases.Renew(renewing, id, w.cfg.Lease)
		cancel()
		switch {
		case err == nil:
			until, wait = asked.Add(w.cfg.Lease-margin), w.cfg.Heartbeat
			w.reconcile(ctx, held, asked)
		case ctx.Err() != nil:
		case errors.Is(err, job.ErrWorkerDead) || !time.Now().Before(until):
			w.lose(err)
			return
		default:
			w.log.Warn("heartbeat failed", "worker_id", id.String(), "error", err)
			wait = w.pause()
		}
	}
	retiring, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.Heartbeat)
	defer cancel()
	if err := w.leases.Retire(retiring, id); err != nil {
		w.log.Warn("cannot retire the worker; its lease will run out", "error", err)
	}
}

// lose stops everything after the lease ended.
func (w *Worker) lose(err error) {
	w.log.Error("the worker lost its lease and stops its jobs", "error", err)
	w.metrics.leasesLost.Inc()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.id = job.ID{}
	for _, h := range w.holding {
		h.lose(errLeaseLost)
	}
}

// reconcile compares what storage says this worker holds with what it does
// hold. Jobs that are no longer its own are stopped. Jobs that it does not
// know of, on two beats, come from a claim whose answer was lost: they are
// given back.
func (w *Worker) reconcile(ctx context.Context, held []job.Held, asked time.Time) {
	mine := make(map[job.Lease]job.Held, len(held))
	for _, h := range held {
		mine[h.Lease] = h
	}
	suspects := map[job.Lease]bool{}
	var lost []job.Held
	w.mu.Lock()
	for _, h := range w.holding {
		if _, ok := mine[h.lease]; !ok && h.since.Before(asked) {
			h.lose(errLeaseLost)
		}
		delete(mine, h.lease)
	}
	for lease, h := range mine {
		if w.suspects[lease] {
			lost = append(lost, h)
		} else {
			suspects[lease] = true
		}
	}
	w.suspects = suspects
	w.mu.Unlock()
	if len(lost) > 0 {
		w.log.Warn("giving back jobs whose claim was never answered", "jobs", len(lost))
		w.rescuer.giveBack(ctx, lost)
	}
}

// Canceled stops a job of this worker, if it holds it: its cancel is already
// committed.
func (w *Worker) Canceled(id job.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.holding[id]; h != nil {
		h.lose(errCanceled)
	}
}

// Drain stops claiming and waits for the running jobs until ctx ends; those
// that are left are failed, retryable, and waited for. Heartbeats go on
// meanwhile: Run must still be running.
func (w *Worker) Drain(ctx context.Context) {
	over := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, h := range w.holding {
			h.stop(errShutdown)
		}
	})
	defer over()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draining = true
	for len(w.holding) > 0 {
		w.idle.Wait()
	}
}

// hold notes a claimed job; drop forgets it.
func (w *Worker) hold(lease job.Lease, lose, stop context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding[lease.JobID] = &holding{lease: lease, lose: lose, stop: stop, since: time.Now()}
	w.metrics.slotsUsed.Set(float64(len(w.holding)))
}

func (w *Worker) drop(lease job.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.holding[lease.JobID]; h != nil && h.lease == lease {
		delete(w.holding, lease.JobID)
	}
	w.metrics.slotsUsed.Set(float64(len(w.holding)))
	w.idle.Broadcast()
}
