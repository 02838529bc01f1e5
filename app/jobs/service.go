// Package jobs has the use cases of a client's jobs and batches. It also limits all submissions; see Admission and Backlog.
package jobs

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/events"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// Config has the settings of a Service.
type Config struct {
	Catalogue   job.Catalogue
	MaxAttempts int // maximum attempts that a request may ask for, including the first one
	Backoff     job.Backoff
	MaxAhead    time.Duration // maximum time from now until execution_at; 0: no maximum
	Clock       app.Clock
}

// Deps are the dependencies of a Service. Admission and Hub may be nil.
type Deps struct {
	*repo.Store
	Queue     app.Queue
	Targets   func(url string) (wrong string) // returns why a URL is not allowed for deliveries, or ""
	Receivers func(client job.ID) int
	Progress  func(ctx context.Context, id job.ID, attempt int) *job.Progress // returns nil if the progress is unknown; does not wait
	Completer *batches.Completer
	Metrics   *app.Metrics
	Log       *slog.Logger

	Admission *Admission  // nil: no limits; used for operators' requests
	Hub       *events.Hub // nil: Await must not be called
}

// Service has the use cases of a client's jobs and batches. Simple reads are methods of the embedded Store.
type Service struct {
	Deps

	cfg       Config
	cursorKey atomic.Pointer[[]byte]
}

// New returns a Service.
func New(cfg Config, d Deps) *Service {
	return &Service{Deps: d, cfg: cfg}
}

// describe sets the job and the current request as attributes of a span. The current request can be the submission or, for example, a
// retry.
func describe(ctx context.Context, span trace.Span, j *job.Job, attempt int) {
	app.Describe(span, j, attempt)
	if id := telemetry.RequestOf(ctx); id != "" && span.IsRecording() {
		span.SetAttributes(telemetry.RequestID.String(id))
	}
}
