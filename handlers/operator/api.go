// Package operator is the operator API, /admin/v1 on the admin listener of every process: jobs of all clients and what
// became of them, workers, queues, failures, clients, webhooks, deliveries, batches and the service as a whole.
package operator

import (
	"context"
	_ "embed"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

// Reader reads what belongs to all clients.
type Reader interface {
	Jobs(ctx context.Context, q admin.JobQuery) (admin.JobPage, error)
	Count(ctx context.Context, q admin.JobQuery) (admin.Count, error)
	Job(ctx context.Context, id job.ID) (*admin.Job, error)
	OwnerOf(ctx context.Context, id job.ID) (job.ID, error) // whose a job is
	Workers(ctx context.Context, r admin.Range) (admin.Page[admin.Worker], error)
	Queues(ctx context.Context, r admin.Range) (admin.Bounded[admin.Queue], error)
	Failures(ctx context.Context, r admin.Range) (admin.Bounded[admin.FailureGroup], error)
	Clients(ctx context.Context, r admin.Range) (admin.Page[admin.Client], error)
	Client(ctx context.Context, id job.ID) (*admin.ClientDetail, error)
	Webhooks(ctx context.Context, r admin.Range) (admin.Page[admin.Webhook], error)
	Webhook(ctx context.Context, id job.ID) (*admin.Webhook, error)
	Deliveries(ctx context.Context, r admin.Range) (admin.Page[admin.Delivery], error)
	Delivery(ctx context.Context, id job.ID) (*admin.LoggedDelivery, error)
	Batches(ctx context.Context, r admin.Range) (admin.Page[admin.Batch], error)
	Batch(ctx context.Context, id job.ID) (*admin.Batch, error)
	BulkLeft(ctx context.Context, bulk job.ID) ([]job.BulkReason, error) // why items of a bulk operation were not changed
	Find(ctx context.Context, id job.ID) ([]admin.Found, error)          // whose id it is
	System(ctx context.Context) (*admin.System, error)
}

// ProgressReader knows how far running attempts have come; nil if that is not known.
type ProgressReader interface {
	Progress(ctx context.Context, id job.ID, attempt int) *job.Progress
}

// Limits are shown beside what clients and the service use of them; 0 for no limit.
type Limits struct {
	ClientRunning, ClientActive int
}

// TraceIDMark stands for the id in the address of a trace.
const TraceIDMark = "{trace_id}"

// Config of the API.
type Config struct {
	PublicURL string // where the pages of problem types are
	Version   string
	Timeout   time.Duration // of one request
	Mask      Mask          // hides values in what is read
	TraceURL  string        // of traces, with TraceIDMark; "": none is shown
	Limits    Limits

	MaxPayload int // bytes of the params of a job
	Catalogue  job.Catalogue
}

// Deps is what the API works with.
type Deps struct {
	Reader    Reader
	Overview  Overviewer
	Bulk      BulkOperations
	Schedules Schedules
	Progress  ProgressReader
	Jobs      Jobs
	Webhooks  Webhooks
	Clients   Clients
	Erasures  Erasures
	Pauses    Pauses
	Stopped   func() job.Pauses // in Postgres or by pausing the queue in Redis; nil: not known
	Testbed   Testbed           // nil: this is none
	Audit     Auditor
	Marker    Marker
	CursorKey query.Cursors
	Log       *slog.Logger
}

//go:embed openapi.yaml
var document []byte

// Document is the API's OpenAPI document.
func Document() []byte { return document }

// bodies are the schemas of what operators send.
var bodies = decode.NewSchemas(Document)

// API answers requests of operators.
type API struct {
	cfg   Config
	deps  Deps
	links job.Links // of problem types
	live  *live
	shown map[string]*route // see shownBy
}

// New makes the API.
func New(cfg Config, deps Deps) *API {
	deps.Reader = masked{deps.Reader, cfg.Mask}
	a := &API{cfg: cfg, deps: deps, links: job.Links{PublicURL: cfg.PublicURL}, live: newLive(deps.Marker, deps.Log)}
	a.shown = shownBy(a.routes())
	return a
}

// Handler gives the API, which serves whom the guard knows.
func (a *API) Handler(guard operators.Guard) http.Handler {
	mux := http.NewServeMux()
	byPath := map[string][]route{}
	for _, rt := range a.routes() {
		byPath[rt.path] = append(byPath[rt.path], rt)
	}
	for path, routes := range byPath {
		mux.Handle(path, a.serve(guard, routes))
	}
	mux.Handle(prefix, a.serve(guard, nil))
	return mux
}

// choose gives the route for a method. HEAD is as GET, without the body.
func choose(routes []route, method string) *route {
	if !slices.Contains(methods, method) {
		return refusing(route{}, problem.StatusError{
			Status: http.StatusNotImplemented, Cause: job.Errorf(job.CodeMethodNotAllowed, problem.UnknownMethod),
		})
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var allowed []string
	for i, rt := range routes {
		if rt.method == method {
			return &routes[i]
		}
		if allowed = append(allowed, rt.method); rt.method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	if allowed == nil {
		return refusing(route{}, job.Errorf(job.CodeRequestNotFound,
			"Nothing is at this path. All paths are described in /admin/v1/openapi.yaml."))
	}
	names := strings.Join(allowed, ", ")
	return refusing(route{path: routes[0].path, allow: names},
		job.Errorf(job.CodeMethodNotAllowed, "This resource does not have that method. It has %s.", names))
}

// methods are those of HTTP itself. No resource has others.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect,
	http.MethodOptions, http.MethodTrace,
}

func refusing(rt route, err error) *route {
	rt.handle = func(*call) (answer, error) { return answer{}, err }
	return &rt
}

// serve is the way of every request: who asks, whether the query is well formed, the answer or the problem.
func (a *API) serve(guard operators.Guard, routes []route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rt, ctx := choose(routes, r.Method), r.Context()
		if rt.stream == nil {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.cfg.Timeout)
			defer cancel()
		}
		c := &call{Request: r.WithContext(ctx), api: a, route: rt, requestID: requestID(r)}
		header := w.Header()
		header.Set("X-Request-Id", c.requestID)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		operator, refusal := guard.Check(r)
		if refusal != nil {
			refusal.Header(header)
			a.sendProblem(w, c, refused(refusal))
			return
		}
		c.operator = operator
		c.ended = func() bool {
			_, refusal := guard.Check(r)
			return refusal != nil && refusal.Status == http.StatusUnauthorized
		}
		if rt.stream != nil && r.Method == http.MethodGet {
			err := c.checkQuery()
			if err == nil {
				err = rt.stream(w, c)
			}
			if err != nil {
				a.sendProblem(w, c, err)
			}
			return
		}
		answer, err := c.answer()
		if err != nil {
			a.sendProblem(w, c, err)
			return
		}
		maps.Copy(header, answer.header)
		if answer.mime != "" {
			header.Set("Content-Type", answer.mime)
		}
		w.WriteHeader(answer.status)
		if r.Method != http.MethodHead {
			_, _ = w.Write(answer.body) // the connection is lost
		}
	})
}
