// Package handlers is the client API over HTTP, on Fiber. Each resource has a package of its own, and package httpkit has their shared
// code. The rules about jobs are in the use cases, in the packages below app.
package handlers

import (
	"context"
	"slices"

	"github.com/forgerun/forgerun/app/bulk"
	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/app/events"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/app/schedules"
	"github.com/forgerun/forgerun/app/testbed"
	batchesapi "github.com/forgerun/forgerun/handlers/batches"
	bulkapi "github.com/forgerun/forgerun/handlers/bulk"
	clientsapi "github.com/forgerun/forgerun/handlers/clients"
	eventsapi "github.com/forgerun/forgerun/handlers/events"
	"github.com/forgerun/forgerun/handlers/httpkit"
	jobsapi "github.com/forgerun/forgerun/handlers/jobs"
	schedulesapi "github.com/forgerun/forgerun/handlers/schedules"
	"github.com/forgerun/forgerun/handlers/site"
	testbedapi "github.com/forgerun/forgerun/handlers/testbed"
	"github.com/forgerun/forgerun/handlers/views"
	webhooksapi "github.com/forgerun/forgerun/handlers/webhooks"
)

// Config has the settings of the HTTP server. A zero field means its default.
type Config = httpkit.Config

// Deps are the dependencies of the server. All are required unless noted.
type Deps struct {
	httpkit.Deps
	Jobs      *jobs.Service
	Events    *events.Hub
	Webhooks  *delivery.Webhooks
	Bulk      *bulk.Service
	Schedules *schedules.Service
	Testbed   *testbed.Bed // nil: not a test bed
	Health    func(context.Context) site.Readiness
	// Admission limits how many single jobs wait to be stored. BatchAdmission limits how many batches wait. The limits are separate because
	// storing a batch takes long and must not delay single jobs. nil means no limit.
	Admission, BatchAdmission *jobs.Backlog
	// Directory returns the public keys for signatures of deliveries as a JSON Web Key Set (RFC 7517).
	Directory func(context.Context) ([]byte, error)
}

// Server handles HTTP requests. Call New, Serve and finally Shutdown.
type Server struct {
	*httpkit.Kit
	events *eventsapi.API
}

// New returns a server.
func New(cfg Config, deps Deps) *Server {
	kit := httpkit.New(cfg, deps.Deps)
	shown := views.Views{Links: kit.Links, TimeScale: cfg.TimeScale, Retention: cfg.RetentionJobs}
	s := &Server{kit, eventsapi.New(kit, deps.Events, deps.Jobs)}
	var bed []httpkit.Route
	if deps.Testbed != nil {
		bed = testbedapi.New(kit, deps.Testbed).Routes()
	}
	kit.Register(slices.Concat(bed,
		(&clientsapi.API{Kit: kit, Clients: deps.Keys, Jobs: deps.Jobs}).Routes(),
		(&jobsapi.API{Kit: kit, Views: shown, Jobs: deps.Jobs, Admission: deps.Admission}).Routes(),
		s.events.Routes(),
		(&batchesapi.API{Kit: kit, Views: shown, Jobs: deps.Jobs, Admission: deps.BatchAdmission}).Routes(),
		(&bulkapi.API{Kit: kit, Views: shown, Bulk: deps.Bulk}).Routes(),
		(&schedulesapi.API{Kit: kit, Schedules: deps.Schedules}).Routes(),
		(&webhooksapi.API{Kit: kit, Webhooks: deps.Webhooks, Directory: deps.Directory}).Routes(),
		site.New(kit, deps.Health).Routes()))
	return s
}
