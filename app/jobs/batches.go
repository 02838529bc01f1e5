package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// BatchStore is what batches need of storage.
type BatchStore interface {
	InsertBatch(ctx context.Context, sub job.BatchSubmission) (b *job.Batch, replayed bool, err error)
	FindBatch(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Batch, error)
	Batch(ctx context.Context, client, id job.ID) (*job.Batch, error)
	OpenJobs(ctx context.Context, client, batch job.ID) ([]job.ID, error)
	// UnfinishedJobs gives at most limit of a client's jobs that are not final.
	UnfinishedJobs(ctx context.Context, client job.ID, limit int) ([]job.ID, error)
	// CancelAll cancels those jobs that are not final, and gives them even with an error.
	CancelAll(ctx context.Context, client job.ID, jobs []job.ID) ([]job.Canceling, error)
}

// SubmitBatch accepts many jobs in one commit. Items that are not valid are
// refused one by one; for the others there is room, or none is accepted. A
// request whose idempotency key is known gets its first answer, whatever the
// time and the load are now.
func (s *Service) SubmitBatch(ctx context.Context, r job.BatchRequest) (b *job.Batch, replayed bool, err error) {
	ctx, span := app.BeginSpan(ctx, telemetry.SpanBatch, r.ClientID)
	defer func() { endBatch(span, r.RequestID, b, err) }()
	proven, err := s.provenOf(ctx, r.ClientID, slices.ContainsFunc(r.Items, func(i job.ItemRequest) bool { return i.Request.Callback != "" }))
	if err != nil {
		return nil, false, err
	}
	sub, refused := s.batchOf(r, proven)
	if refused != nil {
		return s.replayBatchOr(ctx, r, refused) // the first one may have come in time
	}
	for i := range sub.Jobs {
		if refusal := s.drained(&sub.Jobs[i]); refusal != nil {
			return s.replayBatchOr(ctx, r, refusal)
		}
	}
	room, err := s.deps.Capacity.reserve(ctx, r.ClientID, loadOfAll(sub.Jobs))
	if err != nil {
		return s.replayBatchOr(ctx, r, err)
	}
	if err := s.weigh(ctx, r.ClientID, sub.Jobs...); err != nil {
		room.end(ctx, false, nil)
		return s.replayBatchOr(ctx, r, err)
	}
	for i := range sub.Jobs {
		sub.Jobs[i].Lease = room.leased()
	}
	sub.Committed = s.enqueueAll(ctx, sub.Jobs)
	b, replayed, err = s.deps.Batches.InsertBatch(ctx, sub)
	room.end(ctx, err == nil && !replayed, err)
	switch {
	case err != nil:
		return nil, false, err
	case replayed:
		s.deps.Metrics.IdempotencyHits.Inc()
		return b, true, nil
	}
	for i := range sub.Jobs {
		s.accepted(ctx, &sub.Jobs[i], stateAtAcceptance(&sub.Jobs[i]))
	}
	s.deps.Queue.Publish(job.Notification{ClientID: r.ClientID}) // no client can watch one of the jobs yet
	for _, j := range sub.Jobs {
		if s.receivers(r.ClientID, j.Callback) > 0 {
			s.deps.Queue.Deliver(r.ClientID, j.ID)
		}
	}
	if len(sub.Jobs) == 0 {
		s.deps.Completer.Touch(sub.Batch.ID)
	}
	return b, false, nil
}

// enqueueAll returns a function that enqueues the first attempts of jobs, in their order.
func (s *Service) enqueueAll(ctx context.Context, jobs []job.Job) func() {
	return func() {
		for i := range jobs {
			s.deps.Queue.Enqueue(firstTask(ctx, &jobs[i]))
		}
	}
}

// batchOf decides about each item. The ids rise in the request's order, so
// lists show the jobs in it. An error refuses all: together the items have more
// violations than are listed.
func (s *Service) batchOf(r job.BatchRequest, proven origins) (job.BatchSubmission, error) {
	sub := job.BatchSubmission{
		Batch: job.Batch{
			ID: app.NewID(), ClientID: r.ClientID, RequestID: r.RequestID, CorrelationID: r.CorrelationID, Language: r.Language,
			Items: make([]job.BatchItem, len(r.Items)),
		},
		IdempotencyKey: r.IdempotencyKey, RequestHash: r.Hash,
	}
	now := s.cfg.Clock()
	var all []job.Violation
	whole := job.Request{Unlisted: r.Unlisted}
	for i := range r.Items {
		item, answer := itemRequest(r, i), &sub.Batch.Items[i]
		answer.ItemID = r.Items[i].ItemID
		j, violations := s.itemJob(item, now, proven)
		whole.Malformed = whole.Malformed || item.Malformed
		switch {
		case len(all) > job.MaxViolations: // which is enough to refuse it
			whole.Unlisted += len(violations)
			continue
		case len(violations) > 0:
			answer.Refusal = refusal(i, item.Refusal(violations))
			all = append(all, answer.Refusal.Violations...)
			continue
		}
		j.BatchID = sub.Batch.ID
		answer.JobID, answer.State = j.ID, stateAtAcceptance(&j)
		sub.Jobs = append(sub.Jobs, j)
	}
	if whole.Unlisted > 0 || len(all) > job.MaxViolations {
		return job.BatchSubmission{}, whole.Refusal(all)
	}
	return sub, nil
}

// itemRequest is the request for one item: the item's own, with what the batch
// request says for all. Each item has a moment of its own, by its index in
// microseconds, so that each draws a definition of its own.
func itemRequest(r job.BatchRequest, i int) job.Request {
	item := r.Items[i].Request
	item.ClientID, item.RequestID, item.Language = r.ClientID, r.RequestID, r.Language
	item.ReceivedAt = r.ReceivedAt.Add(time.Duration(i) * time.Microsecond)
	if r.CorrelationID != "" {
		item.CorrelationID = r.CorrelationID
	}
	return item
}

// itemJob makes an item's job, or lists everything that is wrong with the item,
// with pointers into the item.
func (s *Service) itemJob(r job.Request, now time.Time, proven origins) (job.Job, []job.Violation) {
	violations := append(s.check(r, now), s.checkNow(r, now, proven)...)
	if len(violations) > 0 {
		return job.Job{}, violations
	}
	return s.define(r)
}

// maxRefusalBytes bounds the detail of a refused item: a batch keeps up to
// job.MaxBatchItems of them.
const maxRefusalBytes = 300

// refusal is what a batch keeps of an item's error, with pointers into the request.
func refusal(index int, err *job.Error) *job.Refusal {
	r, lead := &job.Refusal{Code: err.Code}, "The item has invalid values."
	if err.Code == job.CodeMalformed {
		lead = "The item is not of the expected form."
	}
	for _, v := range err.Violations {
		v.Pointer = fmt.Sprintf("/jobs/%d%s", index, v.Pointer)
		r.Violations = append(r.Violations, v)
	}
	r.Detail = job.PlainText(job.WithFirst(lead, r.Violations), maxRefusalBytes)
	return r
}

func stateAtAcceptance(j *job.Job) job.State {
	if j.ExecutionAt != nil {
		return job.Created
	}
	return job.Queued
}

func loadOfAll(jobs []job.Job) (sum job.Load) {
	for i := range jobs {
		one := loadOf(jobs[i].ExecutionAt)
		sum.Active += one.Active
		sum.Queued += one.Queued
	}
	return sum
}

// replayBatchOr answers a batch request that is refused now with its first
// answer, if it was accepted before.
func (s *Service) replayBatchOr(ctx context.Context, r job.BatchRequest, refusal error) (*job.Batch, bool, error) {
	if r.IdempotencyKey == "" {
		return nil, false, refusal
	}
	b, err := s.deps.Batches.FindBatch(ctx, r.ClientID, r.IdempotencyKey, r.Hash)
	switch {
	case err != nil:
		return nil, false, err
	case b == nil:
		return nil, false, refusal
	}
	s.deps.Metrics.IdempotencyHits.Inc()
	return b, true, nil
}

// Batch reads a client's batch.
func (s *Service) Batch(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	return s.deps.Batches.Batch(ctx, client, id)
}

// CancelBatch stops the jobs of a batch that are not final, a part of them at a
// time so that others' requests come in between, and gives the batch as it is
// then, with its outcome. What it could not do, a repetition does.
func (s *Service) CancelBatch(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	open, err := s.deps.Batches.OpenJobs(ctx, client, id)
	if err != nil {
		return nil, err
	}
	for part := range slices.Chunk(open, cancelPart) {
		if _, err := s.cancelAll(ctx, client, part); err != nil {
			return nil, err
		}
	}
	return s.completed(ctx, client, id)
}

const (
	cancelPart     = 75   // of a batch, at a time: some 35 ms of the processes' and the database's time
	canceledAtOnce = 1000 // the most that CancelClient stops: some seconds' work
)

// CancelClient stops jobs of a client that are not final, a part of them at a
// time: more says that there may be others.
func (s *Service) CancelClient(ctx context.Context, client job.ID) (canceled int, more bool, err error) {
	unfinished, err := s.deps.Batches.UnfinishedJobs(ctx, client, canceledAtOnce)
	if err != nil {
		return 0, false, err
	}
	canceled, err = s.cancelAll(ctx, client, unfinished)
	return canceled, len(unfinished) == canceledAtOnce, err
}

// While another process completes a batch, its outcome is looked for so often.
const (
	outcomeTries = 20
	outcomePause = 25 * time.Millisecond
)

// completed reads a batch, with its outcome if it has come to its end: it completes
// it, or waits a moment for the process that does. The read comes last: the completer of
// this process may be faster.
func (s *Service) completed(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	for try := 0; ; try++ {
		b, err := s.deps.Batches.Batch(ctx, client, id)
		if err != nil || b.Outcome != nil || b.Unfinished() || try == outcomeTries {
			return b, err
		}
		if try > 1 && !app.Sleep(ctx, outcomePause) { // it is ready, and was not completed here
			return b, nil
		}
		if _, err := s.deps.Completer.Complete(ctx, []job.ID{id}); err != nil {
			s.deps.Completer.Touch(id) // its jobs have ended all the same
			return b, nil
		}
	}
}

// cancelAll cancels all that it can, and answers with their number and the first error.
func (s *Service) cancelAll(ctx context.Context, client job.ID, jobs []job.ID) (int, error) {
	canceled, err := s.deps.Batches.CancelAll(ctx, client, jobs)
	app.AfterCommit(ctx, func() {
		for _, c := range canceled {
			s.canceled(ctx, c.Before, c.Change)
		}
	})
	return len(canceled), err
}

// endBatch ends the span of a batch's submission.
func endBatch(span trace.Span, requestID string, b *job.Batch, err error) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.RequestID.String(requestID))
	if b != nil {
		span.SetAttributes(telemetry.BatchID.String(b.ID.String()))
	}
	app.EndSpan(span, job.ID{}, "", err)
}
