// Package operator is the operator API, /admin/v1 on the admin listener of every process. It shows and manages jobs, workers, queues,
// failures, clients, webhooks, deliveries, batches and the service. It shares package httpkit with the client API.
package operator

import (
	"context"
	_ "embed"
	"log/slog"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/app/bulk"
	"github.com/forgerun/forgerun/app/clients"
	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/app/erasures"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/app/pauses"
	"github.com/forgerun/forgerun/app/schedules"
	"github.com/forgerun/forgerun/app/testbed"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/internal/localhosts"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/repo/operator"
)

// Limits are the limits on a client's jobs, as shown in responses; 0: no limit.
type Limits struct {
	ClientRunning, ClientActive int
}

// TraceIDMark is the placeholder of the trace id in TraceURL.
const TraceIDMark = "{trace_id}"

// Config has the settings of the API.
type Config struct {
	PublicURL string // base URL of the problem types' pages
	Version   string
	Timeout   time.Duration     // time limit of a request
	Hosts     func(string) bool // allowed hosts; nil: any
	Mask      Mask              // hides values in responses
	TraceURL  string            // address of a trace, with TraceIDMark for its id; "": no links
	Limits    Limits

	MaxPayload int // maximum size of a job's params, in bytes
	Catalogue  job.Catalogue
}

// Deps are the dependencies of the API.
type Deps struct {
	Guard     operators.Guard
	Pages     http.Handler // handles all other paths of the listener
	Store     operator.Admin
	Jobs      *jobs.Service
	Clients   *clients.Service
	Webhooks  *delivery.Webhooks
	Bulk      *bulk.Service
	Schedules *schedules.Service // for its methods, the zero client id means all clients
	Erasures  *erasures.Service
	Pauses    *pauses.Service
	Testbed   *testbed.Operators // nil: not a test bed
	CursorKey query.Cursors
	Log       *slog.Logger

	Overview func(ctx context.Context, w admin.Window) (*admin.Overview, error)
	Progress func(ctx context.Context, id job.ID, attempt int) *job.Progress // progress of a running attempt; nil if unknown
	Stopped  func() job.Pauses                                               // returns the active pauses; nil if unknown
}

//go:embed openapi.yaml
var document []byte

// Document returns the API's OpenAPI document.
func Document() []byte { return document }

var bodies = decode.Operator

// API handles requests of operators, and serves the admin listener.
type API struct {
	*httpkit.Kit
	cfg   Config
	deps  Deps
	store masked
	live  *live
}

// Timeouts of connections of the admin listener.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 2 * time.Minute
	idleTimeout  = time.Minute
)

// New returns the API.
func New(cfg Config, deps Deps) *API {
	a := &API{cfg: cfg, deps: deps, store: masked{deps.Store, cfg.Mask}, live: newLive(deps.Store.Mark, deps.Log)}
	a.Kit = httpkit.New(httpkit.Config{
		PublicURL: cfg.PublicURL, DocsURL: prefix + "openapi.yaml", Hosts: cfg.Hosts, RequestTimeout: cfg.Timeout,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxStreamsPerClient: maxLive, MaxPayloadBytes: cfg.MaxPayload, TestBed: cfg.Catalogue.TestBed,
	}, httpkit.Deps{
		Callers: gate{deps.Guard}, Pages: httpkit.Pages{Handler: deps.Pages, Prefix: prefix, Known: deps.Guard.Known},
		CursorKey: deps.CursorKey, Logger: slog.New(failures{deps.Log.Handler()}),
	})
	a.Slots = httpkit.StorageSlots{} // no storage slots: operators have no limit
	a.Register(a.Routes())
	return a
}

// failures is a log handler for warnings and errors only. It drops the log lines of requests, because the audit log has all changes.
type failures struct{ slog.Handler }

func (f failures) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && f.Handler.Enabled(ctx, level)
}

type gate struct{ guard operators.Guard }

func (g gate) Admit(r *httpkit.Request) error {
	head := r.Head()
	if head.Header.Get("Sec-Fetch-Site") != "" && localhosts.FromOtherPage(head.Method, head.Host, head.Header.Get) {
		return job.Errorf(job.CodeForbidden, "A page of another site or port sent this request. Open the address directly, not from that page.")
	}
	if cookie := g.guard.Renew(head); cookie != "" {
		r.Response().Header.Add(fiber.HeaderSetCookie, cookie)
	}
	operator, refusal := g.guard.Check(head)
	if refusal == nil {
		r.Caller = job.Caller{Admin: true, Operator: operator.Name}
		return nil
	}
	if refusal.Challenge != "" {
		r.Set(fiber.HeaderWWWAuthenticate, refusal.Challenge)
	}
	code := job.CodeInvalidCredentials
	switch refusal.Status {
	case fiber.StatusForbidden:
		code = job.CodeForbidden
	case fiber.StatusTooManyRequests:
		code = job.CodeRateLimited
	case fiber.StatusServiceUnavailable:
		code = job.CodeStorageUnavailable
	}
	return &job.Error{Code: code, Detail: refusal.Detail, RetryAfter: refusal.RetryAfter}
}

// Refused does nothing: the guard has counted and logged the failure.
func (gate) Refused(*httpkit.Request, *problem.Document) {}

// Recheck allows a change even if the session has ended while the body arrived.
func (gate) Recheck(*httpkit.Request) error { return nil }
