package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/clients"
	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/app/events"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/app/maintenance"
	"github.com/forgerun/forgerun/app/worker"
	"github.com/forgerun/forgerun/handlers"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/internal/work"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/monitoring"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/tasks"
)

// process is what every role is made of. Its parts are started in the order in
// which they need each other and closed in the reverse one.
type process struct {
	cfg       Config
	role      string
	lines     *monitoring.Lines // where log ends
	log       *slog.Logger
	registry  *prometheus.Registry
	tracing   trace.TracerProvider        // nil: nothing is traced
	tracer    trace.Tracer                // nil: the same
	flush     func(context.Context) error // sends the spans that wait
	metrics   *app.Metrics
	store     *repo.Store
	redis     *tasks.Redis
	queue     *tasks.Queue
	notifier  *delivery.Notifier // the queue for whoever writes events
	completer *batches.Completer

	subscribers *delivery.Subscribers

	background sync.WaitGroup
	stopLoops  context.CancelFunc
	loops      context.Context

	listener  net.Listener // of the API; nil in the other roles
	admin     *http.Server
	adminAddr string
}

// open connects a process to its stores and starts its maintenance. Nothing
// waits for the stores: they may come later.
func open(cfg Config, role string, unknown []string, stderr io.Writer) (_ *process, err error) {
	lines := monitoring.NewLines(stderr)
	defer func() {
		if err != nil {
			lines.Flush()
		}
	}()
	log, err := monitoring.NewLogger(lines, cfg.LogLevel, cfg.LogFormat)
	if err != nil {
		return nil, err
	}
	for _, name := range unknown {
		log.Warn("unknown variable is ignored; see 'forgerun config' for those that exist", "variable", name)
	}
	listener, err := listen(&cfg, role)
	if err != nil {
		return nil, err
	}
	p := &process{cfg: cfg, role: role, listener: listener, lines: lines, log: log.With("role", role), registry: monitoring.NewRegistry(version, role)}
	slog.SetDefault(p.log) // libraries, and with it package log
	if err := p.startTracing(); err != nil {
		return nil, err
	}
	p.metrics = app.NewMetrics(p.registry)
	p.store, err = repo.Open(repo.Config{
		URL: cfg.DatabaseURL, Timeout: cfg.DBTimeout, ApplicationName: "forgerun " + role,
		ResultTTL: cfg.RetentionResults, IdempotencyWindow: cfg.IdempotencyWindow,
		Retention:     repo.Retention{Jobs: cfg.RetentionJobs, Keys: cfg.RetentionKeys, Tombstones: cfg.RetentionTombstones},
		Webhooks:      repo.WebhookLimits{DisableFailures: cfg.WebhookDisableFailures, DisableAfter: cfg.WebhookDisableAfter},
		OutcomeStream: cfg.OutcomeStream != "",
		Logger:        p.log, Registry: p.registry, TracerProvider: p.tracing,
	})
	if err != nil {
		return nil, err
	}
	p.redis, err = tasks.Connect(cfg.RedisURL, tasks.Options{Logger: p.log, Registry: p.registry, Tracer: p.tracer})
	if err != nil {
		p.store.Close()
		return nil, err
	}
	p.queue = tasks.NewQueue(p.redis, tasks.QueueConfig{MaxTaskTime: 2*cfg.ExecutionLimit() + cfg.ShutdownGrace})
	p.queue.Start()
	p.loops, p.stopLoops = context.WithCancel(context.Background())
	p.subscribers = delivery.NewSubscribers(p.store, p.log)
	p.loop(p.subscribers.Run)
	p.notifier = delivery.NewNotifier(p.queue, p.subscribers)
	p.completer = batches.NewCompleter(p.store, p.notifier, p.metrics, p.log)
	p.loop(p.completer.Run)
	p.loop(p.newMaintenance().Run)
	return p, nil
}

// startTracing prepares what spans are begun with: nothing, unless they are to
// be sent somewhere.
func (p *process) startTracing() error {
	p.flush = func(context.Context) error { return nil }
	if !p.cfg.Tracing.enabled() {
		return nil
	}
	provider, flush, err := monitoring.NewTracing(context.Background(), monitoring.Tracing{
		Protocol: p.cfg.Tracing.protocol(), Role: p.role, Version: version, Log: p.log, Registry: p.registry,
	})
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	p.tracing, p.tracer, p.flush = provider, provider.Tracer(telemetry.Scope), flush
	return nil
}

// listen opens the public listener of the roles that have one, and completes
// the public URL; the roles that tell addresses without one must be given it.
func listen(cfg *Config, role string) (net.Listener, error) {
	var l net.Listener
	addr := cfg.HTTPAddr
	if role == "api" || role == "dev" {
		var err error
		if l, err = net.Listen("tcp", addr); err != nil {
			return nil, fmt.Errorf("HTTP listener: %w", err)
		}
		addr = l.Addr().String()
	}
	if cfg.PublicURL == "" {
		cfg.PublicURL = "http://" + addr
	}
	return l, nil
}

// newMaintenance makes the repairs that one of all processes does.
func (p *process) newMaintenance() *maintenance.Maintenance {
	d := maintenance.Deps{
		Store: p.store, Claims: p.store, Backlog: p.store, Queue: p.notifier, Completer: p.completer, Backoff: p.cfg.Backoff,
		Metrics: p.metrics, Tracer: p.tracer, Log: p.log,
		Relay:      maintenance.NewRelay(p.store, p.queue, p.cfg.DispatchWindow, p.metrics, p.log),
		Deliveries: delivery.NewRelay(p.store, p.queue, p.metrics, p.log),
	}
	if p.cfg.OutcomeStream != "" {
		d.Publisher = maintenance.NewPublisher(maintenance.PublisherConfig{
			Stream: p.cfg.OutcomeStream, MaxLen: int64(p.cfg.OutcomeStreamMaxLen), PublicURL: p.cfg.PublicURL,
		}, p.store, p.queue, p.metrics, p.log)
	}
	return maintenance.New(d)
}

// loop runs f until the process closes.
func (p *process) loop(f func(context.Context)) {
	p.background.Go(func() { f(p.loops) })
}

// windowWait is how long a start waits to know whether many jobs wait: the first
// submissions would be left to the relay.
const windowWait = time.Second

// closeGrace bounds each step of closing.
const closeGrace = 5 * time.Second

// close ends what open started: loops first, then what waits to be enqueued
// and written, then the connections.
func (p *process) close() {
	p.stopLoops()
	p.background.Wait()
	if err := withGrace(p.queue.Stop); err != nil {
		p.log.Warn("not everything was enqueued; the relay will", "action", "stop", errorFields(err))
	}
	p.store.Close()
	if p.admin != nil && withGrace(p.admin.Shutdown) != nil {
		_ = p.admin.Close() // whoever takes a profile or looks at the dashboards does it again
	}
	_ = p.redis.Close()
	if err := withGrace(p.flush); err != nil {
		p.log.Warn("not all traces were sent", "action", "stop", errorFields(err))
	}
	p.log.Info("stopped")
	p.lines.Flush()
}

// withGrace gives a step of closing its time: none has less because another one
// used up its own.
func withGrace(step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	return step(ctx)
}

// errorFields are the fields of an error in a log line (section 16).
func errorFields(err error) slog.Attr {
	return slog.Group("", slog.String("error_code", string(job.CodeOf(err))), slog.String("error_message", err.Error()))
}

// readyPatience bounds the checks of a process' health: who asks for it, such as
// a balancer, waits no longer than a few seconds.
const readyPatience = time.Second

// ready reports what is wrong, in words. Only those who take from the queue need
// Redis: the API accepts jobs without it.
func (p *process) ready(ctx context.Context) handlers.Readiness {
	r := handlers.Readiness{OK: true, Status: "ok", Checks: map[string]string{"postgres": "ok", "migrations": "ok", "redis": "ok"}}
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	var redis, postgres error
	var checks sync.WaitGroup
	checks.Go(func() { redis = p.queue.Ping(ctx) })
	checks.Go(func() { postgres = p.store.Ping(ctx) })
	checks.Wait()
	if redis != nil {
		r.Checks["redis"] = "unreachable"
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
	if !r.OK {
		r.Status = "unavailable"
	}
	return r
}

// Ready makes process the Health of the HTTP side.
func (p *process) Ready(ctx context.Context) handlers.Readiness { return p.ready(ctx) }

// startAdmin opens the admin listener, if there is one.
func (p *process) startAdmin() error {
	if p.cfg.AdminAddr == "" {
		return nil
	}
	l, err := net.Listen("tcp", p.cfg.AdminAddr)
	if err != nil {
		return fmt.Errorf("admin listener: %w", err)
	}
	p.adminAddr = l.Addr().String()
	pages := monitoring.Admin{
		Registry: p.registry, Log: p.log, Token: p.cfg.AdminToken, Dashboard: tasks.MonitorHandler(p.redis, monitoring.DashboardPath),
		Ready: func(ctx context.Context) (bool, any) { r := p.ready(ctx); return r.OK, r },
	}
	p.admin = &http.Server{
		Handler: pages.Handler(), ReadHeaderTimeout: closeGrace, IdleTimeout: time.Minute,
		WriteTimeout: 2 * time.Minute, // profiles take up to one
	}
	go func() {
		if err := p.admin.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			p.log.Error("admin listener failed", "action", "serve_admin", errorFields(err))
		}
	}()
	p.log.Info("admin listening", "address", p.adminAddr)
	return nil
}

// api is the HTTP side of a process.
type api struct {
	p        *process
	server   *handlers.Server
	service  *jobs.Service
	events   *events.Reader
	clients  *clients.Service
	limiter  *tasks.Limiter
	listener *tasks.Listener
	addr     string
	failed   chan error
}

// startAPI begins to serve.
func (p *process) startAPI() *api {
	a := &api{p: p, addr: p.listener.Addr().String(), failed: make(chan error, 2)}
	a.service = p.newService(a)
	a.clients = p.newClients()
	a.limiter = tasks.NewLimiter(p.redis, tasks.LimiterConfig{PerMinute: p.cfg.RateLimitPerMinute, PerDay: p.cfg.DailyQuota})
	a.limiter.Start()
	a.server = handlers.New(handlers.Config{
		PublicURL: p.cfg.PublicURL, MaxBodyBytes: p.cfg.MaxBodyBytes, MaxPayloadBytes: p.cfg.MaxPayload, RequestTimeout: p.cfg.RequestTimeout,
		TimeScale: p.cfg.TimeScale, RetentionJobs: p.cfg.RetentionJobs,
		MaxStreams: p.cfg.MaxStreams, MaxStreamsPerClient: p.cfg.MaxStreamsPerClient,
	}, handlers.Deps{
		Jobs: a.service, Reader: a.service, Batches: a.service, Events: a.events, Clients: a.clients, CursorKey: a.service.CursorKey,
		Webhooks: p.newWebhooks(a.failed), Directory: p.newDirectory(),
		Limiter: a.limiter, Admission: jobs.NewAdmission(jobs.AdmissionFloor, nil, p.registry, p.log),
		BatchAdmission: jobs.NewAdmission(jobs.BatchAdmissionFloor, nil, nil, p.log), // its metrics would have the same names
		Health:         p, Logger: p.log, Registry: p.registry, Tracer: p.tracer,
	})
	go func() {
		if err := a.server.Serve(p.listener); err != nil {
			a.failed <- fmt.Errorf("HTTP listener: %w", err)
		}
	}()
	p.log.Info("api listening", "address", a.addr, "public_url", p.cfg.PublicURL)
	return a
}

// newService makes the use cases of clients and starts the loops that they
// need.
func (p *process) newService(a *api) *jobs.Service {
	a.listener = tasks.NewListener(p.redis)
	hub := events.NewHub(p.store, a.listener, p.metrics, p.log)
	a.listener.Start(hub.Received, hub.Resumed)
	window := jobs.NewWindow(p.cfg.DispatchWindow, p.store, p.metrics, p.log)
	counting, cancel := context.WithTimeout(p.loops, windowWait)
	defer cancel()
	_ = window.Count(counting) // Run logs what is wrong
	capacity := jobs.NewCapacity(p.cfg.MaxActiveJobs, p.cfg.MaxQueueSize, p.store, p.log)
	service := jobs.New(jobs.Config{
		Catalogue: job.Catalogue{
			Types: p.cfg.JobTypes, Kinds: p.cfg.WorkKinds, FailProbability: p.cfg.FailProbability, MaxRuntime: p.cfg.MaxRuntime,
		},
		MaxAttempts: 1 + p.cfg.MaxRetries, Backoff: p.cfg.Backoff,
	}, jobs.Deps{
		Jobs: p.store, Reader: p.store, Batches: p.store, Queue: p.notifier, Progress: p.queue,
		Targets: p.guard(), Capacity: capacity, Window: window, Hub: hub, Completer: p.completer, Metrics: p.metrics, Log: p.log,
	})
	p.loop(hub.Run)
	p.loop(capacity.Run)
	p.loop(window.Run)
	a.events = events.NewReader(p.store, hub)
	return service
}

// newClients makes the use cases of clients and their keys.
func (p *process) newClients() *clients.Service {
	clients := clients.New(clients.Config{
		AdminToken: p.cfg.AdminToken, OpenRegistration: p.cfg.OpenRegistration, RegistrationWindow: registrationWindow,
		TTL: p.cfg.APIKeyTTL, Overlap: p.cfg.APIKeyOverlap,
	}, p.store, nil, p.log)
	p.loop(clients.WatchKeys)
	return clients
}

// registrationWindow is how long after a client's creation its first key may
// be made without credentials.
const registrationWindow = 10 * time.Minute

// stop lets requests in flight finish.
func (a *api) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), a.p.cfg.RequestTimeout+closeGrace)
	defer cancel()
	if err := a.server.Shutdown(ctx); err != nil {
		a.p.log.Warn("requests were cut off", "action", "stop", errorFields(err))
	}
	a.listener.Stop()
	if err := a.limiter.Stop(ctx); err != nil {
		a.p.log.Warn("unused rate limit tokens were not returned", "action", "stop", errorFields(err))
	}
}

// worker is the executing side of a process.
type workerRole struct {
	p        *process
	worker   *worker.Worker
	fetching *tasks.JobConsumer
	leases   *repo.Leases
	lease    context.CancelFunc
	beating  sync.WaitGroup
}

// startWorker takes up a lease and begins to fetch.
func (p *process) startWorker() (*workerRole, error) {
	w := &workerRole{p: p, leases: p.store.NewLeases()}
	limit := p.cfg.ExecutionLimit()
	w.worker = worker.New(worker.Config{
		Name: workerName(), Concurrency: p.cfg.WorkerConcurrency, Lease: p.cfg.LeaseTimeout, Heartbeat: p.cfg.HeartbeatInterval,
		Limit: limit, Backoff: p.cfg.Backoff,
	}, p.store, w.leases, p.notifier, p.completer, work.New(work.Config{TimeScale: p.cfg.TimeScale, Limit: limit}), p.metrics, p.log)
	w.fetching = tasks.NewJobConsumer(p.redis, tasks.WorkersConfig{
		Concurrency: p.cfg.WorkerConcurrency, ShutdownTimeout: closeGrace,
	}, w.worker.Handle, w.worker.Canceled)
	ctx, cancel := context.WithCancel(context.Background())
	w.lease = cancel
	w.beating.Go(func() { w.worker.Run(ctx) })
	if err := w.fetching.Start(ctx); err != nil {
		w.stop()
		return nil, err
	}
	return w, nil
}

func workerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// stop stops fetching, gives running jobs their grace, and gives the lease up.
func (w *workerRole) stop() {
	w.fetching.Quiet()
	ctx, cancel := context.WithTimeout(context.Background(), w.p.cfg.ShutdownGrace)
	defer cancel()
	w.worker.Drain(ctx)
	w.fetching.Stop()
	w.lease()
	w.beating.Wait()
	w.leases.Close()
}
