package client

import "time"

// WebhookRequest registers a webhook.
type WebhookRequest struct {
	URL         string   `json:"url"`
	Events      []string `json:"events"` // names, job.* or *
	Description string   `json:"description,omitempty"`
	ContentMode string   `json:"content_mode,omitempty"` // binary (default) or structured
}

// WebhookPatch changes the members that are not nil.
type WebhookPatch struct {
	URL         *string  `json:"url,omitempty"`
	Events      []string `json:"events,omitempty"`
	Description *string  `json:"description,omitempty"`
	ContentMode *string  `json:"content_mode,omitempty"`
	Enabled     *bool    `json:"enabled,omitempty"`
}

// Webhook is an address that gets the client's events.
type Webhook struct {
	WebhookID           string         `json:"webhook_id"`
	URL                 string         `json:"url"`
	Events              []string       `json:"events"`
	Description         string         `json:"description"`
	ContentMode         string         `json:"content_mode"`
	Enabled             bool           `json:"enabled"`
	DisabledAt          time.Time      `json:"disabled_at"`
	DisabledReason      *DisabledCause `json:"disabled_reason"`
	ConsecutiveFailures int            `json:"consecutive_failures"`
	FailingSince        time.Time      `json:"failing_since"`
	OldSecretExpiresAt  time.Time      `json:"old_secret_expires_at"`
	CreatedAt           time.Time      `json:"created_at"`
	UpdatedAt           time.Time      `json:"updated_at"`
	// Secret is shown by CreateWebhook and RotateSecret only.
	Secret    string `json:"secret"`
	Replayed  bool   `json:"-"` // CreateWebhook: this idempotency key was used before
	RequestID string `json:"-"`
}

// DisabledCause says why a webhook is disabled: OWNER, GONE or FAILING.
type DisabledCause struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Replay tells how many deliveries were queued.
type Replay struct {
	Queued int `json:"queued"`
	// NextCursor is "" when all is queued; otherwise it continues the request.
	NextCursor string `json:"next_cursor"`
}

// DeliveryFilter selects deliveries; zero members do not filter.
type DeliveryFilter struct {
	State         string // PENDING, DELIVERED, FAILED
	EventName     string
	CreatedAfter  time.Time // inclusive
	CreatedBefore time.Time // exclusive
	PageSize      int       // of one request, up to 100; 0: the service's default
}

// Delivery is the sending of one event to one receiver.
type Delivery struct {
	DeliveryID    string            `json:"delivery_id"`
	WebhookID     string            `json:"webhook_id"` // "" for a callback
	URL           string            `json:"url"`
	JobID         string            `json:"job_id"`
	EventID       string            `json:"event_id"`
	EventName     string            `json:"event_name"`
	Seq           int               `json:"seq"`
	State         string            `json:"state"`
	Attempts      int               `json:"attempts"`
	NextAttemptAt time.Time         `json:"next_attempt_at"`
	CreatedAt     time.Time         `json:"created_at"`
	SettledAt     time.Time         `json:"settled_at"`
	LastStatus    int               `json:"last_status"`
	LastError     *SendFailure      `json:"last_error"`
	AttemptsLog   []DeliveryAttempt `json:"attempts_log"` // not in lists
}

// SendFailure says why an attempt to deliver failed.
type SendFailure struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// DeliveryAttempt is one request to a receiver.
type DeliveryAttempt struct {
	Number     int               `json:"number"`
	StartedAt  time.Time         `json:"started_at"`
	DurationMS int64             `json:"duration_ms"`
	Status     int               `json:"status"` // 0 if no answer came
	Error      *SendFailure      `json:"error"`
	Response   *ReceiverResponse `json:"response"`
}

// ReceiverResponse is what a receiver answered, with the beginning of its body.
type ReceiverResponse struct {
	Headers    map[string][]string `json:"headers"`
	Body       string              `json:"body"`
	BodyBase64 []byte              `json:"body_base64"` // in place of Body if it is not text
	Truncated  bool                `json:"truncated"`
}

// Key is an API key, or what is known of the current one, without APIKey.
type Key struct {
	APIKey    string    `json:"api_key"`
	KeyID     string    `json:"key_id"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	RequestID string    `json:"-"`
}

// Readiness says whether the service can do its work: ok, degraded or
// unavailable, and what it checked.
type Readiness struct {
	Status string            `json:"status"`
	Checks map[string]string `json:"checks"`
}
