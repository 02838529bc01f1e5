package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The shapes of the API as a client reads them: members it does not know are
// ignored, members that may be absent are pointers.

// moment is a timestamp of the API: RFC 3339 in UTC, written with Z.
type moment struct{ time.Time }

// UnmarshalJSON refuses any form but the contract's.
func (m *moment) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("timestamp %s is not a string", b)
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || !strings.HasSuffix(s, "Z") {
		return fmt.Errorf("timestamp %q is not RFC 3339 in UTC with Z", s)
	}
	m.Time = t
	return nil
}

// submission is the body of POST /v1/jobs.
type submission struct {
	Type        string `json:"type"`
	WorkKind    string `json:"work_kind"`
	ExecutionAt string `json:"execution_at,omitempty"`
	Callback    string `json:"callback,omitempty"`
}

type clientView struct {
	ClientID string `json:"client_id"`
}

type keyView struct {
	APIKey string `json:"api_key"`
}

// receipt answers a submission, a cancel and a retry.
type receipt struct {
	JobID     string  `json:"job_id"`
	State     string  `json:"state"`
	CreatedAt *moment `json:"created_at"` // submit
	UpdatedAt *moment `json:"updated_at"` // cancel, retry
	Attempt   int     `json:"attempt"`    // retry
}

type jobView struct {
	JobID       string       `json:"job_id"`
	Type        string       `json:"type"`
	WorkKind    string       `json:"work_kind"`
	State       string       `json:"state"`
	Outcome     string       `json:"outcome"` // "" stands for null
	CreatedAt   *moment      `json:"created_at"`
	UpdatedAt   *moment      `json:"updated_at"`
	ExecutionAt *moment      `json:"execution_at"`
	Attempt     int          `json:"attempt"`
	MaxAttempts int          `json:"max_attempts"`
	Definition  *definition  `json:"definition"`
	Failure     *failureView `json:"failure"`
	Result      *resultView  `json:"result"`
}

type definition struct {
	DurationMS  int64 `json:"duration_ms"`
	ShouldFail  bool  `json:"should_fail"`
	PayloadSize int   `json:"payload_size"`
}

type failureView struct {
	Code       string `json:"code"`
	Detail     string `json:"detail"`
	JobID      string `json:"jobId"`
	JobStatus  string `json:"jobStatus"`
	Retryable  *bool  `json:"retryable"`
	RetryAfter int    `json:"retryAfter"`
}

type resultView struct {
	SizeBytes *int            `json:"size_bytes"`
	Checksum  json.RawMessage `json:"checksum"`
}

type reportView struct {
	JobID      string      `json:"job_id"`
	Outcome    string      `json:"outcome"`
	StartedAt  *moment     `json:"started_at"` // null for an attempt that never ran
	FinishedAt *moment     `json:"finished_at"`
	DurationMS *int64      `json:"duration_ms"`
	Events     []eventView `json:"events"`
}

type eventView struct {
	EventID   string    `json:"event_id"`
	Seq       int       `json:"seq"`
	JobID     string    `json:"job_id"`
	Name      string    `json:"event_name"`
	Prev      string    `json:"prev_state"` // "" stands for null
	Next      string    `json:"next_state"`
	Attempt   int       `json:"attempt"`
	Timestamp moment    `json:"timestamp"`
	Data      eventData `json:"data"`
}

// eventData is what section 6 wants each event to tell about the scenario.
type eventData struct {
	WorkKind        string `json:"work_kind"`
	DurationMS      *int64 `json:"duration_ms"`
	ExpectedOutcome string `json:"expected_outcome"`
}

// problem is an RFC 9457 document as ForgeRun writes it.
type problem struct {
	Code     string `json:"code"`
	Detail   string `json:"detail"`
	Instance string `json:"instance"`
	JobID    string `json:"job_id"` // must not be there

	Violations []violation `json:"violations"`
}

type violation struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

// webhookView answers the registration of a webhook.
type webhookView struct {
	WebhookID string  `json:"webhook_id"`
	Secret    string  `json:"secret"`
	CreatedAt *moment `json:"created_at"`
}

type deliveryList struct {
	Data []deliveryView `json:"data"`
	Page struct {
		NextCursor string `json:"next_cursor"` // "" stands for null
	} `json:"page"`
}

type deliveryView struct {
	DeliveryID    string     `json:"delivery_id"`
	WebhookID     string     `json:"webhook_id"` // "" stands for null: to the job's callback
	URL           string     `json:"url"`        // of a callback
	EventID       string     `json:"event_id"`
	EventName     string     `json:"event_name"`
	State         string     `json:"state"`
	Attempts      int        `json:"attempts"`
	NextAttemptAt *moment    `json:"next_attempt_at"`
	CreatedAt     *moment    `json:"created_at"`
	SettledAt     *moment    `json:"settled_at"`
	LastError     *errorView `json:"last_error"`
	Log           []tryView  `json:"attempts_log"` // only of a single delivery
}

type errorView struct {
	Code string `json:"code"`
}

type tryView struct {
	Number     int   `json:"number"`
	DurationMS int64 `json:"duration_ms"`
	Status     *int  `json:"status"` // null without an answer
}

// status gives the status that was answered, 0 for none.
func (t tryView) status() int {
	if t.Status == nil {
		return 0
	}
	return *t.Status
}

// cannotReach reports whether the latest try failed before the receiver could
// see it.
func (d deliveryView) cannotReach() bool {
	return d.LastError != nil && slices.Contains([]string{
		"ADDRESS_FORBIDDEN", "CONNECTION_FAILED", "CONNECTION_LOST", "NAME_NOT_RESOLVED", "TLS_FAILED", "TIMEOUT",
	}, d.LastError.Code)
}

// deliveredView is the part of a delivery's body that the receiver looks at:
// the draft's members.
type deliveredView struct {
	JobID     string `json:"jobId"`
	JobStatus string `json:"jobStatus"`
}
