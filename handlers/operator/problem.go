package operator

import (
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

// sendProblem is the only way from an error to an answer. What is not a *job.Error shows nothing of itself: it is logged.
func (a *API) sendProblem(w http.ResponseWriter, c *call, err error) {
	var known *job.Error
	code, detail, retryAfter := job.CodeInternal, "", time.Duration(0)
	var violations []job.Violation
	switch {
	case errors.As(err, &known) && known.Code.Spec().Status < http.StatusInternalServerError:
		code, detail, violations, retryAfter = known.Code, known.Detail, known.Violations, known.RetryAfter
	case errors.Is(c.Context().Err(), context.DeadlineExceeded):
		code, detail = job.CodeTimeout, "The request took longer than this server allows."
	case known != nil:
		code, detail, retryAfter = known.Code, known.Detail, known.RetryAfter
	}
	spec := code.Spec()
	if detail == "" || code == job.CodeInternal {
		detail = spec.Action
	}
	if spec.Status >= http.StatusInternalServerError {
		a.deps.Log.ErrorContext(c.Context(), "admin request failed", slog.String("request_id", c.id), slog.String("action", "admin_api"),
			slog.String("route", c.route.path), slog.String("error_code", string(code)), slog.String("error_message", err.Error()))
	}
	switch spec.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if w.Header().Get("Retry-After") == "" {
			w.Header().Set("Retry-After", strconv.Itoa(max(1, int((retryAfter+time.Second-1)/time.Second))))
		}
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(spec.Status)
	_ = json.NewEncoder(w).Encode(problem{ // the connection is lost
		Type: job.Links{PublicURL: a.cfg.PublicURL}.ProblemType(spec.Slug), Title: spec.Title, Status: spec.Status,
		Detail: job.PlainText(detail, job.MaxDetailBytes), Instance: "urn:uuid:" + c.id, Code: spec.Code, Violations: violations,
	})
}
