package tasks

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
)

const (
	defaultTimeout = time.Second
	// workerPatience is by how much workers wait longer: a fetch that Redis
	// executes after the worker gave up takes up to maxFetch tasks that nobody then
	// runs for half a minute.
	workerPatience = 5
	poolSize       = 16
)

// Options are what every part of this package shares.
type Options struct {
	// Logger: nil for none. The loggers of asynq and go-redis end here too.
	Logger *slog.Logger
	// Registry gets the metrics: nil for none. One Redis a registry.
	Registry prometheus.Registerer
	// Timeout bounds each exchange with Redis. Default 1 s.
	Timeout time.Duration
	// Tracer begins the spans of tasks: nil for none.
	Tracer trace.Tracer
}

// Redis is the connection that queue, workers, limiter and dashboard share.
type Redis struct {
	address *redis.UniversalOptions
	client  redis.UniversalClient
	// pipe is client, with the commands of concurrent callers sent together.
	pipe    *redis.AutoPipeliner
	timeout time.Duration
	log     *slog.Logger
	tracer  trace.Tracer
	metrics *metrics
	close   func() error

	mu      sync.Mutex
	clients []redis.UniversalClient // all that were made, for their statistics
}

// Connect prepares the connection to the Redis at the address; see errBadURL
// for its forms. It does not connect: Redis may be down now and come later.
// The error tells what is wrong with the address, without quoting it.
func Connect(address string, o Options) (*Redis, error) {
	parsed, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	routeGoRedisLog(o.Logger)
	r := &Redis{address: parsed, timeout: o.Timeout, log: o.Logger, tracer: o.Tracer}
	r.client = r.newClient(r.options(r.timeout, poolSize))
	if r.pipe, err = r.client.AutoPipeline(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	r.metrics = newMetrics(o.Registry)
	telemetry.In(o.Registry).Register(serverCollector{r})
	r.close = sync.OnceValue(func() error {
		_ = r.pipe.Close()
		return r.client.Close()
	})
	return r, nil
}

// options are the settings of a client. Everything is tried once: whoever needs
// Redis tries again anyway and knows better when, and what was executed though
// its answer was lost is not executed twice behind the caller's back.
func (r *Redis) options(timeout time.Duration, pool int) *redis.UniversalOptions {
	o := *r.address
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = r.timeout, timeout, timeout, timeout
	o.DialerRetries, o.MaxRetries = 1, -1
	o.PoolSize, o.ContextTimeoutEnabled = pool, true
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &o
}

// newClient makes a client whose connections are counted.
func (r *Redis) newClient(o *redis.UniversalOptions) redis.UniversalClient {
	client := redis.NewUniversalClient(o)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, client)
	return client
}

// Ping asks Redis for a sign of life, within ctx and Options.Timeout.
func (r *Redis) Ping(ctx context.Context) error {
	return r.failed("ping", r.client.Ping(ctx).Err())
}

// Close closes the connections. Queue, workers and limiter are stopped before.
// It may be called again.
func (r *Redis) Close() error { return r.close() }

// failed counts an error of the operation, names it and passes it on; nil stays
// nil.
func (r *Redis) failed(operation string, err error) error {
	if err == nil {
		return nil
	}
	r.metrics.errors.WithLabelValues(operation).Inc()
	return fmt.Errorf("redis: %s: %w", operation, err)
}
