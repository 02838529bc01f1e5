// Package jobs holds the use cases of a client's jobs and batches: submit, cancel,
// retry, delete, read and wait; with admission and capacity.
package jobs

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/singleflight"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/events"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// JobStore is what changing a client's jobs needs of storage.
type JobStore interface {
	InsertJob(ctx context.Context, s job.Submission) (job.Receipt, error)
	FindReceipt(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Receipt, error)
	Job(ctx context.Context, client, id job.ID) (*job.Job, error)
	Cancel(ctx context.Context, client, id job.ID) (change job.Change, before *job.Job, err error)
	// Retry queues the next attempt. traceparent becomes the job's if it is not "".
	Retry(ctx context.Context, client, id job.ID, attempt int, wait time.Duration, traceparent string) (job.Change, error)
	// RetryAnyway is Retry of any failure, beyond the attempts that there may be.
	RetryAnyway(ctx context.Context, client, id job.ID, attempt int, wait time.Duration, traceparent string) (job.Change, error)
	Delete(ctx context.Context, client, id job.ID) error
}

// Config of a Service.
type Config struct {
	Catalogue   job.Catalogue
	MaxAttempts int // first attempt included; the most that a request may ask for
	Backoff     job.Backoff
	MaxAhead    time.Duration // how far in the future an execution_at may lie; 0: as far as one likes
	Clock       app.Clock     // time.Now if nil
}

// Pauses tells what operators have stopped.
type Pauses interface{ Now() job.Pauses }

// Receivers tells how many enabled webhooks a client has.
type Receivers interface{ Webhooks(client job.ID) int }

// Deps is what a Service works with; all but Targets, Proofs, Capacity, Storage, Receivers,
// Pauses and Hub are required.
type Deps struct {
	Jobs      JobStore
	Reader    ReadStore
	Batches   BatchStore
	Queue     app.Queue
	Targets   app.Targets // nil: callbacks are not looked at
	Proofs    ProofStore  // nil: callbacks need no proof
	Progress  ProgressReader
	Capacity  *Capacity   // nil: no limits, and nothing may be asked about live workers
	Storage   Storage     // nil: any amount
	Receivers Receivers   // nil: clients have no webhooks
	Pauses    Pauses      // nil: nothing is stopped
	Hub       *events.Hub // nil: no request waits
	Completer *batches.Completer
	Metrics   *app.Metrics
	Log       *slog.Logger
}

// Service is the use cases of clients.
type Service struct {
	ReadStore // reports, attempts and results are read as they are stored

	cfg  Config
	deps Deps

	cursorKey atomic.Pointer[[]byte]
	keyReads  singleflight.Group
}

// New makes the use cases of clients. Capacity, hub and the
// batch completer have loops of their own: see their Run.
func New(cfg Config, d Deps) *Service {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	return &Service{ReadStore: d.Reader, cfg: cfg, deps: d}
}

// Submit accepts a job (section 7): when it returns without an error, the job
// is durable. A request whose idempotency key is known gets its first answer,
// whatever the time and the load are now.
func (s *Service) Submit(ctx context.Context, r job.Request) (receipt job.Receipt, err error) {
	ctx, span := app.BeginSpan(ctx, telemetry.SpanSubmit, r.ClientID)
	defer func() { app.EndSpan(span, receipt.JobID, receipt.State, err) }()
	now := s.cfg.Clock()
	proven, err := s.provenOf(ctx, r.ClientID, r.Callback != "")
	if err != nil {
		return job.Receipt{}, err
	}
	violations := s.check(r, now)
	passing := s.checkNow(r, now, proven)
	switch all := slices.Concat(violations, passing); {
	case len(violations) == 0 && len(passing) > 0: // it may have been accepted before
		return s.replayOr(ctx, r, r.Refusal(all))
	case len(all) > 0:
		return job.Receipt{}, r.Refusal(all)
	}
	j, violations := s.define(r)
	if len(violations) > 0 {
		return job.Receipt{}, job.Invalid(violations...)
	}
	if refusal := s.drained(&j); refusal != nil {
		return s.replayOr(ctx, r, refusal)
	}
	room, err := s.deps.Capacity.reserve(ctx, r.ClientID, loadOf(r.ExecutionAt))
	if err != nil {
		return s.replayOr(ctx, r, err)
	}
	j.Lease = room.leased()
	receipt, err = s.insert(ctx, r, j)
	room.end(ctx, err == nil && !receipt.Replayed, err)
	return receipt, err
}

// check gives everything that is wrong with r's values at now, except what
// checkNow finds.
func (s *Service) check(r job.Request, now time.Time) []job.Violation {
	violations := s.cfg.Catalogue.Check(r)
	if v, far := r.TooFar(now, s.cfg.MaxAhead); far {
		violations = append(violations, v)
	}
	if r.Callback == "" || s.deps.Targets == nil {
		return violations
	}
	if wrong := s.deps.Targets.Check(r.Callback); wrong != "" {
		violations = append(violations, job.Violation{Pointer: "/callback", Detail: wrong})
	}
	return violations
}

// checkNow returns the violations that depend on the current time or settings.
// A repeated request that was accepted before still gets its first answer.
func (s *Service) checkNow(r job.Request, now time.Time, proven origins) (violations []job.Violation) {
	if most := s.cfg.MaxAttempts; r.Retry != nil && r.Retry.MaxAttempts > most {
		violations = append(violations, job.Violation{Pointer: "/retry/max_attempts",
			Detail: "This server allows at most " + strconv.Itoa(most) + " attempts, the first one included."})
	}
	if v, late := r.TooLate(now); late {
		violations = append(violations, v)
	}
	if v, wrong := proven.check(r.Callback); wrong {
		violations = append(violations, v)
	}
	return violations
}

// replayOr answers a request that is refused now with its first answer, if it
// was accepted before.
func (s *Service) replayOr(ctx context.Context, r job.Request, refusal error) (job.Receipt, error) {
	if r.IdempotencyKey == "" {
		return job.Receipt{}, refusal
	}
	receipt, err := s.deps.Jobs.FindReceipt(ctx, r.ClientID, r.IdempotencyKey, r.Hash)
	switch {
	case err != nil:
		return job.Receipt{}, err
	case receipt == nil:
		return job.Receipt{}, refusal
	}
	s.deps.Metrics.IdempotencyHits.Inc()
	return *receipt, nil
}

func (s *Service) insert(ctx context.Context, r job.Request, j job.Job) (job.Receipt, error) {
	if err := s.weigh(ctx, r.ClientID, j); err != nil {
		return s.replayOr(ctx, r, err)
	}
	app.Describe(trace.SpanFromContext(ctx), &j, 1)
	task := firstTask(ctx, &j)
	receipt, err := s.deps.Jobs.InsertJob(ctx, job.Submission{
		Job: j, IdempotencyKey: r.IdempotencyKey, RequestHash: r.Hash, Committed: func(job.Receipt) { s.deps.Queue.Enqueue(task) },
	})
	if err != nil {
		return job.Receipt{}, err
	}
	if receipt.Replayed {
		s.deps.Metrics.IdempotencyHits.Inc()
		return receipt, nil
	}
	s.accepted(ctx, &j, receipt.State)
	app.Publish(s.deps.Queue, &j, app.NotificationOf(&j))
	return receipt, nil
}

// accepted says what was committed to the log and the metrics.
func (s *Service) accepted(ctx context.Context, j *job.Job, state job.State) {
	s.deps.Metrics.Submitted.WithLabelValues(string(j.WorkKind)).Inc()
	s.deps.Metrics.Entered(state, j.WorkKind)
	app.LogTransition(ctx, s.deps.Log, "submit", j, "", job.Created, slog.Int("attempt", 1))
	if state == job.Queued { // in the same commit, with an event of its own
		app.LogTransition(ctx, s.deps.Log, "submit", j, job.Created, job.Queued, slog.Int("attempt", 1))
	}
}

// firstTask is the task of a job that is about to be stored, to be gone on with
// from the span of ctx.
func firstTask(ctx context.Context, j *job.Job) job.Task {
	return app.TracedTask(ctx, job.Task{JobID: j.ID, Attempt: 1, RunAt: deref(j.ExecutionAt), TraceParent: j.TraceParent,
		ClientID: j.ClientID, WorkKind: j.WorkKind})
}

// Cancel stops a job that is not final; a final one stays as it is (section 14).
func (s *Service) Cancel(ctx context.Context, client, id job.ID) (change job.Change, err error) {
	ctx, span := app.BeginSpan(ctx, telemetry.SpanCancel, client)
	defer func() { app.EndSpan(span, id, change.State, err) }()
	change, before, err := s.deps.Jobs.Cancel(ctx, client, id)
	if err != nil || before == nil {
		return change, err
	}
	describe(ctx, span, before, change.Attempt)
	telemetry.Link(span, before.TraceParent)
	app.AfterCommit(ctx, func() { s.canceled(ctx, before, change) })
	return change, nil
}

// canceled says what was committed to the worker, the metrics, the log and the
// watchers.
func (s *Service) canceled(ctx context.Context, before *job.Job, change job.Change) {
	if before.State.Held() {
		s.deps.Queue.SignalCancel(before.ID)
	} else {
		s.deps.Queue.Remove(job.Task{JobID: before.ID, Attempt: change.Attempt, Dispatch: change.Dispatch})
	}
	s.deps.Metrics.WasCanceled(ctx, before, change)
	app.LogTransition(ctx, s.deps.Log, "cancel", before, before.State, job.Canceled, slog.Int("attempt", change.Attempt))
	app.Publish(s.deps.Queue, before, job.Notification{ClientID: before.ClientID, JobID: before.ID, Attempt: change.Attempt, Ended: true})
	s.deps.Completer.Touch(before.BatchID)
}

// describe says what a span is about, with the request that asked for it: the
// job knows that of its submission only.
func describe(ctx context.Context, span trace.Span, j *job.Job, attempt int) {
	app.Describe(span, j, attempt)
	if id := telemetry.RequestOf(ctx); id != "" && span.IsRecording() {
		span.SetAttributes(telemetry.RequestID.String(id))
	}
}

// Delete removes a final job; one that is gone already is no error.
func (s *Service) Delete(ctx context.Context, client, id job.ID) error {
	j, unknown := s.deps.Jobs.Job(ctx, client, id) // what is wrong with it, Delete says
	if err := s.deps.Jobs.Delete(ctx, client, id); err != nil {
		return err
	}
	if unknown != nil {
		j = &job.Job{ID: id, ClientID: client}
	}
	s.deleted(j)
	return nil
}

// deleted takes what is left of a job out of the queue, and tells those who watch it: there
// is no event, but they need not wait any longer.
func (s *Service) deleted(j *job.Job) {
	for attempt := 1; attempt <= j.Attempt; attempt++ { // the queue's archive has those that failed
		s.deps.Queue.Remove(job.Task{JobID: j.ID, Attempt: attempt})
	}
	s.deps.Queue.Publish(job.Notification{ClientID: j.ClientID, JobID: j.ID})
}

// loadOf is the room that one job takes: one that waits for its time is not
// queued yet.
func loadOf(executionAt *time.Time) job.Load {
	if executionAt != nil {
		return job.Load{Active: 1}
	}
	return job.Load{Active: 1, Queued: 1}
}

// reasonOf is why an attempt failed, "" if it did not.
func reasonOf(f *job.Failure) job.Reason {
	if f == nil {
		return ""
	}
	return f.Reason
}

func deref(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
