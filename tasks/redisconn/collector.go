package redisconn

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// serverCollector shows the state of the Redis server and of the connections to it, and without Redis nothing of the queues.
type serverCollector struct{ redis *Redis }

// scrapeTimeout bounds what a scrape waits for Redis.
const scrapeTimeout = time.Second

var (
	upDesc          = prometheus.NewDesc("redis_up", "1 if Redis answers.", nil, nil)
	depthDesc       = prometheus.NewDesc("asynq_queue_tasks", "Tasks in Redis.", []string{"queue", "state"}, nil)
	connectionsDesc = prometheus.NewDesc("redis_connections", "Connections of this process to Redis.", []string{"state"}, nil)
	timeoutsDesc    = prometheus.NewDesc("redis_pool_timeouts_total", "Times that no connection to Redis came free in time.", nil, nil)
)

func (c serverCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upDesc, depthDesc, connectionsDesc, timeoutsDesc} {
		out <- d
	}
}

// Collect asks for everything in one exchange, so that it waits for Redis once.
func (c serverCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, n int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var ping *redis.StatusCmd
	depths := map[string]map[string]*redis.IntCmd{}
	_, err := c.redis.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		ping = p.Ping(ctx)
		for _, queue := range Queues {
			depths[queue] = askDepth(ctx, p, queue)
		}
		return nil
	})
	_ = c.redis.Failed("depth", err)
	up := int64(0)
	if ping.Err() == nil {
		up = 1
	}
	gauge(upDesc, up)
	for queue, states := range depths {
		for state, n := range states {
			if n.Err() == nil {
				gauge(depthDesc, n.Val(), queue, state)
			}
		}
	}
	if total, idle, timeouts, ok := c.redis.connections(up == 1); ok {
		gauge(connectionsDesc, total, "total")
		gauge(connectionsDesc, idle, "idle")
		out <- prometheus.MustNewConstMetric(timeoutsDesc, prometheus.CounterValue, float64(timeouts))
	}
}

// connections adds up the pools of all clients. Those of a cluster may first ask it for its nodes, for longer than a scrape
// waits: they are shown only while Redis is up.
func (r *Redis) connections(up bool) (total, idle, timeouts int64, ok bool) {
	if r.address.IsClusterMode && !up {
		return 0, 0, 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, client := range r.clients {
		pools := client.PoolStats()
		for _, p := range []*redis.PoolStats{pools, (*redis.PoolStats)(pools.PipelineStats)} {
			if p != nil {
				total, idle, timeouts = total+int64(p.TotalConns), idle+int64(p.IdleConns), timeouts+int64(p.Timeouts)
			}
		}
	}
	return total, idle, timeouts, true
}
