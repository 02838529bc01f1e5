package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/job"
)

func refused(r *operators.Refusal) error {
	code := job.CodeInvalidCredentials
	switch r.Status {
	case http.StatusForbidden:
		code = job.CodeForbidden
	case http.StatusTooManyRequests:
		code = job.CodeRateLimited
	case http.StatusServiceUnavailable:
		code = job.CodeStorageUnavailable
	}
	return &job.Error{Code: code, Detail: r.Detail, RetryAfter: r.RetryAfter}
}

// refusalOf gives what is shown of an error: of what is not a *job.Error nothing is.
func refusalOf(c *call, err error) *job.Error {
	known, _ := errors.AsType[*job.Error](err)
	switch {
	case known != nil && known.Code.Spec().Status < http.StatusInternalServerError:
		return &job.Error{Code: known.Code, Detail: known.Detail, Violations: known.Violations, RetryAfter: known.RetryAfter}
	case errors.Is(c.Context().Err(), context.DeadlineExceeded):
		return job.Errorf(job.CodeTimeout, "The request took longer than this server allows. Whether it had an effect is not known.")
	case known != nil && known.Code != job.CodeInternal:
		return &job.Error{Code: known.Code, Detail: known.Detail, RetryAfter: known.RetryAfter}
	}
	return &job.Error{Code: job.CodeInternal}
}

func (c *call) problemOf(err error) problem.Document {
	p := problem.Of(c.api.links, refusalOf(c, err))
	own, _ := errors.AsType[problem.StatusError](err)
	p.Status, p.Instance = cmp.Or(own.Status, p.Status), "urn:uuid:"+c.requestID
	return p
}

func (a *API) logFailure(c *call, err error) {
	a.deps.Log.ErrorContext(c.Context(), "admin request failed", slog.String("request_id", c.requestID), slog.String("action", "admin_api"),
		slog.String("operator", c.operator.Name), slog.String("method", c.Method), slog.String("route", c.route.path),
		slog.String("error_code", string(refusalOf(c, err).Code)), slog.String("error_message", err.Error()))
}

// sendProblem is the only way from an error to an answer.
func (a *API) sendProblem(w http.ResponseWriter, c *call, err error) {
	p := c.problemOf(err)
	if p.Status >= http.StatusInternalServerError && p.Status != http.StatusNotImplemented { // any caller may name a method that there is not
		a.logFailure(c, err)
	}
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if w.Header().Get("Retry-After") == "" {
			w.Header().Set("Retry-After", strconv.Itoa(max(1, problem.Seconds(p.RetryAfter))))
		}
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", c.route.allow)
	}
	w.Header().Set("Content-Type", problem.Media)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the connection is lost
}

// No answer of this API has an entity tag or a Last-Modified: a condition can only ask whether there is something, and those about
// times are ignored (RFC 9110, sections 13.1.3 and 13.1.4).

// shownBy gives for the path of each change the route that shows what the change is about: that of the same path, or of the nearest one
// above.
func shownBy(routes []route) map[string]*route {
	reads, shown := map[string]*route{}, map[string]*route{}
	for i, rt := range routes {
		if rt.method == http.MethodGet {
			reads[rt.path] = &routes[i]
		}
	}
	for _, rt := range routes {
		for path := rt.path; path != "" && shown[rt.path] == nil; path = path[:strings.LastIndexByte(path, '/')] {
			shown[rt.path] = reads[path]
		}
	}
	return shown
}

// checkConditions refuses a change whose answer is not wanted as it would be, or whose conditions do not hold for what it is about.
func (c *call) checkConditions() error {
	if header.Excludes(c.list("Accept"), mimeJSON) {
		return problem.NotAcceptable(mimeJSON)
	}
	matches := c.Header["If-None-Match"] != nil && header.MatchesETag(c.list("If-None-Match"), "")
	if !c.unmatched() && !matches {
		return nil // whether it is there, the change finds out by itself
	}
	if _, err := c.do(c.api.shown[c.route.path]); err != nil {
		return err
	}
	if c.unmatched() {
		return errUnmatched
	}
	return problem.WithStatus(http.StatusPreconditionFailed, problem.NoneMatched)
}

// unmatched reports whether If-Match asks for an entity tag.
func (c *call) unmatched() bool {
	return c.Header["If-Match"] != nil && !header.MatchesStrongly(c.list("If-Match"), "")
}

var errUnmatched = problem.WithStatus(http.StatusPreconditionFailed,
	problem.Unmatched+" Nothing here has an entity tag: send the request without If-Match.")

// checkAnswer refuses an answer that is not the one that the request wants.
func (c *call) checkAnswer(a answer) error {
	switch {
	case c.unmatched():
		return errUnmatched
	case header.Excludes(c.list("Accept"), a.mime):
		return problem.NotAcceptable(a.mime)
	}
	return nil
}

// list gives a header that is a comma-separated list, all its lines joined.
func (c *call) list(name string) string { return strings.Join(c.Header.Values(name), ",") }
