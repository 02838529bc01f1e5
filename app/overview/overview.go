// Package overview builds the operator's overview: the current state of the service, its history, and what needs attention. It only
// reads, and works in every process.
package overview

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/repo"
)

// Service builds overviews.
type Service struct{ Store *repo.Store }

const (
	endsBack   = 24 * time.Hour // period in which ended jobs are counted by state
	recentBack = 15 * time.Minute
)

// Overview reads the service's state with the history of a window, which must be 15m, 1h or 24h. Each query has a bounded duration.
func (s Service) Overview(ctx context.Context, w admin.Window) (*admin.Overview, error) {
	_, step := w.Span()
	if step == 0 {
		return nil, job.Errorf(job.CodeValidationFailed, "window must be 15m, 1h or 24h.")
	}
	read := s.Store.Admin()
	now, err := read.Situation(ctx)
	if err != nil {
		return nil, err
	}
	buckets, err := read.History(ctx, w)
	if err != nil {
		return nil, err
	}
	day, err := read.Ends(ctx, endsBack)
	if err != nil {
		return nil, err
	}
	recent, err := read.Ends(ctx, recentBack)
	if err != nil {
		return nil, err
	}
	var failures admin.Bounded[admin.FailureGroup]
	if manyFailed(recent) { // grouping is slow, so do it only if attention shows its result
		from := time.Time(now.AsOf).Add(-recentBack)
		if failures, err = read.Failures(ctx, admin.Range{From: &from}); err != nil {
			return nil, err
		}
	}
	return &admin.Overview{
		AsOf: now.AsOf,
		States: map[job.State]int{
			job.Created: now.Created, job.Queued: now.Queued, job.Assigned: now.Assigned, job.Running: now.Running,
		},
		Ended:   map[job.State]int{job.Succeeded: day.Succeeded, job.Failed: day.Failed, job.Canceled: day.Canceled},
		Waiting: now.Waiting, Workers: now.Workers, Deliveries: now.Deliveries,
		History:   admin.History{StepSeconds: int(step / time.Second), Buckets: buckets},
		Attention: attention(now, recent, failures.Data),
	}, nil
}
