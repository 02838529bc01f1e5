package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/forgerun/forgerun/job"
)

// problem is the answer to a request that failed, as in the public API: RFC 9457 with code and violations.
type problem struct {
	Type       string          `json:"type"`
	Title      string          `json:"title"`
	Status     int             `json:"status"`
	Detail     string          `json:"detail"`
	Instance   string          `json:"instance"`
	Code       job.Code        `json:"code"`
	Violations []job.Violation `json:"violations,omitempty"`
}

// httpError is an error that has something of HTTP besides its code.
type httpError struct {
	status int    // 0: that of the code
	allow  string // the methods that there are, "" if that is not what is wrong
	cause  *job.Error
}

func (e httpError) Error() string { return e.cause.Error() }
func (e httpError) Unwrap() error { return e.cause }

// refusalOf is what is told of an error: what is not a *job.Error shows nothing of itself.
func refusalOf(c *call, err error) *job.Error {
	var known *job.Error
	switch {
	case errors.As(err, &known) && known.Code.Spec().Status < http.StatusInternalServerError:
		return known
	case errors.Is(c.Context().Err(), context.DeadlineExceeded):
		return job.Errorf(job.CodeTimeout, "The request took longer than this server allows. Whether it had an effect is not known.")
	case known != nil && known.Code != job.CodeInternal:
		return &job.Error{Code: known.Code, Detail: known.Detail, RetryAfter: known.RetryAfter}
	}
	return &job.Error{Code: job.CodeInternal}
}

func statusOf(c *call, err error) int {
	own, _ := errors.AsType[httpError](err)
	return cmp.Or(own.status, refusalOf(c, err).Code.Spec().Status)
}

func (a *API) logFailure(c *call, err error) {
	a.deps.Log.ErrorContext(c.Context(), "admin request failed", slog.String("request_id", c.id), slog.String("action", "admin_api"),
		slog.String("operator", c.operator.Name), slog.String("method", c.Method), slog.String("route", c.route.path),
		slog.String("error_code", string(refusalOf(c, err).Code)), slog.String("error_message", err.Error()))
}

// sendProblem is the only way from an error to an answer.
func (a *API) sendProblem(w http.ResponseWriter, c *call, err error) {
	known := refusalOf(c, err)
	spec := known.Code.Spec()
	detail := known.Detail
	if detail == "" {
		detail = spec.Action
	}
	if spec.Status >= http.StatusInternalServerError {
		a.logFailure(c, err)
	}
	switch spec.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if w.Header().Get("Retry-After") == "" {
			w.Header().Set("Retry-After", strconv.Itoa(max(1, int((known.RetryAfter+time.Second-1)/time.Second))))
		}
	}
	if own, _ := errors.AsType[httpError](err); own.allow != "" {
		w.Header().Set("Allow", own.allow)
	}
	status := statusOf(c, err)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problem{ // the connection is lost
		Type: job.Links{PublicURL: a.cfg.PublicURL}.ProblemType(spec.Slug), Title: spec.Title, Status: status,
		Detail: job.PlainText(detail, job.MaxDetailBytes), Instance: "urn:uuid:" + c.id, Code: spec.Code, Violations: known.Violations,
	})
}
