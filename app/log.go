package app

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// LogTransition logs a state change in one line (API contract, section 16). The field request_id names the request that caused the change.
// If no request caused it, the field names the submission.
func LogTransition(ctx context.Context, log *slog.Logger, action string, j *job.Job, from, to job.State, more ...slog.Attr) {
	if !log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 13),
		slog.String("action", action), slog.String("request_id", cmp.Or(telemetry.RequestOf(ctx), j.RequestID)),
		slog.String("client_id", j.ClientID.String()),
		slog.String("job_id", j.ID.String()), slog.String("current_state", string(from)), slog.String("next_state", string(to)),
		slog.String("work_kind", string(j.WorkKind)))
	if d := j.Definition; d != nil {
		attrs = append(attrs, slog.Int64("duration_ms", d.DurationMS), slog.String("expected_outcome", d.ExpectedOutcome))
	}
	if j.CorrelationID != "" {
		attrs = append(attrs, slog.String("correlation_id", j.CorrelationID))
	}
	telemetry.LogInfo(ctx, log, "job transition", append(attrs, more...))
}

// ReportFinished logs, counts and publishes the end of an attempt of j, and enqueues an automatic retry. Call it after the end was
// committed.
func ReportFinished(
	ctx context.Context, q Queue, m *Metrics, log *slog.Logger, action string, j *job.Job, f job.Finish, done job.Finished,
) {
	LogTransition(ctx, log, action, j, job.Running, f.State, append(failureAttrs(f.Failure), slog.Int("attempt", f.Attempt))...)
	m.Finished(ctx, f, j.WorkKind, done)
	Publish(q, j, done.Notification())
	for _, t := range done.Resumed {
		q.Enqueue(t)
	}
	if done.Next != nil {
		LogTransition(ctx, log, "auto_retry", j, job.Failed, job.Queued, slog.Int("attempt", done.Next.Attempt))
		Enqueue(ctx, q, *done.Next)
	}
}

func failureAttrs(f *job.Failure) []slog.Attr {
	if f == nil {
		return nil
	}
	return []slog.Attr{
		slog.String("error_code", string(f.Code)), slog.String("error_message", f.Detail), slog.String("reason", string(f.Reason)),
	}
}

// ErrorFields returns the log fields of an error (API contract, section 16).
func ErrorFields(err error) slog.Attr {
	return slog.Group("", slog.String("error_code", string(job.CodeOf(err))), slog.String("error_message", err.Error()))
}
