// Package bulk holds operations on many jobs: retry, cancel or delete all that match a
// filter. The use cases begin, show and abort them; the Runner, in the process that leads
// the maintenance, does them a part at a time, at a bounded rate. What is done to a job is
// not decided here, but where single jobs are retried, canceled and deleted.
package bulk

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// Store is what the use cases need of storage. A zero client stands for anybody's
// operations.
type Store interface {
	InsertBulk(ctx context.Context, b job.Bulk) (*job.Bulk, error)
	Bulk(ctx context.Context, client, id job.ID) (*job.Bulk, error)
	Bulks(ctx context.Context, client job.ID, q job.BulkQuery) (list []*job.Bulk, next job.ID, err error)
	BulkItems(ctx context.Context, client, id job.ID, q job.BulkQuery) (items []job.BulkItem, next job.ID, err error)
	AbortBulk(ctx context.Context, client, id job.ID) (b *job.Bulk, changed bool, err error)
}

// LookStore looks at the jobs that an operation would be about.
type LookStore interface {
	// CountBulk looks at so many jobs before the given one, from new to old.
	CountBulk(ctx context.Context, client job.ID, f job.BulkFilter, before job.ID, look int) (job.BulkLook, error)
	BulkJobs(ctx context.Context, ids []job.ID) ([]*job.Job, error)
}

// Bounds of a dry run: it looks at parts of the jobs until its time is over.
const (
	lookAtOnce = 20_000
	lookTime   = 2 * time.Second
)

// Service is the use cases of bulk operations.
type Service struct {
	store Store
	look  LookStore
	clock app.Clock
	log   *slog.Logger
}

// New makes the use cases; the clock is time.Now if nil.
func New(store Store, look LookStore, clock app.Clock, log *slog.Logger) *Service {
	if clock == nil {
		clock = time.Now
	}
	return &Service{store, look, clock, log}
}

// Begin stores an operation, which the maintenance leader does.
func (s *Service) Begin(ctx context.Context, r job.BulkRequest) (*job.Bulk, error) {
	b, err := s.store.InsertBulk(ctx, job.Bulk{
		ID: app.NewID(), Owner: r.Owner, Action: r.Action, Filter: r.Filter, Rate: r.Rate, Override: r.Override, RequestID: r.RequestID,
	})
	if err != nil {
		return nil, err
	}
	app.AfterCommit(ctx, func() { logBulk(ctx, s.log, "bulk operation accepted", "begin_bulk", b) })
	return b, nil
}

// Count is a dry run: it counts the jobs that an operation would be about now, as far as
// its bounds allow, and gives the newest ones.
func (s *Service) Count(ctx context.Context, r job.BulkRequest) (job.BulkCount, error) {
	var c job.BulkCount
	var first []job.ID
	client := (&job.Bulk{Owner: r.Owner, Filter: r.Filter}).JobsOf()
	began, before := s.clock(), job.ID{}
	for {
		l, err := s.look.CountBulk(ctx, client, r.Filter, before, lookAtOnce)
		if err != nil {
			return c, err
		}
		before = l.Last
		tally(&c, &job.Bulk{Action: r.Action, Override: r.Override}, l.Alike)
		first = append(first, l.First...)
		if l.Looked < lookAtOnce {
			break
		}
		if c.Count > job.MaxBulkItems || s.clock().Sub(began) > lookTime {
			c.More = true
			break
		}
	}
	if c.Count > job.MaxBulkItems {
		c.Count, c.Changes, c.More = job.MaxBulkItems, min(c.Changes, job.MaxBulkItems), true
	}
	slices.SortStableFunc(c.Left, func(a, b job.BulkReason) int { return b.Count - a.Count })
	var err error
	c.Sample, err = s.look.BulkJobs(ctx, first[:min(len(first), job.BulkSample)])
	return c, err
}

// tally adds jobs to the count: those that the operation would change, and the others by reason.
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

// Bulk reads an operation of the owner.
func (s *Service) Bulk(ctx context.Context, owner job.BulkOwner, id job.ID) (*job.Bulk, error) {
	return s.store.Bulk(ctx, owner.ClientID, id)
}

// Bulks lists the owner's operations, the newest first, and says where to go on.
func (s *Service) Bulks(ctx context.Context, owner job.BulkOwner, q job.BulkQuery) ([]*job.Bulk, job.ID, error) {
	return s.store.Bulks(ctx, owner.ClientID, q)
}

// Items lists the items of an operation of the owner, and says where to go on.
func (s *Service) Items(ctx context.Context, owner job.BulkOwner, id job.ID, q job.BulkQuery) ([]job.BulkItem, job.ID, error) {
	return s.store.BulkItems(ctx, owner.ClientID, id, q)
}

// Abort ends an operation of the owner where it is: what was done stays done. A repetition
// gives the same answer; an operation that is done is a conflict.
func (s *Service) Abort(ctx context.Context, owner job.BulkOwner, id job.ID) (*job.Bulk, error) {
	b, changed, err := s.store.AbortBulk(ctx, owner.ClientID, id)
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
