package apptest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/forgerun/forgerun/job"
)

// The part of fakeStore that batches need.

func (s *Store) InsertBatch(ctx context.Context, sub job.BatchSubmission) (*job.Batch, bool, error) {
	replayed := false
	b, err := call(ctx, s, "InsertBatch", func() (*job.Batch, error) {
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
			r := &Row{Job: j, History: []job.State{job.Created}}
			r.Attempt, r.CreatedAt, r.UpdatedAt, r.RunAt, r.State = 1, b.CreatedAt, b.CreatedAt, b.CreatedAt, job.Created
			if r.ExecutionAt != nil {
				r.RunAt = *r.ExecutionAt
			} else {
				s.Move(r, job.Queued)
			}
			s.Rows[r.ID] = r
		}
		return s.counted(&b), nil
	})
	return b, replayed, err
}

func (s *Store) batchOf(client job.ID, key string, hash [32]byte) (*job.Batch, error) {
	known, ok := s.keys["batch"+client.String()+key]
	switch {
	case !ok || key == "":
		return nil, nil
	case known.hash != hash:
		return nil, job.Errorf(job.CodeIdempotencyConflict, "This idempotency key was used for a different request.")
	}
	return s.counted(s.Batches[known.JobID]), nil
}

// counted gives a copy of a batch with the numbers of its jobs.
func (s *Store) counted(b *job.Batch) *job.Batch {
	c := *b
	c.Counts = map[job.State]int{}
	for _, r := range s.Rows {
		if r.BatchID == b.ID {
			c.Counts[r.State]++
		}
	}
	return &c
}

func (s *Store) FindBatch(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Batch, error) {
	return call(ctx, s, "FindBatch", func() (*job.Batch, error) { return s.batchOf(client, key, hash) })
}

func (s *Store) Batch(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	return call(ctx, s, "Batch", func() (*job.Batch, error) {
		if b := s.Batches[id]; b != nil && b.ClientID == client {
			return s.counted(b), nil
		}
		return nil, job.Errorf(job.CodeBatchNotFound, "No batch with this id was found.")
	})
}

func (s *Store) OpenJobs(ctx context.Context, client, batch job.ID) ([]job.ID, error) {
	return call(ctx, s, "OpenJobs", func() (open []job.ID, err error) {
		for id, r := range s.Rows {
			if r.BatchID == batch && r.ClientID == client && !r.State.Final() {
				open = append(open, id)
			}
		}
		return open, nil
	})
}

func (s *Store) ReadyBatches(ctx context.Context, after job.ID, look int) (ready []job.ID, last job.ID, err error) {
	_, err = call(ctx, s, "ReadyBatches", func() (struct{}, error) {
		var open []job.ID
		for id, b := range s.Batches {
			if b.Outcome == nil && bytes.Compare(id[:], after[:]) > 0 {
				open = append(open, id)
			}
		}
		slices.SortFunc(open, func(a, b job.ID) int { return bytes.Compare(a[:], b[:]) })
		if len(open) >= look {
			open = open[:look]
			last = open[look-1]
		}
		for _, id := range open {
			if !s.counted(s.Batches[id]).Unfinished() {
				ready = append(ready, id)
			}
		}
		return struct{}{}, nil
	})
	return ready, last, err
}

func (s *Store) CompleteBatches(ctx context.Context, ids []job.ID) ([]job.Batch, error) {
	return call(ctx, s, "CompleteBatches", func() (ended []job.Batch, err error) {
		for id, b := range s.Batches {
			c := s.counted(b).Counts
			if b.Outcome != nil || !slices.Contains(ids, id) || s.counted(b).Unfinished() {
				continue
			}
			failed := c[job.Failed] + b.Refused()
			b.Outcome = &job.BatchOutcome{
				Status:      job.BatchStatus(c[job.Succeeded], failed, c[job.Canceled]),
				CompletedAt: time.Now(), Succeeded: c[job.Succeeded], Failed: failed, Canceled: c[job.Canceled],
			}
			ended = append(ended, *b)
		}
		return ended, nil
	})
}
