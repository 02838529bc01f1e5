// Package worker claims and runs jobs under a lease. It stores a job's outcome only while the worker has the lease.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
)

// Store is the part of repo.Store that a worker needs.
type Store interface {
	Claim(ctx context.Context, worker, id job.ID, attempt int) (*job.Claim, job.NotClaimed, error)
	Start(ctx context.Context, c job.ClaimID) (time.Time, error)
	// Emit stores an event. `before` is the number of events that the attempt has already emitted.
	Emit(ctx context.Context, c job.ClaimID, before int, e job.Emission) error
	Finish(ctx context.Context, f job.Finish) (job.Finished, error)

	Register(ctx context.Context, worker job.ID, name string, concurrency int, lease time.Duration) error
	// Renew extends the lease and returns the worker's claims in storage.
	// Held returns details of the given claims that the worker still has.
	Renew(ctx context.Context, worker job.ID, lease time.Duration) ([]job.ClaimID, error)
	Held(ctx context.Context, worker job.ID, claims []job.ClaimID) ([]job.Held, error)
	Retire(ctx context.Context, worker job.ID) error
}

// Runner does the work of a job.
type Runner interface {
	// Run does the work, and reports progress and events to the observer `on`.
	Run(ctx context.Context, d job.Definition, attempt int, on job.Observer) (*job.Result, error)
	// Probe checks whether this machine can run the kind again. It is called after an attempt failed with job.ErrExhausted.
	Probe(ctx context.Context, k job.Kind) error
}

// Config has the settings of a Worker.
type Config struct {
	Name        string        // shown in the workers table
	Concurrency int           // simultaneous jobs
	Lease       time.Duration // without a heartbeat for this long, the worker counts as dead
	Heartbeat   time.Duration
	Limit       time.Duration // execution limit
	Clock       *clock.Clock  // the test bed's clock, which times the jobs' work; nil: the machine's clock
	Backoff     job.Backoff
}

// Deps are the dependencies of a Worker.
type Deps struct {
	Store     Store
	Queue     app.Queue
	Completer *batches.Completer
	// GiveBack requeues or fails jobs that are assigned to this worker in storage, but do not run in this process.
	GiveBack func(ctx context.Context, held []job.Held) error
	Runner   Runner
	Metrics  *app.Metrics
	Log      *slog.Logger
}

var (
	errTimeLimit = errors.New("the execution limit has passed")
	errCanceled  = errors.New("the job was canceled")
	errLeaseLost = errors.New("the lease was lost")
	errShutdown  = errors.New("the worker shuts down")
)

var errBusy = errors.New("the worker takes no jobs at the moment")

// Worker executes jobs under a lease. Only a lost lease, the execution limit, a cancel or a shutdown stops the work. The end of Handle's
// context does not stop it.
type Worker struct {
	cfg Config
	Deps

	slots   chan struct{}
	trigger chan struct{}

	mu       sync.Mutex
	id       job.ID   // current id; zero without a valid lease
	ids      []job.ID // ids of the latest leases; at most maxIdentities
	draining bool
	over     bool             // Drain's grace period has ended
	busy     map[attempt]bool // attempts that a call of Handle is claiming or running
	holding  map[job.ClaimID]*holding
	changed  chan struct{} // closed and replaced by signalChange
	refused  map[job.Kind]bool

	suspects map[job.ClaimID]bool // claims that the latest Renew returned, but this worker does not run; only Run uses this field
}

type attempt struct {
	id     job.ID
	number int
}

type holding struct {
	lose  context.CancelCauseFunc // stops the work, without storing an outcome: the lease has ended
	stop  context.CancelCauseFunc // stops the work; its outcome is stored unless the cause is errCanceled or errLeaseLost
	since time.Time
}

// New returns a worker without a lease. Run registers it.
func New(cfg Config, d Deps) *Worker {
	d.Metrics.Slots.Set(float64(cfg.Concurrency))
	return &Worker{
		cfg: cfg, Deps: d, slots: make(chan struct{}, cfg.Concurrency), trigger: make(chan struct{}, 1),
		busy: map[attempt]bool{}, holding: map[job.ClaimID]*holding{}, changed: make(chan struct{}), refused: map[job.Kind]bool{},
	}
}

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

// signalChange wakes all waiters. The caller holds w.mu.
func (w *Worker) signalChange() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// enter records an attempt in `busy`. It is called before the claim, so that Drain also waits for the claim. It returns false if the
// attempt is busy already, because its task was delivered twice. Without this check, storage would confirm the second claim, too, and the
// attempt would run twice.
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

// Canceled stops a job if this worker runs it. The caller has already stored the cancel.
func (w *Worker) Canceled(id job.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for lease, h := range w.holding {
		if lease.JobID == id {
			h.stop(errCanceled)
		}
	}
}

// hold registers a claimed job. It returns false if the lease has ended; another process then requeues or fails the job. After Drain's
// grace period, hold stops the job immediately.
func (w *Worker) hold(worker job.ID, claim job.ClaimID, lose, stop context.CancelCauseFunc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.id != worker {
		return false
	}
	w.holding[claim] = &holding{lose: lose, stop: stop, since: time.Now()}
	w.Metrics.SlotsUsed.Set(float64(len(w.holding)))
	if w.over {
		stop(errShutdown)
	}
	return true
}

func (w *Worker) drop(claim job.ClaimID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.holding, claim)
	w.Metrics.SlotsUsed.Set(float64(len(w.holding)))
}
