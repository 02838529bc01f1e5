package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

// call is a request under way.
type call struct {
	*http.Request
	api       *API
	route     *route
	requestID string
	operator  operators.Operator
	ended     func() bool // whether a stream would be refused by now
	subject   job.ID      // what the path names
	body      []byte      // of a change
	made      string      // the id of what the change made, if it did not name it
}

// answer is what is sent: a value as JSON, or text as it is.
type answer struct {
	status   int
	value    any  // nil: the body is text
	verbatim bool // nothing in the value is escaped for HTML
	mime     string
	body     []byte
	header   http.Header // besides those of every answer
}

const mimeJSON = "application/json"

// render answers with what a use case gives, and passes its error on.
func render[T, V any](status int, view func(T) V) func(T, error) (answer, error) {
	return func(v T, err error) (answer, error) {
		if err != nil {
			return answer{}, err
		}
		return answer{status: status, value: view(v)}, nil
	}
}

// ok answers with a value as it is.
func ok[T any](v T, err error) (answer, error) { return render(http.StatusOK, asIs[T])(v, err) }

func asIs[T any](v T) T { return v }

// maxRequestID is the length of a UUID.
const maxRequestID = 36

// requestID is the caller's own id of the request, if it is a UUID.
func requestID(r *http.Request) string {
	given := r.Header.Get("X-Request-Id")
	if _, err := uuid.Parse(given); err == nil && len(given) == maxRequestID {
		return given
	}
	return uuid.NewString()
}

// answer does what is asked for. A panic is an error like any other: the entry of the audit log stays open, and who asked
// learns no more than that.
func (c *call) answer() (_ answer, err error) {
	defer func() {
		if crash := recover(); crash != nil {
			err = fmt.Errorf("panic: %v\n%s", crash, debug.Stack())
		}
	}()
	if c.route.method != "" {
		if err := c.checkQuery(); err != nil {
			return answer{}, err
		}
	}
	if c.route.action != "" {
		if err := c.checkConditions(); err != nil {
			return answer{}, err
		}
		return c.audited()
	}
	a, err := c.do(c.route)
	if err != nil {
		return answer{}, err
	}
	return a, c.checkAnswer(a)
}

// subjects are what paths name, by what they begin with.
var subjects = map[string]struct {
	missing job.Code
	name    string
}{
	"jobs": {job.CodeJobNotFound, "job"}, "clients": {job.CodeClientNotFound, "client"}, "webhooks": {job.CodeWebhookNotFound, "webhook"},
	"deliveries": {job.CodeRequestNotFound, "delivery"}, "batches": {job.CodeBatchNotFound, "batch"},
	"bulk": {job.CodeBulkNotFound, "bulk operation"}, "schedules": {job.CodeScheduleMissing, "schedule"},
	"pauses": {job.CodeRequestNotFound, "pause"}, "erasures": {job.CodeRequestNotFound, "erasure"},
	"testbed/sessions": {job.CodeRequestNotFound, "session"},
}

// do has a route answer about what the path names. An id that is malformed is not found, as one that is not known.
func (c *call) do(rt *route) (a answer, err error) {
	if of, _, ok := strings.Cut(strings.TrimPrefix(rt.path, prefix), "/{id}"); ok {
		if c.subject = query.IDOf(c.PathValue("id")); c.subject.IsZero() {
			return answer{}, job.Errorf(subjects[of].missing, "No %s with this id was found.", subjects[of].name)
		}
	}
	if a, err = rt.handle(c); err != nil || a.value == nil {
		return a, err
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(!a.verbatim)
	err = encoder.Encode(a.value)
	a.mime, a.body = mimeJSON, body.Bytes()
	return a, err
}

// checkQuery refuses a query that the route does not have.
func (c *call) checkQuery() error {
	if c.URL.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return job.Malformed("The query is not percent-encoded as it should be.")
	}
	return query.Check(c.route.query, pairs(values))
}

func pairs(values map[string][]string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, all := range values {
			for _, value := range all {
				if !yield(name, value) {
					return
				}
			}
		}
	}
}

// param gives a query parameter, which has been checked; "" if it is not there.
func (c *call) param(name string) string { return c.URL.Query().Get(name) }

func (c *call) limit() int { return query.Limit(c.param("limit"), query.DefaultLimit) }

// one answers with what the path names.
func one[T any](read func(context.Context, job.ID) (T, error)) func(*call) (answer, error) {
	return func(c *call) (answer, error) { return ok(read(c.Context(), c.subject)) }
}

// bounded answers with a list that has no cursor.
func bounded[T any](read func(context.Context, admin.Range) (admin.Bounded[T], error)) func(*call) (answer, error) {
	return func(c *call) (answer, error) { return ok(read(c.Context(), c.narrowed())) }
}

// list answers with a page of a list that is sorted by ids.
func list[T any](read func(context.Context, admin.Range) (admin.Page[T], error)) func(*call) (answer, error) {
	return func(c *call) (answer, error) {
		return paged(c, asIs[T], func(after job.ID, _ int) ([]T, job.ID, error) {
			r := c.narrowed()
			r.After = after
			page, err := read(c.Context(), r)
			return page.Data, page.Next, err
		})
	}
}

// narrowed gives what the query narrows a list down to.
func (c *call) narrowed() admin.Range {
	return admin.Range{
		ClientID: query.IDOf(c.param("client_id")), WebhookID: query.IDOf(c.param("webhook_id")), JobID: query.IDOf(c.param("job_id")),
		WorkKind: job.Kind(c.param("kind")), Code: job.Code(c.param("code")), State: c.param("state"), EventName: c.param("event_name"),
		From: query.TimeOf(c.param("from")), To: query.TimeOf(c.param("to")), Limit: c.limit(),
		Enabled: yesOrNo(c.param("enabled")), Named: yesOrNo(c.param("named")),
	}
}

// yesOrNo is nil for what was not said.
func yesOrNo(text string) *bool {
	if text == "" {
		return nil
	}
	return new(text == "true")
}

// scope names the list and its filters, for its cursors. They belong to no client: no cursor of the public API is one here.
func (c *call) scope() string { return c.URL.Path + "?" + query.Scope(c.route.query, c.param) }

// paged answers with the page of a list that the query asks for; read reads what comes after an id.
func paged[T, V any](c *call, view func(T) V, read func(after job.ID, limit int) ([]T, job.ID, error)) (answer, error) {
	after, err := c.api.deps.CursorKey.OpenID(c.Context(), job.ID{}, c.scope(), c.param("cursor"))
	if err != nil {
		return answer{}, err
	}
	entries, next, err := read(after, c.limit())
	if err != nil {
		return answer{}, err
	}
	return goOn(c, query.ListOf(entries, c.limit(), view), next.IsZero(), next[:])
}

// goOn answers with a page, and unless it is the end, with the cursor of the next one.
func goOn[V any](c *call, list query.List[V], end bool, next []byte) (answer, error) {
	if !end {
		cursor, err := c.api.deps.CursorKey.Seal(c.Context(), job.ID{}, c.scope(), next)
		if err != nil {
			return answer{}, err
		}
		list.Page.NextCursor = &cursor
	}
	return ok(list, nil)
}
