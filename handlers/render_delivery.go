package handlers

import (
	"bytes"
	"encoding/base64"
	"unicode/utf8"

	"github.com/forgerun/forgerun/job"
)

// deliveryView is a delivery: to a webhook, or to the callback of a job.
type deliveryView struct {
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
	LastError     *causeView        `json:"last_error"`
	Links         deliveryLinksView `json:"links"`
}

type deliveryLinksView struct {
	Self      string `json:"self"`
	Redeliver string `json:"redeliver"`
}

// loggedDeliveryView is a delivery with what was sent and answered.
type loggedDeliveryView struct {
	deliveryView
	Log []tryView `json:"attempts_log"`
}

// tryView is one attempt to deliver.
type tryView struct {
	Number     int           `json:"number"`
	StartedAt  job.Time      `json:"started_at"`
	DurationMS int64         `json:"duration_ms"`
	Status     *int          `json:"status"`   // null without an answer
	Error      *causeView    `json:"error"`    // null if it was delivered
	Response   *receivedView `json:"response"` // null without an answer
}

// receivedView is what a receiver answered. A body that is not text is shown
// in base64.
type receivedView struct {
	Headers    map[string][]string `json:"headers"`
	Body       *string             `json:"body"` // null if body_base64 is there
	BodyBase64 string              `json:"body_base64,omitempty"`
	Truncated  bool                `json:"truncated"`
}

// deliveriesPath is where an owner's deliveries are.
func deliveriesPath(owner job.DeliveryOwner) string {
	if owner.WebhookID.IsZero() {
		return jobPath(owner.JobID) + "/deliveries"
	}
	return webhookPath(owner.WebhookID) + "/deliveries"
}

// deliveryViewOf shows a delivery that is listed at the given path.
func deliveryViewOf(path string, d *job.Delivery) deliveryView {
	self := path + "/" + d.ID.String()
	v := deliveryView{
		DeliveryID: d.ID, WebhookID: idOrNull(d.WebhookID), URL: orNull(d.URL), JobID: idOrNull(d.JobID),
		EventID: d.EventID, EventName: d.EventName, State: d.State, Attempts: d.Attempts,
		NextAttemptAt: job.TimeOf(d.NextAttemptAt), CreatedAt: job.Time(d.CreatedAt), SettledAt: job.TimeOf(d.SettledAt),
		LastStatus: positiveOrNull(d.LastStatus), LastError: causeOf(d.LastError),
		Links: deliveryLinksView{Self: self, Redeliver: self + "/redeliver"},
	}
	if v.JobID != nil {
		v.Seq = &d.Seq
	}
	return v
}

func loggedDeliveryViewOf(path string, d *job.Delivery, attempts []job.DeliveryAttempt) loggedDeliveryView {
	v := loggedDeliveryView{deliveryViewOf(path, d), make([]tryView, len(attempts))}
	for i := range attempts {
		v.Log[i] = tryViewOf(&attempts[i])
	}
	return v
}

func tryViewOf(a *job.DeliveryAttempt) tryView {
	v := tryView{
		Number: a.Number, StartedAt: job.Time(a.StartedAt), DurationMS: a.Duration.Milliseconds(),
		Status: positiveOrNull(a.Status), Error: causeOf(a.Error),
	}
	if v.Status != nil {
		v.Response = receivedViewOf(a)
	}
	return v
}

func receivedViewOf(a *job.DeliveryAttempt) *receivedView {
	v := &receivedView{Headers: a.Header, Truncated: a.Truncated}
	if v.Headers == nil {
		v.Headers = map[string][]string{}
	}
	text := a.Body
	if a.Truncated {
		text = withoutCutCharacter(text)
	}
	if utf8.Valid(text) && bytes.IndexByte(text, 0) < 0 {
		shown := string(text)
		v.Body = &shown
	} else {
		v.BodyBase64 = base64.StdEncoding.EncodeToString(a.Body)
	}
	return v
}

// withoutCutCharacter leaves out the beginning of a UTF-8 character at the end
// of text that was cut off there.
func withoutCutCharacter(text []byte) []byte {
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax); i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return text[:i]
			}
			break
		}
	}
	return text
}

func causeOf(e job.SendError) *causeView {
	if e == "" {
		return nil
	}
	return &causeView{string(e), e.Text()}
}

// positiveOrNull makes the zero that means none null.
func positiveOrNull(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}
