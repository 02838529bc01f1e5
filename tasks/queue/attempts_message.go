package queue

import (
	"cmp"
	"encoding/json"
	"strconv"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// AttemptTask is the asynq type of a task that begins an attempt to deliver.
const AttemptTask = "delivery"

// attemptPayload is what such a task says. Client and endpoint say where to look; the others are for who looks at the queue.
type attemptPayload struct {
	Delivery   string        `json:"delivery"`
	Client     string        `json:"client"`
	Endpoint   string        `json:"endpoint"`
	Webhook    string        `json:"webhook,omitempty"` // not of a callback
	Job        string        `json:"job,omitempty"`     // not of an event of no job
	Event      string        `json:"event"`
	Attempt    int           `json:"attempt"` // the next one; of a delivery that was given up, the last one
	LastError  job.SendError `json:"last_error,omitempty"`
	LastStatus int           `json:"last_status,omitempty"`
	DueAt      *time.Time    `json:"due_at,omitempty"` // asynq shows whole seconds
}

// ParseAttempt reads where a task has an attempt begun.
func ParseAttempt(payload string) (job.EndpointKey, error) {
	var p attemptPayload
	var at job.EndpointKey
	if json.Unmarshal([]byte(payload), &p) != nil {
		return at, ErrBadPayload
	}
	var err1, err2 error
	at.Client, err1 = parseID(p.Client)
	at.Endpoint, err2 = parseID(p.Endpoint)
	if err1 != nil || err2 != nil {
		return job.EndpointKey{}, ErrBadPayload
	}
	return at, nil
}

// attemptName is the asynq id of the task of an attempt: "{endpoint_id}:{delivery_id}:{attempt}".
func attemptName(d *job.Delivery, attempt int) string {
	return d.Endpoint.String() + ":" + d.ID.String() + ":" + strconv.Itoa(attempt)
}

// attemptMessage is what asynq keeps of the task of an attempt. failedAt is zero for one that is still to come.
func attemptMessage(id string, d *job.Delivery, attempt int, failedAt time.Time) []byte {
	p := attemptPayload{
		Delivery: d.ID.String(), Client: d.ClientID.String(), Endpoint: d.Endpoint.String(), Event: d.EventName, Attempt: attempt,
		LastError: d.LastError, LastStatus: d.LastStatus,
	}
	if !d.WebhookID.IsZero() {
		p.Webhook = d.WebhookID.String()
	}
	if !d.JobID.IsZero() {
		p.Job = d.JobID.String()
	}
	if failedAt.IsZero() && d.NextAttemptAt != nil {
		at := d.NextAttemptAt.UTC()
		p.DueAt = &at
	}
	payload, _ := json.Marshal(p) // strings, numbers and a time
	return message{
		kind: AttemptTask, payload: payload, id: id, queue: redisconn.Webhooks, timeout: deliveryTime, failure: errorText(d), failedAt: failedAt,
	}.encode()
}

// errorText is the error of a delivery as asynq shows it.
func errorText(d *job.Delivery) string {
	text := string(d.LastError)
	if reason := cmp.Or(d.LastReason, d.LastError.Text()); reason != "" {
		text += ": " + reason
	}
	return text
}
