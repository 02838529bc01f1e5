package notify

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	// publishPause is the rest after sending: what is published meanwhile goes together, much of it of the same jobs and clients.
	publishPause  = 5 * time.Millisecond
	publishBuffer = 16384    // notifications that may wait
	maxPublished  = 1000     // notifications in one round trip
	maxMessage    = 32 << 10 // bytes after which a client's notifications go on in another message
	signalBuffer  = 4096
	maxSignals    = 100 // in one round trip
)

// CancelChannel carries the ids of canceled jobs to the workers. One that misses a signal learns of it with its next heartbeat.
const CancelChannel = "forgerun:cancel"

// Publisher sends events and progress of jobs, and cancel signals, to all processes, best effort, and keeps the progress of
// running jobs in Redis.
type Publisher struct {
	redis       *redisconn.Redis
	progressTTL time.Duration
	reading     *redisconn.Circuit // of Progress, which gives up early
	events      *Sender[job.Notification]
	signals     *Sender[job.ID]
	merger      *merger
}

// NewPublisher makes a publisher that buffers until Start. Progress of an attempt whose end is not published is kept for progressTTL.
func NewPublisher(r *redisconn.Redis, progressTTL time.Duration) *Publisher {
	p := &Publisher{
		redis: r, progressTTL: progressTTL, merger: newMerger(),
		reading: redisconn.NewCircuit("reading progress", r.Log, nil),
	}
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

// Start begins to send. It does not wait for Redis and may be called again.
func (p *Publisher) Start() {
	p.events.Start()
	p.signals.Start()
}

// Stop sends what is buffered and ends; see Sender.Stop.
func (p *Publisher) Stop(ctx context.Context) error {
	_ = p.events.Stop(ctx)
	return p.signals.Stop(ctx)
}

// Publish notifies watchers of the client's jobs and keeps the job's progress in Redis until the attempt has ended, best
// effort, non-blocking: what finds the buffer full or Redis down is dropped and counted. Notifications of a job arrive in their
// order; several events may arrive as one, and of several progresses of an attempt the latest.
//
// n.Progress must not be changed afterwards. The publisher of an attempt's progress publishes its end too, with Ended and Attempt.
func (p *Publisher) Publish(n job.Notification) { p.events.Add(n) }

// SignalCancel signals to all workers that the job was canceled, best effort, non-blocking.
func (p *Publisher) SignalCancel(id job.ID) { p.signals.Add(id) }

func (p *Publisher) sendEvents(ctx context.Context, ns []job.Notification) error {
	defer p.merger.reset()
	for _, n := range ns {
		p.merger.add(n)
	}
	err := p.redis.Failed("notify", p.sendMerged(ctx, p.merger.merged()))
	countAll(p.redis.Metrics.Notifications, err, len(ns))
	return err
}

// sendMerged sends all in one round trip, progress first, so that who receives it can read it. The error is that of the
// messages: a Redis that has no room for progress still passes them on.
func (p *Publisher) sendMerged(ctx context.Context, m merged) error {
	if len(m.messages) == 0 && len(m.kept) == 0 {
		return nil
	}
	pipe := p.redis.Client.Pipeline()
	for _, k := range m.kept {
		p.keepProgress(ctx, pipe, k)
	}
	for _, m := range m.messages {
		// In a cluster all messages of a client go to one node, in their order.
		pipe.Publish(ctx, eventChannel(m.client), m.text).SetFirstKeyPos(1)
	}
	commands, _ := pipe.Exec(ctx)
	_ = p.redis.Failed("progress", firstError(commands[:len(m.kept)]))
	return firstError(commands[len(m.kept):])
}

func (p *Publisher) sendSignals(ctx context.Context, ids []job.ID) error {
	_, err := p.redis.Client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, id := range ids {
			pipe.Publish(ctx, CancelChannel, id.String())
		}
		return nil
	})
	countAll(p.redis.Metrics.Signals, err, len(ids))
	return p.redis.Failed("publish", err)
}

// ReceiveCancel hands the id of a canceled job on.
func ReceiveCancel(r *redisconn.Redis, message string, canceled func(job.ID)) {
	id, err := job.ParseID(message)
	if err != nil {
		r.Metrics.Signals.WithLabelValues(redisconn.ResultBad).Inc()
		return
	}
	r.Metrics.Signals.WithLabelValues(redisconn.ResultReceived).Inc()
	canceled(id)
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
