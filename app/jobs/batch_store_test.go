package jobs

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func (s *fakeStore) InsertBatch(ctx context.Context, sub job.BatchSubmission) (*job.Batch, bool, error) {
	replayed := false
	b, err := apptest.Call(ctx, s.Store, "InsertBatch", func() (*job.Batch, error) {
		if known, err := s.batchOf(sub.Batch.ClientID, sub.IdempotencyKey, sub.RequestHash); known != nil || err != nil {
			replayed = true
			return known, err
		}
		b := sub.Batch
		b.CreatedAt = time.Now()
		s.Batches[b.ID] = &b
		if sub.IdempotencyKey != "" {
			s.keys["batch"+b.ClientID.String()+sub.IdempotencyKey] = receiptRow{job.Receipt{JobID: b.ID}, sub.RequestHash}
		}
		for _, j := range sub.Jobs {
			r := &apptest.Row{Job: j, History: []job.State{job.Created}}
			r.Attempt, r.CreatedAt, r.UpdatedAt, r.RunAt, r.State = 1, b.CreatedAt, b.CreatedAt, b.CreatedAt, job.Created
			if r.ExecutionAt != nil {
				r.RunAt = *r.ExecutionAt
			} else {
				s.Move(r, job.Queued)
			}
			s.Rows[r.ID] = r
		}
		return s.Counted(&b), nil
	})
	if err == nil && !replayed {
		sub.Committed()
	}
	return b, replayed, err
}

func (s *fakeStore) batchOf(client job.ID, key string, hash [32]byte) (*job.Batch, error) {
	known, ok := s.keys["batch"+client.String()+key]
	switch {
	case !ok || key == "":
		return nil, nil
	case known.hash != hash:
		return nil, job.Errorf(job.CodeIdempotencyConflict, "This idempotency key was used for a different request.")
	}
	return s.Counted(s.Batches[known.JobID]), nil
}

func (s *fakeStore) FindBatch(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Batch, error) {
	return apptest.Call(ctx, s.Store, "FindBatch", func() (*job.Batch, error) { return s.batchOf(client, key, hash) })
}

func (s *fakeStore) Batch(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	return apptest.Call(ctx, s.Store, "Batch", func() (*job.Batch, error) {
		if b := s.Batches[id]; b != nil && b.ClientID == client {
			return s.Counted(b), nil
		}
		return nil, job.Errorf(job.CodeBatchNotFound, "No batch with this id was found.")
	})
}

func (s *fakeStore) OpenJobs(ctx context.Context, client, batch job.ID) ([]job.ID, error) {
	return apptest.Call(ctx, s.Store, "OpenJobs", func() (open []job.ID, err error) {
		for id, r := range s.Rows {
			if r.BatchID == batch && r.ClientID == client && !r.State.Final() {
				open = append(open, id)
			}
		}
		return open, nil
	})
}

func (s *fakeStore) UnfinishedJobs(ctx context.Context, client job.ID, limit int) ([]job.ID, error) {
	return apptest.Call(ctx, s.Store, "UnfinishedJobs", func() (open []job.ID, err error) {
		for id, r := range s.Rows {
			if r.ClientID == client && !r.State.Final() && len(open) < limit {
				open = append(open, id)
			}
		}
		return open, nil
	})
}

func (s *fakeStore) CancelAll(ctx context.Context, client job.ID, ids []job.ID) (all []job.Canceling, err error) {
	for _, id := range ids {
		change, before, one := s.Cancel(ctx, client, id)
		switch code := job.CodeOf(one); {
		case one != nil && code != job.CodeJobGone && code != job.CodeJobNotFound:
			err = one
		case before != nil:
			all = append(all, job.Canceling{Change: change, Before: before})
		}
	}
	return all, err
}
