// Package handlers is the client API over HTTP, on Fiber: it joins the resources, each a package of its own, with what they have in common,
// package httpkit. No rule about jobs is decided here.
package handlers

import (
	"context"
	"slices"

	"github.com/forgerun/forgerun/handlers/batches"
	"github.com/forgerun/forgerun/handlers/bulk"
	"github.com/forgerun/forgerun/handlers/clients"
	"github.com/forgerun/forgerun/handlers/events"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/jobs"
	"github.com/forgerun/forgerun/handlers/schedules"
	"github.com/forgerun/forgerun/handlers/site"
	"github.com/forgerun/forgerun/handlers/testbed"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/handlers/webhooks"
	"github.com/forgerun/forgerun/job"
)

// Config holds the limits of the HTTP side. A zero field means its default.
type Config = httpkit.Config

// Deps is what the server works with. All are required unless they say otherwise. Keys are those of Clients.
type Deps struct {
	httpkit.Deps
	Jobs interface {
		jobs.Jobs
		// CancelClient stops some of a client's unfinished jobs, and tells whether there may be more.
		CancelClient(ctx context.Context, client job.ID) (canceled int, more bool, err error)
	}
	Reader     jobs.Reader
	Batches    batches.Batches
	Events     events.Events
	Webhooks   webhooks.Webhooks
	Proofs     webhooks.Proofs
	Deliveries webhooks.Deliveries
	Clients    clients.Clients
	Bulk       bulk.Bulk
	Schedules  schedules.Schedules
	Testbed    testbed.Testbed // nil: this is none
	Health     site.Health
	// Admission of jobs, and of batches: one of these is much work, and must not displace the others. Nil: all are admitted.
	Admission, BatchAdmission httpkit.Admission
	// Directory gives the public keys that deliveries are signed with, as a JSON Web Key Set (RFC 7517).
	Directory func(context.Context) ([]byte, error)
}

// Server answers HTTP requests. It is made by New, runs in Serve and ends with Shutdown.
type Server struct {
	*httpkit.Kit
	events *events.API
}

// New builds a server; nothing runs before Serve.
func New(cfg Config, deps Deps) *Server {
	deps.Keys = deps.Clients
	kit := httpkit.New(cfg, deps.Deps)
	shown := views.Views{Links: kit.Links, TimeScale: cfg.TimeScale, Retention: cfg.RetentionJobs}
	s := &Server{kit, events.New(kit, deps.Events, deps.Reader.Job)}
	var bed []httpkit.Route
	if deps.Testbed != nil {
		bed = testbed.New(kit, deps.Testbed).Routes()
	}
	kit.Register(slices.Concat(bed,
		(&clients.API{Kit: kit, Clients: deps.Clients, CancelJobs: deps.Jobs.CancelClient}).Routes(),
		(&jobs.API{Kit: kit, Views: shown, Jobs: deps.Jobs, Reader: deps.Reader, Admission: deps.Admission}).Routes(),
		s.events.Routes(),
		(&batches.API{
			Kit: kit, Views: shown, Batches: deps.Batches, Jobs: deps.Reader, Admission: deps.BatchAdmission, Deliveries: deps.Jobs.Deliveries,
		}).Routes(),
		(&bulk.API{Kit: kit, Views: shown, Bulk: deps.Bulk}).Routes(),
		(&schedules.API{Kit: kit, Schedules: deps.Schedules}).Routes(),
		(&webhooks.API{
			Kit: kit, Webhooks: deps.Webhooks, Proofs: deps.Proofs, Deliveries: deps.Deliveries, Directory: deps.Directory,
		}).Routes(),
		site.New(kit, deps.Health).Routes()))
	return s
}
