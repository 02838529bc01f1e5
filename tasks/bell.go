package tasks

import (
	"context"
	"sync"
	"time"
)

// bellPause is how long a queue's bell rests after it was rung: what is
// enqueued meanwhile makes it ring once more.
const bellPause = 5 * time.Millisecond

// bellChannel is where whoever enqueues tells the consumers of a queue of it. A
// word that is lost costs a consumer WorkersConfig.TaskCheckInterval.
func bellChannel(queue string) string { return "forgerun:bell:" + queue }

// ringer tells consumers that tasks were put into a queue.
type ringer struct {
	redis *Redis
	queue string
	due   chan struct{}
}

func newRinger(r *Redis, queue string) *ringer {
	return &ringer{redis: r, queue: queue, due: make(chan struct{}, 1)}
}

// ring is called after the task is in Redis: a consumer looks at once. It never
// waits.
func (r *ringer) ring() {
	select {
	case r.due <- struct{}{}:
	default:
	}
}

// run rings for those who called ring, until stopping is closed.
func (r *ringer) run(stopping <-chan struct{}) {
	for {
		select {
		case <-r.due:
			r.tell()
			pauseFor(bellPause, stopping)
		case <-stopping:
			select {
			case <-r.due:
				r.tell()
			default:
			}
			return
		}
	}
}

// tell reports nothing: consumers look by themselves, too.
func (r *ringer) tell() {
	ctx, cancel := context.WithTimeout(context.Background(), r.redis.timeout)
	defer cancel()
	_ = r.redis.client.Publish(ctx, bellChannel(r.queue), "").Err()
}

// pauseFor waits for d, or until stopping is closed.
func pauseFor(d time.Duration, stopping <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stopping:
	}
}

// bell wakes those who wait for tasks in this process.
type bell struct {
	mu   sync.Mutex
	next chan struct{} // closed by the next ring
}

func newBell() *bell { return &bell{next: make(chan struct{})} }

// listen gives what the next ring closes. Whoever listens before he looks for
// tasks misses none.
func (b *bell) listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.next)
	b.next = make(chan struct{})
}
