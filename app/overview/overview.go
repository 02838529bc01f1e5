// Package overview composes the operator's overview: the state of the service now, its history, and what needs attention.
// It only reads, and any process can.
package overview

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

// Store is what an overview reads. Each call takes a bounded time, however much is stored.
type Store interface {
	// Situation tells how the service is at this moment.
	Situation(ctx context.Context) (admin.Situation, error)
	// History tells what happened in a window, from old to new.
	History(ctx context.Context, w admin.Window) ([]admin.HistoryBucket, error)
	// Ends counts how jobs ended in the last time.
	Ends(ctx context.Context, last time.Duration) (admin.Ends, error)
	// Failures groups failed jobs, the largest group first.
	Failures(ctx context.Context, r admin.Range) (admin.Bounded[admin.FailureGroup], error)
}

// Service makes overviews.
type Service struct{ Store Store }

const (
	endsBack     = 24 * time.Hour   // of the final states that are shown
	failuresBack = 15 * time.Minute // of failures that ask for attention
)

// Overview reads the service's state with the history of a window, which must be one that there is.
func (s Service) Overview(ctx context.Context, w admin.Window) (*admin.Overview, error) {
	_, step := w.Span()
	if step == 0 {
		return nil, job.Errorf(job.CodeValidationFailed, "window must be 15m, 1h or 24h.")
	}
	now, err := s.Store.Situation(ctx)
	if err != nil {
		return nil, err
	}
	buckets, err := s.Store.History(ctx, w)
	if err != nil {
		return nil, err
	}
	day, err := s.Store.Ends(ctx, endsBack)
	if err != nil {
		return nil, err
	}
	failing, err := s.failing(ctx, now.AsOf)
	if err != nil {
		return nil, err
	}
	return &admin.Overview{
		AsOf: now.AsOf,
		States: map[job.State]int{
			job.Created: now.Created, job.Queued: now.Queued, job.Assigned: now.Assigned, job.Running: now.Running,
			job.Succeeded: day.Succeeded, job.Failed: day.Failed, job.Canceled: day.Canceled,
		},
		Waiting: now.Waiting, Workers: now.Workers,
		History:   admin.History{StepSeconds: int(step / time.Second), Buckets: buckets},
		Attention: attention(now, failing),
	}, nil
}

// failures is a time in which many jobs failed.
type failures struct {
	admin.Ends
	most *admin.FailureGroup // nil: not known
}

// failing gives the failures of the last quarter of an hour, if they are many. Only then are they looked at one by one.
func (s Service) failing(ctx context.Context, now job.Time) (*failures, error) {
	ends, err := s.Store.Ends(ctx, failuresBack)
	if err != nil || !many(ends) {
		return nil, err
	}
	from := time.Time(now).Add(-failuresBack)
	groups, err := s.Store.Failures(ctx, admin.Range{From: &from})
	if err != nil {
		return nil, err
	}
	found := &failures{Ends: ends}
	if len(groups.Data) > 0 {
		found.most = &groups.Data[0]
	}
	return found, nil
}
