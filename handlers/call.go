package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/internal/fair"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict/fault"
)

// call is one request on its way through its route.
type call struct {
	*fiber.Ctx
	server     *Server
	incoming   incoming
	slot       *fair.Semaphore[job.ID] // that it holds a slot of, nil if it holds none
	base       context.Context         // with the request's span; ends with the server
	ctx        context.Context         // base, until the request timeout
	stop       context.CancelFunc
	span       trace.Span // does nothing if the request is not traced
	route      *route
	idText     string // of the request
	start      time.Time
	waited     time.Duration // at the client's own wish
	caller     job.Caller
	claimed    job.Caller        // of a key that was refused
	jobID      job.ID            // zero where no job is concerned
	batchID    job.ID            // zero where no batch is concerned
	webhook    job.ID            // zero where no webhook is concerned
	bulkID     job.ID            // zero where no bulk operation is concerned
	scheduleID job.ID            // zero where no schedule is concerned
	client     job.ID            // whose keys changed, zero elsewhere
	keyID      string            // the key that changed, "" elsewhere
	refused    bool              // for load: too many submissions wait
	noSlot     bool              // refused because its client has used up its slots
	slowed     bool              // for earlier failures to authenticate
	unlogged   bool              // one of too many failures to authenticate
	warnings   []job.Violation   // about a submission, for its answer
	failed     *problem.Document // nil unless the answer is a problem

	session   testbed.Scope // that its header names, once that has been asked for
	fault     *fault.Effect // that the client of a test bed wants, nil for none
	slowFault func()        // gives up the slot that a slow answer takes, nil without one
	streams   bool          // the connection belongs to an event stream
	hungUp    bool          // the client did, while it was kept waiting
	bodySum   string        // of the body, for the record of a test bed
	bodyKey   string        // that the body names, instead of a header

	bodyCorrelation string // likewise

	made          job.ID // what the request made, for its idempotency key
	withoutSecret []byte // the body to keep for repetitions, nil for that of the response
}

// unknownID is the Max UUID, which is never issued (RFC 9562, section 5.10). A
// malformed id in a path becomes it, so that it takes the very way of an
// unknown one and the two look the same.
var unknownID = job.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// known reports whether an id is one that can exist.
func known(id job.ID) bool { return !id.IsZero() && id != unknownID }

// appendSubjects adds the ids of what the request is about, for the log.
func (r *call) appendSubjects(attrs []slog.Attr) []slog.Attr {
	for _, s := range []struct {
		name string
		id   job.ID
	}{{"job_id", r.jobID}, {"batch_id", r.batchID}, {"webhook_id", r.webhook}, {"bulk_id", r.bulkID},
		{"schedule_id", r.scheduleID}} {
		if known(s.id) {
			attrs = append(attrs, slog.String(s.name, s.id.String()))
		}
	}
	return attrs
}

// pathID gives the id in the path.
func (r *call) pathID() job.ID { return r.idOf("id") }

// idOf gives the id that is the named parameter of the path.
func (r *call) idOf(name string) job.ID {
	id, err := job.ParseID(r.Params(name))
	if err != nil {
		return unknownID
	}
	return id
}

// noteSubject notes which job, batch, webhook, bulk operation or schedule the path names.
func (r *call) noteSubject() {
	switch path := r.route.path; {
	case strings.HasPrefix(path, "/v1/jobs/:id"):
		r.jobID = r.pathID()
	case strings.HasPrefix(path, "/v1/batches/:id"):
		r.batchID = r.pathID()
	case strings.HasPrefix(path, "/v1/webhooks/:id"):
		r.webhook = r.pathID()
	case strings.HasPrefix(path, "/v1/bulk/:id"):
		r.bulkID = r.pathID()
	case strings.HasPrefix(path, "/v1/schedules/:id"):
		r.scheduleID = r.pathID()
	}
}

// checkAccept refuses a request that accepts none of the media types. One that changes something is answered in JSON, if with a body,
// and must not say that it wants none; read looks at the others once their media type is known.
func (r *call) checkAccept(produced ...string) error {
	accept := r.list(fiber.HeaderAccept)
	if r.route.method != get && header.Excludes(accept, fiber.MIMEApplicationJSON) {
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
	return job.Errorf(job.CodeNotAcceptable, "This resource is given as %s; the Accept header excludes that. Send Accept: %s, or none.",
		strings.Join(produced, " or "), produced[0])
}

// list gives a header that is a comma-separated list, all its lines joined.
func (r *call) list(name string) string { return strings.Join(r.lines(name), ",") }

// lines gives the lines of a header.
func (r *call) lines(name string) (values []string) {
	for _, line := range r.Request().Header.PeekAll(name) {
		values = append(values, string(line))
	}
	return values
}

// json answers with v as application/json.
func (r *call) json(status int, v any) error {
	return r.send(status, fiber.MIMEApplicationJSON, v)
}

// send answers with v as JSON of the given media type.
func (r *call) send(status int, media string, v any) error {
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

// respond renders what a use case gives, and passes its error on.
func respond[T, V any](r *call, status int, view func(T) V) func(T, error) error {
	return func(v T, err error) error {
		if err != nil {
			return err
		}
		return r.json(status, view(v))
	}
}

// answering answers with what a use case gives of the client's own that the path names.
func answering[T, V any](do func(ctx context.Context, client, id job.ID) (T, error), view func(T) V) func(*call) error {
	return func(r *call) error { return respond(r, fiber.StatusOK, view)(do(r.ctx, r.caller.ClientID, r.pathID())) }
}

// removing removes something of the client's own that the path names, and answers with nothing.
func removing(do func(ctx context.Context, client, id job.ID) error) func(*call) error {
	return func(r *call) error {
		r.Status(fiber.StatusNoContent)
		return do(r.ctx, r.caller.ClientID, r.pathID())
	}
}

// as shows a value as it is.
func as[T any](v T) T { return v }

// wantsDocument reports whether the client prefers the draft's view to that of
// the API.
func (r *call) wantsDocument() bool {
	return header.Prefers(r.list(fiber.HeaderAccept), mimeProblem, fiber.MIMEApplicationJSON)
}

// mediaOf gives the media type of an outcome document (draft section 11.7).
func mediaOf(d job.Document) string {
	if d.IsProblem() {
		return mimeProblem
	}
	return fiber.MIMEApplicationJSON
}

// inLanguage names the language of the texts in an answer.
func (r *call) inLanguage(language string) {
	r.Set(fiber.HeaderContentLanguage, cmp.Or(language, job.Languages[0]))
}

// relate adds a link from the answer's resource to another one, by its path. rel is a
// registered relation or a URI.
func (r *call) relate(path, rel string) {
	r.Append(fiber.HeaderLink, "<"+r.server.links.At(path)+`>; rel="`+rel+`"`)
}

// The query parameters of lists.
var (
	correlationQuery = query.Parameter{
		Name: "correlation_id", Valid: decode.ValidCorrelation, Want: strings.TrimSuffix(decode.CorrelationForm, "."),
	}
	createdQuery = []query.Parameter{query.Time("created_after"), query.Time("created_before")}
	listQuery    = slices.Concat(query.Page, []query.Parameter{
		query.Choice("state", job.States), query.Choice("type", job.Types), query.Choice("work_kind", job.AllKinds()),
		query.ID("batch_id", "a batch"), query.ID("schedule_id", "a schedule"), correlationQuery,
	}, createdQuery)
	deliveryQuery = slices.Concat(query.Page, []query.Parameter{
		query.Choice("state", deliveryStates), query.Choice("event_name", job.SubscribableEvents),
	}, createdQuery)
)

// reportQuery chooses a report.
var reportQuery = []query.Parameter{query.Number("attempt", "the number of an attempt, a whole number from 1")}

var deliveryStates = []job.DeliveryState{job.DeliveryPending, job.DeliveryDelivered, job.DeliveryFailed}

// checkQuery refuses a query that the route does not have.
func (r *call) checkQuery() error {
	if len(r.Request().URI().QueryString()) == 0 {
		return nil
	}
	if err := query.Check(r.route.query, textual(r.Request().URI().QueryArgs().All())); err != nil {
		return err
	}
	if _, err := url.QueryUnescape(string(r.Request().URI().QueryString())); err != nil {
		return job.Malformed("The query has a % that encodes nothing.")
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

// queryLimit gives the size of the page that is asked for.
func (r *call) queryLimit(otherwise int) int { return query.Limit(r.Query("limit"), otherwise) }

// filters names the filters of a list, for the scope of its cursors.
func (r *call) filters() string {
	return query.Scope(r.route.query, func(name string) string { return r.Query(name) })
}

// paged answers with the page of a list that the query asks for, and with the cursor of the next one; read reads what comes after an id.
func paged[T, V any](r *call, scope string, show func(T) V, read func(after job.ID, limit int) ([]T, job.ID, error)) error {
	cursors, client, limit := r.server.deps.CursorKey, r.caller.ClientID, r.queryLimit(query.DefaultLimit)
	after, err := cursors.OpenID(r.ctx, client, scope, r.Query("cursor"))
	if err != nil {
		return err
	}
	entries, next, err := read(after, limit)
	if err != nil {
		return err
	}
	list := query.ListOf(entries, limit, show)
	if !next.IsZero() {
		cursor, err := cursors.Seal(r.ctx, client, scope, next[:])
		if err != nil {
			return err
		}
		list.Page.NextCursor = &cursor
	}
	return r.json(fiber.StatusOK, list)
}
