package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// The states and the event of section 8 that the webhook kinds look at.
const (
	deliveryPending   = "PENDING"
	deliveryDelivered = "DELIVERED"
	deliveryFailed    = "FAILED"

	eventSucceeded = "job.succeeded"
)

// script is what the receiver does with a delivery, and what must come of it.
type script struct {
	replies []reply
	state   string        // the delivery's end
	tries   int           // that this must take; 0: every one that the service has
	late    time.Duration // how long the last try must have taken
}

var (
	accepted    = reply{status: http.StatusNoContent}
	unanswered  = reply{}
	unavailable = reply{status: http.StatusServiceUnavailable}
	broken      = reply{status: http.StatusInternalServerError}
)

// webhookAccepted is accepted at once; so are those of the job's callback.
func webhookAccepted(ctx context.Context, v *visit) error {
	callback := v.receiver.hook(v.kind.name+"-callback", accepted)
	v.callback = callback.url
	s, err := v.deliver(ctx, script{replies: []reply{accepted}, state: deliveryDelivered, tries: 1}, callback)
	if err != nil || s == nil {
		return err
	}
	return v.judgeCallback(ctx, s, callback)
}

// webhookUnanswered leaves the first try without an answer, until the sender
// gives up.
func webhookUnanswered(ctx context.Context, v *visit) error {
	_, err := v.deliver(ctx, script{replies: []reply{unanswered, accepted}, state: deliveryDelivered, tries: 2})
	return err
}

// webhookUnavailable refuses the first try.
func webhookUnavailable(ctx context.Context, v *visit) error {
	_, err := v.deliver(ctx, script{replies: []reply{unavailable, accepted}, state: deliveryDelivered, tries: 2})
	return err
}

// webhookBroken refuses every try.
func webhookBroken(ctx context.Context, v *visit) error {
	_, err := v.deliver(ctx, script{replies: []reply{broken}, state: deliveryFailed})
	return err
}

// webhookSlow answers late, but within the service's limit.
func webhookSlow(ctx context.Context, v *visit) error {
	slow := reply{status: http.StatusOK, after: v.pace.slow}
	_, err := v.deliver(ctx, script{replies: []reply{slow}, state: deliveryDelivered, tries: 1, late: v.pace.slow})
	return err
}

// subscription is one delivery of the visit: of the job's success to a webhook
// that was registered for it.
type subscription struct {
	script script
	hook   *hook
	ticket ticket
	report reportView
	id     string
	secret string
}

// deliver registers a webhook, sees a job through and judges what was delivered
// of it. It gives nil when the job did not succeed: then there is nothing to
// deliver.
func (v *visit) deliver(ctx context.Context, s script, also ...*hook) (*subscription, error) {
	sub := &subscription{script: s, hook: v.receiver.hook(v.kind.name, s.replies...)}
	if err := v.subscribe(ctx, sub); err != nil {
		return nil, err
	}
	t, err := v.submit(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	for _, h := range append(also, sub.hook) {
		h.expect(t.id)
	}
	sub.ticket = t
	if sub.report, err = v.seeThrough(ctx, t); err != nil || v.got != stateSucceeded {
		return nil, err
	}
	v.saw("delivering")
	d, err := v.awaitDelivery(ctx, sub)
	if err != nil {
		return nil, err
	}
	v.judgeDelivery(sub, d)
	return sub, nil
}

// subscribe registers the webhook, for the successes of all jobs: there is no
// narrower event.
func (v *visit) subscribe(ctx context.Context, sub *subscription) error {
	body := map[string]any{"url": sub.hook.url, "events": []string{eventSucceeded}, "description": "simulator: " + v.kind.name}
	a, err := v.client.do(ctx, http.MethodPost, "/v1/webhooks", body, http.Header{"Idempotency-Key": {uuid.NewString()}})
	if err != nil {
		return err
	}
	p, _ := a.problem()
	if i := slices.IndexFunc(p.Violations, func(v violation) bool { return v.Pointer == "/url" }); i >= 0 {
		return v.receiver.unreachable(p.Violations[i].Detail)
	}
	var w webhookView
	if err := a.decode(http.StatusCreated, &w); err != nil {
		return err
	}
	if w.WebhookID != "" {
		v.webhooks = append(v.webhooks, w.WebhookID)
	}
	if w.WebhookID == "" || w.Secret == "" {
		return errors.New("the service registered the webhook without a webhook_id or a secret")
	}
	if w.CreatedAt == nil {
		v.differs("the registration of the webhook has no created_at")
	}
	if !strings.HasPrefix(w.Secret, "whsec_") {
		v.differs("the webhook's secret does not begin with whsec_")
	}
	sub.id, sub.secret = w.WebhookID, w.Secret
	return nil
}

// awaitDelivery waits for the end of the delivery, as long as the tour has
// patience, and then a little for one delivery too many.
func (v *visit) awaitDelivery(ctx context.Context, sub *subscription) (deliveryView, error) {
	began := time.Now()
	for {
		mine, err := v.deliveriesTo(ctx, sub)
		if err != nil {
			return deliveryView{}, err
		}
		seen, open := sub.hook.received()
		switch {
		case len(mine) == 0:
		case len(seen) == 0 && mine[0].cannotReach():
			return deliveryView{}, v.receiver.unreachable(mine[0].LastError.Code)
		case mine[0].State != deliveryPending && !open:
			return v.afterSettling(ctx, sub)
		}
		if time.Since(began) < v.pace.patience {
			if err := sleep(ctx, v.pace.poll); err != nil {
				return deliveryView{}, err
			}
			continue
		}
		if len(mine) == 0 {
			return deliveryView{}, fmt.Errorf("within %s there was no delivery of %s to the webhook", v.pace.patience, eventSucceeded)
		}
		return v.deliveryOf(ctx, sub, mine[0].DeliveryID)
	}
}

// afterSettling looks once more when nothing should come any more.
func (v *visit) afterSettling(ctx context.Context, sub *subscription) (deliveryView, error) {
	if err := sleep(ctx, v.pace.settle); err != nil {
		return deliveryView{}, err
	}
	mine, err := v.deliveriesTo(ctx, sub)
	if err != nil {
		return deliveryView{}, err
	}
	if len(mine) != 1 {
		v.differs("the job has %d deliveries of %s to the webhook, expected 1", len(mine), eventSucceeded)
	}
	if len(mine) == 0 {
		return deliveryView{}, errors.New("the settled delivery is not listed any more")
	}
	return v.deliveryOf(ctx, sub, mine[0].DeliveryID)
}

// deliveriesTo lists those of the job's deliveries that go to the webhook.
func (v *visit) deliveriesTo(ctx context.Context, sub *subscription) ([]deliveryView, error) {
	all, err := v.deliveries(ctx, sub.ticket)
	return slices.DeleteFunc(all, func(d deliveryView) bool {
		return d.WebhookID != sub.id || d.EventName != eventSucceeded
	}), err
}

// deliveries lists all deliveries of a job.
func (v *visit) deliveries(ctx context.Context, t ticket) ([]deliveryView, error) {
	var all []deliveryView
	for cursor := ""; ; {
		a, err := v.client.do(ctx, http.MethodGet, "/v1/jobs/"+t.id+"/deliveries?limit=100"+cursor, nil, nil)
		if err != nil {
			return nil, err
		}
		var list deliveryList
		if err := a.decode(http.StatusOK, &list); err != nil {
			return nil, err
		}
		all = append(all, list.Data...)
		if list.Page.NextCursor == "" {
			return all, nil
		}
		cursor = "&cursor=" + list.Page.NextCursor
	}
}

// deliveryOf reads one delivery with its tries.
func (v *visit) deliveryOf(ctx context.Context, sub *subscription, id string) (deliveryView, error) {
	var d deliveryView
	a, err := v.client.do(ctx, http.MethodGet, "/v1/jobs/"+sub.ticket.id+"/deliveries/"+id, nil, nil)
	if err != nil {
		return d, err
	}
	return d, a.decode(http.StatusOK, &d)
}

// judgeCallback waits for the deliveries of the job's callback, one for each
// change of its state, and compares them with what was received.
func (v *visit) judgeCallback(ctx context.Context, sub *subscription, h *hook) error {
	changes := map[string]int{} // event id -> deliveries
	for _, e := range sub.report.Events {
		if e.Next != "" {
			changes[e.EventID] = 0
		}
	}
	for began := time.Now(); ; {
		all, err := v.deliveries(ctx, sub.ticket)
		if err != nil {
			return err
		}
		pending := slices.ContainsFunc(all, func(d deliveryView) bool { return d.URL == h.url && d.State == deliveryPending })
		if !pending || time.Since(began) > v.pace.patience {
			for _, d := range all {
				if d.URL != h.url {
					continue
				}
				changes[d.EventID]++
				if d.State != deliveryDelivered {
					v.differs("the delivery of %s to the callback is %s", d.EventName, d.State)
				}
			}
			break
		}
		if err := sleep(ctx, v.pace.poll); err != nil {
			return err
		}
	}
	seen, _ := h.received()
	for _, m := range seen {
		v.judgeMessage(m, messageOf{url: h.url, jobID: sub.ticket.id, what: "the callback's " + m.header.Get("Ce-Type")})
	}
	for _, e := range sub.report.Events {
		came := slices.ContainsFunc(seen, func(m message) bool { return m.header.Get("Ce-Id") == e.EventID })
		if e.Next != "" && (changes[e.EventID] != 1 || !came) {
			v.differs("%s has %d deliveries to the callback, expected 1; received: %t", e.Name, changes[e.EventID], came)
		}
	}
	return nil
}
