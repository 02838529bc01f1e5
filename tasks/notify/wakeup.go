package notify

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

// wakeUpPause is the rest after a wake-up: what is enqueued meanwhile causes one more.
const wakeUpPause = 5 * time.Millisecond

// WakeUpChannel is where a queue's consumers are woken. A lost wake-up costs them their TaskCheckInterval.
func WakeUpChannel(queue string) string { return "forgerun:wakeup:" + queue }

// DueSoon is how soon the time of a task comes that consumers are told of: those of later ones they find by themselves, since they
// look at least that often when the next time comes.
const DueSoon = 500 * time.Millisecond

// WakeUps wakes the consumers of a queue, in all processes: there are tasks, or the time of some comes soon.
type WakeUps struct{ *Sender[struct{}] }

// NewWakeUps makes the sender to a queue's consumers. It ignores failures: consumers look by themselves, too.
func NewWakeUps(r *redisconn.Redis, queue string) WakeUps {
	return WakeUps{NewSender(SenderConfig[struct{}]{
		Buffer: 1, Batch: 2, Pause: wakeUpPause, // never a full batch: there is always a pause
		Send: func(ctx context.Context, _ []struct{}) error {
			ctx, cancel := context.WithTimeout(ctx, r.Timeout)
			defer cancel()
			return r.Client.Publish(ctx, WakeUpChannel(queue), "").Err()
		},
	})}
}

// Send is called after the task is in Redis. It never waits; what is sent while one waits needs no other.
func (w WakeUps) Send() { w.Add(struct{}{}) }
