package httpkit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"net"
	"net/url"
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

// fiberCtx is embedded by this name, so that Ctx is free.
type fiberCtx = fiber.Ctx

// Request is one request on its way through its route.
type Request struct {
	*fiberCtx
	Kit     *Kit
	Route   *Route
	ID      string          // of the request
	Ctx     context.Context // of the use case: until the request timeout
	Base    context.Context // with the request's span; ends with the server
	Span    trace.Span      // does nothing if the request is not traced
	Start   time.Time
	Waited  time.Duration // at the client's own wish
	Caller  job.Caller
	Claimed job.Caller        // of a key that was refused
	Failed  *problem.Document // nil unless the answer is a problem
	Made    job.ID            // what the request made, for its idempotency key
	Streams bool              // the connection belongs to an event stream
	Hides   bool              // by a test bed: the answer hides that a job has ended
	Rewrite bool              // by a test bed: the answer will be another representation

	stop          context.CancelFunc
	incoming      incoming
	slot          *fair.Semaphore[job.ID] // that it holds a place of, nil if it holds none
	subjects      []subject
	refused       reason
	withoutSecret []byte // the body to keep for repetitions, nil for that of the response
}

// reason says why a request was refused, for logs and metrics.
type reason int

const (
	overloaded reason = iota + 1 // too many submissions wait; Admission logs that
	noSlot                       // its client has used up its places
	slowed                       // for earlier failures to authenticate
	unlogged                     // it is one of too many failures to authenticate
)

// subject is what a request is about.
type subject struct {
	name string
	id   job.ID
}

// The names of subjects, in logs.
const (
	JobID      = "job_id"
	BatchID    = "batch_id"
	WebhookID  = "webhook_id"
	BulkID     = "bulk_id"
	ScheduleID = "schedule_id"
)

// subjects are the names of what paths name, by what the paths begin with.
var subjects = map[string]string{
	"/v1/jobs/": JobID, "/v1/batches/": BatchID, "/v1/webhooks/": WebhookID, "/v1/bulk/": BulkID, "/v1/schedules/": ScheduleID,
}

// About notes what the request is about, for logs and traces. An id that cannot exist is not noted.
func (r *Request) About(name string, id job.ID) {
	if Known(id) {
		r.subjects = append(r.subjects, subject{name, id})
	}
}

// Subject returns the id of the named subject, zero if the request is not about one.
func (r *Request) Subject(name string) job.ID {
	for _, s := range r.subjects {
		if s.name == name {
			return s.id
		}
	}
	return job.ID{}
}

// UnknownID is the Max UUID, which is never issued (RFC 9562, section 5.10). A
// malformed id in a path becomes it, so that it takes the very way of an
// unknown one and the two look the same.
var UnknownID = job.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Known reports whether an id is one that can exist.
func Known(id job.ID) bool { return !id.IsZero() && id != UnknownID }

// appendSubjects adds the ids of what the request is about, for the log.
func (r *Request) appendSubjects(attrs []slog.Attr) []slog.Attr {
	for _, s := range r.subjects {
		attrs = append(attrs, slog.String(s.name, s.id.String()))
	}
	return attrs
}

// PathID gives the id in the path.
func (r *Request) PathID() job.ID { return r.IDOf("id") }

// IDOf gives the id that is the named parameter of the path.
func (r *Request) IDOf(name string) job.ID {
	id, err := job.ParseID(r.Params(name))
	if err != nil {
		return UnknownID
	}
	return id
}

// noteSubject notes what the path names.
func (r *Request) noteSubject() {
	of, _, _ := strings.Cut(r.Route.Path, ":id")
	if name := subjects[of]; name != "" {
		r.About(name, r.PathID())
	}
}

// CheckAccept refuses a request that accepts none of the media types. One that changes something is answered in JSON, if with a body,
// and must not say that it wants none; read looks at the others once their media type is known.
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

// List gives a header that is a comma-separated list, all its lines joined.
func (r *Request) List(name string) string { return strings.Join(r.Lines(name), ",") }

// Lines gives the lines of a header.
func (r *Request) Lines(name string) (values []string) {
	for _, line := range r.Request().Header.PeekAll(name) {
		values = append(values, string(line))
	}
	return values
}

// JSON answers with v as application/json.
func (r *Request) JSON(status int, v any) error {
	return r.SendAs(status, fiber.MIMEApplicationJSON, v)
}

// SendAs answers with v as JSON of the given media type.
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

// Hijack takes the connection from fasthttp, which sends no answer of its own and forgets the request. run is called with the head of
// the answer, and closes the connection. If it fails before that, release is called.
func (r *Request) Hijack(c *conn.Conn, release *func(), run func(head []byte)) {
	r.Streams = true
	r.Response().Header.SetConnectionClose()
	head := bytes.Clone(r.Response().Header.Header())
	c.OnClose.Store(release)
	r.Context().HijackSetNoResponse(true)
	r.Context().Hijack(func(net.Conn) {
		c.OnClose.Store(nil)
		go run(head) // returning lets fasthttp's own buffers go
	})
}

// Respond renders what a use case gives, and passes its error on.
func Respond[T, V any](r *Request, status int, view func(T) V) func(T, error) error {
	return func(v T, err error) error {
		if err != nil {
			return err
		}
		return r.JSON(status, view(v))
	}
}

// Answering answers with what a use case gives of the client's own that the path names.
func Answering[T, V any](do func(ctx context.Context, client, id job.ID) (T, error), view func(T) V) Handler {
	return func(r *Request) error {
		return Respond(r, fiber.StatusOK, view)(do(r.Ctx, r.Caller.ClientID, r.PathID()))
	}
}

// Removing removes something of the client's own that the path names, and answers with nothing.
func Removing(do func(ctx context.Context, client, id job.ID) error) Handler {
	return func(r *Request) error {
		r.Status(fiber.StatusNoContent)
		return do(r.Ctx, r.Caller.ClientID, r.PathID())
	}
}

// As shows a value as it is.
func As[T any](v T) T { return v }

// WantsDocument reports whether the client prefers the draft's view to that of
// the API.
func (r *Request) WantsDocument() bool {
	return header.Prefers(r.List(fiber.HeaderAccept), ProblemMedia, fiber.MIMEApplicationJSON)
}

// InLanguage names the language of the texts in an answer.
func (r *Request) InLanguage(language string) {
	r.Set(fiber.HeaderContentLanguage, cmp.Or(language, job.Languages[0]))
}

// Relate adds a link from the answer's resource to another one, by its path. rel is a
// registered relation or a URI.
func (r *Request) Relate(path, rel string) {
	r.Append(fiber.HeaderLink, "<"+r.Kit.Links.At(path)+`>; rel="`+rel+`"`)
}

// checkQuery refuses a query that the route does not have.
func (r *Request) checkQuery() error {
	if len(r.Request().URI().QueryString()) == 0 {
		return nil
	}
	if err := query.Check(r.Route.Query, textual(r.Request().URI().QueryArgs().All())); err != nil {
		return err
	}
	if _, err := url.QueryUnescape(string(r.Request().URI().QueryString())); err != nil {
		return job.Malformed("The query has an invalid % encoding.")
	}
	return nil
}

func textual(pairs iter.Seq2[[]byte, []byte]) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, value := range pairs {
			if !yield(string(name), string(value)) {
				return
			}
		}
	}
}

// PageSize gives the size of the page that is asked for.
func (r *Request) PageSize(otherwise int) int { return query.Limit(r.Query("limit"), otherwise) }

// Filters names the filters of a list, for the scope of its cursors.
func (r *Request) Filters() string {
	return query.Scope(r.Route.Query, func(name string) string { return r.Query(name) })
}

// Paged answers with the page of a list that the query asks for, and with the cursor of the next one; read reads what comes after an id.
func Paged[T, V any](r *Request, scope string, show func(T) V, read func(after job.ID, limit int) ([]T, job.ID, error)) error {
	cursors, client, limit := r.Kit.CursorKey, r.Caller.ClientID, r.PageSize(query.DefaultLimit)
	after, err := cursors.OpenID(r.Ctx, client, scope, r.Query("cursor"))
	if err != nil {
		return err
	}
	entries, next, err := read(after, limit)
	if err != nil {
		return err
	}
	list := query.ListOf(entries, limit, show)
	if !next.IsZero() {
		cursor, err := cursors.Seal(r.Ctx, client, scope, next[:])
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

// ReceivedAt is the time of a request, as precise as storage keeps it.
func (s *Kit) ReceivedAt() time.Time { return s.Clock().UTC().Truncate(time.Microsecond) }

// AcceptedAt sets the address of what was accepted, by its path.
func (r *Request) AcceptedAt(path string, replayed bool) {
	r.Set(fiber.HeaderLocation, r.Kit.Links.At(path))
	r.Relate(path, "status")
	if replayed {
		r.Set(ReplayedHeader, "true")
	}
}

// Relation gives the URI of a link relation of this API.
func (s *Kit) Relation(name string) string { return s.PublicURL + "/rels/" + name }

// HTML answers with a page of the program's own.
func (r *Request) HTML(page []byte) error {
	r.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	r.Set(fiber.HeaderContentSecurityPolicy, docs.PagePolicy)
	r.Set(fiber.HeaderCacheControl, "max-age=3600")
	return r.Send(page)
}

// MergePatch is the media type of changes (RFC 7396). Plain JSON means the same.
const MergePatch = "application/merge-patch+json"

// Preferences are those of the client (RFC 7240).
func (r *Request) Preferences() *header.Preferences { return header.ParsePrefer(r.List("Prefer")) }

// Honored names the preferences that were honored in the answer.
func (r *Request) Honored(prefs *header.Preferences) {
	if applied := prefs.Applied(); applied != "" {
		r.Set("Preference-Applied", applied)
	}
}
