package apptest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/forgerun/forgerun/job"
)

// Counted gives a copy of a batch with the numbers of its jobs.
func (s *Store) Counted(b *job.Batch) *job.Batch {
	c := *b
	c.Counts = map[job.State]int{}
	for _, r := range s.Rows {
		if r.BatchID == b.ID {
			c.Counts[r.State]++
		}
	}
	return &c
}

func (s *Store) ReadyBatches(ctx context.Context, after job.ID, look int) (ready []job.ID, last job.ID, err error) {
	err = Do(ctx, s, "ReadyBatches", func() error {
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
			if !s.Counted(s.Batches[id]).Unfinished() {
				ready = append(ready, id)
			}
		}
		return nil
	})
	return ready, last, err
}

func (s *Store) CompleteBatches(ctx context.Context, ids []job.ID) ([]job.Batch, error) {
	return Call(ctx, s, "CompleteBatches", func() (ended []job.Batch, err error) {
		for id, b := range s.Batches {
			c := s.Counted(b).Counts
			if b.Outcome != nil || !slices.Contains(ids, id) || s.Counted(b).Unfinished() {
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
