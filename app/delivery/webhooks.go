package delivery

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// WebhookSecrets makes signing secrets.
type WebhookSecrets interface {
	New(webhook job.ID) (secret string, sealed []byte, err error)
}

// Challenge asks a receiver whether it wants events, and says what is missing in its answer, "" for nothing. It takes a bounded time.
type Challenge interface {
	Ask(ctx context.Context, url string) (wrong string)
}

// secretOverlap is how long a webhook's old secret signs beside the new one.
const secretOverlap = 24 * time.Hour

// WebhooksDeps is what Webhooks works with. Without Secrets (there is no master key) nothing is registered; without Targets URLs are not
// looked at; without Challenge receivers are not asked whether they want events.
type WebhooksDeps struct {
	Store       Store
	Secrets     WebhookSecrets
	Targets     app.Targets
	Challenge   Challenge
	Queue       Tasks
	Subscribers *Subscribers
	Clock       app.Clock // time.Now if nil
	Log         *slog.Logger
}

// Webhooks is the use cases of subscriptions and of what is delivered to them (section 8).
type Webhooks struct {
	Reader // webhooks and deliveries are read as they are stored

	deps   WebhooksDeps
	proofs *slots // for questions to receivers
}

// Bounds of how many receivers are asked at once by one process. What a receiver that hangs holds up is its client's own.
const (
	proofsAtOnce       = 64
	clientProofsAtOnce = 2
)

// NewWebhooks makes the use cases of subscriptions.
func NewWebhooks(d WebhooksDeps) *Webhooks {
	if d.Clock == nil {
		d.Clock = time.Now
	}
	return &Webhooks{Reader: d.Store, deps: d, proofs: newSlots(proofsAtOnce, clientProofsAtOnce)}
}

// errManyProofs is for those that did not get a slot before their request ended.
var errManyProofs = &job.Error{
	Code: job.CodeQueueFull, Detail: "Too many receivers are being asked whether they want events. Try again later.", RetryAfter: time.Second,
}

// Prove asks the receiver at a URL, which was checked before, whether it wants events. It takes some seconds, so nothing that others
// wait for may be held meanwhile, and no transaction be open. What the receiver does not say is a violation of the URL.
func (s *Webhooks) Prove(ctx context.Context, client job.ID, url string) error {
	if s.deps.Challenge == nil {
		return nil
	}
	release := s.proofs.acquire(receiver{client: client}, ctx.Done())
	if release == nil {
		return errManyProofs
	}
	defer release()
	wrong := s.deps.Challenge.Ask(ctx, url)
	if err := ctx.Err(); err != nil || wrong == "" { // an answer that was cut off says nothing
		return err
	}
	return job.Invalid(job.Violation{Pointer: "/url", Detail: wrong})
}

// errNoMasterKey is the answer to whatever needs a secret where none can be kept.
var errNoMasterKey = job.Errorf(job.CodeConfigInvalid,
	"Webhooks cannot be registered on this server: its operator must set FORGERUN_MASTER_KEY.")

// Register makes a webhook and shows its secret. With job.ErrUnproven it asks for a proof, see Prove.
func (s *Webhooks) Register(ctx context.Context, r job.WebhookRequest) (job.IssuedWebhook, error) {
	if violations := s.checkRequest(r); len(violations) > 0 {
		return job.IssuedWebhook{}, job.Request{Malformed: r.Malformed, Unlisted: r.Unlisted}.Refusal(violations)
	}
	if s.deps.Secrets == nil {
		return job.IssuedWebhook{}, errNoMasterKey
	}
	if s.deps.Challenge != nil && !r.Proven {
		return job.IssuedWebhook{}, job.ErrUnproven
	}
	id := app.NewID()
	secret, sealed, err := s.deps.Secrets.New(id)
	if err != nil {
		return job.IssuedWebhook{}, err
	}
	w := job.Webhook{
		ID: id, ClientID: r.ClientID, URL: r.URL, Events: r.Events, Description: r.Description,
		ContentMode: cmp.Or(r.ContentMode, job.ContentBinary), Secrets: []job.SealedSecret{{Sealed: sealed}},
	}
	if r.Proven {
		w.ProvenAt = new(s.deps.Clock()) // storage has it by its own clock
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

// Update changes a webhook, and disables or enables it. It returns job.ErrUnproven if the receiver must first prove that it wants
// events; that can concern the present URL as well.
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

// Unregister deletes a webhook: nothing is delivered to it any more.
func (s *Webhooks) Unregister(ctx context.Context, client, id job.ID) error {
	if err := s.deps.Store.DeleteWebhook(ctx, client, id); err != nil {
		return err
	}
	s.logChange(ctx, "webhook deleted", "delete_webhook", client, id)
	return nil
}

// RotateSecret gives a webhook a new secret. For secretOverlap deliveries are signed with both, so that the receiver can change over.
func (s *Webhooks) RotateSecret(ctx context.Context, client, id job.ID) (job.IssuedWebhook, error) {
	if s.deps.Secrets == nil {
		return job.IssuedWebhook{}, errNoMasterKey
	}
	secret, sealed, err := s.deps.Secrets.New(id)
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

// logChange logs a change, with the request that asked for it and without URL and secret: a URL may hold credentials of its own.
func (s *Webhooks) logChange(ctx context.Context, message, action string, client, id job.ID, more ...slog.Attr) {
	attrs := []slog.Attr{
		slog.String("action", action), slog.String("request_id", telemetry.RequestOf(ctx)), slog.String("client_id", client.String()),
		slog.String("webhook_id", id.String()),
	}
	s.deps.Log.LogAttrs(ctx, slog.LevelInfo, message, append(attrs, more...)...)
}
