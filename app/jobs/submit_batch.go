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

// SubmitBatch accepts many jobs in one commit. It refuses invalid items, and accepts all other items or none. A repeated idempotency key
// gets the first response; see Submit.
func (s *Service) SubmitBatch(ctx context.Context, r job.BatchRequest) (b *job.Batch, replayed bool, err error) {
	ctx, span := app.BeginSpan(ctx, telemetry.SpanBatch, r.ClientID)
	defer func() { endBatchSpan(span, r.RequestID, b, err) }()
	calls := slices.ContainsFunc(r.Items, func(i job.ItemRequest) bool { return i.Request.Callback != "" })
	proven, err := s.provenOrigins(ctx, r.ClientID, calls)
	if err != nil {
		return nil, false, err
	}
	var room *reservation
	sub, err := s.defineBatch(r, proven)
	if err == nil {
		room, err = s.admit(ctx, r.ClientID, sub.Jobs)
	}
	if err != nil { // the key may belong to a batch that was accepted earlier
		first, err := firstAnswer(s, r.IdempotencyKey, err, func() (*job.Batch, error) {
			return s.Store.FindBatch(ctx, r.ClientID, r.IdempotencyKey, r.Hash)
		})
		if err != nil {
			return nil, false, err
		}
		return &first, true, nil
	}
	sub.Committed = func() {
		for i := range sub.Jobs {
			s.Queue.Enqueue(firstTask(ctx, &sub.Jobs[i]))
		}
	}
	b, replayed, err = s.Store.InsertBatch(ctx, sub)
	room.end(ctx, err == nil && !replayed, err)
	switch {
	case err != nil:
		return nil, false, err
	case replayed:
		s.Metrics.IdempotencyHits.Inc()
		return b, true, nil
	}
	s.Queue.Publish(job.Notification{ClientID: r.ClientID}) // without a job id, because no client watches the new jobs yet
	for i := range sub.Jobs {
		j := &sub.Jobs[i]
		s.recordSubmitted(ctx, j, firstState(j))
		if s.receivers(r.ClientID, j.Callback) > 0 {
			s.Queue.Deliver(r.ClientID, j.ID)
		}
	}
	if len(sub.Jobs) == 0 {
		s.Completer.Touch(sub.Batch.ID)
	}
	return b, false, nil
}

// defineBatch checks each item. The job ids ascend in the order of the items, so lists show the jobs in that order. It returns an error if
// the items have more than job.MaxViolations violations.
func (s *Service) defineBatch(r job.BatchRequest, proven origins) (job.BatchSubmission, error) {
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
		j, invalid, untimely := s.define(item, now, proven)
		violations := slices.Concat(invalid, untimely)
		whole.Malformed = whole.Malformed || item.Malformed
		switch {
		case len(all) > job.MaxViolations:
			whole.Unlisted += len(violations)
			continue
		case len(violations) > 0:
			answer.Refusal = itemRefusal(i, item.Refusal(violations))
			all = append(all, answer.Refusal.Violations...)
			continue
		}
		j.BatchID = sub.Batch.ID
		answer.JobID, answer.State = j.ID, firstState(&j)
		sub.Jobs = append(sub.Jobs, j)
	}
	if whole.Unlisted > 0 || len(all) > job.MaxViolations {
		return job.BatchSubmission{}, whole.Refusal(all)
	}
	return sub, nil
}

// Each item gets a different ReceivedAt, because ReceivedAt is the seed of the item's random values.
func itemRequest(r job.BatchRequest, i int) job.Request {
	item := r.Items[i].Request
	item.ClientID, item.RequestID, item.Language = r.ClientID, r.RequestID, r.Language
	item.ReceivedAt = r.ReceivedAt.Add(time.Duration(i) * time.Microsecond)
	if r.CorrelationID != "" {
		item.CorrelationID = r.CorrelationID
	}
	return item
}

// maxRefusalBytes limits the detail of a refused item, because a batch stores many refused items.
const maxRefusalBytes = 300

func itemRefusal(index int, err *job.Error) *job.Refusal {
	r, lead := &job.Refusal{Code: err.Code}, "The item has invalid values."
	if err.Code == job.CodeMalformed {
		lead = "The item does not have the expected form."
	}
	for _, v := range err.Violations {
		v.Pointer = fmt.Sprintf("/jobs/%d%s", index, v.Pointer)
		r.Violations = append(r.Violations, v)
	}
	r.Detail = job.PlainText(job.WithFirst(lead, r.Violations), maxRefusalBytes)
	return r
}

func firstState(j *job.Job) job.State {
	if j.ExecutionAt != nil {
		return job.Created
	}
	return job.Queued
}

func endBatchSpan(span trace.Span, requestID string, b *job.Batch, err error) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.RequestID.String(requestID))
	if b != nil {
		span.SetAttributes(telemetry.BatchID.String(b.ID.String()))
	}
	app.EndSpan(span, job.ID{}, "", err)
}
