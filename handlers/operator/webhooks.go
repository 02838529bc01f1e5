package operator

import (
	"context"
	"net/http"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

// Webhooks changes webhooks of a client and what is delivered to them.
type Webhooks interface {
	Update(ctx context.Context, client, id job.ID, p job.WebhookPatch) (*job.Webhook, error)
	Test(ctx context.Context, client, id job.ID) (*job.Delivery, error)
	Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error)
}

// enableWebhook switches a webhook on or off, and answers with it.
func (a *API) enableWebhook(enabled bool) func(*call) (answer, error) {
	return func(c *call) (answer, error) {
		webhook, err := a.deps.Reader.Webhook(c.Context(), c.subject)
		if err != nil {
			return answer{}, err
		}
		if _, err := a.deps.Webhooks.Update(c.Context(), webhook.ClientID, c.subject, job.WebhookPatch{Enabled: &enabled}); err != nil {
			return answer{}, err
		}
		return ok(a.deps.Reader.Webhook(c.Context(), c.subject))
	}
}

func (a *API) testWebhook(c *call) (answer, error) {
	webhook, err := a.deps.Reader.Webhook(c.Context(), c.subject)
	if err != nil {
		return answer{}, err
	}
	return a.accepted(c)(a.deps.Webhooks.Test(c.Context(), webhook.ClientID, c.subject))
}

func (a *API) redeliver(c *call) (answer, error) {
	d, err := a.deps.Reader.Delivery(c.Context(), c.subject)
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
	return a.accepted(c)(a.deps.Webhooks.Redeliver(c.Context(), d.ClientID, owner, c.subject))
}

// accepted answers with a delivery that is on its way.
func (a *API) accepted(c *call) func(*job.Delivery, error) (answer, error) {
	return func(sent *job.Delivery, err error) (answer, error) {
		if err != nil {
			return answer{}, err
		}
		c.made = sent.ID.String()
		return render(http.StatusAccepted, asIs[*admin.LoggedDelivery])(a.deps.Reader.Delivery(c.Context(), sent.ID))
	}
}
