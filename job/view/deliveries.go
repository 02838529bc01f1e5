package view

import (
	"cmp"
	"encoding/json"

	"github.com/forgerun/forgerun/job"
)

// Cause is a reason for programs and for people.
type Cause struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// SendCause is why a delivery failed: the class, and the reason with the receiver's address.
type SendCause struct {
	Code   job.SendError `json:"code"`
	Reason string        `json:"detail"`
}

// MarshalJSON uses the class's sentence if there is no reason.
func (c SendCause) MarshalJSON() ([]byte, error) {
	return json.Marshal(Cause{string(c.Code), cmp.Or(c.Reason, c.Code.Text())})
}

// DisabledCause is why a webhook is disabled; it is told with a sentence.
type DisabledCause job.DisabledReason

// MarshalJSON tells the code with its sentence.
func (c DisabledCause) MarshalJSON() ([]byte, error) {
	return json.Marshal(Cause{string(c), job.DisabledReason(c).Text()})
}

// Webhook is a webhook without its secrets.
type Webhook struct {
	WebhookID           job.ID          `json:"webhook_id"`
	URL                 string          `json:"url"`
	Events              []string        `json:"events"`
	Description         string          `json:"description"`
	ContentMode         job.ContentMode `json:"content_mode"`
	Enabled             bool            `json:"enabled"`
	DisabledAt          *job.Time       `json:"disabled_at"`
	DisabledReason      *DisabledCause  `json:"disabled_reason"`
	ConsecutiveFailures int             `json:"consecutive_failures"`
	FailingSince        *job.Time       `json:"failing_since"`
	ProvenAt            *job.Time       `json:"proven_at"` // null unless its receiver said that it wants events
	CreatedAt           job.Time        `json:"created_at"`
	UpdatedAt           job.Time        `json:"updated_at"`
}

// Delivery is one event on its way to one webhook, or to the callback of its job.
type Delivery struct {
	DeliveryID    job.ID            `json:"delivery_id"`
	WebhookID     *job.ID           `json:"webhook_id"` // null for a callback
	URL           *string           `json:"url"`        // of a callback
	JobID         *job.ID           `json:"job_id"`     // null for an event of no job, and so is seq
	EventID       job.ID            `json:"event_id"`
	EventName     string            `json:"event_name"`
	Seq           *int              `json:"seq"`
	State         job.DeliveryState `json:"state"`
	Attempts      int               `json:"attempts"`
	NextAttemptAt *job.Time         `json:"next_attempt_at"` // null unless PENDING
	CreatedAt     job.Time          `json:"created_at"`
	SettledAt     *job.Time         `json:"settled_at"` // null while PENDING
	LastStatus    *int              `json:"last_status"`
	LastError     *SendCause        `json:"last_error"`
}
