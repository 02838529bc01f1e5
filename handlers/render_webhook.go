package handlers

import "github.com/forgerun/forgerun/job"

// webhookView is a webhook without its secrets.
type webhookView struct {
	WebhookID           job.ID           `json:"webhook_id"`
	URL                 string           `json:"url"`
	Events              []string         `json:"events"`
	Description         string           `json:"description"`
	ContentMode         job.ContentMode  `json:"content_mode"`
	Enabled             bool             `json:"enabled"`
	DisabledAt          *job.Time        `json:"disabled_at"`
	DisabledReason      *causeView       `json:"disabled_reason"`
	ConsecutiveFailures int              `json:"consecutive_failures"`
	FailingSince        *job.Time        `json:"failing_since"`
	OldSecretExpiresAt  *job.Time        `json:"old_secret_expires_at"` // null unless a rotated secret is still valid
	CreatedAt           job.Time         `json:"created_at"`
	UpdatedAt           job.Time         `json:"updated_at"`
	Links               webhookLinksView `json:"links"`
}

// issuedWebhookView shows the secret as well: in the answers that make one.
type issuedWebhookView struct {
	webhookView
	Secret string `json:"secret"`
}

// causeView is a reason for programs and for people.
type causeView struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
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

type replayView struct {
	Queued     int     `json:"queued"`
	NextCursor *string `json:"next_cursor"` // null at the end
}

func webhookPath(id job.ID) string { return "/v1/webhooks/" + id.String() }

func webhookViewOf(w *job.Webhook) webhookView {
	self := webhookPath(w.ID)
	v := webhookView{
		WebhookID: w.ID, URL: w.URL, Events: w.Events, Description: w.Description, ContentMode: w.ContentMode,
		Enabled: w.Disabled == nil, ConsecutiveFailures: w.Failures, FailingSince: job.TimeOf(w.FailingFrom),
		CreatedAt: job.Time(w.CreatedAt), UpdatedAt: job.Time(w.UpdatedAt),
		Links: webhookLinksView{Self: self, Deliveries: self + "/deliveries", RotateSecret: self + "/rotate-secret"},
	}
	if w.Disabled != nil {
		v.DisabledAt = job.TimeOf(&w.Disabled.At)
		v.DisabledReason = &causeView{string(w.Disabled.Reason), w.Disabled.Reason.Text()}
	} else {
		v.Links.Test, v.Links.Redeliver, v.Links.Replay = self+"/test", self+"/redeliver", self+"/replay"
	}
	if len(w.Secrets) > 1 { // the newest of the old ones
		v.OldSecretExpiresAt = job.TimeOf(w.Secrets[1].Until)
	}
	return v
}

func issuedWebhookViewOf(w *job.IssuedWebhook) issuedWebhookView {
	return issuedWebhookView{webhookViewOf(&w.Webhook), w.Secret}
}
