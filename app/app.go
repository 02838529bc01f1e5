// Package app has the types that all use cases share, such as the queue interface and the metrics. The HTTP handlers and the workers call
// the same use cases. Use cases contain no SQL, queue or HTTP code. They use a repo.Store, and small interfaces for other systems such as
// the queue.
package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/job"
)

// Queue is the queue of jobs. Its methods do not block, and may lose tasks. The relay (package maintenance) enqueues lost tasks again.
type Queue interface {
	Enqueue(job.Task)
	// Remove removes the task of a canceled or deleted job, unless a worker has taken it.
	Remove(job.Task)
	// SignalCancel asks the workers to stop a job.
	SignalCancel(job.ID)
	// Publish tells watchers about a committed change or about progress.
	Publish(job.Notification)
	// Deliver announces new events of a job. The events go to the job's callback and to matching webhooks. A zero jobID announces events
	// without a job, such as a completed batch.
	Deliver(client, jobID job.ID)
}

// Tasks removes tasks from the queue. Its methods do not block, and may fail silently.
type Tasks interface {
	Remove(job.Task)
	RemoveDeliveries(ids ...job.ID)
}

// NotificationOf returns a notification about j, without progress.
func NotificationOf(j *job.Job) job.Notification {
	return job.Notification{ClientID: j.ClientID, JobID: j.ID}
}

// Publish sends n to watchers. If the job has a callback, Publish also asks for delivery of the event.
func Publish(q Queue, j *job.Job, n job.Notification) {
	q.Publish(n)
	if j.Callback != "" {
		q.Deliver(j.ClientID, j.ID)
	}
}

// Clock returns the current time.
type Clock func() time.Time

// NewID returns a new version 7 UUID.
func NewID() job.ID { return job.ID(uuid.Must(uuid.NewV7())) }

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool { return Rest(ctx, d, nil) }

// Rest waits until d has passed, or until `wake` receives a value or is closed. It returns false if ctx ends first.
func Rest(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-wake:
		return true
	case <-ctx.Done():
		return false
	}
}

// Repeat calls f until ctx ends, with a pause between calls. It logs only the first of consecutive errors.
func Repeat(ctx context.Context, pause time.Duration, log *slog.Logger, message, action string, f func(context.Context) error) {
	for failing := false; ; {
		err := f(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			log.WarnContext(ctx, message, "action", action, ErrorFields(err))
		}
		failing = err != nil
		if !Sleep(ctx, pause) {
			return
		}
	}
}

// Refused reports whether storage rejected the data. Retries are then useless.
func Refused(err error) bool {
	var known *job.Error
	return errors.As(err, &known) && known.Code == job.CodeInternal
}
