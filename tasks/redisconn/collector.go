package redisconn

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// serverCollector exports the state of the Redis server and its connections. While Redis is down, it omits the queues.
type serverCollector struct{ redis *Redis }

const scrapeTimeout = time.Second

var (
	upDesc          = prometheus.NewDesc("redis_up", "1 if Redis answers.", nil, nil)
	depthDesc       = prometheus.NewDesc("asynq_queue_tasks", "Tasks in Redis.", []string{"queue", "state"}, nil)
	connectionsDesc = prometheus.NewDesc("redis_connections", "Connections of this process to Redis.", []string{"state"}, nil)
	timeoutsDesc    = prometheus.NewDesc("redis_pool_timeouts_total", "Times that no connection to Redis was free in time.", nil, nil)
)

func (c serverCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upDesc, depthDesc, connectionsDesc, timeoutsDesc} {
		out <- d
	}
}

// Collect first sends a ping. If Redis does not respond, Collect skips the queues, so that it does not wait again.
func (c serverCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, n int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	up := int64(0)
	if c.redis.Failed("depth", c.redis.Client.Ping(ctx).Err()) == nil {
		up = 1
	}
	gauge(upDesc, up)
	for _, queue := range Queues {
		if up == 0 {
			break
		}
		info, err := c.redis.QueueInfo(queue)
		if err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
			_ = c.redis.Failed("depth", err)
			continue
		}
		for state, n := range map[string]int{
			"pending": info.Pending, "active": info.Active, "scheduled": info.Scheduled,
			"retry": info.Retry, "archived": info.Archived, "completed": info.Completed,
		} {
			gauge(depthDesc, int64(n), queue, state)
		}
	}
	if total, idle, timeouts, ok := c.redis.connections(up == 1); ok {
		gauge(connectionsDesc, total, "total")
		gauge(connectionsDesc, idle, "idle")
		out <- prometheus.MustNewConstMetric(timeoutsDesc, prometheus.CounterValue, float64(timeouts))
	}
}

// QueueInfo returns asynq's information about a queue. Unlike asynq's GetQueueInfo, it returns asynq.ErrQueueNotFound if asynq does not
// know the queue.
func (r *Redis) QueueInfo(name string) (*asynq.QueueInfo, error) {
	known, err := r.Inspector.Queues()
	if err == nil && !slices.Contains(known, name) {
		return &asynq.QueueInfo{}, asynq.ErrQueueNotFound
	}
	if err != nil {
		return nil, err
	}
	return r.Inspector.GetQueueInfo(name)
}

// connections adds up the connections of all clients. While a cluster is down, it returns ok = false, because reading the statistics could
// wait for the cluster.
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
