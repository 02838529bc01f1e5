package app

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/forgerun/forgerun/job"
)

// JobStore is what the use cases of clients need of storage.
type JobStore interface {
	InsertJob(ctx context.Context, s job.Submission) (job.Receipt, error)
	FindReceipt(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Receipt, error)
	Job(ctx context.Context, client, id job.ID) (*job.Job, error)
	Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error)
	Cancel(ctx context.Context, client, id job.ID) (change job.Change, before *job.Job, err error)
	Retry(ctx context.Context, client, id job.ID, attempt int, wait time.Duration) (job.Change, error)
}

// ServiceConfig of a Service.
type ServiceConfig struct {
	Catalogue   job.Catalogue
	MaxAttempts int // first attempt included
	Backoff     job.Backoff
	Keys        KeyConfig
	Clock       Clock // time.Now if nil
}

// Service is the use cases of clients.
type Service struct {
	cfg      ServiceConfig
	store    JobStore
	queue    Queue
	keys     *keyring
	capacity *Capacity
	metrics  *Metrics
	log      *slog.Logger
}

// NewService makes the use cases of clients. Capacity and keys have loops of
// their own: see Capacity.Run and Service.WatchKeys.
func NewService(cfg ServiceConfig, store JobStore, keys KeyStore, queue Queue, capacity *Capacity, m *Metrics, log *slog.Logger) *Service {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	return &Service{
		cfg: cfg, store: store, queue: queue, capacity: capacity, metrics: m, log: log,
		keys: newKeyring(cfg.Keys, keys, cfg.Clock, log),
	}
}

// Submit accepts a job (section 7): when it returns without an error, the job
// is durable. A request whose idempotency key is known gets its first answer,
// whatever the time and the load are now.
func (s *Service) Submit(ctx context.Context, r job.Request) (job.Receipt, error) {
	if violations := s.cfg.Catalogue.Check(r); len(violations) > 0 {
		return job.Receipt{}, job.Invalid(violations...)
	}
	if v, late := r.TooLate(s.cfg.Clock()); late {
		return s.replayOr(ctx, r, job.Invalid(v))
	}
	done, err := s.capacity.reserve(r.ExecutionAt == nil)
	if err != nil {
		return s.replayOr(ctx, r, err)
	}
	receipt, err := s.insert(ctx, r)
	done(err == nil && !receipt.Replayed)
	return receipt, err
}

// replayOr answers a request that is refused now with its first answer, if it
// was accepted before.
func (s *Service) replayOr(ctx context.Context, r job.Request, refusal error) (job.Receipt, error) {
	if r.IdempotencyKey == "" {
		return job.Receipt{}, refusal
	}
	receipt, err := s.store.FindReceipt(ctx, r.ClientID, r.IdempotencyKey, r.Hash)
	switch {
	case err != nil:
		return job.Receipt{}, err
	case receipt == nil:
		return job.Receipt{}, refusal
	}
	s.metrics.idempotencyHits.Inc()
	return *receipt, nil
}

func (s *Service) insert(ctx context.Context, r job.Request) (job.Receipt, error) {
	definition, err := s.cfg.Catalogue.Define(r.Type, r.WorkKind, r.ReceivedAt, r.Emit)
	if err != nil {
		return job.Receipt{}, job.Invalid(job.Violation{Pointer: "/work_kind", Detail: "No work kind is available."})
	}
	j := job.Job{
		ID: newID(), ClientID: r.ClientID, Type: r.Type, WorkKind: definition.WorkKind, Definition: &definition, Params: r.Params,
		MaxAttempts: s.cfg.MaxAttempts, AutoRetry: r.AutoRetry, ExecutionAt: r.ExecutionAt, Callback: r.Callback,
		CorrelationID: r.CorrelationID, TraceParent: r.TraceParent, Language: r.Language, RequestID: r.RequestID,
	}
	receipt, err := s.store.InsertJob(ctx, job.Submission{Job: j, IdempotencyKey: r.IdempotencyKey, RequestHash: r.Hash})
	if err != nil {
		return job.Receipt{}, err
	}
	if receipt.Replayed {
		s.metrics.idempotencyHits.Inc()
		return receipt, nil
	}
	s.metrics.submitted.WithLabelValues(string(j.WorkKind)).Inc()
	s.transition("submit", &j, "", receipt.State)
	s.dispatch(job.Task{JobID: receipt.JobID, Attempt: 1, RunAt: deref(r.ExecutionAt)})
	return receipt, nil
}

// dispatch hands a task to the queue if it is due soon; the relay finds the
// others, and those that the queue loses.
func (s *Service) dispatch(t job.Task) {
	if t.RunAt.IsZero() || t.RunAt.Before(s.cfg.Clock().Add(dispatchHorizon)) {
		s.queue.Enqueue(t)
	}
}

// Cancel stops a job that is not final; a final one stays as it is (section 14).
func (s *Service) Cancel(ctx context.Context, client, id job.ID) (job.Change, error) {
	change, before, err := s.store.Cancel(ctx, client, id)
	if err != nil || before == nil {
		return change, err
	}
	if before.State.Held() {
		s.queue.SignalCancel(id)
	}
	s.transition("cancel", before, before.State, job.Canceled)
	return change, nil
}

// Retry queues the next attempt of a FAILED job after its backoff (section
// 11). A job that is not final stays as it is; one that cannot be retried is a
// conflict. What is queued again counts against the limits like a new job.
func (s *Service) Retry(ctx context.Context, client, id job.ID) (job.Change, error) {
	j, err := s.store.Job(ctx, client, id)
	if err != nil {
		return job.Change{}, err
	}
	switch {
	case !j.State.Final():
		return job.Change{JobID: id, State: j.State, Attempt: j.Attempt, UpdatedAt: j.UpdatedAt, RunAt: j.RunAt}, nil
	case j.State != job.Failed:
		return job.Change{}, job.Errorf(job.CodeConflict, "The job is %s; only a FAILED job can be retried.", j.State)
	case !j.CanRetry():
		return job.Change{}, job.Errorf(job.CodeConflict, "The job has used all of its %d attempts.", j.MaxAttempts)
	}
	done, err := s.capacity.reserve(true)
	if err != nil {
		return job.Change{}, err
	}
	change, err := s.store.Retry(ctx, client, id, j.Attempt, s.cfg.Backoff.Wait(j.Attempt, rand.Float64()))
	done(err == nil && change.Changed)
	if err != nil || !change.Changed {
		return change, err
	}
	s.metrics.retried.WithLabelValues("client").Inc()
	s.transition("retry", j, job.Failed, job.Queued)
	s.dispatch(job.Task{JobID: id, Attempt: change.Attempt, RunAt: change.RunAt})
	return change, nil
}

// Job reads a client's job.
func (s *Service) Job(ctx context.Context, client, id job.ID) (*job.Job, error) {
	return s.store.Job(ctx, client, id)
}

// Report reads the report of a finished attempt; attempt 0 is the latest.
func (s *Service) Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error) {
	return s.store.Report(ctx, client, id, attempt)
}

func (s *Service) transition(action string, j *job.Job, from, to job.State) {
	logTransition(s.log, action, j, from, to)
	s.metrics.entered(to, j.WorkKind)
}

// logTransition writes the one line of a change of state, with the fields that
// section 16 requires.
func logTransition(log *slog.Logger, action string, j *job.Job, from, to job.State, more ...slog.Attr) {
	if !log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 12),
		slog.String("action", action), slog.String("request_id", j.RequestID), slog.String("client_id", j.ClientID.String()),
		slog.String("job_id", j.ID.String()), slog.String("current_state", string(from)), slog.String("next_state", string(to)),
		slog.String("work_kind", string(j.WorkKind)))
	if d := j.Definition; d != nil {
		attrs = append(attrs, slog.Int64("duration_ms", d.DurationMS), slog.String("expected_outcome", d.ExpectedOutcome))
	}
	log.LogAttrs(context.Background(), slog.LevelInfo, "job transition", append(attrs, more...)...)
}

func deref(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
