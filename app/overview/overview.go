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
	// Ends counts how many jobs were submitted in the last time, and how jobs ended.
	Ends(ctx context.Context, last time.Duration) (admin.Ends, error)
	// Failures groups failed jobs, the largest group first.
	Failures(ctx context.Context, r admin.Range) (admin.Bounded[admin.FailureGroup], error)
}

// Service makes overviews.
type Service struct{ Store Store }

const (
	endsBack   = 24 * time.Hour   // of the final states that are shown
	recentBack = 15 * time.Minute // of what asks for attention
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
	last, err := s.recent(ctx, now.AsOf)
	if err != nil {
		return nil, err
	}
	return &admin.Overview{
		AsOf: now.AsOf,
		States: map[job.State]int{
			job.Created: now.Created, job.Queued: now.Queued, job.Assigned: now.Assigned, job.Running: now.Running,
		},
		Ended:   map[job.State]int{job.Succeeded: day.Succeeded, job.Failed: day.Failed, job.Canceled: day.Canceled},
		Waiting: now.Waiting, Workers: now.Workers, Deliveries: now.Deliveries,
		History:   admin.History{StepSeconds: int(step / time.Second), Buckets: buckets},
		Attention: attention(now, last),
	}, nil
}

// recent is what happened in the last quarter of an hour.
type recent struct {
	admin.Ends
	most *admin.FailureGroup // nil: not many failed, or it is not known how
}

// recent looks at failures one by one only if there are many.
func (s Service) recent(ctx context.Context, now job.Time) (last recent, err error) {
	if last.Ends, err = s.Store.Ends(ctx, recentBack); err != nil || !many(last.Ends) {
		return last, err
	}
	from := time.Time(now).Add(-recentBack)
	groups, err := s.Store.Failures(ctx, admin.Range{From: &from})
	if err == nil && len(groups.Data) > 0 {
		last.most = &groups.Data[0]
	}
	return last, err
}
