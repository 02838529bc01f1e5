package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/console"
	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/site"
	"github.com/forgerun/forgerun/internal/lifecycle"
	"github.com/forgerun/forgerun/internal/localhosts"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/monitoring"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// Ready checks for at most readyPatience, because load balancers wait only a few seconds.
const readyPatience = time.Second

// Ready reports whether the process is ready, and lists its problems. Workers and deliverers need Redis. The API does not: it accepts
// jobs without Redis.
func (p *process) Ready(ctx context.Context) site.Readiness {
	r := site.Readiness{OK: true, Status: "ok", Checks: map[string]string{"postgres": "ok", "migrations": "ok", "redis": "ok"}}
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	var redis, postgres error
	var checks sync.WaitGroup
	checks.Go(func() { redis = p.queue.Ready(ctx, p.queuesOf()...) })
	checks.Go(func() { postgres = p.store.Ready(ctx) })
	checks.Wait()
	if redis != nil {
		r.Checks["redis"] = "unreachable"
		if errors.Is(redis, queue.ErrRefused) {
			r.Checks["redis"] = "refuses writes"
		}
		r.Status, r.OK = "degraded", p.role == "api" || p.role == "dev"
	}
	if err := postgres; err != nil {
		r.OK = false
		wrong := "unreachable"
		if known := (*job.Error)(nil); errors.As(err, &known) {
			wrong = known.Detail
		}
		if job.CodeOf(err) == job.CodeConfigInvalid {
			r.Checks["migrations"] = wrong
		} else {
			r.Checks["postgres"], r.Checks["migrations"] = wrong, "unknown"
		}
	}
	condition := p.queue.Condition()
	for _, name := range condition.Paused {
		if slices.Contains(p.queuesOf(), name) {
			r.Status = "degraded"
			r.Checks["queue "+name] = "paused in Redis: no tasks are taken from it; redis-cli DEL 'asynq:{" + name + "}:paused' resumes it"
		}
	}
	if condition.Evicts != "" {
		r.Status = "degraded"
		r.Checks["redis memory"] = "a full Redis drops tasks (maxmemory-policy " + condition.Evicts +
			"); redis-cli CONFIG SET maxmemory-policy noeviction prevents this"
	}
	if w := p.worker.Load(); w != nil {
		if kinds := w.Refused(); len(kinds) > 0 {
			r.Status = "degraded"
			r.Checks["work"] = fmt.Sprintf("takes no jobs of %v: the machine lacks resources that they need", kinds)
		}
	}
	if !r.OK {
		r.Status = "unavailable"
	}
	return r
}

// allPauses returns the operators' pauses. A pause of the jobs queue in Redis (by asynq's tools) counts as a pause of all jobs.
type allPauses struct{ *process }

func (s allPauses) Now() job.Pauses {
	now := s.pauses.Now()
	if slices.Contains(s.queue.Condition().Paused, redisconn.Jobs) {
		now = append(slices.Clip(now), job.Pause{Scope: job.PauseAll, Mode: job.ModePause})
	}
	return now
}

// queuesOf returns the queues that the process needs. The process checks each of them, because in a Redis Cluster they can be on
// different servers.
func (p *process) queuesOf() []string {
	switch p.role {
	case "worker":
		return []string{redisconn.Jobs}
	case "deliverer":
		return []string{redisconn.Webhooks}
	}
	return redisconn.Queues
}

// adminPart returns the part that serves the admin listener. Without an admin address, the part is empty.
func (p *process) adminPart() lifecycle.Part {
	if p.cfg.AdminAddr == "" {
		return lifecycle.Part{}
	}
	guard := operators.Guard{
		Tokens: p.cfg.Operators(), Ended: p.store.Admin(), Log: p.log, Attempts: p.attempts, Source: p.source,
	}
	server := p.newOperatorAPI(guard, monitoring.Admin{
		Registry: p.registry, Log: p.log, Guard: guard,
		Dashboard: queue.DashboardHandler(p.redis, monitoring.DashboardPath),
		Ready:     func(ctx context.Context) (bool, any) { r := p.Ready(ctx); return r.OK, r },
		Console:   console.Handler(),
		Docs:      docs.OperatorPage("admin/v1/openapi.yaml"),
		Hosts:     p.hosts(p.cfg.AdminAddr, !p.cfg.Operators().None()),
	}.Handler())
	start := func(context.Context) error {
		bound, err := net.Listen("tcp", p.cfg.AdminAddr)
		if err != nil && p.cfg.AdminAddrUnset && p.role != "api" {
			p.log.Warn("the default admin address is in use, so a free port is used; set FORGERUN_ADMIN_ADDR to choose one", "action", "serve_admin",
				"address", p.cfg.AdminAddr, errorFields(err))
			bound, err = net.Listen("tcp", "127.0.0.1:0")
		}
		if err != nil {
			return explainTaken("FORGERUN_ADMIN_ADDR", p.cfg.AdminAddr, fmt.Errorf("admin listener: %w", err))
		}
		l := p.limited(bound, "admin", conn.ForAdmin())
		p.adminAddr = localhosts.Reachable(l.Addr())
		go func() {
			if err := server.Serve(l); err != nil {
				p.log.Error("admin listener failed", "action", "serve_admin", errorFields(err))
			}
		}()
		p.log.Info("admin listening", "address", l.Addr().String())
		return nil
	}
	stop := func(ctx context.Context) error {
		_ = server.Shutdown(ctx) // ignore the error: operators can repeat requests that were cut off
		return nil
	}
	return lifecycle.Part{Name: "admin listener", Start: start, Stop: stop, Grace: closeGrace}
}

// source returns the address, or the IPv6 network, by which rate limits count the client's requests.
func (p *process) source(r *http.Request) netip.Addr {
	addr, _ := netip.ParseAddrPort(r.RemoteAddr)
	return conn.Source(p.cfg.Network.TrustedProxies.Client(addr.Addr(), r.Header.Values("X-Forwarded-For")...))
}

// hosts returns a function that checks Host headers. It returns nil if all hosts are allowed. The check prevents DNS rebinding. Only
// listeners without a token, and dev's listeners on loopback, need the check.
func (p *process) hosts(addr string, guarded bool) func(string) bool {
	if p.role == "dev" && onLoopback(addr) || !guarded {
		return localhosts.Only(p.cfg.PublicURL)
	}
	return nil
}
