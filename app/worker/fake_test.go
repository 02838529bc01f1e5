package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

var errStorage = &job.Error{Code: job.CodeStorageUnavailable, Detail: "The database cannot be reached."}

type fakeStore struct {
	mu      sync.Mutex
	rows    map[job.ID]*row
	leases  map[job.ID]time.Time
	retired map[job.ID]bool
	hooks   map[string]hook
	calls   map[string]int
	refuse  func() job.NotClaimed // may refuse a claim by returning a non-zero value; may be nil
}

type row struct {
	job.Job
	fence   int64
	worker  job.ID
	history []job.State
	ends    []job.Finish
	emitted []job.Emission
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		rows: map[job.ID]*row{}, leases: map[job.ID]time.Time{}, retired: map[job.ID]bool{}, hooks: map[string]hook{}, calls: map[string]int{},
	}
}

type hook struct{ before, after func(context.Context) error }

func (s *fakeStore) hook(operation string, h hook) { s.update(func() { s.hooks[operation] = h }) }

func (s *fakeStore) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *fakeStore) count(operation string) (n int) {
	s.update(func() { n = s.calls[operation] })
	return n
}

func (s *fakeStore) row(id job.ID) (r row) {
	s.update(func() { r = *s.rows[id] })
	return r
}

func (s *fakeStore) expire() { s.update(func() { clear(s.leases) }) }

func call[T any](ctx context.Context, s *fakeStore, operation string, do func() (T, error)) (value T, err error) {
	var h hook
	s.update(func() { s.calls[operation]++; h = s.hooks[operation] })
	if h.before != nil {
		err = h.before(ctx)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return value, err
	}
	s.update(func() { value, err = do() })
	if h.after != nil {
		if lost := h.after(ctx); lost != nil {
			return *new(T), lost
		}
	}
	return value, err
}

func slow(d time.Duration) func(context.Context) error {
	return func(context.Context) error { time.Sleep(d); return nil }
}

func fails(n int64, err error) func(context.Context) error {
	var calls atomic.Int64 // several workers call it
	return func(context.Context) error {
		if n >= 0 && calls.Add(1) > n {
			return nil
		}
		return err
	}
}

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (r *row) move(to job.State) {
	r.State, r.UpdatedAt, r.history = to, time.Now(), append(r.history, to)
	if !to.Held() {
		r.worker = job.ID{}
	}
}

func (r *row) claim() job.ClaimID {
	return job.ClaimID{JobID: r.ID, Attempt: r.Attempt, Fence: r.fence}
}

func (s *fakeStore) alive(worker job.ID) bool {
	return time.Now().Before(s.leases[worker]) && !s.retired[worker]
}

func (s *fakeStore) held(c job.ClaimID, state job.State) *row {
	if r := s.rows[c.JobID]; r != nil && r.claim() == c && r.State == state {
		return r
	}
	return nil
}

func (s *fakeStore) Claim(ctx context.Context, worker, id job.ID, attempt int) (c *job.Claim, not job.NotClaimed, err error) {
	c, err = call(ctx, s, "Claim", func() (*job.Claim, error) {
		r := s.rows[id]
		again := r.State.Held() && r.worker == worker // the worker repeats a claim whose response was lost
		if waits := r.State.Waiting() && r.Attempt == attempt; !again {
			if not = (job.NotClaimed{StillWaiting: waits, WorkerDead: !s.alive(worker)}); !waits || not.WorkerDead {
				return nil, nil
			}
			if not = (job.NotClaimed{}); s.refuse != nil {
				not = s.refuse()
			}
			if not != (job.NotClaimed{}) {
				return nil, nil
			}
			r.move(job.Assigned)
			r.fence++
			r.worker = worker
		}
		return &job.Claim{ClaimID: r.claim(), Job: r.Job, QueuedAt: r.CreatedAt}, nil
	})
	if err != nil {
		not = job.NotClaimed{}
	}
	return c, not, err
}

func (s *fakeStore) Start(ctx context.Context, c job.ClaimID) (time.Time, error) {
	return call(ctx, s, "Start", func() (time.Time, error) {
		if r := s.held(c, job.Running); r != nil {
			return *r.StartedAt, nil // the worker repeats a start whose response was lost
		}
		r := s.held(c, job.Assigned)
		if r == nil || !s.alive(r.worker) {
			return time.Time{}, job.ErrStale
		}
		r.move(job.Running)
		r.StartedAt = new(time.Now())
		return *r.StartedAt, nil
	})
}

func (s *fakeStore) Emit(ctx context.Context, c job.ClaimID, before int, e job.Emission) error {
	_, err := call(ctx, s, "Emit", func() (bool, error) {
		r := s.held(c, job.Running)
		if before == len(r.emitted) {
			r.emitted = append(r.emitted, e)
		}
		return true, nil
	})
	return err
}

func (s *fakeStore) Finish(ctx context.Context, f job.Finish) (job.Finished, error) {
	return call(ctx, s, "Finish", func() (job.Finished, error) {
		r := s.held(f.ClaimID, job.Running)
		if r == nil {
			return job.Finished{}, job.ErrStale
		}
		r.move(f.State)
		r.Failure, r.ends = f.Failure, append(r.ends, f)
		return job.Finished{ClaimID: f.ClaimID, State: f.State, ClientID: r.ClientID, WorkKind: r.WorkKind}, nil
	})
}

func (s *fakeStore) Register(ctx context.Context, worker job.ID, _ string, _ int, lease time.Duration) error {
	_, err := call(ctx, s, "Register", func() (bool, error) {
		s.leases[worker] = time.Now().Add(lease)
		return true, nil
	})
	return err
}

func (s *fakeStore) Renew(ctx context.Context, worker job.ID, lease time.Duration) ([]job.ClaimID, error) {
	return call(ctx, s, "Renew", func() (held []job.ClaimID, err error) {
		if !s.alive(worker) {
			return nil, job.ErrWorkerDead
		}
		s.leases[worker] = time.Now().Add(lease)
		for _, r := range s.rows {
			if r.worker == worker {
				held = append(held, r.claim())
			}
		}
		return held, nil
	})
}

func (s *fakeStore) Held(ctx context.Context, worker job.ID, claims []job.ClaimID) (held []job.Held, err error) {
	return call(ctx, s, "Held", func() ([]job.Held, error) {
		for _, c := range claims {
			if r := s.rows[c.JobID]; r.worker == worker && r.claim() == c {
				held = append(held, job.Held{ClaimID: c, State: r.State})
			}
		}
		return held, nil
	})
}

func (s *fakeStore) Retire(ctx context.Context, worker job.ID) error {
	_, err := call(ctx, s, "Retire", func() (bool, error) {
		s.retired[worker] = true
		return true, nil
	})
	return err
}

func (s *fakeStore) giveBack(ctx context.Context, held []job.Held) error {
	_, err := call(ctx, s, "GiveBack", func() (bool, error) {
		for _, h := range held {
			if r := s.rows[h.JobID]; r.claim() == h.ClaimID && r.State == job.Assigned {
				r.move(job.Queued)
			} else if r.claim() == h.ClaimID && r.State == job.Running {
				r.move(job.Failed)
				r.ends = append(r.ends, job.Finish{State: job.Failed, Failure: job.NewFailure(job.WorkerLost, r.Attempt, apptest.Backoff)})
			}
		}
		return true, nil
	})
	return err
}

func (s *fakeStore) add(change ...func(*row)) job.Task {
	now := time.Now()
	r := &row{Job: job.Job{
		ID: app.NewID(), ClientID: apptest.ClientA, Type: job.Execute, WorkKind: job.SuccessFast, State: job.Queued, Attempt: 1,
		Definition: apptest.DefinitionOf(job.SuccessFast), MaxAttempts: 4, CreatedAt: now, UpdatedAt: now, RunAt: now, RequestID: "request-1",
	}, history: []job.State{job.Created, job.Queued}}
	for _, f := range change {
		f(r)
	}
	s.update(func() { s.rows[r.ID] = r })
	return job.Task{JobID: r.ID, Attempt: r.Attempt}
}
