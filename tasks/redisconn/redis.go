// Package redisconn provides the Redis connection that all packages in tasks share: address, dialer, circuit breaker, loggers, metrics, and
// the keys of asynq's queues.
package redisconn

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
)

const poolSize = 16

// clusterReload is the interval at which clients of a cluster reload the map of slots. After a failover, clients find the new node of a
// slot only by reloading. go-redis itself reloads once a minute.
const clusterReload = 2 * time.Second

// Options are shared by all users of a Redis.
type Options struct {
	// Logger may be nil. asynq and go-redis log to it, too.
	Logger *slog.Logger
	// Registry registers the metrics. It may be nil. One registry can serve only one Redis.
	Registry prometheus.Registerer
	// Timeout limits each round trip to Redis. Default 1 s.
	Timeout time.Duration
	// Tracer starts the spans of tasks. It may be nil.
	Tracer trace.Tracer
}

// Redis is the connection that queue, consumers, notifications, limiter and dashboard share.
type Redis struct {
	Client redis.UniversalClient
	// Inspector is asynq's view of the queues. Its calls take at most Timeout per round trip.
	Inspector *asynq.Inspector
	Timeout   time.Duration
	Log       *slog.Logger
	Tracer    trace.Tracer
	Metrics   *Metrics
	address   *redis.UniversalOptions
	close     func() error

	mu      sync.Mutex
	clients []redis.UniversalClient // all clients, for the metrics of their connections
}

// Connect prepares the connection to the Redis at the address; errBadURL lists the allowed forms. It does not connect yet, so Redis may be
// down. Errors describe the mistake in the address, but do not quote the address.
func Connect(address string, o Options) (*Redis, error) {
	parsed, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	routeGoRedisLog(o.Logger)
	r := &Redis{address: parsed, Timeout: cmp.Or(o.Timeout, time.Second), Log: o.Logger, Tracer: o.Tracer}
	r.Client = r.NewClient(r.ClientOptions(r.Timeout, poolSize))
	r.Inspector = asynq.NewInspectorFromRedisClient(r.Client)
	r.Metrics = newMetrics(o.Registry)
	telemetry.In(o.Registry).Register(serverCollector{r})
	r.close = sync.OnceValue(r.Client.Close)
	return r, nil
}

// ClientOptions returns the settings of a client. Automatic retries are off: after a lost response, a second try could execute the command
// twice. Callers repeat a failed command if that is safe.
func (r *Redis) ClientOptions(timeout time.Duration, pool int) *redis.UniversalOptions {
	o := *r.address
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = r.Timeout, timeout, timeout, timeout
	o.DialerRetries, o.MaxRetries = 1, -1
	o.PoolSize, o.ContextTimeoutEnabled = pool, true
	o.DisableIdentity = true
	o.Protocol = 2 // with version 3, go-redis searches each reply for push messages, which are not used here
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &o
}

// NewClient makes a client and includes its connections in the metrics.
func (r *Redis) NewClient(o *redis.UniversalOptions) redis.UniversalClient {
	client := newClient(o)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, client)
	return client
}

func newClient(o *redis.UniversalOptions) redis.UniversalClient {
	if !o.IsClusterMode {
		return redis.NewUniversalClient(o)
	}
	cluster := o.Cluster()
	cluster.ClusterStateReloadInterval = clusterReload
	return redis.NewClusterClient(cluster)
}

// MakeRedisClient lets asynq use r.Client. asynq must not close r.Client; r.Close does.
func (r *Redis) MakeRedisClient() any { return r.Client }

// Addrs returns the hosts, or the socket, of the address.
func (r *Redis) Addrs() []string { return r.address.Addrs }

// Ping returns an error unless Redis responds within ctx and Options.Timeout.
func (r *Redis) Ping(ctx context.Context) error {
	return r.Failed("ping", r.Client.Ping(ctx).Err())
}

// Close closes the connections. All users of the connections must have stopped. Close may be called again.
func (r *Redis) Close() error { return r.close() }

// Failed counts an error of the operation and wraps it with the operation's name. It returns nil for nil.
func (r *Redis) Failed(operation string, err error) error {
	if err == nil {
		return nil
	}
	r.Metrics.Errors.WithLabelValues(operation).Inc()
	return fmt.Errorf("redis: %s: %w", operation, err)
}
