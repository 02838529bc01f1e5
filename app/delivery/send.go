package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

const (
	recordTries = 6
	recordPause = 100 * time.Millisecond // doubled each time
)

// deliver sends a delivery and records what became of it, or gives it back. The
// dispatcher gets the result before it is recorded: storage delays no send.
func (c *Worker) deliver(h held, results chan<- result) {
	line := lineOf(h.ClaimedDelivery)
	sent, span, err := c.attempt(h)
	if err != nil {
		c.release(h)
		results <- result{line: line, rest: restOf(err)}
		return
	}
	results <- result{line: line, sent: true, error: sent.Attempt.Error}
	c.record(trace.ContextWithSpan(c.storing, span), h, sent)
	span.End()
	<-c.unrecorded
}

// These end an attempt before it began: nothing is recorded of it.
var errTooLate = errors.New("too little is left of the claim")

// overRate is the same for a client that has used up its attempts for now.
type overRate struct{ wait time.Duration }

func (overRate) Error() string { return "the client's deliveries per minute are used up" }

// Bounds of how long the deliveries of an endpoint rest: other processes give
// attempts back that they do not use.
const (
	minRest = 100 * time.Millisecond
	maxRest = 10 * time.Second
)

// restOf gives for how long nothing is sent to the endpoint, 0 if nothing says so.
func restOf(err error) time.Duration {
	if over, ok := errors.AsType[overRate](err); ok {
		return min(max(over.wait, minRest), maxRest)
	}
	return 0
}

// attempt sends a delivery when it gets a send slot. With a result it keeps a token of
// unrecorded, and a span that covers the recording too. With an error there is
// nothing to record. Waiting for an origin takes no send slot.
func (c *Worker) attempt(h held) (sent job.Sent, span trace.Span, err error) {
	origin := originOf(h.ClaimedDelivery)
	if !c.origins.enter(origin, c.quit) {
		return job.Sent{}, nil, errStopping
	}
	defer c.origins.leave(origin)
	if !c.sendSlots.Acquire(h.ClientID, c.quit) {
		return job.Sent{}, nil, errStopping
	}
	defer c.sendSlots.Release(h.ClientID)
	select {
	case c.unrecorded <- struct{}{}:
	case <-c.quit:
		return job.Sent{}, nil, errStopping
	}
	if sent, span, err = c.sendInTime(h); err != nil {
		<-c.unrecorded
	}
	return sent, span, err
}

// sendInTime sends a delivery if its claim lasts long enough and its client may
// have an attempt now. It fails too if the worker's end cut the send off.
func (c *Worker) sendInTime(h held) (sent job.Sent, span trace.Span, err error) {
	switch {
	case c.stopped():
		return job.Sent{}, nil, errStopping
	case time.Until(h.until) < c.cfg.Timeout+sendMargin:
		return job.Sent{}, nil, errTooLate
	}
	if c.cfg.Rate != nil {
		if a := c.cfg.Rate.Allow(c.sending, h.ClientID); !a.OK {
			return job.Sent{}, nil, overRate{a.RetryAfter}
		}
	}
	ctx, cancel := context.WithTimeout(c.sending, c.cfg.Timeout+sendGrace)
	defer cancel()
	ctx, span = telemetry.Continue(ctx, c.cfg.Tracer, h.TraceParent, telemetry.SpanDeliver, trace.WithSpanKind(trace.SpanKindClient))
	describeDelivery(span, h.ClaimedDelivery)
	sent = c.send(ctx, h.ClaimedDelivery)
	describeSent(span, sent.Attempt)
	// What was cut off here did not fail there. It may have arrived all the same:
	// then it arrives twice.
	if sent.Attempt.Error != "" && c.sending.Err() != nil {
		telemetry.End(span, errStopping)
		return job.Sent{}, nil, errStopping
	}
	return sent, span, nil
}

// send calls the sender; a panic becomes a failed attempt.
func (c *Worker) send(ctx context.Context, p job.ClaimedDelivery) (sent job.Sent) {
	c.metrics.Sends.Inc()
	began := time.Now()
	defer func() {
		if cause := recover(); cause != nil {
			c.log.ErrorContext(ctx, "sending a delivery crashed", append(aboutDelivery(p), "error_code", string(job.SendInternal),
				"error_message", fmt.Sprintf("panic: %v\n%s", cause, debug.Stack()))...)
			sent = job.Sent{Attempt: job.DeliveryAttempt{StartedAt: began, Duration: time.Since(began), Error: job.SendInternal}}
		}
		c.metrics.Sends.Dec()
		c.metrics.Sent(ctx, p, sent.Attempt, time.Since(began))
	}()
	return c.sender.Send(ctx, p)
}

// record writes a result, as long as its claim lasts. A write whose answer was
// lost finds its own work done and comes back as stale. What cannot be recorded
// is sent again when the claim has ended.
func (c *Worker) record(ctx context.Context, h held, sent job.Sent) {
	if c.cfg.Clock.Moved() { // what is recorded lies between events of the same clock
		sent.Attempt.StartedAt = c.cfg.Clock.Now().Add(-sent.Attempt.Duration).UTC()
	}
	c.weigh(ctx, h.ClientID, &sent.Attempt)
	r := c.judge(h.ClaimedDelivery, sent)
	for try := 0; ; {
		recorded, err := c.store.RecordDelivery(ctx, r)
		switch {
		case err == nil:
			c.reportRecorded(ctx, h.ClaimedDelivery, r, recorded)
			return
		case errors.Is(err, job.ErrStale):
			c.metrics.FencedWrites.WithLabelValues("deliver").Inc()
			c.log.InfoContext(ctx, "a late write changed nothing", append(aboutDelivery(h.ClaimedDelivery), "fence", h.Fence,
				"status", sent.Attempt.Status, "error_code", string(sent.Attempt.Error))...)
			return
		case app.Refused(err) && (len(r.Sent.Attempt.Header) > 0 || len(r.Sent.Attempt.Body) > 0):
			// Better an attempt without the answer than a delivery without an end.
			forgetAnswer(&r.Sent.Attempt)
			continue
		}
		wait := recordPause << try
		if try++; try == recordTries || time.Until(h.until) < wait || !app.Sleep(ctx, wait) {
			c.log.WarnContext(ctx, "an attempt to deliver is not recorded", append(aboutDelivery(h.ClaimedDelivery), "status", sent.Attempt.Status,
				app.ErrorFields(err))...)
			return
		}
	}
}

// weigh counts what a receiver has answered, and leaves it out where the client has no room for it today.
func (c *Worker) weigh(ctx context.Context, client job.ID, a *job.DeliveryAttempt) {
	if weight := a.Weight(); weight > 0 && c.cfg.Storage != nil && !c.cfg.Storage.AllowUnits(ctx, client, weight).OK {
		forgetAnswer(a)
	}
}

func forgetAnswer(a *job.DeliveryAttempt) {
	a.Header, a.Body, a.Truncated = nil, nil, a.Truncated || len(a.Body) > 0
}

// judge decides what follows an attempt.
func (c *Worker) judge(p job.ClaimedDelivery, sent job.Sent) job.DeliveryResult {
	r := job.DeliveryResult{DeliveryID: p.Delivery.ID, Endpoint: p.Endpoint, Fence: p.Fence, Sent: sent}
	r.State, r.Wait = c.cfg.Policy.Next(&p.Delivery, sent, rand.Float64())
	if sent.Attempt.Error == job.SendGone && !p.WebhookID.IsZero() {
		r.Disable = job.DisabledGone
	}
	return r
}

// reportRecorded logs and counts what was committed. If the webhook was disabled,
// it notifies those who watch and wakes the client's other webhooks.
func (c *Worker) reportRecorded(ctx context.Context, p job.ClaimedDelivery, r job.DeliveryResult, recorded job.Recorded) {
	c.metrics.Delivered(p, r)
	c.logAttempt(ctx, p, r, recorded.Number)
	c.tasks.Attempted(p.After(r, recorded))
	if recorded.Disabled == "" {
		return
	}
	c.tasks.DropDeliveries(p.Endpoint)
	c.metrics.WebhooksDisabled.WithLabelValues(string(recorded.Disabled)).Inc()
	c.log.WarnContext(ctx, "webhook disabled", "action", "disable_webhook", "client_id", p.ClientID.String(), "webhook_id",
		p.WebhookID.String(), "reason", string(recorded.Disabled))
	c.queue.Publish(job.Notification{ClientID: p.ClientID})
}

// release gives claims back. What fails is released when the claim has ended.
func (c *Worker) release(unused ...held) {
	deliveries := make([]job.ClaimedDelivery, len(unused))
	for i, h := range unused {
		deliveries[i] = h.ClaimedDelivery
	}
	if err := c.store.ReleaseDeliveries(c.storing, deliveries); err != nil {
		c.log.WarnContext(c.storing, "cannot give deliveries back", "action", "deliver", "client_id", unused[0].ClientID.String(),
			"deliveries", len(deliveries), app.ErrorFields(err))
	}
}

// aboutDelivery names a delivery in a log line. Of a callback only the host is
// told: paths and queries may hold secrets.
func aboutDelivery(p job.ClaimedDelivery) []any {
	attrs := append(make([]any, 0, 12), slog.String("action", "deliver"),
		slog.String("delivery_id", p.Delivery.ID.String()), slog.String("client_id", p.ClientID.String()))
	if p.WebhookID.IsZero() {
		attrs = append(attrs, slog.String("callback_host", hostOf(p.URL)))
	} else {
		attrs = append(attrs, slog.String("webhook_id", p.WebhookID.String()))
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

// hostOf gives the host and port of a URL, "" if it has none.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

// logAttempt writes the one line of an attempt (section 16).
func (c *Worker) logAttempt(ctx context.Context, p job.ClaimedDelivery, r job.DeliveryResult, number int) {
	if !c.log.Enabled(ctx, slog.LevelInfo) {
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
	c.log.InfoContext(ctx, "delivery attempt", attrs...)
}
