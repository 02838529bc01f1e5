package handlers

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/job"
)

// call is one request on its way through its route.
type call struct {
	*fiber.Ctx
	base    context.Context // with the request's span; ends with the server
	ctx     context.Context // base, until the request timeout
	stop    context.CancelFunc
	span    trace.Span // does nothing if the request is not traced
	route   *route
	id      job.ID // of the request
	idText  string // id as it is written
	start   time.Time
	waited  time.Duration // at the client's own wish
	caller  job.Caller
	claimed job.Caller // of a key that was refused
	jobID   job.ID     // zero where no job is concerned
	batchID job.ID     // zero where no batch is concerned
	webhook job.ID     // zero where no webhook is concerned
	client  job.ID     // whose keys changed, zero elsewhere
	keyID   string     // the key that changed, "" elsewhere
	crowded bool       // refused because too many submissions wait
	failed  *problem   // nil unless the answer is a problem
}

// nobody is the Max UUID, which is never issued (RFC 9562, section 5.10). A
// malformed id in a path becomes it, so that it takes the very way of an
// unknown one and the two cannot be told apart.
var nobody = job.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// known reports whether an id is one that can exist.
func known(id job.ID) bool { return !id.IsZero() && id != nobody }

// appendSubjects adds the ids of what the request is about, for the log.
func (r *call) appendSubjects(attrs []slog.Attr) []slog.Attr {
	for _, s := range []struct {
		name string
		id   job.ID
	}{{"job_id", r.jobID}, {"batch_id", r.batchID}, {"webhook_id", r.webhook}} {
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
		return nobody
	}
	return id
}

// pathJob gives the job's id in the path, and notes it for the log.
func (r *call) pathJob() job.ID {
	r.jobID = r.pathID()
	return r.jobID
}

// pathBatch gives the batch's id in the path, and notes it for the log.
func (r *call) pathBatch() job.ID {
	r.batchID = r.pathID()
	return r.batchID
}

// pathWebhook gives the webhook's id in the path, and notes it for the log.
func (r *call) pathWebhook() job.ID {
	r.webhook = r.pathID()
	return r.webhook
}

// checkAccept refuses a request that accepts none of the media types.
func (r *call) checkAccept(produced ...string) error {
	accept := r.list(fiber.HeaderAccept)
	for _, media := range produced {
		if accepts(accept, media) {
			return nil
		}
	}
	if len(produced) == 0 {
		return nil
	}
	return job.Errorf(job.CodeNotAcceptable, "This resource is given as %s; the Accept header excludes that.", strings.Join(produced, " or "))
}

// list gives a header that is a comma-separated list, all its lines joined.
func (r *call) list(name string) string {
	lines := r.Request().Header.PeekAll(name)
	switch len(lines) {
	case 0:
		return ""
	case 1:
		return string(lines[0])
	}
	values := make([]string, len(lines))
	for i, line := range lines {
		values[i] = string(line)
	}
	return strings.Join(values, ",")
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
