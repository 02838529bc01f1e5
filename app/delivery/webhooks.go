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

// secretOverlap is how long a webhook's old secret signs beside the new one.
const secretOverlap = 24 * time.Hour

// WebhooksDeps are the dependencies of Webhooks.
type WebhooksDeps struct {
	Store *repo.Store
	// NewSecret makes a signing secret. If it is nil, there is no master key, and webhooks cannot be registered.
	NewSecret func(webhook job.ID) (secret string, sealed []byte, err error)
	Targets   app.Targets
	// Challenge asks a receiver whether it wants events, and returns what is wrong with its answer, "" for nothing. It takes a bounded
	// time. If it is nil, receivers are not asked.
	Challenge   func(ctx context.Context, url string) (wrong string)
	Queue       Queue
	Subscribers *Subscribers
	Clock       app.Clock // time.Now if nil
	Log         *slog.Logger
}

// Webhooks is the use cases of subscriptions and their deliveries (section 8).
type Webhooks struct {
	deps   WebhooksDeps
	proofs *slots // of challenges
}

// Limits of how many receivers one process challenges at once. A receiver that hangs delays its own client only.
const (
	proofsAtOnce       = 64
	clientProofsAtOnce = 2
)

// NewWebhooks makes the use cases of subscriptions.
func NewWebhooks(d WebhooksDeps) *Webhooks {
	if d.Clock == nil {
		d.Clock = time.Now
	}
	return &Webhooks{deps: d, proofs: newSlots(proofsAtOnce, clientProofsAtOnce)}
}

// Webhook reads a webhook of a client.
func (s *Webhooks) Webhook(ctx context.Context, client, id job.ID) (*job.Webhook, error) {
	return s.deps.Store.Webhook(ctx, client, id)
}

// Webhooks lists the webhooks of a client, newest first.
func (s *Webhooks) Webhooks(ctx context.Context, client job.ID) ([]job.Webhook, error) {
	return s.deps.Store.Webhooks(ctx, client)
}

// Deliveries lists the deliveries of a webhook or a job.
func (s *Webhooks) Deliveries(ctx context.Context, client job.ID, q job.DeliveryQuery) (job.DeliveryPage, error) {
	return s.deps.Store.Deliveries(ctx, client, q)
}

// Delivery reads a delivery with its attempts.
func (s *Webhooks) Delivery(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (
	*job.Delivery, []job.DeliveryAttempt, error,
) {
	return s.deps.Store.Delivery(ctx, client, owner, id)
}

// errManyProofs refuses requests that did not get a slot before they ended.
var errManyProofs = &job.Error{
	Code: job.CodeQueueFull, Detail: "Too many receivers are being asked for consent. Try again later.", RetryAfter: time.Second,
}

// Prove challenges the receiver at a URL, which was checked before. It takes some seconds, so the caller must hold no lock or
// transaction. A wrong answer is a violation of the URL.
func (s *Webhooks) Prove(ctx context.Context, client job.ID, url string) error {
	if s.deps.Challenge == nil {
		return nil
	}
	release := s.proofs.acquire(receiver{client: client}, ctx.Done())
	if release == nil {
		return errManyProofs
	}
	defer release()
	wrong := s.deps.Challenge(ctx, url)
	if err := ctx.Err(); err != nil || wrong == "" { // an answer that was cut off proves nothing
		return err
	}
	return job.Invalid(job.Violation{Pointer: "/url", Detail: wrong})
}

// errNoMasterKey refuses requests for a secret when there is no key to seal it with.
var errNoMasterKey = job.Errorf(job.CodeConfigInvalid,
	"Webhooks cannot be registered on this server: its operator must set FORGERUN_MASTER_KEY.")

// Register makes a webhook and returns its secret. It returns job.ErrUnproven if the receiver must be challenged first, see Prove.
func (s *Webhooks) Register(ctx context.Context, r job.WebhookRequest) (job.IssuedWebhook, error) {
	if violations := s.checkRequest(r); len(violations) > 0 {
		return job.IssuedWebhook{}, job.Request{Malformed: r.Malformed, Unlisted: r.Unlisted}.Refusal(violations)
	}
	if s.deps.NewSecret == nil {
		return job.IssuedWebhook{}, errNoMasterKey
	}
	if s.deps.Challenge != nil && !r.Proven {
		return job.IssuedWebhook{}, job.ErrUnproven
	}
	id := app.NewID()
	secret, sealed, err := s.deps.NewSecret(id)
	if err != nil {
		return job.IssuedWebhook{}, err
	}
	w := job.Webhook{
		ID: id, ClientID: r.ClientID, URL: r.URL, Events: r.Events, Description: r.Description,
		ContentMode: cmp.Or(r.ContentMode, job.ContentBinary), Secrets: []job.SealedSecret{{Sealed: sealed}},
	}
	if r.Proven {
		w.ProvenAt = new(s.deps.Clock()) // storage uses its own clock
	}
	if w, err = s.deps.Store.InsertWebhook(ctx, w); err != nil {
		return job.IssuedWebhook{}, err
	}
	app.AfterCommit(ctx, func() {
		s.deps.Subscribers.Add(job.EndpointKey{Client: w.ClientID, Endpoint: w.ID})
		s.logChange(ctx, "webhook registered", "register_webhook", w.ClientID, w.ID)
	})
	return job.IssuedWebhook{Webhook: w, Secret: secret}, nil
}

// Update changes a webhook, and disables or enables it. It returns job.ErrUnproven if the receiver must first prove that it wants events,
// which can apply to an unchanged URL too.
func (s *Webhooks) Update(ctx context.Context, client, id job.ID, p job.WebhookPatch) (*job.Webhook, error) {
	if violations := s.checkPatch(p); len(violations) > 0 {
		return nil, job.Request{Malformed: p.Malformed, Unlisted: p.Unlisted}.Refusal(violations)
	}
	if s.deps.Challenge != nil && p.URL != nil && !p.Proven {
		if _, err := s.Webhook(ctx, client, id); err != nil {
			return nil, err
		}
		return nil, job.ErrUnproven
	}
	w, err := s.deps.Store.UpdateWebhook(ctx, client, id, p)
	if err != nil {
		return nil, err
	}
	if w.Disabled == nil {
		s.deps.Subscribers.Add(job.EndpointKey{Client: client, Endpoint: id})
	}
	s.logChange(ctx, "webhook changed", "update_webhook", client, id, slog.Bool("enabled", w.Disabled == nil))
	return w, nil
}

// Unregister deletes a webhook and stops its deliveries.
func (s *Webhooks) Unregister(ctx context.Context, client, id job.ID) error {
	if err := s.deps.Store.DeleteWebhook(ctx, client, id); err != nil {
		return err
	}
	s.logChange(ctx, "webhook deleted", "delete_webhook", client, id)
	return nil
}

// RotateSecret replaces a webhook's secret. For secretOverlap deliveries are signed with both, so that the receiver can change over.
func (s *Webhooks) RotateSecret(ctx context.Context, client, id job.ID) (job.IssuedWebhook, error) {
	if s.deps.NewSecret == nil {
		return job.IssuedWebhook{}, errNoMasterKey
	}
	secret, sealed, err := s.deps.NewSecret(id)
	if err != nil {
		return job.IssuedWebhook{}, err
	}
	w, err := s.deps.Store.RotateWebhookSecret(ctx, client, id, sealed, secretOverlap)
	if err != nil {
		return job.IssuedWebhook{}, err
	}
	app.AfterCommit(ctx, func() { s.logChange(ctx, "webhook secret rotated", "rotate_webhook_secret", client, id) })
	return job.IssuedWebhook{Webhook: *w, Secret: secret}, nil
}

// replayBatch limits how many deliveries one request queues: some 25 ms of the database's time.
const replayBatch = 500

// Test sends an event to one webhook, so that its owner sees whether it arrives.
func (s *Webhooks) Test(ctx context.Context, client, id job.ID) (*job.Delivery, error) {
	d, err := s.deps.Store.TestWebhook(ctx, client, id)
	if err != nil {
		return nil, err
	}
	app.AfterCommit(ctx, func() {
		s.deps.Queue.Publish(job.Notification{ClientID: client}) // it is an event of the client's stream as well
		s.deps.Queue.EnqueueDelivery(taskOf(d))
	})
	return d, nil
}

func taskOf(d *job.Delivery) job.DeliveryTask {
	return job.DeliveryTask{ID: d.ID, ClientID: d.ClientID, Endpoint: d.Endpoint}
}

// Redeliver sends a delivery once more, now. If it has a waiting task, the relay runs that.
func (s *Webhooks) Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error) {
	d, err := s.deps.Store.Redeliver(ctx, client, owner, id)
	if err != nil {
		return nil, err
	}
	app.AfterCommit(ctx, func() { s.deps.Queue.EnqueueDelivery(taskOf(d)) })
	return d, nil
}

// RedeliverFailed repeats the deliveries that failed for good since a moment.
func (s *Webhooks) RedeliverFailed(ctx context.Context, client, id job.ID, since time.Time) (job.Replay, error) {
	if err := s.checkSince(since); err != nil {
		return job.Replay{}, err
	}
	return s.deps.Store.RedeliverFailed(ctx, client, id, since, replayBatch)
}

// Replay repeats the deliveries that failed for good since a moment, and creates those of matching events that the webhook missed. It
// continues at the position that an earlier call returned; the zero position is the start. Each call does one step, so that each is
// limited like any request. Repeating a call creates no duplicates. The relay makes the tasks.
func (s *Webhooks) Replay(ctx context.Context, client, id job.ID, since time.Time, after job.Position) (job.Replay, error) {
	if err := s.checkSince(since); err != nil {
		return job.Replay{}, err
	}
	return s.deps.Store.ReplayEvents(ctx, client, id, since, after, replayBatch)
}

func (s *Webhooks) checkSince(since time.Time) error {
	if since.After(s.deps.Clock()) {
		return job.Invalid(job.Violation{Pointer: "/since", Detail: "The time must not be in the future."})
	}
	return nil
}

// logChange logs a change and the request that asked for it. It omits URL and secret: a URL may hold credentials.
func (s *Webhooks) logChange(ctx context.Context, message, action string, client, id job.ID, more ...slog.Attr) {
	attrs := []slog.Attr{
		slog.String("action", action), slog.String("request_id", telemetry.RequestOf(ctx)), slog.String("client_id", client.String()),
		slog.String("webhook_id", id.String()),
	}
	s.deps.Log.LogAttrs(ctx, slog.LevelInfo, message, append(attrs, more...)...)
}
