// Package worker executes jobs under a lease: it claims, runs, and writes the
// outcome, guarded by the claim's fence.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/rescue"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
)

// ClaimStore is what executing a job needs of storage.
type ClaimStore interface {
	Claim(ctx context.Context, worker, id job.ID, attempt int) (*job.Claim, job.NotClaimed, error)
	Start(ctx context.Context, c job.ClaimID) (time.Time, error)
	// Emit adds an event of the attempt's own, which has emitted so many before.
	Emit(ctx context.Context, c job.ClaimID, before int, e job.Emission) error
	Finish(ctx context.Context, f job.Finish) (job.Finished, error)
	Release(ctx context.Context, claims []job.ClaimID, waits []time.Duration) ([]job.Task, error)
}

// LeaseStore keeps a worker's lease.
type LeaseStore interface {
	Register(ctx context.Context, worker job.ID, name string, concurrency int, lease time.Duration) error
	// Renew answers with what storage says the worker holds, and Held with more
	// about some of it.
	Renew(ctx context.Context, worker job.ID, lease time.Duration) ([]job.ClaimID, error)
	Held(ctx context.Context, worker job.ID, claims []job.ClaimID) ([]job.Held, error)
	Retire(ctx context.Context, worker job.ID) error
}

// Runner does the work of a job.
type Runner interface {
	// Run tells on how the work goes on.
	Run(ctx context.Context, d job.Definition, attempt int, on job.Observer) (*job.Result, error)
	// Probe tries whether work of the kind can be run here, after an attempt failed with job.ErrExhausted.
	Probe(ctx context.Context, k job.Kind) error
}

// Config of a Worker.
type Config struct {
	Name        string        // shown in the workers table
	Concurrency int           // jobs at once
	Lease       time.Duration // without a heartbeat for this long, the worker counts as dead
	Heartbeat   time.Duration
	Limit       time.Duration // execution limit
	Clock       *clock.Clock  // of a test bed, by which jobs take their time; nil: the machine's
	Backoff     job.Backoff
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
	cfg       Config
	store     ClaimStore
	leases    LeaseStore
	queue     app.Queue
	runner    Runner
	completer *batches.Completer
	rescuer   *rescue.Rescuer
	metrics   *app.Metrics
	log       *slog.Logger

	slots   chan struct{}
	trigger chan struct{} // asks for a heartbeat at once

	mu       sync.Mutex
	id       job.ID           // current identity; zero while there is no valid lease
	ids      []job.ID         // those of the latest leases, maxIdentities at most
	draining bool             // nothing is claimed any more
	over     bool             // the grace of Drain has ended
	busy     map[attempt]bool // calls of Handle that claim or hold a job
	holding  map[job.ClaimID]*holding
	changed  chan struct{} // closed when the lease changes, draining begins, or the last busy call ends meanwhile
	refused  map[job.Kind]bool

	suspects map[job.ClaimID]bool // held by storage's account only, at the last beat; Run's own
}

// attempt is what a task names.
type attempt struct {
	id     job.ID
	number int
}

// holding is a job that this worker claimed and has not ended yet.
type holding struct {
	lose  context.CancelCauseFunc // the lease is gone: nothing more may be written
	stop  context.CancelCauseFunc // the work must end; the cause says whether its outcome is written
	since time.Time
}

// New makes a worker; Run gives it a lease.
func New(cfg Config, store ClaimStore, leases LeaseStore, queue app.Queue, completer *batches.Completer, runner Runner, m *app.Metrics,
	log *slog.Logger) *Worker {
	m.Slots.Set(float64(cfg.Concurrency))
	return &Worker{
		cfg: cfg, store: store, leases: leases, queue: queue, completer: completer, runner: runner, metrics: m, log: log,
		rescuer: &rescue.Rescuer{Store: store, Queue: queue, Completer: completer, Backoff: cfg.Backoff, Metrics: m, Log: log},
		slots:   make(chan struct{}, cfg.Concurrency), trigger: make(chan struct{}, 1),
		busy: map[attempt]bool{}, holding: map[job.ClaimID]*holding{}, changed: make(chan struct{}),
		refused: map[job.Kind]bool{},
	}
}

// Alive reports whether the worker has a valid lease and takes jobs.
func (w *Worker) Alive() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.draining && !w.id.IsZero()
}

// identity waits for a lease and gives the id that goes with it.
func (w *Worker) identity(ctx context.Context) (job.ID, error) {
	for {
		w.mu.Lock()
		id, draining, changed := w.id, w.draining, w.changed
		w.mu.Unlock()
		switch {
		case draining:
			return job.ID{}, errBusy
		case !id.IsZero():
			return id, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return job.ID{}, ctx.Err()
		}
	}
}

// signalChange wakes all that wait for a change; the caller holds the lock.
func (w *Worker) signalChange() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// enter notes that a call of Handle is about an attempt, until leave. A claim
// whose answer is on its way is noted too, so Drain waits for what will come of
// it. It refuses a second call: storage answers a claim again to the worker
// that has it.
func (w *Worker) enter(a attempt) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[a] {
		return false
	}
	w.busy[a] = true
	return true
}

func (w *Worker) leave(a attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, a)
	if w.draining && len(w.busy) == 0 {
		w.signalChange()
	}
}

// Canceled stops a job of this worker, if it holds it: its cancel is already
// committed.
func (w *Worker) Canceled(id job.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for lease, h := range w.holding {
		if lease.JobID == id {
			h.stop(errCanceled)
		}
	}
}

// Drain stops claiming and waits for the running jobs until ctx ends; those
// that are left are failed, retryable, and waited for. A claimed job that has not
// started by then is given back. One whose failure cannot be written within
// another lease is left to the rescuer. Heartbeats go on
// meanwhile: Run must still be running. A second call waits as well.
func (w *Worker) Drain(ctx context.Context) {
	w.refuse(ctx)
	grace := ctx.Done()
	var bound <-chan time.Time
	for {
		w.mu.Lock()
		id, busy, changed := w.id, len(w.busy), w.changed
		w.mu.Unlock()
		if busy == 0 {
			return
		}
		select {
		case <-changed:
		case <-grace:
			grace, bound = nil, time.After(w.cfg.Lease)
			w.stopAll()
		case <-bound:
			w.log.ErrorContext(ctx, "jobs are left to the rescuer: they cannot be ended", "action", "drain", "jobs", busy)
			w.lose(id, nil)
			return
		}
	}
}

// WaitingMessage is logged when running jobs keep a worker from stopping, with how many they are and the grace that they have.
const WaitingMessage = "waiting for running jobs"

// refuse ends claiming for good.
func (w *Worker) refuse(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining {
		return
	}
	w.draining = true
	w.signalChange()
	if deadline, bounded := ctx.Deadline(); bounded && len(w.busy) > 0 {
		w.log.InfoContext(ctx, WaitingMessage, "action", "drain", "jobs", len(w.busy), "grace_ms", time.Until(deadline).Milliseconds())
	}
}

func (w *Worker) stopAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	for _, h := range w.holding {
		h.stop(errShutdown)
	}
}

// hold notes a claimed job; drop forgets it. It refuses when the lease under
// which the job was claimed has ended since: the job is then the rescuer's. After
// the grace of Drain the job is stopped at once.
func (w *Worker) hold(worker job.ID, claim job.ClaimID, lose, stop context.CancelCauseFunc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.id != worker {
		return false
	}
	w.holding[claim] = &holding{lose: lose, stop: stop, since: time.Now()}
	w.metrics.SlotsUsed.Set(float64(len(w.holding)))
	if w.over {
		stop(errShutdown)
	}
	return true
}

func (w *Worker) drop(claim job.ClaimID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.holding, claim)
	w.metrics.SlotsUsed.Set(float64(len(w.holding)))
}
