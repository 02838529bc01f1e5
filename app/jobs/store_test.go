package jobs

import (
	"context"
	"maps"
	"time"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// fakeStore adds to the shared store what only the use cases of clients need.
type fakeStore struct {
	*apptest.Store
	keys map[string]receiptRow
}

func newFakeStore(s *apptest.Store) *fakeStore { return &fakeStore{s, map[string]receiptRow{}} }

type receiptRow struct {
	job.Receipt
	hash [32]byte
}

func (s *fakeStore) InsertJob(ctx context.Context, sub job.Submission) (job.Receipt, error) {
	receipt, err := s.insertJob(ctx, sub)
	if err == nil && !receipt.Replayed {
		sub.Committed(receipt)
	}
	return receipt, err
}

func (s *fakeStore) insertJob(ctx context.Context, sub job.Submission) (job.Receipt, error) {
	return apptest.Call(ctx, s.Store, "InsertJob", func() (job.Receipt, error) {
		name := sub.Job.ClientID.String() + sub.IdempotencyKey
		if sub.IdempotencyKey != "" {
			if known, err := s.receipt(name, sub.RequestHash); known != nil || err != nil {
				return *known, err
			}
		}
		r := &apptest.Row{Job: sub.Job}
		now := time.Now()
		r.Attempt, r.CreatedAt, r.UpdatedAt, r.RunAt = 1, now, now, now
		r.State, r.History = job.Created, []job.State{job.Created}
		if r.ExecutionAt != nil {
			r.RunAt = *r.ExecutionAt
		} else {
			r.State, r.History = job.Queued, append(r.History, job.Queued)
		}
		s.Rows[r.ID] = r
		s.Record(r, len(r.History))
		receipt := job.Receipt{JobID: r.ID, State: r.State, CreatedAt: now}
		if sub.IdempotencyKey != "" {
			s.keys[name] = receiptRow{receipt, sub.RequestHash}
		}
		return receipt, nil
	})
}

func (s *fakeStore) receipt(name string, hash [32]byte) (*job.Receipt, error) {
	known, ok := s.keys[name]
	switch {
	case !ok:
		return nil, nil
	case known.hash != hash:
		return &job.Receipt{}, job.Errorf(job.CodeIdempotencyConflict, "This idempotency key was used for a different request.")
	}
	known.Replayed = true
	return &known.Receipt, nil
}

func (s *fakeStore) FindReceipt(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Receipt, error) {
	return apptest.Call(ctx, s.Store, "FindReceipt", func() (*job.Receipt, error) {
		return s.receipt(client.String()+key, hash)
	})
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

func (s *fakeStore) Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error) {
	return apptest.Call(ctx, s.Store, "Report", func() (*job.Report, error) {
		if _, err := s.Own(client, id); err != nil {
			return nil, err
		}
		return &job.Report{Origin: job.Origin{JobID: id}, Attempt: job.Attempt{Number: attempt}}, nil
	})
}

func changeOf(r *apptest.Row, changed bool) job.Change {
	return job.Change{JobID: r.ID, State: r.State, Attempt: r.Attempt, UpdatedAt: r.UpdatedAt, RunAt: r.RunAt, Changed: changed}
}

type canceledRow struct {
	change job.Change
	before *job.Job
}

func (s *fakeStore) Cancel(ctx context.Context, client, id job.ID) (job.Change, *job.Job, error) {
	c, err := apptest.Call(ctx, s.Store, "Cancel", func() (canceledRow, error) {
		r, err := s.Own(client, id)
		if err != nil {
			return canceledRow{}, err
		}
		if r.State.Final() {
			return canceledRow{change: changeOf(r, false)}, nil
		}
		before := r.Job
		s.Move(r, job.Canceled)
		return canceledRow{changeOf(r, true), &before}, nil
	})
	return c.change, c.before, err
}

func (s *fakeStore) RetryAnyway(
	ctx context.Context, client, id job.ID, attempt int, wait time.Duration, traceparent string,
) (job.Change, error) {
	return s.Retry(ctx, client, id, attempt, wait, traceparent)
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

func (s *fakeStore) Attempts(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error) {
	r, err := apptest.Call(ctx, s.Store, "Attempts", func() (*apptest.Row, error) { return s.Own(client, id) })
	if err != nil {
		return job.Origin{}, nil, err
	}
	return r.Origin(), []job.Attempt{r.CurrentAttempt()}, nil
}

func (s *fakeStore) Result(ctx context.Context, client, id job.ID) (*job.StoredResult, error) {
	return apptest.Call(ctx, s.Store, "Result", func() (*job.StoredResult, error) {
		r, err := s.Own(client, id)
		if err != nil {
			return nil, err
		}
		return &job.StoredResult{Result: *apptest.GoodResult(*r.Definition)}, nil
	})
}

func (s *fakeStore) Jobs(ctx context.Context, client job.ID, _ job.Query) (job.Page, error) {
	return apptest.Call(ctx, s.Store, "Jobs", func() (page job.Page, err error) {
		for _, r := range s.Rows {
			if r.ClientID == client {
				page.Jobs = append(page.Jobs, &r.Job)
			}
		}
		return page, nil
	})
}

func (s *fakeStore) CursorKey(ctx context.Context) ([]byte, error) {
	return apptest.Call(ctx, s.Store, "CursorKey", func() ([]byte, error) { return []byte("the key"), nil })
}

func (s *fakeStore) Delete(ctx context.Context, client, id job.ID) error {
	_, err := apptest.Call(ctx, s.Store, "Delete", func() (struct{}, error) {
		r, err := s.Own(client, id)
		switch {
		case err != nil:
			return struct{}{}, err
		case !r.State.Final():
			return struct{}{}, job.Errorf(job.CodeConflict, "The job is %s.", r.State)
		}
		delete(s.Rows, id)
		return struct{}{}, nil
	})
	return err
}

func (s *fakeStore) LoadByClient(ctx context.Context, _, few int) (map[job.ID]job.Load, error) {
	return apptest.Call(ctx, s.Store, "LoadByClient", func() (map[job.ID]job.Load, error) {
		loads := map[job.ID]job.Load{}
		for _, r := range s.Rows {
			if r.State.Final() {
				continue
			}
			loads[r.ClientID] = loads[r.ClientID].Plus(loadOfState(r.State), 1)
		}
		maps.DeleteFunc(loads, func(_ job.ID, l job.Load) bool { return l.Active <= few })
		return loads, nil
	})
}

func loadOfState(s job.State) job.Load {
	if s == job.Queued {
		return job.Load{Active: 1, Queued: 1}
	}
	return job.Load{Active: 1}
}

func (s *fakeStore) Load(ctx context.Context, limit int) (job.Load, error) {
	return apptest.Call(ctx, s.Store, "Load", func() (job.Load, error) {
		var load job.Load
		for _, r := range s.Rows {
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
	return apptest.Call(ctx, s.Store, "LiveWorkers", func() (int, error) {
		n := 0
		for id := range s.Workers {
			if s.Alive(id) {
				n++
			}
		}
		return n, nil
	})
}
