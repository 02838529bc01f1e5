package apptest

import (
	"context"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

// ErrStorage is what a fake storage says that cannot be reached.
var ErrStorage = &job.Error{Code: job.CodeStorageUnavailable, Detail: "The database cannot be reached."}

// Store keeps rows of jobs as far as use cases notice: states, attempts, fences, leases. The guards are the SQL's.
type Store struct {
	Mu      sync.Mutex
	Rows    map[job.ID]*Row
	Workers map[job.ID]*workerRow
	Batches map[job.ID]*job.Batch
	latest  map[job.ID]job.Position // by client
	tx      uint64
	hooks   map[string]Hook
	calls   map[string]int

	Refuse func() (not job.NotClaimed) // what a claim is answered with that would come about; the zero one: it does
}

// Row is a job as it is stored.
type Row struct {
	job.Job
	QueuedAt time.Time
	Fence    int64
	Worker   job.ID
	Expiries int
	Dispatch int
	Locked   bool // by another transaction: maintenance skips it
	History  []job.State
	Ends     []job.Finish // that were accepted
	Emitted  []job.Emission
}

type workerRow struct {
	alive   bool
	Expires time.Time
	Retired bool
}

// Hook makes a call fail: before it does anything, or after it has done its
// work, so that the answer is lost. It runs without the lock.
type Hook struct{ Before, After func(context.Context) error }

// NewStore makes an empty store.
func NewStore() *Store {
	return &Store{
		Rows: map[job.ID]*Row{}, Workers: map[job.ID]*workerRow{}, Batches: map[job.ID]*job.Batch{}, latest: map[job.ID]job.Position{},
		hooks: map[string]Hook{}, calls: map[string]int{},
	}
}

// Hook has an operation fail by h.
func (s *Store) Hook(operation string, h Hook) {
	s.Update(func() { s.hooks[operation] = h })
}

// Count says how often an operation was called.
func (s *Store) Count(operation string) int {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.calls[operation]
}

// Call does an operation under the lock, between its hooks.
func Call[T any](ctx context.Context, s *Store, operation string, do func() (T, error)) (T, error) {
	var none T
	s.Mu.Lock()
	s.calls[operation]++
	h := s.hooks[operation]
	s.Mu.Unlock()
	if h.Before != nil {
		if err := h.Before(ctx); err != nil {
			return none, err
		}
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	s.Mu.Lock()
	value, err := do()
	s.Mu.Unlock()
	if h.After != nil {
		if err := h.After(ctx); err != nil {
			return none, err
		}
	}
	return value, err
}

// Do is Call for an operation that answers with an error alone.
func Do(ctx context.Context, s *Store, operation string, do func() error) error {
	_, err := Call(ctx, s, operation, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// Slow is a hook that takes its time.
func Slow(d time.Duration) func(context.Context) error {
	return func(context.Context) error {
		time.Sleep(d)
		return nil
	}
}

// Fails is a hook that fails n times, or always for a negative n.
func Fails(n int, err error) func(context.Context) error {
	var mu sync.Mutex
	return func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 {
			return nil
		}
		n--
		return err
	}
}

// Hangs is a hook that does not answer until its caller gives up.
func Hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// RowOf gives a copy of a row.
func (s *Store) RowOf(id job.ID) Row {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return *s.Rows[id]
}

// Change lets a test interfere, as another process would.
func (s *Store) Change(id job.ID, f func(*Row)) {
	s.Update(func() { f(s.Rows[id]) })
}

// Update changes what is stored, as another process would.
func (s *Store) Update(f func()) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	f()
}

// Own gives the row of a client's job.
func (s *Store) Own(client, id job.ID) (*Row, error) {
	r := s.Rows[id]
	if r == nil || r.ClientID != client {
		return nil, job.Errorf(job.CodeJobNotFound, "No job with this id was found.")
	}
	return r, nil
}

// Expire ends the leases of all workers at once.
func (s *Store) Expire() {
	s.Update(func() {
		for _, w := range s.Workers {
			w.alive = false
		}
	})
}

// Alive reports whether a worker has a valid lease.
func (s *Store) Alive(id job.ID) bool {
	w := s.Workers[id]
	return w != nil && w.alive && time.Now().Before(w.Expires)
}

// Move changes a row's state.
func (s *Store) Move(r *Row, to job.State) {
	r.State, r.UpdatedAt, r.History = to, time.Now(), append(r.History, to)
	r.Outcome = job.OutcomeOf(to)
	if to == job.Queued {
		r.QueuedAt = r.UpdatedAt
	}
	s.Record(r, 1)
	if !to.Held() {
		r.Worker = job.ID{}
	}
}

func (s *Store) current(c job.ClaimID, state job.State) *Row {
	r := s.Rows[c.JobID]
	if r == nil || r.State != state || r.Attempt != c.Attempt || r.Fence != c.Fence {
		return nil
	}
	return r
}

func (s *Store) Claim(ctx context.Context, worker, id job.ID, attempt int) (c *job.Claim, not job.NotClaimed, err error) {
	c, err = Call(ctx, s, "Claim", func() (*job.Claim, error) {
		r := s.Rows[id]
		if r == nil {
			not.Unknown = true
			return nil, nil
		}
		if r.State.Held() && r.Attempt == attempt && r.Worker == worker {
			return claimOf(r, false), nil // the first answer was lost
		}
		waits, alive := r.Attempt == attempt && r.State.Waiting(), s.Alive(worker)
		switch {
		case !waits || !alive || r.RunAt.After(time.Now()):
			not = job.NotClaimed{StillWaiting: waits, Wait: max(0, time.Until(r.RunAt)), WorkerDead: !alive}
		case s.Refuse != nil:
			not = s.Refuse()
		}
		if not != (job.NotClaimed{}) || !waits {
			return nil, nil
		}
		wasCreated := r.State == job.Created
		if wasCreated {
			s.Move(r, job.Queued)
		}
		s.Move(r, job.Assigned)
		r.Fence++
		r.Worker = worker
		return claimOf(r, wasCreated), nil
	})
	if err != nil {
		not = job.NotClaimed{}
	}
	return c, not, err
}

func (s *Store) Start(ctx context.Context, c job.ClaimID) (time.Time, error) {
	return Call(ctx, s, "Start", func() (time.Time, error) {
		if r := s.current(c, job.Running); r != nil {
			return *r.StartedAt, nil // the first answer was lost
		}
		r := s.current(c, job.Assigned)
		if r == nil || !s.Alive(r.Worker) {
			return time.Time{}, job.ErrStale
		}
		s.Move(r, job.Running)
		now := time.Now()
		r.StartedAt = &now
		return now, nil
	})
}

func claimOf(r *Row, wasCreated bool) *job.Claim {
	return &job.Claim{
		ClaimID: job.ClaimID{JobID: r.ID, Attempt: r.Attempt, Fence: r.Fence}, Job: r.Job, QueuedAt: r.QueuedAt, WasCreated: wasCreated,
	}
}

func (s *Store) Emit(ctx context.Context, c job.ClaimID, before int, e job.Emission) error {
	return Do(ctx, s, "Emit", func() error {
		r := s.current(c, job.Running)
		if r == nil {
			return job.ErrStale
		}
		if before == len(r.Emitted) {
			r.Emitted = append(r.Emitted, e)
		}
		return nil
	})
}

func (s *Store) Finish(ctx context.Context, f job.Finish) (job.Finished, error) {
	return Call(ctx, s, "Finish", func() (job.Finished, error) {
		r := s.current(f.ClaimID, job.Running)
		if r == nil {
			return job.Finished{}, job.ErrStale
		}
		s.Move(r, f.State)
		r.Failure, r.Ends = f.Failure, append(r.Ends, f)
		done := job.Finished{ClaimID: f.ClaimID, State: f.State, ClientID: r.ClientID, BatchID: r.BatchID,
			WorkKind: r.WorkKind, Duration: time.Since(*r.StartedAt)}
		if f.RetryWait != nil {
			done.State, done.Next = job.Queued, s.Requeue(r, *f.RetryWait)
		}
		return done, nil
	})
}

// Requeue queues the next attempt of a failed job.
func (s *Store) Requeue(r *Row, wait time.Duration) *job.Task {
	s.Move(r, job.Queued)
	r.Attempt++
	r.Dispatch, r.RunAt = 0, time.Now().Add(wait)
	return &job.Task{JobID: r.ID, Attempt: r.Attempt, RunAt: r.RunAt, TraceParent: r.TraceParent,
		ClientID: r.ClientID, WorkKind: r.WorkKind}
}

func (s *Store) Release(ctx context.Context, claims []job.ClaimID, waits []time.Duration) ([]job.Task, error) {
	return Call(ctx, s, "Release", func() ([]job.Task, error) {
		var tasks []job.Task
		for i, l := range claims {
			r := s.current(l, job.Assigned)
			if r == nil {
				continue
			}
			s.Move(r, job.Queued)
			r.Expiries++
			r.Dispatch++
			r.RunAt = time.Now().Add(waits[i])
			tasks = append(tasks, TaskOf(r))
		}
		return tasks, nil
	})
}

// TaskOf gives the task that names a row now.
func TaskOf(r *Row) job.Task {
	return job.Task{JobID: r.ID, Attempt: r.Attempt, Dispatch: r.Dispatch, RunAt: r.RunAt, TraceParent: r.TraceParent}
}
