package httpkit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/internal/fair"
	"github.com/forgerun/forgerun/job"
)

// With this alias, Request can embed fiber.Ctx and also have a field named Ctx.
type fiberCtx = fiber.Ctx

// Request is a request in progress.
type Request struct {
	*fiberCtx
	Kit     *Kit
	Route   *Route
	ID      string
	Ctx     context.Context // for the use case; ends at the request timeout
	Base    context.Context // has the request's span; ends when the server shuts down
	Span    trace.Span      // no-op if the request is not traced
	Start   time.Time
	Waited  time.Duration // time that the latency metrics leave out: receiving the body, and waits that the client asked for
	Caller  job.Caller
	Claimed job.Caller        // caller of a request that authentication refused; Caller is zero then
	Failed  *problem.Document // nil unless the response is a problem
	Made    job.ID            // id of the created resource, stored with its idempotency key
	Streams bool              // an event stream has taken over the connection
	Hides   bool              // set by a test bed: the response hides that a job has ended
	Rewrite bool              // set by a test bed: the response will be rewritten

	stop          context.CancelFunc
	incoming      incoming
	slot          *fair.Semaphore[job.ID] // semaphore of the request's slot; nil without a slot
	subjects      []subject
	refused       reason
	withoutSecret []byte // body to store for repeated requests; nil: the body of the response
}

type reason int

const (
	overloaded reason = iota + 1 // too many submissions wait; logged by Backlog
	noSlot                       // no storage slot became free in time
	slowed                       // too many failed authentications before
	unlogged                     // failed authentication that is not logged, because of the limit of log lines
)

type subject struct {
	name string
	id   job.ID
}

// Names of log attributes with the ids of resources.
const (
	JobID      = "job_id"
	BatchID    = "batch_id"
	WebhookID  = "webhook_id"
	BulkID     = "bulk_id"
	ScheduleID = "schedule_id"
)

var subjects = map[string]string{
	"/v1/jobs/": JobID, "/v1/batches/": BatchID, "/v1/webhooks/": WebhookID, "/v1/bulk/": BulkID, "/v1/schedules/": ScheduleID,
}

// About records a resource that the request refers to, for logs and traces. It ignores ids that cannot exist.
func (r *Request) About(name string, id job.ID) {
	if Known(id) {
		r.subjects = append(r.subjects, subject{name, id})
	}
}

// Subject returns the id that About has recorded under `name`, or zero.
func (r *Request) Subject(name string) job.ID {
	for _, s := range r.subjects {
		if s.name == name {
			return s.id
		}
	}
	return job.ID{}
}

// UnknownID is the Max UUID, which is never issued (RFC 9562, section 5.10). It replaces malformed ids in paths, so that they are handled
// like unknown ids.
var UnknownID = job.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Known reports whether an id can exist: it is neither zero nor UnknownID.
func Known(id job.ID) bool { return !id.IsZero() && id != UnknownID }

func (r *Request) appendSubjects(attrs []slog.Attr) []slog.Attr {
	for _, s := range r.subjects {
		attrs = append(attrs, slog.String(s.name, s.id.String()))
	}
	return attrs
}

// PathID returns the id in the path.
func (r *Request) PathID() job.ID { return r.IDOf("id") }

// IDOf returns the id in the named path parameter.
func (r *Request) IDOf(name string) job.ID {
	id, err := job.ParseID(r.Params(name))
	if err != nil {
		return UnknownID
	}
	return id
}

func (r *Request) noteSubject() {
	of, _, _ := strings.Cut(r.Route.Path, ":id")
	if name := subjects[of]; name != "" {
		r.About(name, r.PathID())
	}
}

// CheckAccept refuses a request that accepts none of the media types. The response to a request that changes something is JSON, so its
// Accept header must not exclude JSON. For GET, Kit.read later checks the media type of the response.
func (r *Request) CheckAccept(produced ...string) error {
	accept := r.List(fiber.HeaderAccept)
	if r.Route.Method != Get && header.Excludes(accept, fiber.MIMEApplicationJSON) {
		produced = []string{fiber.MIMEApplicationJSON}
	}
	for _, media := range produced {
		if header.Accepts(accept, media) {
			return nil
		}
	}
	if len(produced) == 0 {
		return nil
	}
	return job.Errorf(job.CodeNotAcceptable, "This resource is available as %s, but the Accept header excludes that. Send "+
		"Accept: %s, or none.",
		strings.Join(produced, " or "), produced[0])
}

// List returns all lines of a comma-separated header, joined.
func (r *Request) List(name string) string { return strings.Join(r.Lines(name), ",") }

// Lines returns the lines of a header.
func (r *Request) Lines(name string) (values []string) {
	for _, line := range r.Request().Header.PeekAll(name) {
		values = append(values, string(line))
	}
	return values
}

// JSON sends v as application/json.
func (r *Request) JSON(status int, v any) error {
	return r.SendAs(status, fiber.MIMEApplicationJSON, v)
}

// SendAs sends v as JSON with the given media type.
func (r *Request) SendAs(status int, media string, v any) error {
	r.Response().ResetBody()
	encoder := json.NewEncoder(r.Response().BodyWriter())
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	r.Status(status)
	r.Set(fiber.HeaderContentType, media)
	return nil
}

// Hijack takes the connection from fasthttp, which then sends no response and forgets the request. `run` gets the head of the response, and
// closes the connection. If the connection closes before `run` starts, `release` is called.
func (r *Request) Hijack(c *conn.Conn, release *func(), run func(head []byte)) {
	r.Streams = true
	r.Response().Header.SetConnectionClose()
	head := bytes.Clone(r.Response().Header.Header())
	c.OnClose.Store(release)
	r.Context().HijackSetNoResponse(true)
	r.Context().Hijack(func(net.Conn) {
		c.OnClose.Store(nil)
		go run(head) // in the background, so that fasthttp frees its buffers now
	})
}

// Respond returns a function that sends the result of a use case. If the use case fails, the function returns the error.
func Respond[T, V any](r *Request, status int, view func(T) V) func(T, error) error {
	return func(v T, err error) error {
		if err != nil {
			return err
		}
		return r.JSON(status, view(v))
	}
}

// ByID returns a handler that calls `do` with the id in the path, and sends the result.
func ByID[T, V any](do func(ctx context.Context, client, id job.ID) (T, error), view func(T) V) Handler {
	return func(r *Request) error {
		return Respond(r, fiber.StatusOK, view)(do(r.Ctx, r.Caller.ClientID, r.PathID()))
	}
}

// RemoveByID returns a handler that calls `do` with the id in the path, and sends 204.
func RemoveByID(do func(ctx context.Context, client, id job.ID) error) Handler {
	return func(r *Request) error {
		r.Status(fiber.StatusNoContent)
		return do(r.Ctx, r.Caller.ClientID, r.PathID())
	}
}

// As returns v. It is the view of values that are sent unchanged.
func As[T any](v T) T { return v }

// WantsDocument reports whether the client prefers application/problem+json to plain JSON, for the outcome of a job or batch.
func (r *Request) WantsDocument() bool {
	return header.Prefers(r.List(fiber.HeaderAccept), ProblemMedia, fiber.MIMEApplicationJSON)
}

// InLanguage sets Content-Language.
func (r *Request) InLanguage(language string) {
	r.Set(fiber.HeaderContentLanguage, cmp.Or(language, job.Languages[0]))
}

// Relate adds a Link header that points to the resource at `path`. `rel` is a registered relation or a URI.
func (r *Request) Relate(path, rel string) {
	r.Append(fiber.HeaderLink, "<"+r.Kit.Links.At(path)+`>; rel="`+rel+`"`)
}

// PageSize returns the query parameter `limit`, or `usual` if the query has none.
func (r *Request) PageSize(usual int) int {
	if n, ok := query.Positive(r.Query("limit")); ok {
		return n
	}
	return usual
}

// Filters returns the filters in the query. They are part of the scope of a list's cursors, so that a cursor is valid only with the same
// filters. No value contains an unescaped "&", so different filters never result in the same text.
func (r *Request) Filters() string {
	var filters strings.Builder
	for _, p := range r.Route.Query {
		if v := r.Query(p.Name); v != "" && p.Name != "limit" && p.Name != "cursor" {
			filters.WriteString(p.Name + "=" + v + "&")
		}
	}
	return filters.String()
}

// Paged sends the requested page of a list that is sorted by id, and the cursor of the next page. `read` returns the entries after an id.
func Paged[T, V any](r *Request, scope string, show func(T) V, read func(after job.ID, limit int) ([]T, job.ID, error)) error {
	return PagedAt(r, scope, len(job.ID{}), show, func(position []byte, limit int) (entries []T, next []byte, err error) {
		var after job.ID
		copy(after[:], position)
		entries, last, err := read(after, limit)
		if !last.IsZero() {
			next = last[:]
		}
		return entries, next, err
	})
}

// PagedAt is like Paged for other positions than job ids. `size` is the length of a position in bytes. `read` gets a nil position for the
// first page. It returns a nil position if the list has no more entries.
func PagedAt[T, V any](
	r *Request, scope string, size int, show func(T) V, read func(after []byte, limit int) (entries []T, next []byte, err error),
) (err error) {
	cursors, client, limit := r.Kit.CursorKey, r.Caller.ClientID, r.PageSize(query.DefaultLimit)
	var after []byte
	if cursor := r.Query("cursor"); cursor != "" {
		if after, err = cursors.Open(r.Ctx, client, scope, cursor, size); err != nil {
			return err
		}
	}
	entries, next, err := read(after, limit)
	if err != nil {
		return err
	}
	list := query.ListOf(entries, limit, show)
	if next != nil {
		cursor, err := cursors.Seal(r.Ctx, client, scope, next)
		if err != nil {
			return err
		}
		list.Page.NextCursor = &cursor
	}
	return r.JSON(fiber.StatusOK, list)
}

// WantsStream reports whether the client prefers an event stream.
func (r *Request) WantsStream() bool {
	r.Vary(fiber.HeaderAccept)
	return header.Prefers(r.List(fiber.HeaderAccept), EventStream, fiber.MIMEApplicationJSON)
}

// ReceivedAt returns the current time, truncated to microseconds as in Postgres.
func (s *Kit) ReceivedAt() time.Time { return s.Clock().UTC().Truncate(time.Microsecond) }

// AcceptedAt sets the headers with the URL of an accepted resource.
func (r *Request) AcceptedAt(path string, replayed bool) {
	r.Set(fiber.HeaderLocation, r.Kit.Links.At(path))
	r.Relate(path, "status")
	if replayed {
		r.Set(ReplayedHeader, "true")
	}
}

// Relation returns the URI of a link relation of this API.
func (s *Kit) Relation(name string) string { return s.PublicURL + "/rels/" + name }

// HTML sends a page that is part of this program.
func (r *Request) HTML(page []byte) error {
	r.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	r.Set(fiber.HeaderContentSecurityPolicy, docs.PagePolicy)
	r.Set(fiber.HeaderCacheControl, "max-age=3600")
	return r.Send(page)
}

// MergePatch is the media type of PATCH bodies (RFC 7396). application/json is treated the same.
const MergePatch = "application/merge-patch+json"

// Preferences returns the client's preferences (RFC 7240).
func (r *Request) Preferences() *header.Preferences { return header.ParsePrefer(r.List("Prefer")) }

// Honored sets the response header that lists the honored preferences.
func (r *Request) Honored(prefs *header.Preferences) {
	if applied := prefs.Applied(); applied != "" {
		r.Set("Preference-Applied", applied)
	}
}
