// Package bulk has the operations on many jobs: retry, cancel or delete all jobs that match a filter. The Service starts, shows and
// aborts them. The Runner in the leader process applies them in small parts, at a limited rate.
package bulk

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

const (
	lookAtOnce = 20_000          // jobs per statement of Count
	lookTime   = 2 * time.Second // after this time, Count starts no further statement
)

// Service has the use cases of bulk operations. Methods that read are in the embedded Store. The zero client id gives access to the
// operations of all clients.
type Service struct {
	*repo.Store
	log *slog.Logger
}

// New returns a Service.
func New(store *repo.Store, log *slog.Logger) *Service { return &Service{store, log} }

// Begin stores an operation. The leader applies it.
func (s *Service) Begin(ctx context.Context, r job.BulkRequest) (*job.Bulk, error) {
	b, err := s.Store.InsertBulk(ctx, job.Bulk{
		ID: app.NewID(), Owner: r.Owner, Action: r.Action, Filter: r.Filter, Rate: r.Rate, Override: r.Override, RequestID: r.RequestID,
	})
	if err != nil {
		return nil, err
	}
	app.AfterCommit(ctx, func() { logBulk(ctx, s.log, "bulk operation accepted", "begin_bulk", b) })
	return b, nil
}

// Count counts the matching jobs without changing them, and returns some of the newest. It stops after job.MaxBulkItems jobs or lookTime.
func (s *Service) Count(ctx context.Context, r job.BulkRequest) (job.BulkCount, error) {
	var c job.BulkCount
	var first []job.ID
	client := (&job.Bulk{Owner: r.Owner, Filter: r.Filter}).JobsOf()
	began, before := time.Now(), job.ID{}
	for {
		l, err := s.Store.CountBulk(ctx, client, r.Filter, before, lookAtOnce)
		if err != nil {
			return c, err
		}
		before = l.Last
		tally(&c, &job.Bulk{Action: r.Action, Override: r.Override}, l.Alike)
		first = append(first, l.First...)
		if l.Looked < lookAtOnce {
			break
		}
		if c.Count > job.MaxBulkItems || time.Since(began) > lookTime {
			c.More = true
			break
		}
	}
	if c.Count > job.MaxBulkItems {
		c.Count, c.Changes, c.More = job.MaxBulkItems, min(c.Changes, job.MaxBulkItems), true
	}
	c.Left = mostFrequentFirst(c.Left)
	var err error
	c.Sample, err = s.Store.BulkJobs(ctx, first[:min(len(first), job.BulkSample)])
	return c, err
}

func mostFrequentFirst(reasons []job.BulkReason) []job.BulkReason {
	slices.SortStableFunc(reasons, func(a, b job.BulkReason) int { return b.Count - a.Count })
	return reasons
}

func tally(c *job.BulkCount, operation *job.Bulk, jobs []job.BulkAlike) {
	for _, a := range jobs {
		c.Count += a.Count
		item, left := operation.Left(job.BulkItem{Job: &job.Job{
			State: a.State, Attempt: a.Attempt, MaxAttempts: a.MaxAttempts, Failure: &job.Failure{Retryable: a.Retryable},
		}})
		if !left && operation.Action == job.BulkDelete && a.InOpenBatch {
			item, left = item.Fail(job.ErrCountsInBatch), true
		}
		if !left {
			c.Changes += a.Count
			continue
		}
		same := func(r job.BulkReason) bool { return r.Result == item.Result && r.Detail == item.Detail }
		at := slices.IndexFunc(c.Left, same)
		if at < 0 {
			at = len(c.Left)
			c.Left = append(c.Left, job.BulkReason{Result: item.Result, Detail: item.Detail})
			if item.Code != "" {
				c.Left[at].Code = &item.Code
			}
		}
		c.Left[at].Count += a.Count
	}
}

// Abort stops an operation. Finished items are not undone. Aborting an aborted operation returns the same result. Aborting a finished
// operation is a conflict.
func (s *Service) Abort(ctx context.Context, client, id job.ID) (*job.Bulk, error) {
	b, changed, err := s.AbortBulk(ctx, client, id)
	if err == nil && changed {
		app.AfterCommit(ctx, func() { logBulk(ctx, s.log, "bulk operation aborted", "abort_bulk", b) })
	}
	return b, err
}

func logBulk(ctx context.Context, log *slog.Logger, message, action string, b *job.Bulk) {
	attrs := []slog.Attr{
		slog.String("action", action), slog.String("request_id", b.RequestID), slog.String("bulk_id", b.ID.String()),
		slog.String("bulk_action", string(b.Action)), slog.Int("total", b.Total), slog.Int("done", b.Done),
	}
	if !b.Owner.ClientID.IsZero() {
		attrs = append(attrs, slog.String("client_id", b.Owner.ClientID.String()))
	}
	if b.Owner.Operator != "" {
		attrs = append(attrs, slog.String("operator", b.Owner.Operator))
	}
	log.LogAttrs(ctx, slog.LevelInfo, message, attrs...)
}
