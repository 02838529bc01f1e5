package apptest

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

// The part of fakeStore that clients see.

func (s *Store) InsertJob(ctx context.Context, sub job.Submission) (job.Receipt, error) {
	return call(ctx, s, "InsertJob", func() (job.Receipt, error) {
		name := sub.Job.ClientID.String() + sub.IdempotencyKey
		if sub.IdempotencyKey != "" {
			if known, err := s.receipt(name, sub.RequestHash); known != nil || err != nil {
				return *known, err
			}
		}
		r := &Row{Job: sub.Job}
		now := time.Now()
		r.Attempt, r.CreatedAt, r.UpdatedAt, r.RunAt = 1, now, now, now
		r.State, r.History = job.Created, []job.State{job.Created}
		if r.ExecutionAt != nil {
			r.RunAt = *r.ExecutionAt
		} else {
			r.State, r.History = job.Queued, append(r.History, job.Queued)
		}
		s.Rows[r.ID] = r
		s.record(r, len(r.History))
		receipt := job.Receipt{JobID: r.ID, State: r.State, CreatedAt: now}
		if sub.IdempotencyKey != "" {
			s.keys[name] = receiptRow{receipt, sub.RequestHash}
		}
		return receipt, nil
	})
}

func (s *Store) receipt(name string, hash [32]byte) (*job.Receipt, error) {
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

func (s *Store) FindReceipt(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Receipt, error) {
	return call(ctx, s, "FindReceipt", func() (*job.Receipt, error) {
		return s.receipt(client.String()+key, hash)
	})
}

func (s *Store) own(client, id job.ID) (*Row, error) {
	r := s.Rows[id]
	if r == nil || r.ClientID != client {
		return nil, job.Errorf(job.CodeJobNotFound, "No job with this id was found.")
	}
	return r, nil
}

func (s *Store) Job(ctx context.Context, client, id job.ID) (*job.Job, error) {
	return call(ctx, s, "Job", func() (*job.Job, error) {
		r, err := s.own(client, id)
		if err != nil {
			return nil, err
		}
		j := r.Job
		return &j, nil
	})
}

func (s *Store) Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error) {
	return call(ctx, s, "Report", func() (*job.Report, error) {
		if _, err := s.own(client, id); err != nil {
			return nil, err
		}
		return &job.Report{Origin: job.Origin{JobID: id}, Attempt: job.Attempt{Number: attempt}}, nil
	})
}

func changeOf(r *Row, changed bool) job.Change {
	return job.Change{JobID: r.ID, State: r.State, Attempt: r.Attempt, UpdatedAt: r.UpdatedAt, RunAt: r.RunAt, Changed: changed}
}

type canceledRow struct {
	change job.Change
	before *job.Job
}

func (s *Store) Cancel(ctx context.Context, client, id job.ID) (job.Change, *job.Job, error) {
	c, err := call(ctx, s, "Cancel", func() (canceledRow, error) {
		r, err := s.own(client, id)
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

func (s *Store) Retry(ctx context.Context, client, id job.ID, attempt int, wait time.Duration, traceparent string) (job.Change, error) {
	return call(ctx, s, "Retry", func() (job.Change, error) {
		r, err := s.own(client, id)
		if err != nil {
			return job.Change{}, err
		}
		if r.State != job.Failed || r.Attempt != attempt || r.Attempt >= r.MaxAttempts {
			return changeOf(r, false), nil
		}
		if traceparent != "" {
			r.TraceParent = traceparent
		}
		s.Requeue(r, wait)
		return changeOf(r, true), nil
	})
}
