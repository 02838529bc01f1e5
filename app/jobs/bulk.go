package jobs

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// BulkStore changes the jobs of a bulk operation, many in one transaction.
type BulkStore interface {
	// RetryItems gives what became of each: Changed is false for a job that was not FAILED at its attempt any more. With
	// override it does so whether failures are retryable or not, and beyond the attempts.
	RetryItems(ctx context.Context, retries []job.ItemRetry, override bool) ([]job.Change, error)
	// CancelItems gives those that were not final.
	CancelItems(ctx context.Context, items []job.BulkItem) ([]job.Canceling, error)
	// DeleteItems gives those that were final and have not changed since they were gathered.
	DeleteItems(ctx context.Context, items []job.BulkItem) ([]job.ID, error)
	// CountsInBatch reports whether a job cannot be deleted because its batch is open.
	CountsInBatch(ctx context.Context, id job.ID) (bool, error)
}

// Bulk changes jobs of a bulk operation as the use cases of single jobs do: the same
// rules, events, tasks, signals and metrics.
type Bulk struct {
	s     *Service
	store BulkStore
}

// NewBulk makes it of a Service that has a Capacity.
func NewBulk(s *Service, store BulkStore) *Bulk { return &Bulk{s, store} }

// DoItems does the action of an operation to items, and gives those that have a result
// now. The others are those for whose next attempt there is no room at the moment.
func (b *Bulk) DoItems(ctx context.Context, operation *job.Bulk, items []job.BulkItem) ([]job.BulkItem, error) {
	ctx = telemetry.WithRequest(ctx, operation.RequestID)
	switch operation.Action {
	case job.BulkRetry:
		return b.retry(ctx, operation, items)
	case job.BulkCancel:
		return b.cancel(ctx, operation, items)
	default:
		return b.delete(ctx, operation, items)
	}
}

var errItemGone = job.Errorf(job.CodeJobGone, "The job was removed.")

// What is said of skipped items.
const (
	itemChanged = "The job has changed since the operation began."
	itemEnded   = "The job was final already."
	itemRemoved = "The job was removed already."
)

// retry queues next attempts. An attempt that the operation did not find is not retried:
// somebody else retried the job since.
func (b *Bulk) retry(ctx context.Context, operation *job.Bulk, items []job.BulkItem) (ended []job.BulkItem, err error) {
	var retries []job.ItemRetry
	var rooms []*reservation
	for _, i := range items {
		switch j := i.Job; {
		case j == nil:
			ended = append(ended, i.Fail(errItemGone))
		case j.Attempt != i.Attempt:
			ended = append(ended, i.End(job.ItemSkipped, "", itemChanged))
		default:
			if left, ok := operation.Left(i); ok {
				ended = append(ended, left)
				continue
			}
			room, err := b.s.deps.Capacity.reserve(ctx, i.ClientID, loadOf(nil))
			if err != nil {
				continue
			}
			rooms = append(rooms, room)
			retries = append(retries, job.ItemRetry{Item: i, Lease: room.leased(),
				Wait: j.Backoff(b.s.cfg.Backoff).Wait(j.Attempt, rand.Float64())})
		}
	}
	if len(retries) == 0 {
		return ended, nil
	}
	changes, err := b.store.RetryItems(ctx, retries, operation.Override)
	for n, room := range rooms {
		room.end(ctx, err == nil && changes[n].Changed, err)
	}
	if err != nil {
		return nil, err
	}
	for n, r := range retries {
		if !changes[n].Changed {
			ended = append(ended, r.Item.End(job.ItemSkipped, "", itemChanged))
			continue
		}
		ended = append(ended, r.Item.End(job.ItemSucceeded, "", ""))
		app.AfterCommit(ctx, func() { b.s.retried(ctx, r.Item.Job, changes[n]) })
	}
	return ended, nil
}

func (b *Bulk) cancel(ctx context.Context, operation *job.Bulk, items []job.BulkItem) (ended []job.BulkItem, err error) {
	var open []job.BulkItem
	for _, i := range items {
		if i.Job == nil {
			ended = append(ended, i.Fail(errItemGone))
		} else if left, ok := operation.Left(i); ok {
			ended = append(ended, left)
		} else {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return ended, nil
	}
	canceled, err := b.store.CancelItems(ctx, open)
	if err != nil {
		return nil, err
	}
	changed := map[job.ID]bool{}
	for _, c := range canceled {
		changed[c.Before.ID] = true
		app.AfterCommit(ctx, func() { b.s.canceled(ctx, c.Before, c.Change) })
	}
	for _, i := range open {
		if changed[i.JobID] {
			ended = append(ended, i.End(job.ItemSucceeded, "", ""))
			continue
		}
		ended = append(ended, i.End(job.ItemSkipped, "", itemEnded))
	}
	return ended, nil
}

// delete removes jobs. One that has changed since it was gathered stays: it may be another
// one than the filter meant.
func (b *Bulk) delete(ctx context.Context, operation *job.Bulk, items []job.BulkItem) (ended []job.BulkItem, err error) {
	var final []job.BulkItem
	for _, i := range items {
		switch j := i.Job; {
		case j == nil:
			ended = append(ended, i.End(job.ItemSkipped, job.CodeJobGone, itemRemoved))
		case j.EventSeq != i.EventSeq:
			ended = append(ended, i.End(job.ItemSkipped, "", itemChanged))
		default:
			if left, ok := operation.Left(i); ok {
				ended = append(ended, left)
				continue
			}
			final = append(final, i)
		}
	}
	if len(final) == 0 {
		return ended, nil
	}
	deleted, err := b.store.DeleteItems(ctx, final)
	if err != nil {
		return nil, err
	}
	for _, i := range final {
		if !slices.Contains(deleted, i.JobID) {
			left, err := b.undeleted(ctx, i)
			if err != nil {
				return nil, err
			}
			ended = append(ended, left)
			continue
		}
		ended = append(ended, i.End(job.ItemSucceeded, "", ""))
		app.AfterCommit(ctx, func() { b.s.deleted(i.Job) })
	}
	return ended, nil
}

// undeleted gives an item whose final job was not deleted, with the reason.
func (b *Bulk) undeleted(ctx context.Context, i job.BulkItem) (job.BulkItem, error) {
	counts, err := b.store.CountsInBatch(ctx, i.JobID)
	if err == nil && counts {
		return i.Fail(job.ErrCountsInBatch), nil
	}
	return i.End(job.ItemSkipped, "", itemChanged), err
}
