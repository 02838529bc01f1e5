package tasks

import (
	"context"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
)

// cancelChannel carries the ids of jobs that were cancelled, to the workers. A
// signal saves time and nothing else: a worker that misses it learns of the
// cancel with its next heartbeat.
const cancelChannel = "forgerun:cancel"

// maxSignals is how many signals one round trip sends.
const maxSignals = 100

// SignalCancel tells all workers that the job was cancelled, soon. It never
// waits and reports nothing.
func (q *Queue) SignalCancel(id job.ID) {
	if q.stopped.Load() {
		q.countSignals(resultDropped, 1)
		return
	}
	select {
	case q.signals <- id:
	default:
		q.countSignals(resultDropped, 1)
	}
}

func (q *Queue) countSignals(result string, n int) {
	q.redis.metrics.signals.WithLabelValues(result).Add(float64(n))
}

func (q *Queue) sendSignals() {
	for {
		select {
		case id := <-q.signals:
			q.publish(q.gather(id))
		case <-q.stopping:
			for ids := q.gather(); len(ids) > 0; ids = q.gather() {
				q.publish(ids)
			}
			return
		}
	}
}

// gather adds the signals that wait.
func (q *Queue) gather(ids ...job.ID) []job.ID {
	for len(ids) < maxSignals {
		select {
		case id := <-q.signals:
			ids = append(ids, id)
		default:
			return ids
		}
	}
	return ids
}

func (q *Queue) publish(ids []job.ID) {
	if !q.circuit.allow() {
		q.countSignals(resultSkipped, len(ids))
		return
	}
	ctx := context.Background()
	_, err := q.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range ids {
			p.Publish(ctx, cancelChannel, id.String())
		}
		return nil
	})
	q.circuit.report(q.redis.failed("publish", err))
	if err != nil {
		q.countSignals(resultFailed, len(ids))
		return
	}
	q.countSignals(resultOK, len(ids))
}

// hearCancel hands the ids of cancelled jobs on.
func (r *Redis) hearCancel(canceled func(job.ID)) func(message string) {
	return func(message string) {
		id, err := job.ParseID(message)
		if err != nil {
			r.metrics.signals.WithLabelValues(resultBad).Inc()
			return
		}
		r.metrics.signals.WithLabelValues(resultReceived).Inc()
		canceled(id)
	}
}

// subscription hands received messages to functions, one after the other.
type subscription struct {
	pubsub *redis.PubSub
	done   chan struct{}
}

// subscribe listens to the channels until stop. go-redis connects in the
// background, connects anew when the connection breaks, and asks for a sign of
// life when it is silent.
func (r *Redis) subscribe(client redis.UniversalClient, received map[string]func(message string)) *subscription {
	s := &subscription{pubsub: client.Subscribe(context.Background()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		// Errors are not lost: the channel's own goroutine tries again.
		_ = s.pubsub.Subscribe(context.Background(), slices.Collect(maps.Keys(received))...)
		for message := range s.pubsub.Channel() {
			if handle := received[message.Channel]; handle != nil {
				handle(message.Payload)
			}
		}
	}()
	return s
}

// stop ends the subscription and waits until no message is being handled.
func (s *subscription) stop() {
	_ = s.pubsub.Close()
	<-s.done
}
