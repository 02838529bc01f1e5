package jobs

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

const (
	itemChanged = "The job has changed since the operation began."
	itemEnded   = "The job has already ended."
	itemRemoved = "The job was removed already."
)

var errItemGone = job.Errorf(job.CodeJobGone, "The job was removed.")

// DoItems applies a bulk operation to some items. An item has the same effects as a single request for its job. DoItems returns the items
// with their results. If no capacity is free for an item, DoItems leaves it out. The caller then tries this item again later.
func (s *Service) DoItems(ctx context.Context, operation *job.Bulk, items []job.BulkItem) (ended []job.BulkItem, err error) {
	ctx = telemetry.WithRequest(ctx, operation.RequestID)
	var open []job.BulkItem
	for _, i := range items {
		if left, ok := leftItem(operation, i); ok {
			ended = append(ended, left)
		} else {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return ended, nil
	}
	var changed []job.BulkItem
	switch operation.Action {
	case job.BulkRetry:
		changed, err = s.retryItems(ctx, operation, open)
	case job.BulkCancel:
		changed, err = s.cancelItems(ctx, open)
	default:
		changed, err = s.deleteItems(ctx, open)
	}
	if err != nil {
		return nil, err
	}
	return append(ended, changed...), nil
}

// leftItem returns the result of an item that is skipped, or false if the item must be processed. It skips a retry if the job was
// retried after the operation started. It skips a deletion if the job has changed since the operation started, because the job may no
// longer match the filter.
func leftItem(operation *job.Bulk, i job.BulkItem) (job.BulkItem, bool) {
	switch j := i.Job; {
	case j == nil && operation.Action == job.BulkDelete:
		return i.End(job.ItemSkipped, job.CodeJobGone, itemRemoved), true
	case j == nil:
		return i.Fail(errItemGone), true
	case operation.Action == job.BulkRetry && j.Attempt != i.Attempt, operation.Action == job.BulkDelete && j.EventSeq != i.EventSeq:
		return i.End(job.ItemSkipped, "", itemChanged), true
	}
	return operation.Left(i)
}

func (s *Service) retryItems(ctx context.Context, operation *job.Bulk, items []job.BulkItem) (ended []job.BulkItem, err error) {
	var retries []job.ItemRetry
	var rooms []*reservation
	for _, i := range items {
		room, err := s.Admission.reserve(ctx, i.ClientID, oneQueued)
		if err != nil {
			continue
		}
		rooms = append(rooms, room)
		retries = append(retries, job.ItemRetry{Item: i, Lease: room.leased(),
			Wait: i.Job.Backoff(s.cfg.Backoff).Wait(i.Job.Attempt, rand.Float64())})
	}
	if len(retries) == 0 {
		return nil, nil
	}
	changes, err := s.Store.RetryItems(ctx, retries, operation.Override)
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
		app.AfterCommit(ctx, func() { s.finishRetry(ctx, r.Item.Job, changes[n]) })
	}
	return ended, nil
}

func (s *Service) cancelItems(ctx context.Context, items []job.BulkItem) (ended []job.BulkItem, err error) {
	canceled, err := s.Store.CancelItems(ctx, items)
	if err != nil {
		return nil, err
	}
	for _, c := range canceled {
		app.AfterCommit(ctx, func() { s.finishCancel(ctx, c.Before, c.Change) })
	}
	for _, i := range items {
		if slices.ContainsFunc(canceled, func(c job.Canceling) bool { return c.Before.ID == i.JobID }) {
			ended = append(ended, i.End(job.ItemSucceeded, "", ""))
		} else {
			ended = append(ended, i.End(job.ItemSkipped, "", itemEnded))
		}
	}
	return ended, nil
}

func (s *Service) deleteItems(ctx context.Context, items []job.BulkItem) (ended []job.BulkItem, err error) {
	deleted, err := s.Store.DeleteItems(ctx, items)
	if err != nil {
		return nil, err
	}
	for _, i := range items {
		if slices.Contains(deleted, i.JobID) {
			ended = append(ended, i.End(job.ItemSucceeded, "", ""))
			app.AfterCommit(ctx, func() { s.finishDelete(i.Job) })
			continue
		}
		switch counts, err := s.Store.CountsInBatch(ctx, i.JobID); {
		case err != nil:
			return nil, err
		case counts:
			ended = append(ended, i.Fail(job.ErrCountsInBatch))
		default:
			ended = append(ended, i.End(job.ItemSkipped, "", itemChanged))
		}
	}
	return ended, nil
}
