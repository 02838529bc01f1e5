package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"runtime/debug"
	"time"

	"github.com/forgerun/forgerun/job"
)

const (
	recordTries = 6
	recordPause = 100 * time.Millisecond // doubled each time
)

// deliver sends a parcel and records what became of it, or gives it back. The
// pump is told before the result is recorded: storage delays no send.
func (c *Courier) deliver(h held, results chan<- result) {
	line := lineOf(h.Parcel)
	sent, ok := c.attempt(h)
	if !ok {
		c.release(h)
		results <- result{line: line}
		return
	}
	results <- result{line: line, sent: true, error: sent.Attempt.Error}
	c.record(h, sent)
	<-c.unrecorded
}

// attempt sends a parcel when it is its turn. With a result it keeps a token of
// unrecorded. ok is false when there is nothing to record.
func (c *Courier) attempt(h held) (sent job.Sent, ok bool) {
	if !c.turns.acquire(h.ClientID, c.quit) {
		return job.Sent{}, false
	}
	defer c.turns.release(h.ClientID)
	select {
	case c.unrecorded <- struct{}{}:
	case <-c.quit:
		return job.Sent{}, false
	}
	if sent, ok = c.sendInTime(h); !ok {
		<-c.unrecorded
	}
	return sent, ok
}

// sendInTime sends a parcel if its claim lasts long enough. ok is false if it
// does not, and if the courier's end cut the send off.
func (c *Courier) sendInTime(h held) (sent job.Sent, ok bool) {
	if c.stopped() || time.Until(h.until) < c.cfg.Timeout+sendMargin {
		return job.Sent{}, false
	}
	ctx, cancel := context.WithTimeout(c.sending, c.cfg.Timeout+sendGrace)
	defer cancel()
	sent = c.send(ctx, h.Parcel)
	// What was cut off here did not fail there. It may have arrived all the same:
	// then it arrives twice.
	return sent, sent.Attempt.Error == "" || c.sending.Err() == nil
}

// send calls the sender; a panic becomes a failed attempt.
func (c *Courier) send(ctx context.Context, p job.Parcel) (sent job.Sent) {
	c.metrics.sends.Inc()
	began := time.Now()
	defer func() {
		if cause := recover(); cause != nil {
			c.log.Error("sending a delivery crashed", append(aboutDelivery(p), "error_message", fmt.Sprintf("panic: %v\n%s", cause, debug.Stack()))...)
			sent = job.Sent{Attempt: job.DeliveryAttempt{StartedAt: began, Duration: time.Since(began), Error: job.SendInternal}}
		}
		c.metrics.sends.Dec()
		c.metrics.sendTime.Observe(time.Since(began).Seconds())
		if sent.Attempt.Error == "" && p.Attempts == 0 {
			c.metrics.deliveryLatency.Observe(max(0, time.Since(p.CreatedAt).Seconds()))
		}
	}()
	return c.sender.Send(ctx, p)
}

// record writes a result, as long as its claim lasts. A write whose answer was
// lost finds its own work done and comes back as stale. What cannot be recorded
// is sent again when the claim has ended.
func (c *Courier) record(h held, sent job.Sent) {
	r := c.judge(h.Parcel, sent)
	for try := 0; ; {
		recorded, err := c.store.RecordDelivery(c.storing, r)
		switch {
		case err == nil:
			c.tell(h.Parcel, r, recorded)
			return
		case errors.Is(err, job.ErrStale):
			c.metrics.fencedWrites.WithLabelValues("deliver").Inc()
			c.log.Info("a late write changed nothing", append(aboutDelivery(h.Parcel), "fence", h.Fence)...)
			return
		case refused(err) && (len(r.Sent.Attempt.Header) > 0 || len(r.Sent.Attempt.Body) > 0):
			// Better an attempt without the answer than a delivery without an end.
			r.Sent.Attempt.Header, r.Sent.Attempt.Body = nil, nil
			continue
		}
		wait := recordPause << try
		if try++; try == recordTries || time.Until(h.until) < wait || !sleep(c.storing, wait) {
			c.log.Warn("an attempt to deliver is not recorded", append(aboutDelivery(h.Parcel), "error_code", job.CodeOf(err), "error_message", err.Error())...)
			return
		}
	}
}

// judge decides what follows an attempt.
func (c *Courier) judge(p job.Parcel, sent job.Sent) job.DeliveryResult {
	r := job.DeliveryResult{DeliveryID: p.Delivery.ID, Endpoint: p.Endpoint, Fence: p.Fence, Sent: sent}
	r.State, r.Wait = c.cfg.Policy.Next(&p.Delivery, sent, rand.Float64())
	if sent.Attempt.Error == job.SendGone && !p.WebhookID.IsZero() {
		r.Disable = job.DisabledGone
	}
	return r
}

// tell says what was committed: to the log, the metrics and, if the webhook was
// disabled, to those who watch and to the client's other webhooks.
func (c *Courier) tell(p job.Parcel, r job.DeliveryResult, recorded job.Recorded) {
	c.metrics.delivered(r)
	c.logAttempt(p, r, recorded.Number)
	if recorded.Disabled == "" {
		return
	}
	c.metrics.webhooksDisabled.WithLabelValues(string(recorded.Disabled)).Inc()
	c.log.Warn("webhook disabled", "action", "disable_webhook", "client_id", p.ClientID.String(), "webhook_id", p.WebhookID.String(),
		"reason", string(recorded.Disabled))
	c.queue.Announce(job.News{ClientID: p.ClientID})
}

// release gives claims back. What fails is released when the claim has ended.
func (c *Courier) release(unused ...held) {
	parcels := make([]job.Parcel, len(unused))
	for i, h := range unused {
		parcels[i] = h.Parcel
	}
	if err := c.store.ReleaseDeliveries(c.storing, parcels); err != nil {
		c.log.Warn("cannot give deliveries back", "action", "deliver", "deliveries", len(parcels), "error", err)
	}
}

// aboutDelivery names a delivery in a log line. Of a callback only the host is
// told: paths and queries may hold secrets.
func aboutDelivery(p job.Parcel) []any {
	attrs := append(make([]any, 0, 11), slog.String("action", "deliver"),
		slog.String("delivery_id", p.Delivery.ID.String()), slog.String("client_id", p.ClientID.String()))
	if p.WebhookID.IsZero() {
		attrs = append(attrs, slog.String("callback_host", hostOf(p.URL)))
	} else {
		attrs = append(attrs, slog.String("webhook_id", p.WebhookID.String()))
	}
	if !p.JobID.IsZero() {
		attrs = append(attrs, slog.String("job_id", p.JobID.String()))
	}
	if b := p.Occurrence.Batch; b != nil {
		attrs = append(attrs, slog.String("request_id", b.RequestID))
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
func (c *Courier) logAttempt(p job.Parcel, r job.DeliveryResult, number int) {
	if !c.log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	a := r.Sent.Attempt
	attrs := append(aboutDelivery(p), slog.Int("attempt", number), slog.Int("status", a.Status),
		slog.Int64("duration_ms", a.Duration.Milliseconds()), slog.String("next_state", string(r.State)))
	if a.Error != "" {
		attrs = append(attrs, slog.String("error_code", string(a.Error)))
	}
	if r.State == job.DeliveryPending {
		attrs = append(attrs, slog.Int64("wait_ms", r.Wait.Milliseconds()))
	}
	c.log.Info("delivery attempt", attrs...)
}
