package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	// publishPause is the pause after sending. During the pause, notifications are buffered, so that notifications of the same job can be
	// merged.
	publishPause  = 5 * time.Millisecond
	publishBuffer = 16384
	maxPublished  = 1000 // notifications per round trip
	signalBuffer  = 4096
	maxSignals    = 100 // cancel signals per round trip
)

// cancelChannel carries the ids of canceled jobs to the workers. A worker that misses a signal notices the cancel at its next heartbeat.
const cancelChannel = "forgerun:cancel"

// Publisher sends events and progress of jobs, and cancel signals, to all processes (best effort). It stores the progress of running jobs
// in Redis.
type Publisher struct {
	redis       *redisconn.Redis
	progressTTL time.Duration
	reading     *redisconn.Circuit // own circuit breaker for Progress, which has a shorter timeout
	events      *Sender[job.Notification]
	signals     *Sender[job.ID]
}

// NewPublisher makes a publisher that buffers until Start. The progress of a running attempt is stored for progressTTL. When the end of the
// attempt is published, the progress expires ten seconds later.
func NewPublisher(r *redisconn.Redis, progressTTL time.Duration) *Publisher {
	p := &Publisher{redis: r, progressTTL: progressTTL, reading: redisconn.NewCircuit("reading progress", r.Log, nil)}
	p.events = NewSender(SenderConfig[job.Notification]{
		Buffer: publishBuffer, Batch: maxPublished, Pause: publishPause, Send: p.sendEvents,
		Circuit: redisconn.NewCircuit("publishing notifications", r.Log, nil), Results: r.Metrics.Notifications,
	})
	p.signals = NewSender(SenderConfig[job.ID]{
		Buffer: signalBuffer, Batch: maxSignals, Send: p.sendSignals,
		Circuit: redisconn.NewCircuit("publishing cancel signals", r.Log, nil), Results: r.Metrics.Signals,
	})
	return p
}

// Start starts sending. It does not wait for Redis and may be called again.
func (p *Publisher) Start() {
	p.events.Start()
	p.signals.Start()
}

// Stop sends the buffered items and ends; see Sender.Stop.
func (p *Publisher) Stop(ctx context.Context) error {
	_ = p.events.Stop(ctx)
	return p.signals.Stop(ctx)
}

// Publish notifies the processes that watch the client, and stores the job's progress in Redis. It does not block: if the buffer is full or
// Redis is down, the notification is dropped and counted. Notifications of a job arrive in order. Notifications that are sent together are
// merged: only the latest progress is sent.
//
// n.Progress must not be changed afterwards. The process that publishes an attempt's progress must also publish the end of the attempt,
// with Ended and Attempt set.
func (p *Publisher) Publish(n job.Notification) { p.events.Add(n) }

// SignalCancel signals the cancel of the job to all workers. It is best effort and does not block.
func (p *Publisher) SignalCancel(id job.ID) { p.signals.Add(id) }

// update combines the notifications of a job. A message to the watchers of a client has one line per update. The job's key in Redis stores
// the latest update that has progress.
type update struct {
	client   job.ID
	Job      job.ID        `json:"job,omitzero"`
	Attempt  int           `json:"attempt,omitempty"`
	Progress *job.Progress `json:"progress,omitempty"`
	Event    bool          `json:"event,omitempty"`
	ended    bool
}

// isPlausible checks the year because JSON cannot encode years after 9999.
func isPlausible(p *job.Progress) bool {
	return p.Percentage <= 100 && min(p.Percentage, p.StepsCompleted, p.StepsTotal, p.ItemsProcessed, p.ItemsTotal) >= 0 &&
		time.Time(p.UpdatedAt).Year() <= 9999
}

// merge combines the notifications of each job into one update. The latest progress of a job replaces earlier progress.
func merge(ns []job.Notification) (updates []*update) {
	of := make(map[[2]job.ID]*update, len(ns))
	for _, n := range ns {
		u := of[[2]job.ID{n.ClientID, n.JobID}]
		if u == nil {
			u = &update{client: n.ClientID, Job: n.JobID}
			of[[2]job.ID{n.ClientID, n.JobID}] = u
			updates = append(updates, u)
		}
		if n.Progress != nil && !n.JobID.IsZero() && isPlausible(n.Progress) {
			u.Attempt, u.Progress, u.ended = n.Attempt, n.Progress, false
		}
		u.Event = u.Event || n.Progress == nil || n.Ended
		u.ended = u.ended || n.Ended && (u.Progress == nil || n.Attempt == u.Attempt)
	}
	return updates
}

// sendEvents stores progress and sends messages in one round trip. Progress is stored first, so that receivers of a message can read it.
// Errors of storing progress are not returned, because a Redis that is out of memory still delivers messages.
func (p *Publisher) sendEvents(ctx context.Context, ns []job.Notification) error {
	pipe, messages := p.redis.Client.Pipeline(), map[job.ID][][]byte{}
	for _, u := range merge(ns) {
		if !u.Event && u.Progress == nil {
			continue
		}
		line, _ := json.Marshal(u)
		messages[u.client] = append(messages[u.client], line)
		p.keepProgress(ctx, pipe, u, line)
	}
	kept := pipe.Len()
	for client, lines := range messages {
		// SetFirstKeyPos routes all messages of a client to one cluster node, which keeps their order.
		pipe.Publish(ctx, eventChannel(client), bytes.Join(lines, []byte("\n"))).SetFirstKeyPos(1)
	}
	commands, _ := pipe.Exec(ctx)
	_ = p.redis.Failed("progress", firstError(commands[:kept]))
	err := p.redis.Failed("notify", firstError(commands[kept:]))
	countAll(p.redis.Metrics.Notifications, err, len(ns))
	return err
}

func (p *Publisher) sendSignals(ctx context.Context, ids []job.ID) error {
	_, err := p.redis.Client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, id := range ids {
			pipe.Publish(ctx, cancelChannel, id.String())
		}
		return nil
	})
	countAll(p.redis.Metrics.Signals, err, len(ids))
	return p.redis.Failed("publish", err)
}

func countAll(results *prometheus.CounterVec, err error, n int) {
	result := redisconn.ResultOK
	if err != nil {
		result = redisconn.ResultFailed
	}
	results.WithLabelValues(result).Add(float64(n))
}

func firstError(commands []redis.Cmder) error {
	for _, c := range commands {
		if err := c.Err(); err != nil {
			return err
		}
	}
	return nil
}
