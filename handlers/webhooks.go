package handlers

import (
	"context"
	"errors"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// Webhooks are the use cases of webhooks.
type Webhooks interface {
	Register(ctx context.Context, r job.WebhookRequest) (job.IssuedWebhook, error)
	Webhooks(ctx context.Context, client job.ID) ([]job.Webhook, error) // newest first
	Webhook(ctx context.Context, client, id job.ID) (*job.Webhook, error)
	Update(ctx context.Context, client, id job.ID, p job.WebhookPatch) (*job.Webhook, error)
	Unregister(ctx context.Context, client, id job.ID) error
	RotateSecret(ctx context.Context, client, id job.ID) (job.IssuedWebhook, error)
}

// Proofs asks receivers whether they want events: Webhooks asks for that with
// job.ErrUnproven.
type Proofs interface {
	Prove(ctx context.Context, client job.ID, url string) error
}

// registerWebhook has a scope of keys of its own: they may be in the body.
func (s *Server) registerWebhook(r *call) error {
	body, key, err := r.keyedBody()
	if err != nil {
		return err
	}
	req, err := decode.Webhook(body, key)
	if err != nil {
		return err
	}
	req.ClientID = r.caller.ClientID
	register := func(r *call) error {
		issued, err := s.deps.Webhooks.Register(r.ctx, req)
		if err != nil {
			return err
		}
		r.webhook, r.made = issued.ID, issued.ID
		r.Set(fiber.HeaderLocation, s.links.At(webhookPath(issued.ID)))
		return r.issuedWebhook(fiber.StatusCreated, issued)
	}
	if req.IdempotencyKey == "" || len(req.Violations) > 0 {
		return s.proving(r, req.URL, &req.Proven, func() error { return register(r) })
	}
	var first job.Answer
	err = s.proving(r, req.URL, &req.Proven, func() (err error) {
		first, err = s.doOnce(r, job.RequestKey{
			ClientID: req.ClientID, Scope: scopeWebhooks, Key: req.IdempotencyKey, Hash: req.Hash,
		}, register)
		return err
	})
	r.webhook = first.Subject
	return err
}

// proving does what may need a proof of the URL: first without one, as what is
// refused anyhow and what has a key that is known need none. While the receiver is
// asked, which may take seconds, the request holds neither a transaction nor the
// place of its client.
func (s *Server) proving(r *call, url string, proven *bool, do func() error) error {
	err := do()
	if !errors.Is(err, job.ErrUnproven) {
		return err
	}
	r.leave()
	if err := s.deps.Proofs.Prove(r.ctx, r.caller.ClientID, url); err != nil {
		return err
	}
	if err := r.enter(); err != nil {
		return err
	}
	*proven = true
	return do()
}

// issuedWebhook answers with a webhook and its secret, which is in this answer
// alone.
func (r *call) issuedWebhook(status int, issued job.IssuedWebhook) error {
	hidden := issued
	hidden.Secret = ""
	return r.secretJSON(status, r.server.issuedWebhookViewOf(issued), r.server.issuedWebhookViewOf(hidden))
}

// listWebhooks answers with all webhooks of a client: there are few.
func (s *Server) listWebhooks(r *call) error {
	return respond(r, fiber.StatusOK, func(webhooks []job.Webhook) query.List[webhookView] {
		return query.ListOf(webhooks, job.MaxWebhooks, func(w job.Webhook) webhookView { return s.webhookViewOf(&w) })
	})(s.deps.Webhooks.Webhooks(r.ctx, r.caller.ClientID))
}

// mimeMergePatch is what a change of a webhook is (RFC 7396). Plain JSON means
// the same.
const mimeMergePatch = "application/merge-patch+json"

func (s *Server) updateWebhook(r *call) error {
	body, err := r.bodyOf(false, fiber.MIMEApplicationJSON, mimeMergePatch)
	if err != nil {
		return err
	}
	patch, err := decode.WebhookPatch(body)
	if err != nil {
		return err
	}
	change := func() error {
		return respond(r, fiber.StatusOK, s.webhookViewOf)(s.deps.Webhooks.Update(r.ctx, r.caller.ClientID, r.webhook, patch))
	}
	if patch.URL == nil {
		return change()
	}
	return s.proving(r, *patch.URL, &patch.Proven, change)
}

func (s *Server) unregisterWebhook(r *call) error {
	if err := s.deps.Webhooks.Unregister(r.ctx, r.caller.ClientID, r.webhook); err != nil {
		return err
	}
	return r.json(fiber.StatusOK, deletedView{Deleted: true})
}

func (s *Server) rotateSecret(r *call) error {
	issued, err := s.deps.Webhooks.RotateSecret(r.ctx, r.caller.ClientID, r.webhook)
	if err != nil {
		return err
	}
	return r.issuedWebhook(fiber.StatusOK, issued)
}

// testWebhook answers 202 with the delivery, whose path shows what becomes of it.
func (s *Server) testWebhook(r *call) error {
	return r.acceptedDelivery(s.deps.Deliveries.Test(r.ctx, r.caller.ClientID, r.webhook))
}

// mimeKeyDirectory is the media type of the directory of signing keys
// (draft-meunier-http-message-signatures-directory), a JSON Web Key Set.
const mimeKeyDirectory = "application/http-message-signatures-directory+json"

// signingKeys answers with the public keys that deliveries are signed with.
// A new key is published long before it signs, so answers may be kept a while.
func (s *Server) signingKeys(r *call) error {
	keys, err := s.deps.Directory(r.ctx)
	if err != nil {
		return err
	}
	r.Set(fiber.HeaderCacheControl, "public, max-age=300")
	r.Set(fiber.HeaderContentType, mimeKeyDirectory)
	return r.Send(keys)
}

// webhookView is a webhook without its secrets.
type webhookView struct {
	view.Webhook
	OldSecretExpiresAt *job.Time        `json:"old_secret_expires_at"` // null unless a rotated secret is still valid
	Links              webhookLinksView `json:"links"`
}

// issuedWebhookView shows the secret as well: in the answers that make one.
type issuedWebhookView struct {
	webhookView
	Secret *string `json:"secret"` // null in a repetition
}

// webhookLinksView holds what can be done with the webhook now.
type webhookLinksView struct {
	Self         string `json:"self"`
	Deliveries   string `json:"deliveries"`
	RotateSecret string `json:"rotate_secret"`
	Test         string `json:"test,omitempty"`
	Redeliver    string `json:"redeliver,omitempty"`
	Replay       string `json:"replay,omitempty"`
}

type deletedView struct {
	Deleted bool `json:"deleted"`
}

func webhookPath(id job.ID) string { return "/v1/webhooks/" + id.String() }

func (s *Server) webhookViewOf(w *job.Webhook) webhookView {
	self := s.links.At(webhookPath(w.ID))
	v := webhookView{
		Webhook: view.Webhook{
			WebhookID: w.ID, URL: w.URL, Events: w.Events, Description: w.Description, ContentMode: w.ContentMode,
			Enabled: w.Disabled == nil, ConsecutiveFailures: w.Failures, FailingSince: job.TimeOf(w.FailingFrom),
			ProvenAt: job.TimeOf(w.ProvenAt), CreatedAt: job.Time(w.CreatedAt), UpdatedAt: job.Time(w.UpdatedAt),
		},
		Links: webhookLinksView{Self: self, Deliveries: self + "/deliveries", RotateSecret: self + "/rotate-secret"},
	}
	if w.Disabled != nil {
		v.DisabledAt = job.TimeOf(&w.Disabled.At)
		v.DisabledReason = new(view.DisabledCause(w.Disabled.Reason))
	} else {
		v.Links.Test, v.Links.Redeliver, v.Links.Replay = self+"/test", self+"/redeliver", self+"/replay"
	}
	if len(w.Secrets) > 1 { // the newest of the old ones
		v.OldSecretExpiresAt = job.TimeOf(w.Secrets[1].Until)
	}
	return v
}

func (s *Server) issuedWebhookViewOf(w job.IssuedWebhook) issuedWebhookView {
	return issuedWebhookView{s.webhookViewOf(&w.Webhook), view.OrNull(w.Secret)}
}
