package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/bulk"
	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/app/erasures"
	"github.com/forgerun/forgerun/app/events"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/app/maintenance"
	"github.com/forgerun/forgerun/app/pauses"
	"github.com/forgerun/forgerun/app/schedules"
	"github.com/forgerun/forgerun/app/testbed"
	"github.com/forgerun/forgerun/app/worker"
	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/internal/lifecycle"
	"github.com/forgerun/forgerun/internal/localhosts"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/monitoring"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/ratelimit"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/verdict/wire"
)

// process has what every role needs. Its parts stop in the reverse order of their start.
type process struct {
	cfg       Config
	role      string
	lines     *monitoring.Lines // where `log` writes its lines
	log       *slog.Logger
	registry  *prometheus.Registry
	tracing   trace.TracerProvider // nil: tracing is off
	tracer    trace.Tracer         // nil: tracing is off
	metrics   *app.Metrics
	store     *repo.Store
	redis     *redisconn.Redis
	queue     *queue.Queue
	notifier  *delivery.Notifier // enqueues webhook deliveries after events are stored
	completer *batches.Completer
	capacity  *jobs.Capacity // limits active and queued jobs; only api and dev renew their lease on these limits
	storage   *ratelimit.Limiter

	connections *conn.Metrics
	attempts    *authlimit.Limiter

	subscribers *delivery.Subscribers
	pauses      *pauses.Watch
	worker      atomic.Pointer[worker.Worker] // nil until a worker starts

	maintenance *maintenance.Maintenance
	due         *clock.Clock     // Postgres' clock, by which tasks become due; a test bed can move it
	clock       *clock.Clock     // the same clock as `due` in a test bed; nil elsewhere
	testbed     *testbed.Service // nil without a test bed

	parts     lifecycle.Group
	listener  net.Listener // listener of the API; nil in other roles
	adminAddr string
}

const closeGrace = 5 * time.Second

// open creates a process and starts the parts that all roles share: connections, the admin listener and the maintenance. Postgres and
// Redis need not be available yet.
func open(cfg Config, role string, unknown []string, stderr io.Writer) (_ *process, err error) {
	p := &process{role: role, registry: monitoring.NewRegistry(version, role)}
	p.lines = monitoring.NewLines(stderr, p.registry)
	defer func() {
		if err != nil {
			p.parts.Stop()
			p.lines.Flush()
		}
	}()
	log, err := cfg.newLogger(p.lines)
	if err != nil {
		return nil, err
	}
	for _, name := range unknown {
		log.Warn("ignoring an unknown environment variable; 'forgerun config --all' lists all known ones", "variable", name)
	}
	if p.listener, err = listen(&cfg, role); err != nil {
		return nil, err
	}
	p.cfg, p.log = cfg, log.With("role", role)
	p.parts.Log = p.log
	p.lines.OnDropped(func(lines int) {
		p.log.Warn("log lines were dropped: standard error was not read in time", "action", "log", "lines", lines)
	})
	slog.SetDefault(p.log) // for libraries that log
	if err := p.connect(); err != nil {
		return nil, err
	}
	if p.cfg.TestBed {
		p.testbed = testbed.New(p.store, p.cfg.OutcomeStream != "")
	}
	p.subscribers = delivery.NewSubscribers(p.store, p.log)
	p.notifier = delivery.NewNotifier(p.queue, p.subscribers, p.store, p.log)
	p.completer = batches.NewCompleter(p.store, p.notifier, p.metrics, p.log)
	p.capacity = jobs.NewCapacity(p.cfg.limits(), p.store, p.log)
	p.storage = ratelimit.New(p.redis, ratelimit.Config{
		Name: "storage", PerDay: p.cfg.ClientDailyStorage << 20 / job.WeightUnit, Processes: p.capacity.Processes,
	})
	p.pauses = pauses.NewWatch(p.store)
	p.maintenance = p.newMaintenance()
	parts := []lifecycle.Part{p.adminPart(), lifecycle.Close("store", p.store.Close)}
	if p.clock != nil {
		parts = append(parts, p.loop("clock of the test bed", p.store.FollowClockMoves))
	}
	return p, p.parts.Start(context.Background(), append(parts,
		p.loop("Postgres clock", func(ctx context.Context) {
			p.store.FollowClock(ctx, func(ahead time.Duration) { p.due.Set(clock.Setting{}, ahead) })
		}),
		lifecycle.Part{Name: "queue", Start: begin(p.queue.Start), Stop: p.queue.Stop, Grace: closeGrace},
		lifecycle.Part{Name: "storage limit", Start: begin(p.storage.Start), Stop: p.storage.Stop, Grace: closeGrace},
		p.loop("subscribers", p.subscribers.Run),
		p.loop("new deliveries", p.notifier.Run),
		p.loop("pauses", p.pauses.Run),
		p.loop("condition of Redis", p.queue.Watch),
		p.loop("batch completer", p.completer.Run),
		p.loop("maintenance", p.maintenance.Run),
	)...)
}

func (p *process) connect() (err error) {
	if err := p.startTracing(); err != nil {
		return err
	}
	p.metrics = app.NewMetrics(p.registry)
	p.connections, p.attempts = conn.NewMetrics(telemetry.In(p.registry)), authlimit.New(time.Now, telemetry.In(p.registry))
	cfg := p.cfg
	p.redis, err = redisconn.Connect(cfg.RedisURL, redisconn.Options{Logger: p.log, Registry: p.registry, Tracer: p.tracer})
	if err != nil {
		return err
	}
	connections := lifecycle.Part{Name: "redis", Stop: func(context.Context) error { return p.redis.Close() }}
	if err := p.parts.Start(context.Background(), connections); err != nil {
		return err
	}
	taskTime := 2*cfg.ExecutionLimit() + cfg.ShutdownGrace
	p.due = clock.New()
	if cfg.TestBed {
		p.clock, taskTime = p.due, unlimitedTaskTime
	}
	p.queue = queue.New(p.redis, queue.Config{MaxTaskTime: taskTime, Clock: p.due})
	p.store, err = repo.Open(repo.Config{
		URL: cfg.DatabaseURL, Timeout: cfg.DBTimeout, ApplicationName: "forgerun " + p.role,
		RetentionJobs: cfg.RetentionJobs, ClientMaxHeld: p.cfg.ClientMaxRunning,
		Webhooks:      repo.WebhookLimits{DisableFailures: repo.DisableFailures, DisableAfter: cfg.WebhookDisableAfter},
		OutcomeStream: cfg.OutcomeStream != "",
		Logger:        p.log, Registry: p.registry, TracerProvider: p.tracing, Clock: p.clock,
	})
	if err != nil {
		return err
	}
	if err := p.store.RefusePooler(context.Background()); err != nil {
		return err
	}
	if p.clock != nil {
		_, _ = p.store.ReadClockMove(context.Background()) // ignore an error: the process reads the clock's offset again later
		return nil
	}
	return p.store.RefuseMovedClock(context.Background())
}

// unlimitedTaskTime is asynq's time limit of a task in a test bed. While the clock is frozen, a job may run for any length of real time.
const unlimitedTaskTime = 10 * 365 * 24 * time.Hour

func (p *process) startTracing() error {
	if !p.cfg.Tracing.enabled() {
		return nil
	}
	provider, flush, err := monitoring.NewTracing(context.Background(), monitoring.Tracing{
		Protocol: p.cfg.Tracing.protocol(), Role: p.role, Version: version, Log: p.log, Registry: p.registry,
	})
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	p.tracing, p.tracer = provider, provider.Tracer(telemetry.Scope)
	return p.parts.Start(context.Background(), lifecycle.Part{Name: "traces", Stop: flush, Grace: closeGrace})
}

// listen opens the listener of api and dev. If cfg.PublicURL is empty, listen derives it from the address.
func listen(cfg *Config, role string) (net.Listener, error) {
	var l net.Listener
	addr := cfg.HTTPAddr
	if role == "api" || role == "dev" {
		var err error
		open := func() (net.Listener, error) { return net.Listen("tcp", addr) }
		if cfg.TestBed { // faults may close the listener for a while
			open = func() (net.Listener, error) { return wire.Listen(addr) }
		}
		if l, err = open(); err != nil {
			return nil, explainTaken("FORGERUN_HTTP_ADDR", addr, fmt.Errorf("HTTP listener: %w", err))
		}
		addr = localhosts.Reachable(l.Addr())
	}
	if cfg.PublicURL == "" {
		cfg.PublicURL = "http://" + addr
	}
	return l, nil
}

func (p *process) limited(l net.Listener, name string, total int) *conn.Listener {
	return conn.NewListener(l, conn.Limits{
		Total: total, Exempt: p.cfg.Network.TrustedProxies, Metrics: p.connections, Log: p.log.With("listener", name),
	})
}

func (p *process) newMaintenance() *maintenance.Maintenance {
	leaders := p.newJobs(p.admission(p.pauses.Now), nil) // the leader uses this service to submit and change jobs
	due := schedules.NewRunner(p.store, leaders, p.metrics, p.log)
	return maintenance.New(maintenance.Deps{
		Store: p.store, Queue: p.notifier, Tasks: p.queue, Completer: p.completer, Backoff: p.cfg.Backoff, Clock: p.due,
		ClientMaxRunning: p.cfg.ClientMaxRunning, OutcomeStream: p.cfg.OutcomeStream, PublicURL: p.cfg.PublicURL,
		Bulk:      bulk.NewRunner(p.store, leaders, p.metrics, p.log).Round,
		Erasures:  erasures.NewRunner(p.store, leaders, p.queue, p.log).Round,
		Schedules: due.Round, SchedulesDue: due.Due,
		Metrics: p.metrics, Tracer: p.tracer, Log: p.log,
	})
}

// newJobs returns the service that creates and changes jobs. A nil `admission` means no limits, as for operators' requests. If `hub` is
// nil, requests cannot wait for a job's next state.
func (p *process) newJobs(admission *jobs.Admission, hub *events.Hub) *jobs.Service {
	return jobs.New(p.cfg.jobs(p.store.Now), jobs.Deps{
		Store: p.store, Queue: p.notifier, Targets: p.guard().Check, Receivers: p.subscribers.Webhooks, Progress: p.queue.Progress,
		Completer: p.completer, Metrics: p.metrics, Log: p.log, Admission: admission, Hub: hub,
	})
}

func (p *process) admission(pauses func() job.Pauses) *jobs.Admission {
	return &jobs.Admission{Pauses: pauses, Capacity: p.capacity, Storage: p.storage.AllowUnits, ProvenCallbacks: p.cfg.WebhookChallenge}
}

// loop returns a part that runs `f`. When the part stops, `f` has enough time to finish a statement in Postgres.
func (p *process) loop(name string, f func(context.Context)) lifecycle.Part {
	part := lifecycle.Loop(name, f)
	part.Grace = p.cfg.DBTimeout + closeGrace
	return part
}

func begin(start func()) func(context.Context) error {
	return func(context.Context) error { start(); return nil }
}

func (p *process) close() {
	p.parts.Stop()
	p.log.Info("stopped")
	p.lines.Flush()
}

// errorFields returns the fields of an error for a log line (API contract, section 16).
func errorFields(err error) slog.Attr {
	return slog.Group("", slog.String("error_code", string(job.CodeOf(err))), slog.String("error_message", err.Error()))
}
