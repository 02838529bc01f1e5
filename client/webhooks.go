package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// String names the webhook and its address.
func (w Webhook) String() string { return "webhook " + w.WebhookID + " to " + withoutUser(w.URL) }

// Format writes String for every verb.
func (w Webhook) Format(f fmt.State, _ rune) { format(f, w) }

// LogValue is String.
func (w Webhook) LogValue() slog.Value { return slog.StringValue(w.String()) }

// Webhooks lists the client's webhooks.
func (c *Client) Webhooks(ctx context.Context) ([]Webhook, error) {
	return collect(list[Webhook](ctx, c, get(nil, "webhooks"), false))
}

// DeliveryFilter selects deliveries; zero members do not filter.
type DeliveryFilter struct {
	State         string // PENDING, DELIVERED, FAILED
	EventName     string
	CreatedAfter  time.Time // inclusive
	CreatedBefore time.Time // exclusive
	PageSize      int       // of one request, up to 100; 0: the service's default
}

// Deliveries lists what was sent to a webhook, newest first.
func (c *Client) Deliveries(ctx context.Context, webhookID string, filter DeliveryFilter) iter.Seq2[Delivery, error] {
	return c.deliveries(ctx, get(nil, "webhooks", webhookID, "deliveries"), filter)
}

// JobDeliveries lists what was sent of a job, to webhooks and its callback, newest first.
func (c *Client) JobDeliveries(ctx context.Context, jobID string, filter DeliveryFilter) iter.Seq2[Delivery, error] {
	return c.deliveries(ctx, get(nil, "jobs", jobID, "deliveries"), filter)
}

func (c *Client) deliveries(ctx context.Context, r *request, f DeliveryFilter) iter.Seq2[Delivery, error] {
	r.page(f.PageSize, f.CreatedAfter, f.CreatedBefore).where("state", f.State, "event_name", f.EventName)
	return list[Delivery](ctx, c, r, false)
}

// RedeliverSince sends again the deliveries that failed since then. While the answer has a NextCursor there are more: call it again with
// that cursor; "" begins.
func (c *Client) RedeliverSince(ctx context.Context, webhookID string, from time.Time, cursor string, options ...Option) (*Replay, error) {
	return c.replay(ctx, webhookID, "redeliver", from, cursor, options)
}

// Replay does what RedeliverSince does, and sends the events since then that the webhook asks for now and never got.
func (c *Client) Replay(ctx context.Context, webhookID string, from time.Time, cursor string, options ...Option) (*Replay, error) {
	return c.replay(ctx, webhookID, "replay", from, cursor, options)
}

func (c *Client) replay(ctx context.Context, webhookID, what string, from time.Time, cursor string, options []Option) (*Replay, error) {
	return fetch[Replay](ctx, c, post(options, "webhooks", webhookID, what).with(SinceRequest{from.UTC(), cursor}))
}

// WebhookMessage is a delivery as a receiver gets it, in either content mode. Verifier.Verify gives one. In the binary mode EventID,
// Name, Source, Subject (and so JobID), Time, Sequence and WorkKind come from ce- headers, which only a Verifier with Keys protects.
type WebhookMessage struct {
	WebhookID   string // webhook-id: of the delivery, the same on each try
	EventID     string // ce-id
	Name        string // ce-type: job.failed, for example
	Source      string
	Subject     string
	Time        time.Time
	Sequence    int    // place in the job's log, from 1; 0 if it is not of a job
	WorkKind    string // of the job; "" if it is not of a job
	ContentType string
	Data        json.RawMessage
	ReceivedAt  time.Time // when it was read
}

// ParseDelivery reads a delivery's CloudEvent, of the binary or the structured mode, and verifies nothing: it is for what was verified
// and then kept. Receivers use Verifier.Verify.
func ParseDelivery(header http.Header, body []byte) (*WebhookMessage, error) {
	m := &WebhookMessage{WebhookID: header.Get("Webhook-Id"), ContentType: header.Get("Content-Type"), Data: body, ReceivedAt: time.Now()}
	attribute := func(name string) string { return header.Get("Ce-" + name) }
	if mediaType(m.ContentType) == "application/cloudevents+json" {
		var event members
		if err := json.Unmarshal(body, &event); err != nil {
			return nil, fmt.Errorf("client: not a CloudEvent: %w", err)
		}
		attribute = func(name string) (value string) { event.take(name, &value); return value }
		m.ContentType, m.Data = attribute("datacontenttype"), event["data"]
	}
	m.EventID, m.Name, m.Source, m.Subject = attribute("id"), attribute("type"), attribute("source"), attribute("subject")
	m.WorkKind = attribute("workkind")
	if m.EventID == "" || m.Name == "" {
		return nil, errors.New("client: not a CloudEvent: it has no id or no type")
	}
	if !json.Valid(m.Data) {
		return nil, errors.New("client: the delivery's data is not JSON")
	}
	// What is absent or malformed stays zero.
	m.Time, _ = time.Parse(time.RFC3339Nano, strings.ToUpper(attribute("time")))
	if n, err := strconv.Atoi(attribute("sequence")); err == nil && n > 0 {
		m.Sequence = n
	}
	return m, nil
}

// JobID is the job that the message is about; "" if it is not about one.
func (m *WebhookMessage) JobID() string {
	if id, ok := strings.CutPrefix(m.Subject, "jobs/"); ok {
		return id
	}
	return ""
}

// Outcome reads the data as an outcome document: all messages about jobs and batches have one. As with ParseOutcome, Warnings are the
// caller's to log.
func (m *WebhookMessage) Outcome() (*Outcome, error) {
	return parseOutcome(m.ContentType, m.Data, m.ReceivedAt)
}
