package apptest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/forgerun/forgerun/job"
)

func (s *Store) Lead(ctx context.Context, holder job.ID, lease, vacant time.Duration) (bool, error) {
	return Call(ctx, s, "Lead", func() (bool, error) {
		if s.Leader != holder && time.Now().Before(s.LeaderUntil.Add(vacant)) {
			return false, nil
		}
		s.Leader, s.LeaderUntil = holder, time.Now().Add(lease)
		return true, nil
	})
}

func (s *Store) Resign(ctx context.Context, holder job.ID) error {
	return Do(ctx, s, "Resign", func() error {
		if s.Leader == holder {
			s.Leader, s.LeaderUntil = job.ID{}, time.Time{}
		}
		return nil
	})
}

func (s *Store) QueueDue(ctx context.Context, limit int) ([]job.Job, error) {
	return Call(ctx, s, "QueueDue", func() (due []job.Job, err error) {
		for _, r := range s.Rows {
			if len(due) < limit && r.State == job.Created && !r.ExecutionAt.After(time.Now()) {
				s.Move(r, job.Queued)
				due = append(due, r.Job)
			}
		}
		return due, nil
	})
}

func (s *Store) Epoch(ctx context.Context) (int64, string, error) {
	var epoch int64
	var runID string
	err := Do(ctx, s, "Epoch", func() error {
		epoch, runID = s.DispatchEpoch, s.RunID
		return nil
	})
	return epoch, runID, err
}

func (s *Store) RaiseEpoch(ctx context.Context, current int64, runID string) error {
	return Do(ctx, s, "RaiseEpoch", func() error {
		if s.DispatchEpoch == current {
			s.DispatchEpoch, s.RunID = current+1, runID
		}
		return nil
	})
}

func (s *Store) Waiting(ctx context.Context, after job.QueueCursor, ahead time.Duration, limit int) ([]job.Task, error) {
	return Call(ctx, s, "Waiting", func() (tasks []job.Task, err error) {
		tasks = s.dueWithin(ahead, after)
		return tasks[:min(limit, len(tasks))], nil
	})
}

func (s *Store) CountDue(ctx context.Context, limit int) (int, error) {
	return Call(ctx, s, "CountDue", func() (int, error) { return min(len(s.dueWithin(0, job.QueueCursor{})), limit), nil })
}

// dueWithin gives the tasks of waiting jobs after a place that are due by then, in their order.
func (s *Store) dueWithin(ahead time.Duration, after job.QueueCursor) (tasks []job.Task) {
	for _, r := range s.Rows {
		if t := TaskOf(r); r.State.Waiting() && !r.RunAt.After(time.Now().Add(ahead)) && t.Cursor().Compare(after) > 0 {
			tasks = append(tasks, t)
		}
	}
	slices.SortFunc(tasks, func(a, b job.Task) int { return a.Cursor().Compare(b.Cursor()) })
	return tasks
}

// NoDeliveries is storage without deliveries, for the relay of the maintenance.
type NoDeliveries struct{}

func (NoDeliveries) ReclaimDeliveries(context.Context, int) (int, error) { return 0, nil }
func (NoDeliveries) FailOrphans(context.Context, int, int) (int, error)  { return 0, nil }
func (NoDeliveries) DueClients(context.Context, job.EndpointKey, time.Duration, int) ([]job.ID, job.EndpointKey, error) {
	return nil, job.EndpointKey{}, nil
}

func (NoDeliveries) WaitingDeliveries(context.Context, job.EndpointKey, int, int, int, time.Duration) (
	[]job.Delivery, job.EndpointKey, error,
) {
	return nil, job.EndpointKey{}, nil
}

// Backlog counts nothing.
func (s *Store) Backlog(ctx context.Context, _ int) (job.Backlog, error) {
	return Call(ctx, s, "Backlog", func() (job.Backlog, error) { return job.Backlog{}, nil })
}

// Clean finds nothing to remove.
func (s *Store) Clean(ctx context.Context, _ int) (bool, error) {
	return Call(ctx, s, "Clean", func() (bool, error) { return false, nil })
}

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

func (s *Store) Orphans(ctx context.Context, limit int) ([]job.Held, error) {
	return Call(ctx, s, "Orphans", func() ([]job.Held, error) {
		held := s.held(func(id job.ID) bool { return !s.Alive(id) })
		return held[:min(limit, len(held))], nil
	})
}

func (s *Store) Redispatch(ctx context.Context, tasks []job.Task) ([]job.Task, error) {
	return Call(ctx, s, "Redispatch", func() ([]job.Task, error) {
		var renamed []job.Task
		for _, t := range tasks {
			if r := s.waiting(t); r != nil && !r.Locked {
				r.Dispatch++
				renamed = append(renamed, TaskOf(r))
			}
		}
		return renamed, nil
	})
}

// waiting gives the row that a task still names.
func (s *Store) waiting(t job.Task) *Row {
	r := s.Rows[t.JobID]
	if r == nil || !r.State.Waiting() || r.Attempt != t.Attempt || r.Dispatch != t.Dispatch {
		return nil
	}
	return r
}
