package apptest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/forgerun/forgerun/job"
)

// ErrQueue is the error of a queue that cannot be reached.
var ErrQueue = errors.New("the queue cannot be reached")

// Queue records its calls.
type Queue struct {
	mu        sync.Mutex
	enqueued  []job.Task
	published []job.Notification
	delivered []job.ID
	progress  map[job.ID]job.Notification

	// Tests read these fields without the lock, so no goroutine may use the queue at that time.
	Tasks   map[job.ID]bool // jobs and deliveries that have a task
	Ensured [][]job.ID
	Removed []job.ID
	Signals []job.ID
	Err     error // the error that Ensure and EnsureDeliveries return
}

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	return &Queue{progress: map[job.ID]job.Notification{}, Tasks: map[job.ID]bool{}}
}

// Change calls f under the queue's lock.
func (q *Queue) Change(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
}

func (q *Queue) Enqueue(t job.Task)     { q.Change(func() { q.enqueued = append(q.enqueued, t) }) }
func (q *Queue) Remove(t job.Task)      { q.RemoveDeliveries(t.JobID) }
func (q *Queue) SignalCancel(id job.ID) { q.Change(func() { q.Signals = append(q.Signals, id) }) }

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

func (q *Queue) RemoveDeliveries(ids ...job.ID) {
	q.Change(func() { q.Removed = append(q.Removed, ids...) })
}

func (q *Queue) EnqueueDelivery(t job.DeliveryTask) {
	_, _ = q.EnsureDeliveries(context.Background(), []job.DeliveryTask{t})
}

func (q *Queue) EnsureDeliveries(_ context.Context, tasks []job.DeliveryTask) (made int, err error) {
	return ensure(q, tasks, func(t job.DeliveryTask) job.ID { return t.ID })
}

func (q *Queue) Ensure(_ context.Context, tasks []job.Task) (made int, err error) {
	return ensure(q, tasks, func(t job.Task) job.ID { return t.JobID })
}

func ensure[T any](q *Queue, tasks []T, idOf func(T) job.ID) (made int, err error) {
	q.Change(func() {
		if err = q.Err; err != nil {
			return
		}
		ids := make([]job.ID, len(tasks))
		for i, t := range tasks {
			ids[i] = idOf(t)
			if !q.Tasks[ids[i]] {
				q.Tasks[ids[i]] = true
				made++
			}
		}
		q.Ensured = append(q.Ensured, ids)
	})
	return made, err
}

// Waiting returns the number of queued tasks.
func (q *Queue) Waiting() (n int) {
	q.Change(func() { n = len(q.Tasks) })
	return n
}

// Flush drops all tasks.
func (q *Queue) Flush() { q.Change(func() { clear(q.Tasks) }) }

// Delivered returns the job ids of all Deliver calls since the last call of Delivered. An event without a job has the zero id.
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
