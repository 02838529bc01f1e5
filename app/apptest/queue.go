package apptest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// SilentQueue drops everything.
type SilentQueue struct{ app.Queue }

func (SilentQueue) Publish(job.Notification) {}
func (SilentQueue) Enqueue(job.Task)         {}

// ErrQueue is the error of a queue that cannot be reached.
var ErrQueue = errors.New("the queue cannot be reached")

// Trouble returns a handler's error if the infrastructure failed, and nil if the error is a result of the task.
func Trouble(err error) error {
	var failed *job.TaskFailed
	if errors.Is(err, job.ErrTaskStale) || errors.As(err, &failed) {
		return nil
	}
	return err
}

// Named returns the tasks without the fields that are only for display.
func Named(tasks []job.Task) []job.Task {
	named := slices.Clone(tasks)
	for i := range named {
		named[i].ClientID, named[i].WorkKind, named[i].Reason = job.ID{}, "", ""
	}
	return named
}

// Queue records its calls.
type Queue struct {
	mu        sync.Mutex
	enqueued  []job.Task
	signals   []job.ID
	published []job.Notification
	delivered []job.ID                    // jobs, in order
	progress  map[job.ID]job.Notification // latest progress of each job
	Err       error
}

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	return &Queue{progress: map[job.ID]job.Notification{}}
}

// Change calls f under the queue's lock.
func (q *Queue) Change(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
}

func (q *Queue) Enqueue(t job.Task)     { q.Change(func() { q.enqueued = append(q.enqueued, t) }) }
func (q *Queue) Remove(job.Task)        {}
func (q *Queue) SignalCancel(id job.ID) { q.Change(func() { q.signals = append(q.signals, id) }) }

func (q *Queue) Publish(n job.Notification) {
	q.Change(func() {
		q.published = append(q.published, n)
		if n.Progress != nil {
			q.progress[n.JobID] = n
		}
	})
}

func (q *Queue) Deliver(_, jobID job.ID) {
	q.Change(func() { q.delivered = append(q.delivered, jobID) })
}

// Delivered returns the jobs in calls of Deliver since the last call of Delivered. The zero id means an event without a job.
func (q *Queue) Delivered() (jobs []job.ID) {
	q.Change(func() { jobs, q.delivered = q.delivered, nil })
	return jobs
}

// Notifications returns the notifications published since the last call of Notifications.
func (q *Queue) Notifications() (published []job.Notification) {
	q.Change(func() { published, q.published = q.published, nil })
	return published
}

func (q *Queue) Progress(_ context.Context, id job.ID, attempt int) (p *job.Progress) {
	q.Change(func() {
		if n := q.progress[id]; n.Attempt == attempt {
			p = n.Progress
		}
	})
	return p
}

// Sent returns the tasks enqueued so far.
func (q *Queue) Sent() (tasks []job.Task) {
	q.Change(func() { tasks = slices.Clone(q.enqueued) })
	return tasks
}

// Signaled returns the jobs for which a cancel was signaled so far.
func (q *Queue) Signaled() (ids []job.ID) {
	q.Change(func() { ids = slices.Clone(q.signals) })
	return ids
}
