// Package problem converts errors to problem documents (RFC 9457) for the client API and the operator API.
package problem

import (
	"net/http"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// Media is the media type of problem documents.
const Media = "application/problem+json"

// Document is a problem document (RFC 9457) with extension members.
type Document struct {
	Type       string          `json:"type"`
	Title      string          `json:"title"`
	Status     int             `json:"status"`
	Detail     string          `json:"detail"`
	Instance   string          `json:"instance"`
	Code       job.Code        `json:"code"`
	Violations []job.Violation `json:"violations,omitempty"`
	ExpiredAt  *job.Time       `json:"expired_at,omitempty"` // for 410: time of expiry
	JobID      *job.ID         `json:"job_id,omitempty"`     // for an idempotency conflict: job that the first request created
	BatchID    *job.ID         `json:"batch_id,omitempty"`
	State      job.State       `json:"state,omitempty"`  // for a refused retry: state of the job
	Reason     string          `json:"reason,omitempty"` // for a refused retry: reason

	RetryAfter time.Duration `json:"-"`
}

// Of returns the problem document to send for an error. It sets all members except instance. Internal errors do not show their detail.
func Of(links job.Links, e *job.Error) Document {
	spec, detail := e.Code.Spec(), e.Detail
	if detail == "" || spec.Code == job.CodeInternal {
		detail = spec.Action
	}
	return Document{
		Type: links.ProblemType(spec.Slug), Title: spec.Title, Status: spec.Status, Code: spec.Code,
		Detail: job.PlainText(detail, job.MaxDetailBytes), Violations: e.Violations,
		ExpiredAt: job.TimeOf(e.ExpiredAt), JobID: view.OrNull(e.JobID), BatchID: view.OrNull(e.BatchID),
		State: e.State, Reason: e.Reason, RetryAfter: e.RetryAfter,
	}
}

// Waits reports whether a response has a Retry-After because of its code or status.
func Waits(code job.Code, status int) bool {
	return code == job.CodeJobNotFinished || status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable ||
		status == http.StatusGatewayTimeout
}

// StatusError is an error with a different HTTP status than its code usually has.
type StatusError struct {
	Status int
	Cause  *job.Error
}

func (e StatusError) Error() string { return e.Cause.Error() }

func (e StatusError) Unwrap() error { return e.Cause }

// WithStatus returns the error of a malformed request with a more specific HTTP status.
func WithStatus(status int, detail string) error {
	return StatusError{status, job.Errorf(job.CodeMalformed, "%s", detail)}
}

// Seconds returns d in seconds, rounded up so that a client does not come back too early.
func Seconds(d time.Duration) int { return int((max(0, d) + time.Second - 1) / time.Second) }
