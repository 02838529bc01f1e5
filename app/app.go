// Package app has the types that all use cases share, such as the queue interface and the metrics. HTTP and workers call the same use
// cases, so every rule exists once. Use cases contain no SQL, queue or HTTP code. They store data with a repo.Store and declare small
// interfaces for other systems.
package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/job"
)

// Queue is the queue of jobs. Its methods do not block and may lose tasks: the relay (package maintenance) replaces lost tasks, and
// storage checks every task before a worker runs it.
type Queue interface {
	Enqueue(job.Task)
	// Remove removes the task of a canceled or deleted job, unless a worker has taken it.
	Remove(job.Task)
	// SignalCancel asks the workers to stop a job.
	SignalCancel(job.ID)
	// Publish notifies watchers of a committed change or of progress.
	Publish(job.Notification)
	// Deliver announces new events of a job. Its callback and matching webhooks get them, if there are any. The zero job id stands for
	// events without a job, such as a completed batch.
	Deliver(client, jobID job.ID)
}

// Tasks removes tasks from the queue. It is best effort and does not block.
type Tasks interface {
	Remove(job.Task)
	RemoveDeliveries(ids ...job.ID)
}

// NotificationOf returns the notification for an event of j.
func NotificationOf(j *job.Job) job.Notification {
	return job.Notification{ClientID: j.ClientID, JobID: j.ID}
}

// Publish notifies the watchers of j and triggers the delivery to its callback.
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

// Sleep waits for d or for the end of ctx, and reports whether d passed.
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

// Repeat calls f until ctx ends, and waits for `rest` between the calls. Of consecutive errors, it logs only the first.
func Repeat(ctx context.Context, rest time.Duration, log *slog.Logger, message, action string, f func(context.Context) error) {
	for failing := false; ; {
		err := f(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			log.WarnContext(ctx, message, "action", action, ErrorFields(err))
		}
		failing = err != nil
		if !Sleep(ctx, rest) {
			return
		}
	}
}

// Refused reports whether err means that storage will never accept the data, even if the write is retried.
func Refused(err error) bool {
	var known *job.Error
	return errors.As(err, &known) && known.Code == job.CodeInternal
}
