package jobs

import (
	"context"
	"maps"
	"time"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// fakeStore adds to the shared store what only the use cases of clients need, without the guards that are the SQL's. What only
// passes through is in none of its methods.
type fakeStore struct {
	*apptest.Store
	JobStore
	ReadStore
	BatchStore
	receipts map[string]job.Receipt // by idempotency key
	batches  map[string]job.ID      // the same of batches
	ledger   fakeLedger
	conflict error // what a key that is known is answered with, if not its first answer
}

func newFakeStore(s *apptest.Store) *fakeStore {
	return &fakeStore{Store: s, receipts: map[string]job.Receipt{}, batches: map[string]job.ID{},
		ledger: fakeLedger{leases: map[job.ID]fakeLease{}}}
}

// add stores a job as a submission does.
func (s *fakeStore) add(j job.Job) *apptest.Row {
	now := time.Now()
	r := &apptest.Row{Job: j, History: []job.State{job.Created}}
	r.State, r.Attempt, r.CreatedAt, r.UpdatedAt, r.RunAt = job.Created, 1, now, now, now
	s.Record(r, 1)
	if r.ExecutionAt != nil {
		r.RunAt = *r.ExecutionAt
	} else {
		s.Move(r, job.Queued)
	}
	s.Rows[r.ID] = r
	return r
}

func (s *fakeStore) InsertJob(ctx context.Context, sub job.Submission) (job.Receipt, error) {
	receipt, err := apptest.Call(ctx, s.Store, "InsertJob", func() (job.Receipt, error) {
		if known, err := s.receipt(sub.IdempotencyKey); known != nil || err != nil {
			return *known, err
		}
		r := s.add(sub.Job)
		receipt := job.Receipt{JobID: r.ID, State: r.State, CreatedAt: r.CreatedAt}
		if sub.IdempotencyKey != "" {
			s.receipts[sub.IdempotencyKey] = receipt
		}
		return receipt, nil
	})
	if err == nil && !receipt.Replayed {
		sub.Committed(receipt)
	}
	return receipt, err
}

func (s *fakeStore) receipt(key string) (*job.Receipt, error) {
	known, ok := s.receipts[key]
	if !ok {
		return nil, nil
	}
	known.Replayed = true
	return &known, s.conflict
}

func (s *fakeStore) FindReceipt(ctx context.Context, _ job.ID, key string, _ [32]byte) (*job.Receipt, error) {
	return apptest.Call(ctx, s.Store, "FindReceipt", func() (*job.Receipt, error) { return s.receipt(key) })
}

func (s *fakeStore) Job(ctx context.Context, client, id job.ID) (*job.Job, error) {
	return apptest.Call(ctx, s.Store, "Job", func() (*job.Job, error) {
		r, err := s.Own(client, id)
		if err != nil {
			return nil, err
		}
		j := r.Job
		return &j, nil
	})
}

func changeOf(r *apptest.Row, changed bool) job.Change {
	return job.Change{JobID: r.ID, State: r.State, Attempt: r.Attempt, UpdatedAt: r.UpdatedAt, RunAt: r.RunAt, Changed: changed}
}

func (s *fakeStore) Cancel(ctx context.Context, client, id job.ID) (change job.Change, before *job.Job, err error) {
	before, err = apptest.Call(ctx, s.Store, "Cancel", func() (*job.Job, error) {
		r, err := s.Own(client, id)
		if err != nil {
			return nil, err
		}
		if r.State.Final() {
			change = changeOf(r, false)
			return nil, nil
		}
		was := r.Job
		s.Move(r, job.Canceled)
		change = changeOf(r, true)
		return &was, nil
	})
	return change, before, err
}

func (s *fakeStore) Retry(ctx context.Context, client, id job.ID, attempt int, wait time.Duration, traceparent string) (job.Change, error) {
	return apptest.Call(ctx, s.Store, "Retry", func() (job.Change, error) {
		r, err := s.Own(client, id)
		if err != nil {
			return job.Change{}, err
		}
		if r.Attempt != attempt || !r.CanRetry() {
			return changeOf(r, false), nil
		}
		if traceparent != "" {
			r.TraceParent = traceparent
		}
		s.Requeue(r, wait)
		return changeOf(r, true), nil
	})
}

func (s *fakeStore) Delete(ctx context.Context, _, id job.ID) error {
	return apptest.Do(ctx, s.Store, "Delete", func() error {
		delete(s.Rows, id)
		return nil
	})
}

func (s *fakeStore) InsertBatch(ctx context.Context, sub job.BatchSubmission) (b *job.Batch, replayed bool, err error) {
	b, err = apptest.Call(ctx, s.Store, "InsertBatch", func() (*job.Batch, error) {
		if known, err := s.batchOf(sub.IdempotencyKey); known != nil || err != nil {
			replayed = true
			return known, err
		}
		b := sub.Batch
		b.CreatedAt = time.Now()
		s.Batches[b.ID] = &b
		if sub.IdempotencyKey != "" {
			s.batches[sub.IdempotencyKey] = b.ID
		}
		for _, j := range sub.Jobs {
			s.add(j)
		}
		return s.Counted(&b), nil
	})
	if err == nil && !replayed {
		sub.Committed()
	}
	return b, replayed, err
}

func (s *fakeStore) batchOf(key string) (*job.Batch, error) {
	id, ok := s.batches[key]
	if !ok {
		return nil, nil
	}
	return s.Counted(s.Batches[id]), s.conflict
}

func (s *fakeStore) FindBatch(ctx context.Context, _ job.ID, key string, _ [32]byte) (*job.Batch, error) {
	return apptest.Call(ctx, s.Store, "FindBatch", func() (*job.Batch, error) { return s.batchOf(key) })
}

func (s *fakeStore) Batch(ctx context.Context, _, id job.ID) (*job.Batch, error) {
	return apptest.Call(ctx, s.Store, "Batch", func() (*job.Batch, error) { return s.Counted(s.Batches[id]), nil })
}

func (s *fakeStore) OpenJobs(ctx context.Context, _, batch job.ID) ([]job.ID, error) {
	return apptest.Call(ctx, s.Store, "OpenJobs", func() (open []job.ID, err error) {
		for id, r := range s.Rows {
			if r.BatchID == batch && !r.State.Final() {
				open = append(open, id)
			}
		}
		return open, nil
	})
}

func (s *fakeStore) CancelAll(ctx context.Context, client job.ID, ids []job.ID) (all []job.Canceling, err error) {
	for _, id := range ids {
		change, before, one := s.Cancel(ctx, client, id)
		switch {
		case one != nil && job.CodeOf(one) != job.CodeJobNotFound:
			err = one
		case before != nil:
			all = append(all, job.Canceling{Change: change, Before: before})
		}
	}
	return all, err
}

func (s *fakeStore) Load(ctx context.Context, _ int) (counted job.Counted, err error) {
	loads, err := s.loads(ctx, "Load")
	for _, l := range loads {
		counted.Jobs = counted.Jobs.Plus(l, 1)
	}
	s.Update(func() { counted.Reported = s.ledger.reported })
	return counted, err
}

// fakeLedger is what the statements of headroom do.
type fakeLedger struct {
	bound, reported job.Load
	leases          map[job.ID]fakeLease
}

type fakeLease struct {
	process job.ID
	size    job.Load
	expires time.Time
}

func (l *fakeLedger) report(jobs job.Load) {
	l.bound, l.reported = l.bound.Plus(jobs, 1), l.reported.Plus(jobs, 1)
}

func (s *fakeStore) RenewLease(ctx context.Context, a job.Lease) (job.Headroom, error) {
	return apptest.Call(ctx, s.Store, "RenewLease", func() (h job.Headroom, err error) {
		l := &s.ledger
		if a.Counted != nil {
			l.bound = a.Counted.Jobs.Plus(l.reported, 1).Plus(a.Counted.Reported, -1)
		}
		l.report(a.Stored)
		free, processes := a.Limit.Plus(l.bound, -1), map[job.ID]bool{a.Process: true}
		for id, other := range l.leases {
			switch {
			case id == a.ID:
			case !time.Now().Before(other.expires):
				l.report(other.size)
				free = free.Plus(other.size, -1)
				delete(l.leases, id)
			default:
				free, processes[other.process] = free.Plus(other.size, -1), true
			}
		}
		if _, known := l.leases[a.ID]; !known && !a.New {
			return h, job.ErrLeaseEnded
		}
		n := len(processes)
		part := func(free, keep, need, want int) int {
			if need > free {
				need = 0
			}
			return max(keep, need, min(max(want, min(256, free/(16*n))), (free+n-1)/n))
		}
		h.Granted = job.Load{Active: part(free.Active, a.Keep.Active, a.Need.Active, a.Want.Active),
			Queued: part(free.Queued, a.Keep.Queued, a.Need.Queued, a.Want.Queued)}
		h.Processes = n
		l.leases[a.ID] = fakeLease{a.Process, h.Granted, time.Now().Add(a.Expiry)}
		return h, nil
	})
}

func (s *fakeStore) CloseLease(ctx context.Context, a job.Lease) error {
	return apptest.Do(ctx, s.Store, "CloseLease", func() error {
		s.ledger.report(a.Stored)
		if closed, known := s.ledger.leases[a.ID]; known {
			closed.size = a.Keep
			s.ledger.leases[a.ID] = closed
		}
		if a.Keep == (job.Load{}) {
			delete(s.ledger.leases, a.ID)
		}
		return nil
	})
}

func (s *fakeStore) LoadByClient(ctx context.Context, _, few int) (map[job.ID]job.Load, error) {
	loads, err := s.loads(ctx, "LoadByClient")
	maps.DeleteFunc(loads, func(_ job.ID, l job.Load) bool { return l.Active <= few })
	return loads, err
}

// loads counts the jobs that are not final, by client.
func (s *fakeStore) loads(ctx context.Context, operation string) (map[job.ID]job.Load, error) {
	return apptest.Call(ctx, s.Store, operation, func() (map[job.ID]job.Load, error) {
		loads := map[job.ID]job.Load{}
		for _, r := range s.Rows {
			one := job.Load{Active: 1}
			if r.State == job.Queued {
				one.Queued = 1
			}
			if !r.State.Final() {
				loads[r.ClientID] = loads[r.ClientID].Plus(one, 1)
			}
		}
		return loads, nil
	})
}

func (s *fakeStore) LiveWorkers(ctx context.Context) (int, error) {
	return apptest.Call(ctx, s.Store, "LiveWorkers", func() (n int, err error) {
		for id := range s.Workers {
			if s.Alive(id) {
				n++
			}
		}
		return n, nil
	})
}
