package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

const (
	recordTries = 6
	recordPause = 100 * time.Millisecond // pause between tries to store a result; doubled after each failure
	// minRest and maxRest limit the pause of a client that reached its rate limit. The pause may end before RetryAfter, because other
	// processes may free a part of the rate limit earlier.
	minRest = 100 * time.Millisecond
	maxRest = 10 * time.Second
)

var errStopping = errors.New("the delivery worker is stopping")

// Handle sends a delivery if it is due. It returns nil if the receiver accepted the delivery. It returns job.TaskFailed with the time until
// the next try if the attempt failed. It returns job.TaskEarly if Handle must be called again, for example because the delivery is not due.
// It returns job.ErrTaskStale if there is nothing to send. Handle ignores the end of its context; only Stop interrupts it.
func (w *Worker) Handle(_ context.Context, t job.DeliveryTask) error {
	if !w.begin() {
		return &job.TaskEarly{Wait: minBusy}
	}
	defer w.running.Done()
	e, busy := w.admission.enter(t)
	if busy > 0 {
		return &job.TaskEarly{Wait: busy}
	}
	began, took := time.Now(), time.Duration(0)
	defer func() { w.admission.leave(e, took) }()
	c, err := w.claim(e, t)
	if err != nil {
		return err
	}
	defer w.claimSlots.Release(t.ClientID)
	sent, err := w.deliver(c)
	if sent {
		took = time.Since(began)
	}
	return err
}

type claimed struct {
	job.ClaimedDelivery
	at    *endpointTasks
	until time.Time // the claim lasts at least until this time
}

// claim claims a delivery. If the delivery becomes due within maxNap, claim waits until then. If claim succeeds, the caller must release
// a claim slot.
func (w *Worker) claim(e *endpointTasks, t job.DeliveryTask) (claimed, error) {
	waiting, cancel := context.WithTimeout(w.open, maxSlotWait)
	defer cancel()
	for {
		if !w.claimSlots.Acquire(t.ClientID, waiting.Done()) {
			return claimed{}, w.noSlot(e)
		}
		asked := time.Now()
		d, wait, err := w.store.ClaimDelivery(w.storing, t.ID, w.hold)
		if d != nil && err == nil {
			if d.Target.Failures > 0 {
				w.admission.setHealth(e, failing)
			}
			return claimed{*d, e, asked.Add(w.hold)}, nil
		}
		w.claimSlots.Release(t.ClientID)
		switch {
		case err != nil:
			w.log.WarnContext(w.storing, "cannot claim a delivery", "action", "deliver", "client_id", t.ClientID.String(),
				"delivery_id", t.ID.String(), app.ErrorFields(err))
			return claimed{}, err
		case wait == 0:
			return claimed{}, job.ErrTaskStale
		}
		if wait = w.cfg.Clock.Wait(wait); wait > maxNap || !app.Sleep(w.open, wait) {
			return claimed{}, &job.TaskEarly{Wait: wait}
		}
	}
}

// deliver sends a claimed delivery and records the result. Without a result it releases the claim.
func (w *Worker) deliver(c claimed) (sent bool, err error) {
	result, span, err := w.attempt(c)
	if err != nil {
		w.release(c)
		return false, err
	}
	defer span.End()
	switch result.Attempt.Error {
	case "":
		w.admission.setHealth(c.at, answering)
	case job.SendInternal: // this is not the endpoint's fault
	default:
		w.admission.setHealth(c.at, failing)
	}
	return true, w.record(trace.ContextWithSpan(w.storing, span), c, result)
}

// attempt waits for a send slot and sends a delivery. The caller records the result, and then ends the span. If attempt returns an error,
// nothing was sent or Stop interrupted the send. The error contains the wait until the next try.
func (w *Worker) attempt(c claimed) (job.Sent, trace.Span, error) {
	waiting, cancel := context.WithTimeout(w.open, maxSlotWait)
	defer cancel()
	answers := false
	w.admission.update(func() { answers = c.at.health == answering })
	if !answers {
		select {
		case c.at.turn <- struct{}{}:
			defer func() { <-c.at.turn }()
		case <-waiting.Done():
			return job.Sent{}, nil, w.noSlot(c.at)
		}
	}
	release := w.sends.acquire(receiverOf(c.ClaimedDelivery), waiting.Done())
	if release == nil {
		return job.Sent{}, nil, w.noSlot(c.at)
	}
	defer release()
	return w.sendInTime(c)
}

// For a URL without an origin, the endpoint counts as the receiver. The sender refuses such a URL later.
func receiverOf(p job.ClaimedDelivery) receiver {
	return receiver{p.ClientID, cmp.Or(job.OriginOf(p.Target.URL), p.Endpoint.String())}
}

// noSlot returns a job.TaskEarly with the time until the next try.
func (w *Worker) noSlot(e *endpointTasks) error {
	early := &job.TaskEarly{}
	if w.open.Err() == nil {
		now := time.Now()
		w.admission.update(func() { early.Wait = e.putOff(now, e.spacing(now)) })
	}
	return early
}

// sendInTime sends a delivery if the claim lasts long enough and the client's rate allows it. It returns an error if it sent nothing, or
// if Stop interrupted the send.
func (w *Worker) sendInTime(c claimed) (sent job.Sent, span trace.Span, err error) {
	if w.open.Err() != nil || time.Until(c.until) < w.cfg.Timeout+sendMargin {
		return job.Sent{}, nil, &job.TaskEarly{}
	}
	if w.cfg.Rate != nil {
		if a := w.cfg.Rate(w.sending, c.ClientID); !a.OK {
			w.admission.update(func() { c.at.client.rest = time.Now().Add(min(max(a.RetryAfter, minRest), maxRest)) })
			return job.Sent{}, nil, &job.TaskEarly{Wait: max(minBusy, a.RetryAfter)}
		}
	}
	ctx, cancel := context.WithTimeout(w.sending, w.cfg.Timeout+sendGrace)
	defer cancel()
	ctx, span = telemetry.Continue(ctx, w.cfg.Tracer, c.TraceParent, telemetry.SpanDeliver, trace.WithSpanKind(trace.SpanKindClient))
	describeDelivery(span, c.ClaimedDelivery)
	sent = w.send(ctx, c.ClaimedDelivery)
	describeSent(span, sent.Attempt)
	// Stop interrupted the send, so this is no failure. The receiver may get the delivery twice.
	if sent.Attempt.Error != "" && w.sending.Err() != nil {
		telemetry.End(span, errStopping)
		return job.Sent{}, nil, &job.TaskEarly{}
	}
	return sent, span, nil
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

// record stores the result of a send, and returns the error for Handle. If a try stored the result but its confirmation was lost, the
// next try returns job.ErrTaskStale. If every try fails, the delivery is sent again after the claim expires.
func (w *Worker) record(ctx context.Context, c claimed, sent job.Sent) error {
	if w.cfg.Clock.Moved() { // a test bed has moved the clock: stored times must follow this clock
		sent.Attempt.StartedAt = w.cfg.Clock.Now().Add(-sent.Attempt.Duration).UTC()
	}
	if weight := sent.Attempt.Weight(); weight > 0 && w.cfg.Storage != nil && !w.cfg.Storage(ctx, c.ClientID, weight).OK {
		dropResponse(&sent.Attempt)
	}
	r := job.DeliveryResult{DeliveryID: c.Delivery.ID, Fence: c.Fence, Sent: sent}
	r.State, r.Wait = w.cfg.Policy.Next(&c.Delivery, sent, rand.Float64())
	if sent.Attempt.Error == job.SendGone && !c.WebhookID.IsZero() {
		r.Disable = job.DisabledGone
	}
	for try := 0; ; {
		recorded, err := w.store.RecordDelivery(ctx, r)
		switch {
		case err == nil:
			w.reportRecorded(ctx, c.ClaimedDelivery, r, recorded)
			return w.taskEnd(r)
		case errors.Is(err, job.ErrStale):
			w.metrics.FencedWrites.WithLabelValues("deliver").Inc()
			w.log.InfoContext(ctx, "a write without a claim changed nothing", append(aboutDelivery(c.ClaimedDelivery), "fence", c.Fence,
				"status", sent.Attempt.Status, "error_code", string(sent.Attempt.Error))...)
			return job.ErrTaskStale
		case app.Refused(err) && (len(r.Sent.Attempt.Header) > 0 || len(r.Sent.Attempt.Body) > 0):
			// Storage refuses the response: record the attempt without it. Otherwise the delivery would be sent forever.
			dropResponse(&r.Sent.Attempt)
			continue
		}
		wait := recordPause << try
		if try++; try == recordTries || time.Until(c.until) < wait || !app.Sleep(ctx, wait) {
			w.log.WarnContext(ctx, "cannot record a delivery attempt", append(aboutDelivery(c.ClaimedDelivery), "status", sent.Attempt.Status,
				app.ErrorFields(err))...)
			return err
		}
	}
}

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

func dropResponse(a *job.DeliveryAttempt) {
	a.Header, a.Body, a.Truncated = nil, nil, a.Truncated || len(a.Body) > 0
}

// release ends a claim early. If that fails, the claim expires.
func (w *Worker) release(c claimed) {
	if err := w.store.ReleaseDelivery(w.storing, c.ID, c.Fence); err != nil {
		w.log.WarnContext(w.storing, "cannot release a delivery", append(aboutDelivery(c.ClaimedDelivery), app.ErrorFields(err))...)
	}
}
