package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// WebhookMessage is a delivery as a receiver gets it, in either content mode.
// Verifier.Verify gives one. In the binary mode EventID, Name, Source, Subject
// (and so JobID), Time, Sequence and WorkKind come from ce- headers, which only a
// Verifier with Keys protects.
type WebhookMessage struct {
	WebhookID   string // webhook-id: of the delivery, the same on each try
	EventID     string // ce-id
	Name        string // ce-type: job.failed, for example
	Source      string
	Subject     string
	Time        time.Time
	Sequence    int    // place in the job's log, from 1; 0 if it is not of a job
	WorkKind    string // of the job; "" if it is not of a job
	ContentType string
	Data        json.RawMessage
	ReceivedAt  time.Time // when it was read
}

// ParseDelivery reads a delivery's CloudEvent, of the binary or the structured
// mode, and verifies nothing: it is for what was verified and then kept.
// Receivers use Verifier.Verify.
func ParseDelivery(header http.Header, body []byte) (*WebhookMessage, error) {
	m := &WebhookMessage{WebhookID: header.Get("Webhook-Id"), ContentType: header.Get("Content-Type"), ReceivedAt: time.Now()}
	var event struct {
		ID, Type, Source, Subject, Time, Sequence, WorkKind string
		DataContentType                                     string `json:"datacontenttype"`
		Data                                                json.RawMessage
	}
	if mediaType(m.ContentType) == "application/cloudevents+json" {
		if err := json.Unmarshal(body, &event); err != nil {
			return nil, fmt.Errorf("client: not a CloudEvent: %w", err)
		}
		m.ContentType = event.DataContentType
	} else {
		event.ID, event.Type, event.Source = header.Get("Ce-Id"), header.Get("Ce-Type"), header.Get("Ce-Source")
		event.Subject, event.Time, event.Sequence = header.Get("Ce-Subject"), header.Get("Ce-Time"), header.Get("Ce-Sequence")
		event.WorkKind, event.Data = header.Get("Ce-Workkind"), body
	}
	if event.ID == "" || event.Type == "" {
		return nil, errors.New("client: not a CloudEvent: it has no id or no type")
	}
	m.EventID, m.Name, m.Source, m.Subject, m.Data = event.ID, event.Type, event.Source, event.Subject, event.Data
	m.WorkKind = event.WorkKind
	if !json.Valid(m.Data) {
		return nil, errors.New("client: the delivery's data is not JSON")
	}
	// What is absent or malformed stays zero.
	m.Time, _ = time.Parse(time.RFC3339Nano, event.Time)
	if n, err := strconv.Atoi(event.Sequence); err == nil && n > 0 {
		m.Sequence = n
	}
	return m, nil
}

// JobID is the job that the message is about; "" if it is not about one.
func (m *WebhookMessage) JobID() string {
	if id, ok := strings.CutPrefix(m.Subject, "jobs/"); ok {
		return id
	}
	return ""
}

// Outcome reads the data as an outcome document: all messages about jobs and
// batches have one. As with ParseOutcome, Warnings are the caller's to log.
func (m *WebhookMessage) Outcome() (*Outcome, error) {
	return parseOutcome(m.ContentType, m.Data, m.ReceivedAt)
}
