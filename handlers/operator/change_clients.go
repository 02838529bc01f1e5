package operator

import (
	"net/http"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/job"
)

// caller is the operator, for use cases that decide by who asks.
func (c *call) caller() job.Caller { return job.Caller{Admin: true, Operator: c.operator.Name} }

func (a *API) createClient(c *call) (answer, error) {
	client, err := a.deps.Clients.CreateClient(c.Context(), c.caller())
	if err != nil {
		return answer{}, err
	}
	c.made = client.ID.String()
	return asJSON(http.StatusCreated, struct {
		ClientID  job.ID   `json:"client_id"`
		CreatedAt job.Time `json:"created_at"`
	}{client.ID, job.Time(client.CreatedAt)})
}

// createKey makes a key beside those that the client has; with rotate it replaces the one that may do all. The secret is told
// this once.
func (a *API) createKey(c *call) (answer, error) {
	id, err := c.pathID(job.CodeClientNotFound, "client")
	if err != nil {
		return answer{}, err
	}
	rotate, scope, err := decode.CreateKey(c.body)
	if err != nil {
		return answer{}, err
	}
	issued, err := a.deps.Clients.CreateKey(c.Context(), c.caller(), id, rotate, scope)
	if err != nil {
		return answer{}, err
	}
	var secret *string // null if there was such a key, whose secret nobody knows
	if issued.Secret != "" {
		secret = &issued.Secret
	}
	return asJSON(http.StatusCreated, struct {
		KeyID     string    `json:"key_id"`
		Scope     job.Scope `json:"scope"`
		APIKey    *string   `json:"api_key"`
		ExpiresAt job.Time  `json:"expires_at"`
	}{issued.ID, issued.Scope, secret, job.Time(issued.ExpiresAt)})
}

func (a *API) revokeKey(c *call) (answer, error) {
	id, err := c.pathID(job.CodeClientNotFound, "client")
	if err != nil {
		return answer{}, err
	}
	if err := a.deps.Clients.RevokeKey(c.Context(), c.caller(), id, c.PathValue("key_id")); err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, nil
}

// enableWebhook switches a webhook on or off, and answers with it.
func (a *API) enableWebhook(enabled bool) func(*call) (answer, error) {
	return func(c *call) (answer, error) {
		client, id, err := c.ownedWebhook()
		if err != nil {
			return answer{}, err
		}
		if _, err := a.deps.Webhooks.Update(c.Context(), client, id, job.WebhookPatch{Enabled: &enabled}); err != nil {
			return answer{}, err
		}
		webhook, err := a.deps.Reader.Webhook(c.Context(), id)
		if err != nil {
			return answer{}, err
		}
		return asJSON(http.StatusOK, webhook)
	}
}

func (c *call) ownedWebhook() (client, id job.ID, err error) {
	if id, err = c.pathID(job.CodeWebhookNotFound, "webhook"); err != nil {
		return client, id, err
	}
	webhook, err := c.api.deps.Reader.Webhook(c.Context(), id)
	if err != nil {
		return client, id, err
	}
	return webhook.ClientID, id, nil
}

func (a *API) testWebhook(c *call) (answer, error) {
	client, id, err := c.ownedWebhook()
	if err != nil {
		return answer{}, err
	}
	sent, err := a.deps.Webhooks.Test(c.Context(), client, id)
	if err != nil {
		return answer{}, err
	}
	return a.accepted(c, sent)
}

func (a *API) redeliver(c *call) (answer, error) {
	id, err := c.pathID(job.CodeRequestNotFound, "delivery")
	if err != nil {
		return answer{}, err
	}
	d, err := a.deps.Reader.Delivery(c.Context(), id)
	if err != nil {
		return answer{}, err
	}
	var owner job.DeliveryOwner
	switch {
	case d.WebhookID != nil:
		owner.WebhookID = *d.WebhookID
	case d.JobID != nil:
		owner.JobID = *d.JobID
	}
	sent, err := a.deps.Webhooks.Redeliver(c.Context(), d.ClientID, owner, id)
	if err != nil {
		return answer{}, err
	}
	return a.accepted(c, sent)
}

// accepted answers with a delivery that is on its way.
func (a *API) accepted(c *call, sent *job.Delivery) (answer, error) {
	c.made = sent.ID.String()
	d, err := a.deps.Reader.Delivery(c.Context(), sent.ID)
	if err != nil {
		return answer{}, err
	}
	return asJSON(http.StatusAccepted, d)
}
