package delivery

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// secretOverlap is how long a replaced secret still signs deliveries.
const secretOverlap = 24 * time.Hour

// WebhooksDeps are the dependencies of Webhooks.
type WebhooksDeps struct {
	*repo.Store
	// NewSecret returns a signing secret. nil means that the server has no master key, so webhooks cannot be registered.
	NewSecret func(webhook job.ID) (secret string, sealed []byte, err error)
	// Targets returns why a URL is not allowed, or "".
	Targets func(url string) (wrong string)
	// Challenge asks a receiver whether it wants events. It returns a description of the problem, or "". It must return within a limited
	// time. nil means that webhooks need no challenge.
	Challenge   func(ctx context.Context, url string) (wrong string)
	Queue       Queue
	Subscribers *Subscribers
	Clock       app.Clock
	Log         *slog.Logger
}

// Webhooks has the use cases of webhooks and their deliveries (API contract, section 8). The embedded Store reads them.
type Webhooks struct {
	WebhooksDeps
	proofs *slots
}

// A hanging receiver delays only challenges of its own client.
const (
	proofsAtOnce       = 64
	clientProofsAtOnce = 2
)

// NewWebhooks returns the use cases of webhooks.
func NewWebhooks(d WebhooksDeps) *Webhooks {
	return &Webhooks{d, newSlots(proofsAtOnce, clientProofsAtOnce)}
}

var errManyProofs = &job.Error{
	Code: job.CodeQueueFull, Detail: "Too many receivers are being asked for consent. Try again later.", RetryAfter: time.Second,
}

// Prove challenges the receiver at a URL. The caller has already checked the URL. The challenge can take seconds, so hold no lock or
// transaction during the call. If the receiver does not pass, Prove returns a violation for the URL.
func (s *Webhooks) Prove(ctx context.Context, client job.ID, url string) error {
	if s.Challenge == nil {
		return nil
	}
	release := s.proofs.acquire(receiver{client: client}, ctx.Done())
	if release == nil {
		return errManyProofs
	}
	defer release()
	wrong := s.Challenge(ctx, url)
	if err := ctx.Err(); err != nil || wrong == "" { // an interrupted challenge is no refusal
		return err
	}
	return job.Invalid(job.Violation{Pointer: "/url", Detail: wrong})
}

var errNoMasterKey = job.Errorf(job.CodeConfigInvalid,
	"Webhooks cannot be registered on this server: its operator must set FORGERUN_MASTER_KEY.")

// Register creates a webhook and returns its secret. It returns job.ErrUnproven if the receiver must be challenged first, see Prove.
func (s *Webhooks) Register(ctx context.Context, r job.WebhookRequest) (job.IssuedWebhook, error) {
	if violations := s.checkRequest(r); len(violations) > 0 {
		return job.IssuedWebhook{}, job.Request{Malformed: r.Malformed, Unlisted: r.Unlisted}.Refusal(violations)
	}
	if s.NewSecret == nil {
		return job.IssuedWebhook{}, errNoMasterKey
	}
	if s.Challenge != nil && !r.Proven {
		return job.IssuedWebhook{}, job.ErrUnproven
	}
	id := app.NewID()
	secret, sealed, err := s.NewSecret(id)
	if err != nil {
		return job.IssuedWebhook{}, err
	}
	w := job.Webhook{
		ID: id, ClientID: r.ClientID, URL: r.URL, Events: r.Events, Description: r.Description,
		ContentMode: cmp.Or(r.ContentMode, job.ContentBinary), Secrets: []job.SealedSecret{{Sealed: sealed}},
	}
	if r.Proven {
		w.ProvenAt = new(s.Clock()) // storage replaces this time by Postgres' time
	}
	if w, err = s.Store.InsertWebhook(ctx, w); err != nil {
		return job.IssuedWebhook{}, err
	}
	app.AfterCommit(ctx, func() {
		s.Subscribers.Add(job.EndpointKey{Client: w.ClientID, Endpoint: w.ID})
		s.logChange(ctx, "webhook registered", "register_webhook", w.ClientID, w.ID)
	})
	return job.IssuedWebhook{Webhook: w, Secret: secret}, nil
}

// Update changes, disables or enables a webhook. It returns job.ErrUnproven if the receiver must be challenged first. Each patch with a URL
// needs a challenge, even if the URL stays the same.
func (s *Webhooks) Update(ctx context.Context, client, id job.ID, p job.WebhookPatch) (*job.Webhook, error) {
	if violations := s.checkPatch(p); len(violations) > 0 {
		return nil, job.Request{Malformed: p.Malformed, Unlisted: p.Unlisted}.Refusal(violations)
	}
	if s.Challenge != nil && p.URL != nil && !p.Proven {
		if _, err := s.Webhook(ctx, client, id); err != nil {
			return nil, err
		}
		return nil, job.ErrUnproven
	}
	w, err := s.Store.UpdateWebhook(ctx, client, id, p)
	if err != nil {
		return nil, err
	}
	if w.Disabled == nil {
		s.Subscribers.Add(job.EndpointKey{Client: client, Endpoint: id})
	}
	s.logChange(ctx, "webhook changed", "update_webhook", client, id, slog.Bool("enabled", w.Disabled == nil))
	return w, nil
}

// Unregister deletes a webhook and stops its deliveries.
func (s *Webhooks) Unregister(ctx context.Context, client, id job.ID) error {
	if err := s.Store.DeleteWebhook(ctx, client, id); err != nil {
		return err
	}
	s.logChange(ctx, "webhook deleted", "delete_webhook", client, id)
	return nil
}

// RotateSecret replaces a webhook's secret. During secretOverlap, deliveries are signed with both secrets, so that the receiver can
// switch.
func (s *Webhooks) RotateSecret(ctx context.Context, client, id job.ID) (job.IssuedWebhook, error) {
	if s.NewSecret == nil {
		return job.IssuedWebhook{}, errNoMasterKey
	}
	secret, sealed, err := s.NewSecret(id)
	if err != nil {
		return job.IssuedWebhook{}, err
	}
	w, err := s.Store.RotateWebhookSecret(ctx, client, id, sealed, secretOverlap)
	if err != nil {
		return job.IssuedWebhook{}, err
	}
	app.AfterCommit(ctx, func() { s.logChange(ctx, "webhook secret rotated", "rotate_webhook_secret", client, id) })
	return job.IssuedWebhook{Webhook: *w, Secret: secret}, nil
}

// replayBatch limits how many deliveries one request queues. 500 deliveries take about 25 ms of database time.
const replayBatch = 500

// Test sends a test event to a webhook.
func (s *Webhooks) Test(ctx context.Context, client, id job.ID) (*job.Delivery, error) {
	d, err := s.Store.TestWebhook(ctx, client, id)
	if err != nil {
		return nil, err
	}
	app.AfterCommit(ctx, func() {
		s.Queue.Publish(job.Notification{ClientID: client}) // the event is also in the client's event stream
		s.Queue.EnqueueDelivery(taskOf(d))
	})
	return d, nil
}

func taskOf(d *job.Delivery) job.DeliveryTask {
	return job.DeliveryTask{ID: d.ID, ClientID: d.ClientID, Endpoint: d.Endpoint}
}

// Redeliver sends a delivery again immediately. If the queue already has a task for a later retry, the relay makes this task due.
func (s *Webhooks) Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error) {
	d, err := s.Store.Redeliver(ctx, client, owner, id)
	if err != nil {
		return nil, err
	}
	app.AfterCommit(ctx, func() { s.Queue.EnqueueDelivery(taskOf(d)) })
	return d, nil
}

// RedeliverFailed repeats the deliveries that failed permanently since the given time.
func (s *Webhooks) RedeliverFailed(ctx context.Context, client, id job.ID, since time.Time) (job.Replay, error) {
	if err := s.checkSince(since); err != nil {
		return job.Replay{}, err
	}
	return s.Store.RedeliverFailed(ctx, client, id, since, replayBatch)
}

// Replay repeats deliveries that failed since the given time. It also delivers matching events that the webhook missed. `after` is the
// position from an earlier call, or zero to start. One call handles at most replayBatch deliveries. Repeating a call creates no
// duplicates.
func (s *Webhooks) Replay(ctx context.Context, client, id job.ID, since time.Time, after job.Position) (job.Replay, error) {
	if err := s.checkSince(since); err != nil {
		return job.Replay{}, err
	}
	return s.Store.ReplayEvents(ctx, client, id, since, after, replayBatch)
}

func (s *Webhooks) checkSince(since time.Time) error {
	if since.After(s.Clock()) {
		return job.Invalid(job.Violation{Pointer: "/since", Detail: "The time must not be in the future."})
	}
	return nil
}

// logChange omits URL and secret: a URL may have credentials.
func (s *Webhooks) logChange(ctx context.Context, message, action string, client, id job.ID, more ...slog.Attr) {
	attrs := []slog.Attr{
		slog.String("action", action), slog.String("request_id", telemetry.RequestOf(ctx)), slog.String("client_id", client.String()),
		slog.String("webhook_id", id.String()),
	}
	s.Log.LogAttrs(ctx, slog.LevelInfo, message, append(attrs, more...)...)
}
