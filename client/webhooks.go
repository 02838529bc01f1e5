package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// CreateWebhook registers a webhook. The answer has the secret, which is not
// shown again except to a repetition with the same idempotency key.
func (c *Client) CreateWebhook(ctx context.Context, webhook WebhookRequest, options ...Option) (*Webhook, error) {
	r, err := keyed("/v1/webhooks", webhook, options)
	if err != nil {
		return nil, err
	}
	return c.webhook(ctx, r)
}

func (c *Client) webhook(ctx context.Context, r *request) (*Webhook, error) {
	webhook := &Webhook{}
	r.secret = true
	a, err := c.call(ctx, r, webhook)
	if err != nil {
		return nil, err
	}
	webhook.RequestID, webhook.Replayed = a.requestID(), first(a.header, "Idempotency-Replayed") == "true"
	return webhook, nil
}

// Webhook reads a webhook, without its secret.
func (c *Client) Webhook(ctx context.Context, id string, options ...Option) (*Webhook, error) {
	r, err := get(options, "v1", "webhooks", id)
	if err != nil {
		return nil, err
	}
	r.id = id
	return c.webhook(ctx, r)
}

// Webhooks lists the client's webhooks.
func (c *Client) Webhooks(ctx context.Context) ([]Webhook, error) {
	var all []Webhook
	for webhook, err := range pages[Webhook](ctx, c, url.Values{}, "v1", "webhooks") {
		if err != nil {
			return nil, err
		}
		all = append(all, webhook)
	}
	return all, nil
}

// UpdateWebhook changes the members that are given.
func (c *Client) UpdateWebhook(ctx context.Context, id string, patch WebhookPatch, options ...Option) (*Webhook, error) {
	r, err := newRequest(http.MethodPatch, options, []string{"v1", "webhooks", id})
	if err != nil {
		return nil, err
	}
	if r.body, err = encode(patch); err != nil {
		return nil, err
	}
	r.id = id
	return c.webhook(ctx, r)
}

// DeleteWebhook removes a webhook. That it is not there after an answer was
// lost means that it is deleted.
func (c *Client) DeleteWebhook(ctx context.Context, id string, options ...Option) error {
	r, err := newRequest(http.MethodDelete, options, []string{"v1", "webhooks", id})
	if err != nil {
		return err
	}
	var answered struct {
		Deleted bool `json:"deleted"`
	}
	a, err := c.call(ctx, r, &answered)
	if err == nil && !answered.Deleted {
		err = r.wrong(a, "it does not say that the webhook is deleted")
	}
	var problem *Problem
	if errors.As(err, &problem) && problem.Status == http.StatusNotFound && problem.Tries > 1 {
		return nil
	}
	return err
}

// RotateSecret makes a new secret; the old one stays valid for 24 hours. It is
// not repeated: if the answer was lost, call it again, since the last three
// old secrets stay valid.
func (c *Client) RotateSecret(ctx context.Context, id string, options ...Option) (*Webhook, error) {
	r, err := post(options, "v1", "webhooks", id, "rotate-secret")
	if err != nil {
		return nil, err
	}
	r.id, r.repeat = id, never
	return c.webhook(ctx, r)
}

// TestWebhook sends webhook.test to a webhook. It is not repeated.
func (c *Client) TestWebhook(ctx context.Context, id string, options ...Option) (*Delivery, error) {
	r, err := post(options, "v1", "webhooks", id, "test")
	if err != nil {
		return nil, err
	}
	r.repeat = never
	return c.delivery(ctx, r)
}

// Deliveries lists what was sent to a webhook, newest first.
func (c *Client) Deliveries(ctx context.Context, webhookID string, filter DeliveryFilter) iter.Seq2[Delivery, error] {
	return pages[Delivery](ctx, c, filter.query(), "v1", "webhooks", webhookID, "deliveries")
}

// JobDeliveries lists what was sent of a job, to webhooks and its callback,
// newest first.
func (c *Client) JobDeliveries(ctx context.Context, jobID string, filter DeliveryFilter) iter.Seq2[Delivery, error] {
	return pages[Delivery](ctx, c, filter.query(), "v1", "jobs", jobID, "deliveries")
}

func (f DeliveryFilter) query() url.Values {
	q := pageQuery(f.PageSize, f.CreatedAfter, f.CreatedBefore)
	setIf(q, "state", f.State)
	setIf(q, "event_name", f.EventName)
	return q
}

// Delivery reads a delivery to a webhook, with its attempts.
func (c *Client) Delivery(ctx context.Context, webhookID, deliveryID string, options ...Option) (*Delivery, error) {
	r, err := get(options, "v1", "webhooks", webhookID, "deliveries", deliveryID)
	if err != nil {
		return nil, err
	}
	r.id = deliveryID
	return c.delivery(ctx, r)
}

// JobDelivery reads a delivery of a job, with its attempts.
func (c *Client) JobDelivery(ctx context.Context, jobID, deliveryID string, options ...Option) (*Delivery, error) {
	r, err := get(options, "v1", "jobs", jobID, "deliveries", deliveryID)
	if err != nil {
		return nil, err
	}
	r.id = deliveryID
	return c.delivery(ctx, r)
}

// Redeliver sends a delivery to a webhook again, with the same webhook-id.
func (c *Client) Redeliver(ctx context.Context, webhookID, deliveryID string, options ...Option) (*Delivery, error) {
	r, err := post(options, "v1", "webhooks", webhookID, "deliveries", deliveryID, "redeliver")
	if err != nil {
		return nil, err
	}
	r.id = deliveryID
	return c.delivery(ctx, r)
}

// RedeliverJob sends a delivery of a job again, with the same webhook-id.
func (c *Client) RedeliverJob(ctx context.Context, jobID, deliveryID string, options ...Option) (*Delivery, error) {
	r, err := post(options, "v1", "jobs", jobID, "deliveries", deliveryID, "redeliver")
	if err != nil {
		return nil, err
	}
	r.id = deliveryID
	return c.delivery(ctx, r)
}

func (c *Client) delivery(ctx context.Context, r *request) (*Delivery, error) {
	delivery := &Delivery{}
	if _, err := c.call(ctx, r, delivery); err != nil {
		return nil, err
	}
	return delivery, nil
}

// RedeliverSince sends again the deliveries that failed since then. While the
// answer has a NextCursor there are more: call it again with that cursor; ""
// begins.
func (c *Client) RedeliverSince(ctx context.Context, webhookID string, from time.Time, cursor string, options ...Option) (*Replay, error) {
	return c.replay(ctx, webhookID, "redeliver", from, cursor, options)
}

// Replay does what RedeliverSince does, and sends the events since then that
// the webhook asks for now and never got.
func (c *Client) Replay(ctx context.Context, webhookID string, from time.Time, cursor string, options ...Option) (*Replay, error) {
	return c.replay(ctx, webhookID, "replay", from, cursor, options)
}

func (c *Client) replay(ctx context.Context, webhookID, what string, from time.Time, cursor string, options []Option) (*Replay, error) {
	r, err := post(options, "v1", "webhooks", webhookID, what)
	if err != nil {
		return nil, err
	}
	body := struct {
		Since  string `json:"since"`
		Cursor string `json:"cursor,omitempty"`
	}{since(from), cursor}
	if r.body, err = encode(body); err != nil {
		return nil, err
	}
	replay := &Replay{}
	if _, err := c.call(ctx, r, replay); err != nil {
		return nil, err
	}
	return replay, nil
}
