// Package webhooks handles requests for webhooks, and for deliveries to webhooks and callbacks.
package webhooks

import (
	"context"
	"errors"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// API handles requests about webhooks and deliveries.
type API struct {
	*httpkit.Kit
	Webhooks *delivery.Webhooks
	// Directory returns the public keys for signatures of deliveries as a JSON Web Key Set (RFC 7517).
	Directory func(context.Context) ([]byte, error)
}

// Routes returns the routes of webhooks and deliveries.
func (s *API) Routes() []httpkit.Route {
	const get, post, client = httpkit.Get, httpkit.Post, httpkit.ClientKey
	redeliver := httpkit.Once(httpkit.Bodyless(s.redeliver))
	routes := []httpkit.Route{
		httpkit.Row(post, "/v1/webhooks", client, "register_webhook", fiber.StatusCreated, s.registerWebhook),
		httpkit.Row(get, "/v1/webhooks", client, "list_webhooks", fiber.StatusOK, s.listWebhooks),
		httpkit.Row(get, "/v1/webhooks/:id", client, "get_webhook", fiber.StatusOK, httpkit.ByID(s.Webhooks.Webhook, s.webhookOf)),
		httpkit.Row(httpkit.Patch, "/v1/webhooks/:id", client, "update_webhook", fiber.StatusOK, s.updateWebhook),
		httpkit.Row(httpkit.Delete, "/v1/webhooks/:id", client, "unregister_webhook", fiber.StatusOK, httpkit.Bodyless(s.unregisterWebhook)),
		httpkit.Row(post, "/v1/webhooks/:id/rotate-secret", client, "rotate_secret", fiber.StatusOK,
			httpkit.Once(httpkit.Bodyless(s.rotateSecret))),
		httpkit.Row(post, "/v1/webhooks/:id/test", client, "test_webhook", fiber.StatusAccepted, httpkit.Once(httpkit.Bodyless(s.testWebhook))),
		httpkit.Row(post, "/v1/webhooks/:id/redeliver", client, "redeliver_failed", fiber.StatusAccepted, httpkit.Once(s.redeliverFailed)),
		httpkit.Row(post, "/v1/webhooks/:id/replay", client, "replay_webhook", fiber.StatusAccepted, httpkit.Once(s.replayWebhook)),
		httpkit.Row(get, "/.well-known/http-message-signatures-directory", httpkit.Public, "signing_keys", fiber.StatusOK, s.signingKeys),
	}
	for _, owner := range []struct{ path, list, one, again string }{
		{"/v1/webhooks/:id/deliveries", "webhook_deliveries", "webhook_delivery", "redeliver"},
		{"/v1/jobs/:id/deliveries", "job_deliveries", "job_delivery", "redeliver_of_job"},
	} {
		routes = append(routes,
			httpkit.Row(get, owner.path, client, owner.list, fiber.StatusOK, s.listDeliveries, deliveryQuery...),
			httpkit.Row(get, owner.path+"/:delivery_id", client, owner.one, fiber.StatusOK, s.getDelivery),
			httpkit.Row(post, owner.path+"/:delivery_id/redeliver", client, owner.again, fiber.StatusAccepted, redeliver))
	}
	return routes
}

// registerWebhook does not use httpkit.Once, because the idempotency key may also be in the body.
func (s *API) registerWebhook(r *httpkit.Request) error {
	body, key, err := r.KeyedBody()
	if err != nil {
		return err
	}
	req, err := decode.Webhook(body, key)
	if err != nil {
		return err
	}
	req.ClientID = r.Caller.ClientID
	register := func(r *httpkit.Request) error {
		issued, err := s.Webhooks.Register(r.Ctx, req)
		if err != nil {
			return err
		}
		r.Made = issued.ID
		r.About(httpkit.WebhookID, issued.ID)
		r.Set(fiber.HeaderLocation, s.Links.At(webhookPath(issued.ID)))
		return s.issuedWebhook(r, fiber.StatusCreated, issued)
	}
	if req.IdempotencyKey == "" || len(req.Violations) > 0 {
		return s.proving(r, req.URL, &req.Proven, func() error { return register(r) })
	}
	var first job.Answer
	err = s.proving(r, req.URL, &req.Proven, func() (err error) {
		first, err = r.Once(job.RequestKey{
			ClientID: req.ClientID, Scope: httpkit.ScopeWebhooks, Key: req.IdempotencyKey, Hash: req.Hash,
		}, register)
		return err
	})
	r.About(httpkit.WebhookID, first.Subject)
	return err
}

// proving calls the function `do`. If `do` fails because the receiver has not agreed to get events, proving asks the receiver and calls
// `do` again. The receiver may take seconds to respond. During this time, the request holds neither a transaction nor a storage slot.
func (s *API) proving(r *httpkit.Request, url string, proven *bool, do func() error) error {
	err := do()
	if !errors.Is(err, job.ErrUnproven) {
		return err
	}
	r.Leave()
	if err := s.Webhooks.Prove(r.Ctx, r.Caller.ClientID, url); err != nil {
		return err
	}
	if err := r.Enter(); err != nil {
		return err
	}
	*proven = true
	return do()
}

func (s *API) issuedWebhook(r *httpkit.Request, status int, issued job.IssuedWebhook) error {
	hidden := issued
	hidden.Secret = ""
	return r.SecretJSON(status, s.issuedOf(issued), s.issuedOf(hidden))
}

func (s *API) listWebhooks(r *httpkit.Request) error {
	return httpkit.Respond(r, fiber.StatusOK, func(webhooks []job.Webhook) query.List[api.Webhook] {
		return query.ListOf(webhooks, job.MaxWebhooks, func(w job.Webhook) api.Webhook { return s.webhookOf(&w) })
	})(s.Webhooks.Webhooks(r.Ctx, r.Caller.ClientID))
}

func (s *API) updateWebhook(r *httpkit.Request) error {
	patch, err := httpkit.Decoded(r, false, decode.WebhookPatch, httpkit.MergePatch)
	if err != nil {
		return err
	}
	change := func() error {
		return httpkit.Respond(r, fiber.StatusOK, s.webhookOf)(s.Webhooks.Update(r.Ctx, r.Caller.ClientID, r.PathID(), patch))
	}
	if patch.URL == nil {
		return change()
	}
	return s.proving(r, *patch.URL, &patch.Proven, change)
}

func (s *API) unregisterWebhook(r *httpkit.Request) error {
	if err := s.Webhooks.Unregister(r.Ctx, r.Caller.ClientID, r.PathID()); err != nil {
		return err
	}
	return r.JSON(fiber.StatusOK, map[string]bool{"deleted": true})
}

func (s *API) rotateSecret(r *httpkit.Request) error {
	issued, err := s.Webhooks.RotateSecret(r.Ctx, r.Caller.ClientID, r.PathID())
	if err != nil {
		return err
	}
	return s.issuedWebhook(r, fiber.StatusOK, issued)
}

// testWebhook sends 202 with the delivery. The client polls the delivery's path for the result.
func (s *API) testWebhook(r *httpkit.Request) error {
	return s.accepted(r)(s.Webhooks.Test(r.Ctx, r.Caller.ClientID, r.PathID()))
}

// mimeKeyDirectory is the media type of a list of signing keys (draft-meunier-http-message-signatures-directory).
const mimeKeyDirectory = "application/http-message-signatures-directory+json"

// A new signing key is published long before its first use, so clients may cache the response.
func (s *API) signingKeys(r *httpkit.Request) error {
	keys, err := s.Directory(r.Ctx)
	if err != nil {
		return err
	}
	r.Set(fiber.HeaderCacheControl, "public, max-age=300")
	r.Set(fiber.HeaderContentType, mimeKeyDirectory)
	return r.Send(keys)
}

func webhookPath(id job.ID) string { return "/v1/webhooks/" + id.String() }

func (s *API) webhookOf(w *job.Webhook) api.Webhook {
	self := s.Links.At(webhookPath(w.ID))
	v := api.Webhook{
		WebhookID: w.ID, URL: w.URL, Events: w.Events, Description: w.Description, ContentMode: w.ContentMode,
		Enabled: w.Disabled == nil, ConsecutiveFailures: w.Failures, FailingSince: job.TimeOf(w.FailingFrom),
		ProvenAt: job.TimeOf(w.ProvenAt), CreatedAt: job.Time(w.CreatedAt), UpdatedAt: job.Time(w.UpdatedAt),
		Links: api.WebhookLinks{Self: self, Deliveries: self + "/deliveries", RotateSecret: self + "/rotate-secret"},
	}
	if w.Disabled != nil {
		v.DisabledAt = job.TimeOf(&w.Disabled.At)
		v.DisabledReason = new(view.DisabledCause(w.Disabled.Reason))
	} else {
		v.Links.Test, v.Links.Redeliver, v.Links.Replay = new(self+"/test"), new(self+"/redeliver"), new(self+"/replay")
	}
	if len(w.Secrets) > 1 { // Secrets[1] is the previous secret
		v.OldSecretExpiresAt = job.TimeOf(w.Secrets[1].Until)
	}
	return v
}

func (s *API) issuedOf(w job.IssuedWebhook) api.IssuedWebhook {
	return api.IssuedWebhook{WebhookMembers: s.webhookOf(&w.Webhook), Secret: view.OrNull(w.Secret)}
}
