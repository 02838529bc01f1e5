package testbed

import (
	"context"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Sender sends deliveries, with or without a fault.
type Sender interface {
	Send(ctx context.Context, p job.ClaimedDelivery) job.Sent
	SendChanged(ctx context.Context, p job.ClaimedDelivery, e fault.Effect) job.Sent
}

// Deliveries sends deliveries to clients, with the faults of their test bed.
type Deliveries struct {
	Bed    *Service
	Sender Sender
	Log    *slog.Logger
}

// Send makes a delivery attempt, and returns its result. Some faults cause extra requests, which are recorded but do not change the
// result. If storage fails, the delivery is sent without a fault.
func (d *Deliveries) Send(ctx context.Context, p job.ClaimedDelivery) job.Sent {
	scope, e, err := d.Bed.deliveryFault(ctx, &p)
	if err != nil {
		d.failed(ctx, p, "cannot read the fault rules for a delivery", err)
	}
	if e == nil || err != nil {
		return d.Sender.Send(ctx, p)
	}
	if e.Drop {
		return d.drop(ctx, scope, p, time.Duration(e.Delay))
	}
	if e.Delay > 0 {
		app.Sleep(ctx, time.Duration(e.Delay))
	}
	if e.Tamper != "" {
		d.sendExtra(ctx, scope, p, fault.Effect{Tamper: e.Tamper}, 1)
	}
	changed, began := *e, time.Now()
	changed.Tamper, changed.Repeat = "", 0 // these two faults are applied to extra requests only
	sent := d.Sender.SendChanged(ctx, p, changed)
	if changed != (fault.Effect{}) {
		d.record(ctx, scope, p, changed, began, sent)
	}
	if sent.Attempt.Error == "" {
		d.sendExtra(ctx, scope, p, fault.Effect{Repeat: 1}, e.Repeat)
		if e.Tamper != "" { // a client must also refuse a tampered request after it accepted the original
			d.sendExtra(ctx, scope, p, fault.Effect{Tamper: e.Tamper}, 1)
		}
	}
	return sent
}

func (s *Service) deliveryFault(ctx context.Context, p *job.ClaimedDelivery) (testbed.Scope, *fault.Effect, error) {
	scope, rules, err := s.Store.CountDelivery(ctx, p)
	if err != nil {
		return scope, nil, err
	}
	e, err := s.apply(ctx, scope, rules)
	return scope, e, err
}

// drop simulates the loss of an attempt. If the loss cannot be recorded, drop sends the delivery. Otherwise the verdict could blame the
// client for the loss.
func (d *Deliveries) drop(ctx context.Context, scope testbed.Scope, p job.ClaimedDelivery, again time.Duration) job.Sent {
	began := time.Now()
	if !d.record(ctx, scope, p, fault.Effect{Drop: true, Delay: fault.Duration(again)}, began, job.Sent{}) {
		return d.Sender.Send(ctx, p)
	}
	lost := job.DeliveryAttempt{StartedAt: began.UTC(), Duration: time.Since(began), Error: job.SendReset}
	return job.Sent{Attempt: lost, RetryAfter: again}
}

func (d *Deliveries) sendExtra(ctx context.Context, scope testbed.Scope, p job.ClaimedDelivery, e fault.Effect, times int) {
	limited, cancel := context.WithTimeout(ctx, fault.ExtraTimeout)
	defer cancel()
	for range times {
		began := time.Now()
		sent := d.Sender.SendChanged(limited, p, e)
		if limited.Err() != nil { // do not record an interrupted request: its result says nothing about the client
			return
		}
		d.record(ctx, scope, p, e, began, sent)
	}
}

func (d *Deliveries) record(
	ctx context.Context, scope testbed.Scope, p job.ClaimedDelivery, e fault.Effect, began time.Time, sent job.Sent,
) bool {
	x := verdict.Exchange{
		Start: began, End: time.Now(), Method: "POST", Operation: fault.Delivery, Role: verdict.Delivery, Job: testbed.IDOf(p.JobID),
		Status: sent.Attempt.Status, Fault: &e, Delivery: p.Delivery.ID.String(), Number: p.Attempts + 1, Event: p.EventName,
	}
	_, err := d.Bed.Store.Record(ctx, scope, &x)
	if err != nil {
		d.failed(ctx, p, "cannot record a delivery with a fault", err)
	}
	return err == nil
}

func (d *Deliveries) failed(ctx context.Context, p job.ClaimedDelivery, message string, err error) {
	d.Log.WarnContext(ctx, message, "action", "disturb_delivery", "client_id", p.ClientID.String(), "delivery_id", p.Delivery.ID.String(),
		app.ErrorFields(err))
}
