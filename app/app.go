// Package app holds what the use cases in its sub-packages share: the queue that
// they publish to and enqueue in, metrics, spans, and the log line of a transition.
// HTTP and workers go through the same use cases, so every rule stands once. They
// know no SQL, queue or HTTP: they write to a repo.Store, and declare small
// interfaces for the rest.
package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/job"
)

// Queue is best effort: the relay repairs what it loses, and storage checks what
// it delivers.
type Queue interface {
	// Enqueue hands a task over, best effort, non-blocking.
	Enqueue(job.Task)
	// Remove takes a task that no worker has taken out of the queue, best effort, non-blocking: its job was canceled or deleted.
	Remove(job.Task)
	// SignalCancel asks the workers to stop a job, best effort.
	SignalCancel(job.ID)
	// Publish notifies watchers of what was committed, or of how far a job has
	// come; best effort, non-blocking.
	Publish(job.Notification)
	// Deliver says that events of a job were recorded that may have deliveries, or with the zero job events of the client alone;
	// best effort, non-blocking.
	Deliver(client, jobID job.ID)
}

// Tasks removes tasks from the queue, best effort, non-blocking.
type Tasks interface {
	Remove(job.Task)
	RemoveDeliveries(ids ...job.ID)
}

// NotificationOf says that an event of j was recorded.
func NotificationOf(j *job.Job) job.Notification {
	return job.Notification{ClientID: j.ClientID, JobID: j.ID}
}

// Publish sends a notification about j to its watchers, and has its callback delivered to. For webhooks, delivery.Notifier does that.
func Publish(q Queue, j *job.Job, n job.Notification) {
	q.Publish(n)
	if j.Callback != "" {
		q.Deliver(j.ClientID, j.ID)
	}
}

// Clock gives the time.
type Clock func() time.Time

// NewID makes a version 7 UUID.
func NewID() job.ID { return job.ID(uuid.Must(uuid.NewV7())) }

// Sleep waits for d or for the end of ctx, and reports whether it was d.
func Sleep(ctx context.Context, d time.Duration) bool { return Rest(ctx, d, nil) }

// Rest waits for d, or until wake delivers or is closed. It reports false if ctx
// ended before.
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

// Repeat calls f until ctx ends, with a rest in between. Of errors in a row the first is logged.
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

// Refused reports whether storage will not take the data, however often it is
// offered.
func Refused(err error) bool {
	var known *job.Error
	return errors.As(err, &known) && known.Code == job.CodeInternal
}

// Targets says what is plainly wrong with a URL to deliver to, "" for nothing.
type Targets interface {
	Check(url string) string
}
