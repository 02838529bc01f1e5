package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Code is an error code of the API (API contract, section 14), always prefixed with RFA_.
type Code string

// Error codes: the 22 of the contract, then additional ones.
const (
	CodeMalformed            Code = "RFA_REQUEST_MALFORMED"
	CodeUnsupportedMediaType Code = "RFA_REQUEST_UNSUPPORTED_MEDIA_TYPE"
	CodeMethodNotAllowed     Code = "RFA_REQUEST_METHOD_NOT_ALLOWED"
	CodeNotAcceptable        Code = "RFA_REQUEST_NOT_ACCEPTABLE"
	CodePayloadTooLarge      Code = "RFA_REQUEST_PAYLOAD_TOO_LARGE"
	CodeRateLimited          Code = "RFA_REQUEST_RATE_LIMITED"
	CodeInvalidCredentials   Code = "RFA_AUTH_INVALID_CREDENTIALS"
	CodeTokenExpired         Code = "RFA_AUTH_TOKEN_EXPIRED"
	CodeForbidden            Code = "RFA_AUTH_FORBIDDEN"
	CodeKeyDisabled          Code = "RFA_AUTH_API_KEY_DISABLED"
	CodeValidationFailed     Code = "RFA_JOB_VALIDATION_FAILED"
	CodeJobNotFound          Code = "RFA_JOB_NOT_FOUND"
	CodeConflict             Code = "RFA_JOB_CONFLICT"
	CodeQueueFull            Code = "RFA_EXEC_QUEUE_FULL"
	CodeTimeout              Code = "RFA_EXEC_TIMEOUT"
	CodeIdempotencyConflict  Code = "RFA_EXEC_IDEMPOTENCY_CONFLICT"
	CodeWorkerUnavailable    Code = "RFA_EXEC_WORKER_UNAVAILABLE"
	CodeDBError              Code = "RFA_STORAGE_DB_ERROR"
	CodeStorageUnavailable   Code = "RFA_STORAGE_UNAVAILABLE"
	CodeDependencyTimeout    Code = "RFA_DEPENDENCY_TIMEOUT"
	CodeConfigInvalid        Code = "RFA_CONFIG_INVALID"
	CodeInternal             Code = "RFA_INTERNAL"

	CodeRequestNotFound Code = "RFA_REQUEST_NOT_FOUND"
	CodeClientNotFound  Code = "RFA_CLIENT_NOT_FOUND"
	CodeWebhookNotFound Code = "RFA_WEBHOOK_NOT_FOUND"
	CodeBatchNotFound   Code = "RFA_BATCH_NOT_FOUND"
	CodeBulkNotFound    Code = "RFA_BULK_NOT_FOUND"
	CodeScheduleMissing Code = "RFA_SCHEDULE_NOT_FOUND"
	CodeJobNotFinished  Code = "RFA_JOB_NOT_FINISHED"
	CodeResultNotFound  Code = "RFA_RESULT_NOT_FOUND"
	CodeJobGone         Code = "RFA_JOB_GONE"
	CodeResultGone      Code = "RFA_RESULT_GONE"
)

// CodeSpec describes an error code, as in the contract's table.
type CodeSpec struct {
	Code   Code
	Status int    // HTTP status
	Slug   string // last part of the problem type URI
	Title  string
	Action string // what the caller can do
}

// Codes lists the error codes in the order of the API contract (section 14), and then the additional codes.
var Codes = []CodeSpec{
	{CodeMalformed, 400, "request-malformed", "Malformed request", "Correct the request; compare it with the schema."},
	{CodeUnsupportedMediaType, 415, "unsupported-media-type", "Unsupported media type", "Send the body as application/json."},
	{CodeMethodNotAllowed, 405, "method-not-allowed", "Method not allowed", "Use a method that the Allow header names."},
	{CodeNotAcceptable, 406, "not-acceptable", "Not acceptable", "Accept application/json or application/problem+json."},
	{CodePayloadTooLarge, 413, "payload-too-large", "Request body too large", "Send a smaller body."},
	{CodeValidationFailed, 400, "validation-failed", "Validation failed", "Correct the values listed in violations."},
	{CodeInvalidCredentials, 401, "invalid-credentials", "Invalid credentials", "Send a valid API key as Authorization: Bearer frk_...."},
	{CodeTokenExpired, 401, "key-expired", "API key expired",
		"Renew the key with POST /v1/clients/{client_id}/keys/renew within 7 days after it expired (the operator can set " +
			"another time), and before a newer key is used. Otherwise, ask the operator for a new key."},
	{CodeForbidden, 403, "forbidden", "Forbidden", "Ask the operator for access."},
	{CodeKeyDisabled, 403, "key-disabled", "API key revoked", "Use another key of this client."},
	{CodeJobNotFound, 404, "job-not-found", "Job not found", "Check the job id."},
	{CodeConflict, 409, "conflict", "Conflicting state", "Read the current state and decide again."},
	{CodeIdempotencyConflict, 409, "idempotency-conflict", "Idempotency key reused with a different request",
		"Repeat the first request unchanged, or use a new key."},
	{CodeRateLimited, 429, "rate-limited", "Too many requests", "Wait as long as Retry-After says, then send fewer requests."},
	{CodeInternal, 500, "internal-error", "Internal error", "Try again later; if it persists, report the request id."},
	{CodeDBError, 503, "database-error", "Database error", "Try again after Retry-After, with the same idempotency key."},
	{CodeStorageUnavailable, 503, "storage-unavailable", "Storage unavailable", "Try again after Retry-After, with the same idempotency key."},
	{CodeQueueFull, 503, "queue-full", "Queue full", "Try again after Retry-After; submit more slowly."},
	{CodeWorkerUnavailable, 503, "worker-unavailable", "Worker unavailable", "Retry the job."},
	{CodeTimeout, 504, "timeout", "Time limit exceeded", "Try again later, with the same idempotency key."},
	{CodeDependencyTimeout, 504, "dependency-timeout", "Dependency timed out", "Try again later, with the same idempotency key."},
	{CodeConfigInvalid, 503, "config-invalid", "Server misconfigured", "Tell the operator."},

	{CodeRequestNotFound, 404, "not-found", "No such resource", "Check the path."},
	{CodeClientNotFound, 404, "client-not-found", "Client not found", "Check the client id."},
	{CodeWebhookNotFound, 404, "webhook-not-found", "Webhook not found", "Check the webhook id."},
	{CodeBatchNotFound, 404, "batch-not-found", "Batch not found", "Check the batch id."},
	{CodeBulkNotFound, 404, "bulk-not-found", "Bulk operation not found", "Check the bulk operation's id."},
	{CodeScheduleMissing, 404, "schedule-not-found", "Schedule not found", "Check the schedule's id; deleted schedules are not kept."},
	{CodeJobNotFinished, 404, "job-not-finished", "Not finished yet",
		"Ask again after Retry-After, or send Prefer: wait=30 to wait for it."},
	{CodeResultNotFound, 404, "result-not-found", "The job has no result", "Read the job and its report to see how it ended."},
	{CodeJobGone, 410, "job-gone", "Job no longer available", "Stop asking for the job: it was deleted or its retention ended."},
	{CodeResultGone, 410, "result-gone", "Result no longer available", "Submit the job again if the result is still needed."},
}

// Spec returns the description of c. For an unknown code, it returns the description of CodeInternal.
func (c Code) Spec() CodeSpec {
	for _, s := range Codes {
		if s.Code == c {
			return s
		}
	}
	return CodeInternal.Spec()
}

// Violation is a mistake in a request. It concerns a query parameter if Parameter is set, otherwise the body.
type Violation struct {
	Pointer   string `json:"pointer,omitempty"` // JSON Pointer (RFC 6901) into the body; "" means the whole body
	Parameter string `json:"parameter,omitempty"`
	Detail    string `json:"detail"` // what is wrong and what is allowed
}

// MarshalJSON writes Parameter if it is set. Otherwise it writes Pointer, which may be "".
func (v Violation) MarshalJSON() ([]byte, error) {
	if v.Parameter != "" {
		return json.Marshal(struct {
			Parameter string `json:"parameter"`
			Detail    string `json:"detail"`
		}{v.Parameter, v.Detail})
	}
	return json.Marshal(struct {
		Pointer string `json:"pointer"`
		Detail  string `json:"detail"`
	}{v.Pointer, v.Detail})
}

// Error is an error with a code of the API. Detail is for the client and contains nothing internal. Cause is only for the log, and may be
// nil.
type Error struct {
	Code       Code
	Detail     string
	Violations []Violation
	RetryAfter time.Duration // 0: none
	ExpiredAt  *time.Time    // for status 410: when the resource was removed or expired
	JobID      ID            // job of the first request, if a different request used the same idempotency key
	BatchID    ID            // like JobID, if the first request created a batch
	State      State         // the job's state, if a retry was refused
	Reason     string        // NOT_RETRYABLE or ATTEMPTS_EXHAUSTED, if a retry was refused
	Cause      error
}

// Errorf returns an Error with a formatted detail.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Malformed returns the error for a malformed request. The first violation is appended to `detail`.
func Malformed(detail string, violations ...Violation) *Error {
	return &Error{Code: CodeMalformed, Detail: WithFirst(detail, violations), Violations: violations}
}

// Error returns code, detail and cause, for logs.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Detail
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// CodeOf returns the code of the first Error in err's chain, or CodeInternal if there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// Invalid returns the error for a request with values that break business rules.
func Invalid(violations ...Violation) *Error {
	return &Error{Code: CodeValidationFailed, Detail: WithFirst("The request has invalid values.", violations), Violations: violations}
}

// ErrStale is returned for a late write: the job no longer has the given attempt and fence. The worker must stop the attempt without
// writing or publishing anything more.
var ErrStale = errors.New("the claim is no longer current")

// ErrWorkerDead is returned to a worker with an ended lease.
var ErrWorkerDead = errors.New("the worker's lease has ended")

// ErrUnproven means that a webhook's receiver has not confirmed that it wants events. The store has changed nothing. The caller asks the
// receiver for confirmation, outside of any transaction. Then it repeats the call with Proven set in the WebhookRequest or WebhookPatch.
var ErrUnproven = errors.New("the receiver has not confirmed that it wants events")

// MaxDetailBytes limits the detail of an error for the client.
const MaxDetailBytes = 1024

// PlainText prepares text for display in one line. It replaces control and formatting characters by U+FFFD. It shortens the text to at
// most `limit` bytes.
func PlainText(text string, limit int) string {
	const dots = "..."
	plain := strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) {
			return unicode.ReplacementChar
		}
		return c
	}, text[:min(len(text), limit+1)])
	if len(plain) <= limit {
		return plain
	}
	cut := max(0, limit-len(dots))
	for cut > 0 && !utf8.RuneStart(plain[cut]) {
		cut--
	}
	return plain[:cut] + dots[:min(len(dots), limit)]
}

const maxPlaceBytes = 100

// WithFirst returns the detail of an error: an introduction, the first violation, and the number of further violations. It is at most
// MaxDetailBytes long.
func WithFirst(lead string, violations []Violation) string {
	if len(violations) == 0 {
		return lead
	}
	first := violations[0]
	place := first.Pointer + first.Parameter
	if place != "" {
		place = PlainText(place, maxPlaceBytes) + ": "
	}
	more := ""
	switch n := len(violations) - 1; {
	case n == 1:
		more = " One more is listed in violations."
	case n > 1:
		more = fmt.Sprintf(" %d more are listed in violations.", n)
	}
	return lead + " " + place + PlainText(first.Detail, MaxDetailBytes-len(lead)-len(place)-len(more)-1) + more
}

// Grouped formats a non-negative number with separators: 4,321.
func Grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
