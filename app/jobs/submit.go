package jobs

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Submit accepts a job (API contract, section 7): when it returns without an error, the job is durable. A repeated idempotency key gets the
// first response, even under overload or if execution_at has passed.
func (s *Service) Submit(ctx context.Context, r job.Request) (receipt job.Receipt, err error) {
	ctx, span := app.BeginSpan(ctx, telemetry.SpanSubmit, r.ClientID)
	defer func() { app.EndSpan(span, receipt.JobID, receipt.State, err) }()
	proven, err := s.provenOrigins(ctx, r.ClientID, r.Callback != "")
	if err != nil {
		return job.Receipt{}, err
	}
	j, invalid, untimely := s.define(r, s.cfg.Clock(), proven)
	if len(invalid) > 0 {
		return job.Receipt{}, r.Refusal(slices.Concat(invalid, untimely))
	}
	jobs := []job.Job{j}
	var room *reservation
	if len(untimely) > 0 {
		err = r.Refusal(untimely)
	} else {
		room, err = s.admit(ctx, r.ClientID, jobs)
	}
	if err != nil {
		return firstAnswer(s, r.IdempotencyKey, err, func() (*job.Receipt, error) {
			return s.Store.FindReceipt(ctx, r.ClientID, r.IdempotencyKey, r.Hash)
		})
	}
	app.Describe(trace.SpanFromContext(ctx), &jobs[0], 1)
	task := firstTask(ctx, &jobs[0])
	receipt, err = s.Store.InsertJob(ctx, job.Submission{
		Job: jobs[0], IdempotencyKey: r.IdempotencyKey, RequestHash: r.Hash, Committed: func(job.Receipt) { s.Queue.Enqueue(task) },
	})
	room.end(ctx, err == nil && !receipt.Replayed, err)
	switch {
	case err != nil:
		return job.Receipt{}, err
	case receipt.Replayed:
		s.Metrics.IdempotencyHits.Inc()
		return receipt, nil
	}
	s.recordSubmitted(ctx, &jobs[0], receipt.State)
	app.Publish(s.Queue, &jobs[0], app.NotificationOf(&jobs[0]))
	return receipt, nil
}

// firstAnswer returns the stored response if the idempotency key was already used; otherwise it returns the refusal. Accepted requests
// need no call of firstAnswer, because the INSERT finds a repeated key.
func firstAnswer[T any](s *Service, key string, refusal error, find func() (*T, error)) (none T, err error) {
	if key == "" {
		return none, refusal
	}
	answer, err := find()
	switch {
	case err != nil:
		return none, err
	case answer == nil:
		return none, refusal
	}
	s.Metrics.IdempotencyHits.Inc()
	return *answer, nil
}

// define returns the requested job, or all violations. `untimely` are violations that depend on the current time or on settings. They are
// no reason to refuse the repetition of an accepted request.
func (s *Service) define(r job.Request, now time.Time, proven origins) (j job.Job, invalid, untimely []job.Violation) {
	invalid = s.cfg.Catalogue.Check(r)
	if v, far := r.TooFar(now, s.cfg.MaxAhead); far {
		invalid = append(invalid, v)
	}
	if r.Callback != "" {
		if wrong := s.Targets(r.Callback); wrong != "" {
			invalid = append(invalid, job.Violation{Pointer: "/callback", Detail: wrong})
		}
	}
	if most := s.cfg.MaxAttempts; r.Retry != nil && r.Retry.MaxAttempts > most {
		untimely = append(untimely, job.Violation{Pointer: "/retry/max_attempts",
			Detail: "This server allows at most " + strconv.Itoa(most) + " attempts, including the first."})
	}
	if v, late := r.TooLate(now); late {
		untimely = append(untimely, v)
	}
	if v, wrong := proven.check(r.Callback); wrong {
		untimely = append(untimely, v)
	}
	if len(invalid) == 0 && len(untimely) == 0 {
		j, invalid = s.newJob(r)
	}
	return j, invalid, untimely
}

func (s *Service) newJob(r job.Request) (job.Job, []job.Violation) {
	var definition job.Definition
	if r.WorkKind == job.Custom {
		definition = job.DefineCustom(r.Type, r.Behavior, r.ReceivedAt, r.Emit)
	} else {
		var err error
		if definition, err = s.cfg.Catalogue.Define(r.Type, r.WorkKind, r.ReceivedAt, r.Emit); err != nil {
			return job.Job{}, []job.Violation{{Pointer: "/work_kind", Detail: "No work kind is available."}}
		}
	}
	j := job.Job{
		ID: app.NewID(), ClientID: r.ClientID, Type: r.Type, WorkKind: definition.WorkKind, Definition: &definition, Params: r.Params,
		MaxAttempts: s.cfg.MaxAttempts, AutoRetry: r.AutoRetry, ExecutionAt: r.ExecutionAt, Callback: r.Callback,
		CorrelationID: r.CorrelationID, TraceParent: r.TraceParent, Language: r.Language, RequestID: r.RequestID,
	}
	j.WithRetry(r.Retry)
	return j, nil
}

// origins are the allowed origins of a client's callbacks; nil allows all.
type origins map[string]bool

// provenOrigins returns the origins of the client's proven webhooks. The result nil allows all origins: the server demands no proof, or
// the request has no callback.
func (s *Service) provenOrigins(ctx context.Context, client job.ID, callbacks bool) (origins, error) {
	if s.Admission == nil || !s.Admission.ProvenCallbacks || !callbacks {
		return nil, nil
	}
	urls, err := s.Store.ProvenURLs(ctx, client)
	if err != nil {
		return nil, err
	}
	proven := make(origins, len(urls))
	for _, u := range urls {
		proven[job.OriginOf(u)] = true
	}
	return proven, nil
}

// check returns a violation if the origin of a callback is not allowed. It allows a URL without an origin, because Deps.Targets refuses
// such URLs.
func (o origins) check(callback string) (job.Violation, bool) {
	origin := job.OriginOf(callback)
	if o == nil || origin == "" || o[origin] {
		return job.Violation{}, false
	}
	return job.Violation{Pointer: "/callback", Detail: "On this server a callback must have the scheme, host and port of one of " +
		"your enabled webhooks with " +
		"a consenting receiver (proven_at is not null). Register a webhook there first."}, true
}

func (s *Service) recordSubmitted(ctx context.Context, j *job.Job, state job.State) {
	s.Metrics.Submitted.WithLabelValues(string(j.WorkKind)).Inc()
	s.Metrics.Entered(state, j.WorkKind)
	app.LogTransition(ctx, s.Log, "submit", j, "", job.Created, slog.Int("attempt", 1))
	if state == job.Queued { // the submission also queued the job
		app.LogTransition(ctx, s.Log, "submit", j, job.Created, job.Queued, slog.Int("attempt", 1))
	}
}

// The trace of the first task continues the span of ctx.
func firstTask(ctx context.Context, j *job.Job) job.Task {
	task := job.Task{JobID: j.ID, Attempt: 1, TraceParent: j.TraceParent, ClientID: j.ClientID, WorkKind: j.WorkKind}
	if j.ExecutionAt != nil {
		task.RunAt = *j.ExecutionAt
	}
	return app.TracedTask(ctx, task)
}
