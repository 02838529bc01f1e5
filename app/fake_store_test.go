package app

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forgerun/forgerun/job"
)

// errStorage is what a fake storage says that cannot be reached.
var errStorage = &job.Error{Code: job.CodeStorageUnavailable, Detail: "The database cannot be reached."}

// fakeStore has the guards of the real one: states, attempts, fences, leases.
// Each step is checked against the transition table.
type fakeStore struct {
	t testing.TB

	mu      sync.Mutex
	jobs    map[job.ID]*row
	workers map[job.ID]*workerRow
	keys    map[string]receiptRow
	batches map[job.ID]*job.Batch
	parcels []*parcelRow
	hooked  map[job.ID]*webhookRow
	outbox  []*outboxRow
	latest  map[job.ID]job.Position // by client
	tx      uint64
	cursor  []byte
	asked   [][]job.ID // by EventSeqs and LatestPositions
	hooks   map[string]hook
	calls   map[string]int

	epoch       int64
	runID       string
	leader      job.ID
	leaderUntil time.Time
	cleanings   int // how often Clean says that there is more
	census      job.Backlog

	chaos     func(operation string) (before, after error)
	short     func(n int) int // how many of n due deliveries a claim gives
	almostDue int             // how many claims find a job that becomes due that moment
	deadOnly  bool            // every claim finds its worker dead, whatever Renew says
}

type row struct {
	job.Job
	fence    int64
	worker   job.ID
	expiries int
	dispatch int
	locked   bool // by somebody else: maintenance skips it
	history  []job.State
	ends     []job.Finish // that were accepted
}

type workerRow struct {
	alive   bool
	expires time.Time
	retired bool
}

type receiptRow struct {
	job.Receipt
	hash [32]byte
}

// hook makes a call fail: before it does anything, or after it has done its
// work, so that the answer is lost. It runs without the lock.
type hook struct{ before, after func(context.Context) error }

func newFakeStore(t testing.TB) *fakeStore {
	return &fakeStore{
		t: t, jobs: map[job.ID]*row{}, workers: map[job.ID]*workerRow{}, keys: map[string]receiptRow{},
		batches: map[job.ID]*job.Batch{}, latest: map[job.ID]job.Position{}, cursor: []byte("the key"),
		hooked: map[job.ID]*webhookRow{}, hooks: map[string]hook{}, calls: map[string]int{}, epoch: 1,
	}
}

func (s *fakeStore) hook(operation string, h hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks[operation] = h
}

func (s *fakeStore) count(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[operation]
}

// call does an operation under the lock, between its hooks.
func call[T any](ctx context.Context, s *fakeStore, operation string, do func() (T, error)) (T, error) {
	var none T
	s.mu.Lock()
	s.calls[operation]++
	h := s.hooks[operation]
	var refused, lost error
	if s.chaos != nil {
		refused, lost = s.chaos(operation)
	}
	s.mu.Unlock()
	if refused != nil {
		return none, refused
	}
	if h.before != nil {
		if err := h.before(ctx); err != nil {
			return none, err
		}
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	s.mu.Lock()
	value, err := do()
	s.mu.Unlock()
	if h.after != nil {
		lost = h.after(ctx)
	}
	if lost != nil {
		return none, lost
	}
	return value, err
}

// fails is a hook that fails n times, or always for a negative n.
func fails(n int, err error) func(context.Context) error {
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

// hangs is a hook that does not answer until its caller gives up.
func hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// job gives a copy of a row.
func (s *fakeStore) job(id job.ID) row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.jobs[id]
}

// change lets a test interfere, as another process would.
func (s *fakeStore) change(id job.ID, f func(*row)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.jobs[id])
}

// expire ends the leases of all workers at once.
func (s *fakeStore) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		w.alive = false
	}
}

func (s *fakeStore) alive(id job.ID) bool {
	w := s.workers[id]
	return w != nil && w.alive && time.Now().Before(w.expires)
}

// move changes a row's state by the table.
func (s *fakeStore) move(r *row, to job.State) {
	if !job.CanTransition(r.State, to) && !job.IsLeaseReturn(r.State, to) {
		s.t.Errorf("forbidden transition %s -> %s", r.State, to)
	}
	r.State, r.UpdatedAt, r.history = to, time.Now(), append(r.history, to)
	r.Outcome = job.OutcomeOf(to)
	s.record(r, 1)
	if !to.Held() {
		r.worker = job.ID{}
	}
}

func (s *fakeStore) current(l job.Lease, state job.State) *row {
	r := s.jobs[l.JobID]
	if r == nil || r.State != state || r.Attempt != l.Attempt || r.fence != l.Fence {
		return nil
	}
	return r
}

type claimed struct {
	claim *job.Claim
	not   job.NotClaimed
}

func (s *fakeStore) Claim(ctx context.Context, worker, id job.ID, attempt int) (*job.Claim, job.NotClaimed, error) {
	c, err := call(ctx, s, "Claim", func() (claimed, error) {
		r := s.jobs[id]
		if r == nil {
			return claimed{not: job.NotClaimed{Unknown: true}}, nil
		}
		if r.State == job.Running && r.Attempt == attempt && r.worker == worker {
			return claimed{claim: claimOf(r, false)}, nil // the first answer was lost
		}
		waits, alive := r.Attempt == attempt && r.State.Waiting(), s.alive(worker) && !s.deadOnly
		due := !r.RunAt.After(time.Now()) && s.almostDue == 0
		if !waits || !due || !alive {
			s.almostDue = max(0, s.almostDue-1)
			return claimed{not: job.NotClaimed{
				StillWaiting: waits, Wait: max(0, time.Until(r.RunAt)), WorkerDead: !alive, Dispatch: r.dispatch,
			}}, nil
		}
		wasCreated := r.State == job.Created
		if wasCreated {
			s.move(r, job.Queued)
		}
		s.move(r, job.Assigned)
		s.move(r, job.Running)
		r.fence++
		now := time.Now()
		r.worker, r.StartedAt = worker, &now
		return claimed{claim: claimOf(r, wasCreated)}, nil
	})
	return c.claim, c.not, err
}

func claimOf(r *row, wasCreated bool) *job.Claim {
	return &job.Claim{Lease: job.Lease{JobID: r.ID, Attempt: r.Attempt, Fence: r.fence}, Job: r.Job, WasCreated: wasCreated}
}

func (s *fakeStore) Finish(ctx context.Context, f job.Finish) (job.Finished, error) {
	return call(ctx, s, "Finish", func() (job.Finished, error) {
		r := s.current(f.Lease, job.Running)
		if r == nil {
			return job.Finished{}, job.ErrStale
		}
		s.move(r, f.State)
		r.Failure, r.ends = f.Failure, append(r.ends, f)
		done := job.Finished{Lease: f.Lease, State: f.State, ClientID: r.ClientID, BatchID: r.BatchID, WorkKind: r.WorkKind, Duration: time.Since(*r.StartedAt)}
		if f.RetryWait != nil {
			done.State, done.Next = job.Queued, s.requeue(r, *f.RetryWait)
		}
		return done, nil
	})
}

// requeue queues the next attempt of a failed job.
func (s *fakeStore) requeue(r *row, wait time.Duration) *job.Task {
	s.move(r, job.Queued)
	r.Attempt++
	r.dispatch, r.RunAt = 0, time.Now().Add(wait)
	return &job.Task{JobID: r.ID, Attempt: r.Attempt, RunAt: r.RunAt, TraceParent: r.TraceParent}
}

func (s *fakeStore) Release(ctx context.Context, leases []job.Lease, waits []time.Duration) ([]job.Task, error) {
	return call(ctx, s, "Release", func() ([]job.Task, error) {
		var tasks []job.Task
		for i, l := range leases {
			r := s.current(l, job.Assigned)
			if r == nil {
				continue
			}
			s.move(r, job.Queued)
			r.expiries++
			r.dispatch++
			r.RunAt = time.Now().Add(waits[i])
			tasks = append(tasks, taskOf(r))
		}
		return tasks, nil
	})
}

func (s *fakeStore) Redispatch(ctx context.Context, tasks []job.Task) ([]job.Task, error) {
	return call(ctx, s, "Redispatch", func() ([]job.Task, error) {
		var renamed []job.Task
		for _, t := range tasks {
			if r := s.waiting(t); r != nil && !r.locked {
				r.dispatch++
				renamed = append(renamed, taskOf(r))
			}
		}
		return renamed, nil
	})
}

func taskOf(r *row) job.Task {
	return job.Task{JobID: r.ID, Attempt: r.Attempt, Dispatch: r.dispatch, RunAt: r.RunAt, TraceParent: r.TraceParent}
}

// waiting gives the row that a task still names.
func (s *fakeStore) waiting(t job.Task) *row {
	r := s.jobs[t.JobID]
	if r == nil || !r.State.Waiting() || r.Attempt != t.Attempt || r.dispatch != t.Dispatch {
		return nil
	}
	return r
}

func (s *fakeStore) Register(ctx context.Context, worker job.ID, _ string, _ int, lease time.Duration) error {
	_, err := call(ctx, s, "Register", func() (struct{}, error) {
		s.workers[worker] = &workerRow{alive: true, expires: time.Now().Add(lease)}
		return struct{}{}, nil
	})
	return err
}

func (s *fakeStore) Renew(ctx context.Context, worker job.ID, lease time.Duration) ([]job.Lease, error) {
	return call(ctx, s, "Renew", func() ([]job.Lease, error) {
		if !s.alive(worker) {
			return nil, job.ErrWorkerDead
		}
		s.workers[worker].expires = time.Now().Add(lease)
		var leases []job.Lease
		for _, h := range s.held(func(id job.ID) bool { return id == worker }) {
			leases = append(leases, h.Lease)
		}
		return leases, nil
	})
}

func (s *fakeStore) Held(ctx context.Context, worker job.ID, leases []job.Lease) ([]job.Held, error) {
	return call(ctx, s, "Held", func() ([]job.Held, error) {
		return slices.DeleteFunc(s.held(func(id job.ID) bool { return id == worker }), func(h job.Held) bool {
			return !slices.Contains(leases, h.Lease)
		}), nil
	})
}

func (s *fakeStore) held(by func(job.ID) bool) []job.Held {
	var held []job.Held
	for _, r := range s.jobs {
		if !r.worker.IsZero() && by(r.worker) {
			held = append(held, job.Held{
				Lease: job.Lease{JobID: r.ID, Attempt: r.Attempt, Fence: r.fence}, ClientID: r.ClientID, RequestID: r.RequestID, TraceParent: r.TraceParent, State: r.State, WorkKind: r.WorkKind,
				MaxAttempts: r.MaxAttempts, AutoRetry: r.AutoRetry, LeaseExpiries: r.expiries,
			})
		}
	}
	slices.SortFunc(held, func(a, b job.Held) int { return bytes.Compare(a.JobID[:], b.JobID[:]) })
	return held
}

func (s *fakeStore) Retire(ctx context.Context, worker job.ID) error {
	_, err := call(ctx, s, "Retire", func() (struct{}, error) {
		if w := s.workers[worker]; w != nil {
			w.alive, w.retired = false, true
		}
		return struct{}{}, nil
	})
	return err
}

func (s *fakeStore) Orphans(ctx context.Context, limit int) ([]job.Held, error) {
	return call(ctx, s, "Orphans", func() ([]job.Held, error) {
		held := s.held(func(id job.ID) bool { return !s.alive(id) })
		return held[:min(limit, len(held))], nil
	})
}

func (s *fakeStore) Lead(ctx context.Context, holder job.ID, lease time.Duration) (bool, error) {
	return call(ctx, s, "Lead", func() (bool, error) {
		if s.leader != holder && time.Now().Before(s.leaderUntil) {
			return false, nil
		}
		s.leader, s.leaderUntil = holder, time.Now().Add(lease)
		return true, nil
	})
}

func (s *fakeStore) Resign(ctx context.Context, holder job.ID) error {
	_, err := call(ctx, s, "Resign", func() (struct{}, error) {
		if s.leader == holder {
			s.leader, s.leaderUntil = job.ID{}, time.Time{}
		}
		return struct{}{}, nil
	})
	return err
}

func (s *fakeStore) QueueDue(ctx context.Context, limit int) ([]job.Job, error) {
	return call(ctx, s, "QueueDue", func() (due []job.Job, err error) {
		for _, r := range s.jobs {
			if len(due) < limit && r.State == job.Created && !r.ExecutionAt.After(time.Now()) {
				s.move(r, job.Queued)
				due = append(due, r.Job)
			}
		}
		return due, nil
	})
}

func (s *fakeStore) Clean(ctx context.Context, _ int) (bool, error) {
	return call(ctx, s, "Clean", func() (bool, error) {
		s.cleanings--
		return s.cleanings >= 0, nil
	})
}

type epochAnswer struct {
	epoch int64
	runID string
}

func (s *fakeStore) Epoch(ctx context.Context) (int64, string, error) {
	a, err := call(ctx, s, "Epoch", func() (epochAnswer, error) { return epochAnswer{s.epoch, s.runID}, nil })
	return a.epoch, a.runID, err
}

func (s *fakeStore) RaiseEpoch(ctx context.Context, current int64, runID string) error {
	_, err := call(ctx, s, "RaiseEpoch", func() (struct{}, error) {
		if s.epoch == current {
			s.epoch, s.runID = current+1, runID
		}
		return struct{}{}, nil
	})
	return err
}

func (s *fakeStore) Waiting(ctx context.Context, after job.QueueCursor, ahead time.Duration, limit int) ([]job.Task, error) {
	return call(ctx, s, "Waiting", func() ([]job.Task, error) {
		return s.places(after, limit, func(r *row) bool { return !r.RunAt.After(time.Now().Add(ahead)) }), nil
	})
}

// places gives waiting jobs in their order.
func (s *fakeStore) places(after job.QueueCursor, limit int, match func(*row) bool) []job.Task {
	order := func(a, b job.Task) int { return a.Cursor().Compare(b.Cursor()) }
	var tasks []job.Task
	for _, r := range s.jobs {
		if r.State.Waiting() && match(r) && order(taskOf(r), job.Task{RunAt: after.RunAt, JobID: after.JobID}) > 0 {
			tasks = append(tasks, taskOf(r))
		}
	}
	slices.SortFunc(tasks, order)
	return tasks[:min(limit, len(tasks))]
}

func (s *fakeStore) CountDue(ctx context.Context, limit int) (int, error) {
	return call(ctx, s, "CountDue", func() (int, error) {
		due := 0
		for _, r := range s.jobs {
			if r.State.Waiting() && !r.RunAt.After(time.Now()) {
				due++
			}
		}
		return min(due, limit), nil
	})
}

func (s *fakeStore) Load(ctx context.Context, limit int) (job.Load, error) {
	return call(ctx, s, "Load", func() (job.Load, error) {
		var load job.Load
		for _, r := range s.jobs {
			if !r.State.Final() {
				load.Active++
			}
			if r.State == job.Queued {
				load.Queued++
			}
		}
		return job.Load{Active: min(load.Active, limit+1), Queued: min(load.Queued, limit+1)}, nil
	})
}

func (s *fakeStore) LiveWorkers(ctx context.Context) (int, error) {
	return call(ctx, s, "LiveWorkers", func() (int, error) {
		n := 0
		for id := range s.workers {
			if s.alive(id) {
				n++
			}
		}
		return n, nil
	})
}
