package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

const (
	recordTries = 6
	recordPause = 100 * time.Millisecond // doubled each time
	// Bounds of how long the deliveries of a client rest: other processes give attempts back that they do not use.
	minRest = 100 * time.Millisecond
	maxRest = 10 * time.Second
)

// errStopping ends the span of an attempt that is cut off.
var errStopping = errors.New("the delivery worker is stopping")

// attempt sends a delivery when it gets a send slot. With a result it gives a span that covers the recording too. With an error, which
// says when to try again, there is nothing to record.
func (w *Worker) attempt(h held) (job.Sent, trace.Span, error) {
	waiting, cancel := context.WithTimeout(w.open, maxSlotWait)
	defer cancel()
	answers := false
	w.admission.update(func() { answers = h.at.health == answering })
	if !answers {
		select {
		case h.at.turn <- struct{}{}:
			defer func() { <-h.at.turn }()
		case <-waiting.Done():
			return job.Sent{}, nil, w.gaveUp(h.at)
		}
	}
	release := w.sends.acquire(receiverOf(h.ClaimedDelivery), waiting.Done())
	if release == nil {
		return job.Sent{}, nil, w.gaveUp(h.at)
	}
	defer release()
	return w.sendInTime(h)
}

// receiverOf returns the receiver of a delivery.
func receiverOf(p job.ClaimedDelivery) receiver {
	return receiver{p.ClientID, cmp.Or(job.OriginOf(p.Target.URL), p.Endpoint.String())} // without an origin the sender refuses it
}

// learn notes how the latest attempt to send to an endpoint ended.
func (w *Worker) learn(e *endpointTasks, h health) { w.admission.update(func() { e.health = h }) }

// gaveUp says when a task is to come again whose wait for a slot ended.
func (w *Worker) gaveUp(e *endpointTasks) error {
	early := &job.TaskEarly{}
	if w.open.Err() == nil {
		now := time.Now()
		w.admission.update(func() { early.Wait = e.putOff(now, e.spacing(now)) })
	}
	return early
}

// sendInTime sends a delivery if its claim lasts long enough and its client may have an attempt now. It fails too if the worker's end
// cut the send off.
func (w *Worker) sendInTime(h held) (sent job.Sent, span trace.Span, err error) {
	if w.open.Err() != nil || time.Until(h.until) < w.cfg.Timeout+sendMargin {
		return job.Sent{}, nil, &job.TaskEarly{}
	}
	if w.cfg.Rate != nil {
		if a := w.cfg.Rate.Allow(w.sending, h.ClientID); !a.OK {
			w.admission.update(func() { h.at.client.rest = time.Now().Add(min(max(a.RetryAfter, minRest), maxRest)) })
			return job.Sent{}, nil, &job.TaskEarly{Wait: max(minBusy, a.RetryAfter)}
		}
	}
	ctx, cancel := context.WithTimeout(w.sending, w.cfg.Timeout+sendGrace)
	defer cancel()
	ctx, span = telemetry.Continue(ctx, w.cfg.Tracer, h.TraceParent, telemetry.SpanDeliver, trace.WithSpanKind(trace.SpanKindClient))
	describeDelivery(span, h.ClaimedDelivery)
	sent = w.send(ctx, h.ClaimedDelivery)
	describeSent(span, sent.Attempt)
	// What was cut off here did not fail there. It may have arrived all the same: then it arrives twice.
	if sent.Attempt.Error != "" && w.sending.Err() != nil {
		telemetry.End(span, errStopping)
		return job.Sent{}, nil, &job.TaskEarly{}
	}
	return sent, span, nil
}

// describeDelivery says which delivery a span is about. Of a callback's URL it gives the host alone: the others may hold secrets.
func describeDelivery(span trace.Span, p job.ClaimedDelivery) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		telemetry.DeliveryID.String(p.Delivery.ID.String()), telemetry.ClientID.String(p.ClientID.String()),
		telemetry.EventName.String(p.EventName), telemetry.Attempt.Int(p.Attempts+1), semconv.HTTPRequestMethodPost)
	if !p.JobID.IsZero() {
		span.SetAttributes(telemetry.JobID.String(p.JobID.String()))
	}
	if !p.WebhookID.IsZero() {
		span.SetAttributes(telemetry.WebhookID.String(p.WebhookID.String()))
	} else if u, err := url.Parse(p.URL); err == nil {
		span.SetAttributes(semconv.ServerAddress(u.Hostname()))
	}
}

// describeSent says what became of an attempt to deliver.
func describeSent(span trace.Span, a job.DeliveryAttempt) {
	if !span.IsRecording() {
		return
	}
	if a.Status != 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(a.Status))
	}
	if a.Error != "" {
		span.SetAttributes(semconv.ErrorTypeKey.String(string(a.Error)))
		span.SetStatus(codes.Error, a.Error.Text())
	}
}

// send calls the sender; a panic becomes a failed attempt.
func (w *Worker) send(ctx context.Context, p job.ClaimedDelivery) (sent job.Sent) {
	w.metrics.Sends.Inc()
	began := time.Now()
	defer func() {
		if cause := recover(); cause != nil {
			w.log.ErrorContext(ctx, "sending a delivery crashed", append(aboutDelivery(p), "error_code", string(job.SendInternal),
				"error_message", fmt.Sprintf("panic: %v\n%s", cause, debug.Stack()))...)
			sent = job.Sent{Attempt: job.DeliveryAttempt{StartedAt: began, Duration: time.Since(began), Error: job.SendInternal}}
		}
		w.metrics.Sends.Dec()
		w.metrics.Sent(ctx, p, sent.Attempt, time.Since(began))
	}()
	return w.sender.Send(ctx, p)
}

// record writes a result, as long as its claim lasts, and returns what the task is to hear. A write whose answer was
// lost finds its own work done and comes back as stale. What cannot be recorded is sent again when the claim has ended.
func (w *Worker) record(ctx context.Context, h held, sent job.Sent) error {
	if w.cfg.Clock.Moved() { // what is recorded lies between events of the same clock
		sent.Attempt.StartedAt = w.cfg.Clock.Now().Add(-sent.Attempt.Duration).UTC()
	}
	// What a receiver has answered is left out where the client has no room for it today.
	if weight := sent.Attempt.Weight(); weight > 0 && w.cfg.Storage != nil && !w.cfg.Storage.AllowUnits(ctx, h.ClientID, weight).OK {
		forgetAnswer(&sent.Attempt)
	}
	r := job.DeliveryResult{DeliveryID: h.Delivery.ID, Fence: h.Fence, Sent: sent}
	r.State, r.Wait = w.cfg.Policy.Next(&h.Delivery, sent, rand.Float64())
	if sent.Attempt.Error == job.SendGone && !h.WebhookID.IsZero() {
		r.Disable = job.DisabledGone
	}
	for try := 0; ; {
		recorded, err := w.store.RecordDelivery(ctx, r)
		switch {
		case err == nil:
			w.reportRecorded(ctx, h.ClaimedDelivery, r, recorded)
			return w.taskEnd(r)
		case errors.Is(err, job.ErrStale):
			w.metrics.FencedWrites.WithLabelValues("deliver").Inc()
			w.log.InfoContext(ctx, "a late write changed nothing", append(aboutDelivery(h.ClaimedDelivery), "fence", h.Fence,
				"status", sent.Attempt.Status, "error_code", string(sent.Attempt.Error))...)
			return job.ErrTaskStale
		case app.Refused(err) && (len(r.Sent.Attempt.Header) > 0 || len(r.Sent.Attempt.Body) > 0):
			// Better an attempt without the answer than a delivery without an end.
			forgetAnswer(&r.Sent.Attempt)
			continue
		}
		wait := recordPause << try
		if try++; try == recordTries || time.Until(h.until) < wait || !app.Sleep(ctx, wait) {
			w.log.WarnContext(ctx, "an attempt to deliver is not recorded", append(aboutDelivery(h.ClaimedDelivery), "status", sent.Attempt.Status,
				app.ErrorFields(err))...)
			return err
		}
	}
}

// taskEnd says how the task of a recorded attempt ends.
func (w *Worker) taskEnd(r job.DeliveryResult) error {
	if r.State == job.DeliveryDelivered {
		return nil
	}
	a := r.Sent.Attempt
	failed := &job.TaskFailed{Text: string(a.Error) + ": " + cmp.Or(a.Reason, a.Error.Text())}
	if r.State == job.DeliveryPending {
		failed.Again = max(w.cfg.Clock.Wait(r.Wait), time.Millisecond)
	}
	return failed
}

func forgetAnswer(a *job.DeliveryAttempt) {
	a.Header, a.Body, a.Truncated = nil, nil, a.Truncated || len(a.Body) > 0
}

// reportRecorded logs and counts what was committed. If the webhook was disabled, it tells those who watch, and the client's others.
func (w *Worker) reportRecorded(ctx context.Context, p job.ClaimedDelivery, r job.DeliveryResult, recorded job.Recorded) {
	w.metrics.Delivered(p, r)
	w.logAttempt(ctx, p, r, recorded.Number)
	if recorded.Disabled == "" {
		return
	}
	w.metrics.WebhooksDisabled.WithLabelValues(string(recorded.Disabled)).Inc()
	w.log.WarnContext(ctx, "webhook disabled", "action", "disable_webhook", "client_id", p.ClientID.String(), "webhook_id",
		p.WebhookID.String(), "reason", string(recorded.Disabled))
	w.queue.Publish(job.Notification{ClientID: p.ClientID})
}

// release gives a claim back. If that fails, the claim ends when its time is over.
func (w *Worker) release(h held) {
	if err := w.store.ReleaseDelivery(w.storing, h.ID, h.Fence); err != nil {
		w.log.WarnContext(w.storing, "cannot give a delivery back", append(aboutDelivery(h.ClaimedDelivery), app.ErrorFields(err))...)
	}
}

// aboutDelivery names a delivery in a log line. Of a callback only the host is told: paths and queries may hold secrets.
func aboutDelivery(p job.ClaimedDelivery) []any {
	attrs := append(make([]any, 0, 12), slog.String("action", "deliver"),
		slog.String("delivery_id", p.Delivery.ID.String()), slog.String("client_id", p.ClientID.String()))
	if !p.WebhookID.IsZero() {
		attrs = append(attrs, slog.String("webhook_id", p.WebhookID.String()))
	} else if u, err := url.Parse(p.URL); err == nil {
		attrs = append(attrs, slog.String("callback_host", u.Host))
	}
	if !p.JobID.IsZero() {
		attrs = append(attrs, slog.String("job_id", p.JobID.String()))
	}
	request := p.RequestID
	if b := p.Occurrence.Batch; b != nil {
		request = b.RequestID
	}
	if request != "" {
		attrs = append(attrs, slog.String("request_id", request))
	}
	if id := p.Occurrence.Origin.CorrelationID; id != "" {
		attrs = append(attrs, slog.String("correlation_id", id))
	}
	return append(attrs, slog.String("event_name", p.EventName))
}

// logAttempt writes the one line of an attempt (section 16).
func (w *Worker) logAttempt(ctx context.Context, p job.ClaimedDelivery, r job.DeliveryResult, number int) {
	if !w.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	a := r.Sent.Attempt
	attrs := append(aboutDelivery(p), slog.Int("attempt", number), slog.Int("status", a.Status),
		slog.Int64("duration_ms", a.Duration.Milliseconds()), slog.String("current_state", string(job.DeliveryPending)),
		slog.String("next_state", string(r.State)))
	if a.Error != "" {
		attrs = append(attrs, slog.String("error_code", string(a.Error)), slog.String("error_message", a.Error.Text()))
	}
	if r.State == job.DeliveryPending {
		attrs = append(attrs, slog.Int64("wait_ms", r.Wait.Milliseconds()))
	}
	w.log.InfoContext(ctx, "delivery attempt", attrs...)
}
