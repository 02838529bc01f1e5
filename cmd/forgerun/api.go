package main

import (
	"context"
	"fmt"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/bulk"
	"github.com/forgerun/forgerun/app/clients"
	"github.com/forgerun/forgerun/app/events"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/app/schedules"
	"github.com/forgerun/forgerun/app/testbed"
	"github.com/forgerun/forgerun/handlers"
	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/lifecycle"
	"github.com/forgerun/forgerun/internal/localhosts"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/ratelimit"
)

type api struct {
	p       *process
	clients *clients.Service
	addr    string
	failed  chan error
}

// Without Redis, each of n api processes allows 1/n of the rate limit. At its start, a process waits at most countingWait to learn n.
const countingWait = time.Second

func (p *process) startAPI(ctx context.Context) (*api, error) {
	a := &api{p: p, addr: localhosts.Reachable(p.listener.Addr()), failed: make(chan error, 2)}
	a.clients = clients.New(p.cfg.clients(), p.store, p.movable(), p.log)
	notifications := notify.NewEvents(p.redis)
	hub := events.NewHub(p.store, notifications, p.metrics, p.log)
	limiter := ratelimit.New(p.redis, ratelimit.Config{
		PerMinute: p.cfg.RateLimitPerMinute, PerDay: p.cfg.DailyQuota, Processes: p.capacity.Processes,
	})
	server := handlers.New(p.serverConfig(), p.serverDeps(a, hub, limiter))

	counting, cancel := context.WithTimeout(ctx, countingWait)
	defer cancel()
	_ = p.capacity.Renew(counting) // capacity.Run renews again and logs errors
	telemetry.In(p.registry).GaugeFunc("api_processes", "Number of API processes that this process knows of.", func() float64 {
		return float64(p.capacity.Processes())
	})
	err := p.parts.Start(ctx,
		lifecycle.Part{Name: "notifications", Start: begin(func() { notifications.Start(hub.Received, hub.Resumed) }), Stop: notifications.Stop},
		p.loop("hub", hub.Run),
		p.loop("capacity", p.capacity.Run),
		p.loop("keys", a.clients.WatchKeys),
		lifecycle.Part{Name: "rate limit", Start: begin(limiter.Start), Stop: limiter.Stop, Grace: closeGrace},
		lifecycle.Part{
			Name: "api", Start: begin(func() { go a.serve(server) }), Stop: server.Shutdown, Grace: p.cfg.requestTimeout() + closeGrace,
		},
	)
	if err == nil {
		p.log.Info("api listening", "address", p.listener.Addr().String(), "public_url", p.cfg.PublicURL)
	}
	return a, err
}

func (a *api) serve(server *handlers.Server) {
	if err := server.Serve(a.p.limited(a.p.listener, "api", conn.ForPublic())); err != nil {
		a.failed <- fmt.Errorf("HTTP listener: %w", err)
	}
}

func (c Config) clients() clients.Config {
	return clients.Config{Operators: c.Operators(), OpenRegistration: c.OpenRegistration, TTL: c.APIKeyTTL}
}

func (c Config) jobs(clock app.Clock) jobs.Config {
	return jobs.Config{
		Catalogue: c.catalogue(), MaxAttempts: 1 + c.MaxRetries, Backoff: c.Backoff, MaxAhead: c.MaxScheduleAhead, Clock: clock,
	}
}

// clientMaxQueued returns the limit of a client's queued jobs. It is the same fraction of MaxQueueSize as ClientMaxActive is of
// MaxActiveJobs.
func (c Config) clientMaxQueued() int {
	return max(1, int(float64(c.MaxQueueSize)*float64(c.ClientMaxActive)/float64(c.MaxActiveJobs)))
}

func (c Config) limits() jobs.Limits {
	return jobs.Limits{
		Active: c.MaxActiveJobs, Queued: c.MaxQueueSize, ClientActive: c.ClientMaxActive, ClientQueued: c.clientMaxQueued(),
		ClientRate: c.RateLimitPerMinute,
	}
}

func (p *process) serverConfig() handlers.Config {
	return handlers.Config{
		PublicURL: p.cfg.PublicURL, TrustedProxies: p.cfg.Network.TrustedProxies, RequestTimeout: p.cfg.requestTimeout(),
		Hosts: p.hosts(p.cfg.HTTPAddr, true), Origins: p.cfg.Network.Origins,
		TestBed: p.cfg.TestBed, StorageConnections: p.store.MaxConnections(),
		TimeScale: p.cfg.TimeScale, RetentionJobs: p.cfg.RetentionJobs,
	}
}

func (p *process) movable() func() time.Time {
	if p.clock == nil {
		return time.Now
	}
	return p.store.Now
}

func (p *process) newSchedules(service *jobs.Service) *schedules.Service {
	return schedules.New(p.store, service, p.cfg.ClientMaxSchedules, p.log)
}

func (p *process) serverDeps(a *api, hub *events.Hub, limiter *ratelimit.Limiter) handlers.Deps {
	service := p.newJobs(p.admission(allPauses{p}.Now), hub)
	deps := handlers.Deps{
		Deps: httpkit.Deps{
			Keys: a.clients, Clock: p.movable(), Real: p.clock.Real, Named: a.clients.Named, CursorKey: service.CursorKey,
			Idempotency: &app.Idempotency{Store: p.store, Hits: p.metrics.IdempotencyHits}, Limiter: limiter,
			Registrations: authlimit.NewRegistrations(authlimit.RegistrationRate, time.Now), Attempts: p.attempts,
			Logger: p.log, Registry: p.registry, Tracer: p.tracer,
		},
		Bulk: bulk.New(p.store, p.log), Schedules: p.newSchedules(service),
		Jobs: service, Events: hub, Webhooks: p.newWebhooks(a.failed), Directory: p.newDirectory(), Health: p.Ready,
		Admission: jobs.NewBacklog(jobs.BacklogFloor, time.Now, p.registry, p.log),
		// BatchAdmission has no metrics: they would have the same names as the metrics of Admission.
		BatchAdmission: jobs.NewBacklog(jobs.BatchBacklogFloor, time.Now, nil, p.log),
	}
	if p.cfg.TestBed {
		deps.Testbed = &testbed.Bed{
			Service: p.testbed, Clock: &testbed.Clock{Store: p.store, Schedule: p.maintenance.Schedule},
			Jobs: service, Tasks: p.queue, Limit: p.cfg.MaxRuntime,
		}
	}
	return deps
}
