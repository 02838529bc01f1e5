package operator

import (
	"context"
	"encoding/hex"
	"encoding/json"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/job/view"
)

func (a *API) clients(ctx context.Context, r admin.Range) (admin.Page[admin.Client], error) {
	page, err := a.store.Clients(ctx, r)
	for i := range page.Data {
		a.limit(&page.Data[i])
	}
	return page, err
}

func (a *API) limit(c *admin.Client) {
	c.ActiveJobs.Limit, c.OpenJobs.Limit = view.OrNull(a.cfg.Limits.ClientRunning), view.OrNull(a.cfg.Limits.ClientActive)
	c.Webhooks.Limit = view.OrNull(job.MaxWebhooks)
}

func (a *API) getClient(r *httpkit.Request) error {
	client, err := a.store.Client(r.Ctx, r.PathID())
	if err != nil {
		return err
	}
	a.limit(&client.Client)
	return ok(r, client, nil)
}

func (a *API) createClient(r *httpkit.Request) error {
	client, err := a.deps.Clients.CreateClient(r.Ctx, r.Caller)
	if err != nil {
		return err
	}
	r.Made = client.ID
	return r.JSON(fiber.StatusCreated, admin.ClientMade{ClientID: client.ID, CreatedAt: job.Time(client.CreatedAt)})
}

func (a *API) nameClient(r *httpkit.Request, name string) error {
	if err := a.deps.Clients.NameClient(r.Ctx, r.PathID(), name); err != nil {
		return err
	}
	return a.getClient(r)
}

func keyMade(k job.IssuedKey) admin.KeyMade {
	return admin.KeyMade{KeyID: k.ID, Scope: k.Scope, APIKey: view.OrNull(k.Secret), ExpiresAt: job.Time(k.ExpiresAt)}
}

// createKey issues a new key to a client. If `asked.Rotate` is true, the new key replaces the client's key that has the scope "all". Only
// this response has the secret.
func (a *API) createKey(r *httpkit.Request, asked decode.Key) error {
	return httpkit.Respond(r, fiber.StatusCreated, keyMade)(a.deps.Clients.CreateKey(r.Ctx, r.Caller, r.PathID(), asked.Rotate, asked.Scope))
}

func (a *API) revokeKey(r *httpkit.Request) error {
	return a.deps.Clients.RevokeKey(r.Ctx, r.Caller, r.PathID(), r.Params("key_id"))
}

func erasureViewOf(e *job.Erasure) admin.Erasure {
	v := admin.Erasure{
		ErasureID: e.ID, ClientID: e.ClientID, State: e.State(), Step: e.Step, Operator: e.Operator, Reason: e.Reason, RequestID: e.RequestID,
		CreatedAt: job.Time(e.CreatedAt), StartedAt: job.TimeOf(e.StartedAt), FinishedAt: job.TimeOf(e.FinishedAt), Removed: e.Removed,
	}
	if e.FinishedAt != nil {
		v.Proof = &admin.ErasureProof{
			CountedAt: job.Time(*e.FinishedAt), Remaining: e.Remaining, Record: json.RawMessage(e.Record), SHA256: hex.EncodeToString(e.SHA256),
		}
	}
	return v
}

func erasureDetail(r *httpkit.Request, asked decode.Erasing) any {
	return map[string]any{"confirmed": asked.Confirm.String() == r.Params("id"), "reason": asked.Reason}
}

func (a *API) eraseClient(r *httpkit.Request, asked decode.Erasing) error {
	if asked.Confirm != r.PathID() && httpkit.Known(r.PathID()) {
		return job.Invalid(job.Violation{Pointer: "/confirm",
			Detail: "This must equal the client id in the path: all data of this client is removed permanently."})
	}
	e, err := a.deps.Erasures.Begin(r.Ctx, job.ErasureRequest{
		ClientID: r.PathID(), Operator: r.Caller.Operator, Reason: asked.Reason, RequestID: r.ID,
	})
	if err != nil {
		return err
	}
	r.Set(fiber.HeaderLocation, prefix+"erasures/"+e.ID.String())
	return r.JSON(fiber.StatusAccepted, admin.ErasureReceipt{ErasureID: e.ID, ClientID: e.ClientID, State: e.State()})
}

func (a *API) getErasure(r *httpkit.Request) error {
	return httpkit.Respond(r, fiber.StatusOK, erasureViewOf)(a.deps.Erasures.Erasure(r.Ctx, r.PathID()))
}

func (a *API) listErasures(r *httpkit.Request) error {
	return paged(r, erasureViewOf, func(after job.ID, limit int) ([]*job.Erasure, job.ID, error) {
		return a.deps.Erasures.Erasures(r.Ctx, after, limit)
	})
}
