// Package clients handles requests about clients and their API keys.
package clients

import (
	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/app/clients"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// API handles requests about clients.
type API struct {
	*httpkit.Kit
	Clients *clients.Service
	Jobs    *jobs.Service
}

// Routes returns the routes of clients.
func (s *API) Routes() []httpkit.Route {
	const post = httpkit.Post
	create, renew, cancel := httpkit.Bodyless(s.createClient), httpkit.Bodyless(s.renewKey), httpkit.Bodyless(s.cancelClient)
	return []httpkit.Route{
		httpkit.Row(post, "/v1/clients", httpkit.Registration, "create_client", fiber.StatusCreated, httpkit.Once(create)),
		httpkit.Row(post, "/v1/clients/:id/keys", httpkit.Registration, "create_key", fiber.StatusCreated, httpkit.Once(s.createKey)),
		httpkit.Row(post, "/v1/clients/:id/keys/renew", httpkit.Renewal, "renew_key", fiber.StatusOK, httpkit.Once(renew)),
		httpkit.Row(post, "/v1/clients/:id/keys/revoke", httpkit.Account, "revoke_key", fiber.StatusOK, httpkit.Once(s.revokeKey)),
		httpkit.Row(post, "/v1/clients/:id/jobs/cancel", httpkit.OperatorToken, "cancel_client", fiber.StatusOK, httpkit.Once(cancel)),
	}
}

func (s *API) createClient(r *httpkit.Request) error {
	created, err := s.Clients.CreateClient(r.Ctx, r.Caller)
	if err != nil {
		return err
	}
	r.Span.SetAttributes(telemetry.ClientID.String(created.ID.String()))
	return r.JSON(fiber.StatusCreated, api.Client{ClientID: created.ID})
}

// createKey responds with 201 even if it creates no key. The response then has an api_key of null.
func (s *API) createKey(r *httpkit.Request) error {
	k, err := httpkit.Decoded(r, true, decode.CreateKey)
	if err != nil {
		return err
	}
	return issued(r, fiber.StatusCreated)(s.Clients.CreateKey(r.Ctx, r.Caller, r.PathID(), k.Rotate, k.Scope))
}

func (s *API) renewKey(r *httpkit.Request) error {
	return issued(r, fiber.StatusOK)(s.Clients.RenewKey(r.Ctx, r.Caller, r.PathID()))
}

// issued returns a function that sends a key with its secret. The response stored for repeated requests has no secret.
func issued(r *httpkit.Request, status int) func(job.IssuedKey, error) error {
	return func(key job.IssuedKey, err error) error {
		if err != nil {
			return err
		}
		changed(r, key.ClientID, key.ID)
		hidden := key
		hidden.Secret = ""
		return r.SecretJSON(status, keyOf(key), keyOf(hidden))
	}
}

func (s *API) revokeKey(r *httpkit.Request) error {
	keyID, err := httpkit.Decoded(r, false, decode.RevokeKey)
	if err != nil {
		return err
	}
	id := r.PathID()
	if err := s.Clients.RevokeKey(r.Ctx, r.Caller, id, keyID); err != nil {
		return err
	}
	changed(r, id, keyID) // the span gets the id only now, because the revocation has shown that the key exists
	return r.JSON(fiber.StatusOK, map[string]bool{"revoked": true})
}

func changed(r *httpkit.Request, client job.ID, key string) {
	r.Span.SetAttributes(telemetry.ClientID.String(client.String()), telemetry.KeyID.String(key))
}

// cancelClient cancels a limited number of the client's jobs per request.
func (s *API) cancelClient(r *httpkit.Request) error {
	id := r.PathID()
	canceled, more, err := s.Jobs.CancelClient(r.Ctx, id)
	if err != nil {
		return err
	}
	r.Span.SetAttributes(telemetry.ClientID.String(id.String()))
	return r.JSON(fiber.StatusOK, api.CanceledJobs{Canceled: canceled, More: more})
}

func keyOf(k job.IssuedKey) api.Key {
	return api.Key{
		APIKey: view.OrNull(k.Secret), KeyID: k.ID, Scope: k.Scope, CreatedAt: job.Time(k.CreatedAt), ExpiresAt: job.Time(k.ExpiresAt),
	}
}
