package apptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// SilentQueue drops everything.
type SilentQueue struct{ app.Queue }

func (SilentQueue) Publish(job.Notification) {}
func (SilentQueue) Enqueue(job.Task)         {}

// ErrQueue is the error of a queue that cannot be reached.
var ErrQueue = errors.New("the queue cannot be reached")

// Trouble is what is wrong with the infrastructure, of what a handler says of its task.
func Trouble(err error) error {
	var failed *job.TaskFailed
	if errors.Is(err, job.ErrTaskStale) || errors.As(err, &failed) {
		return nil
	}
	return err
}

// Named are the tasks without what is for those who look at the queue.
func Named(tasks []job.Task) []job.Task {
	named := slices.Clone(tasks)
	for i := range named {
		named[i].ClientID, named[i].WorkKind, named[i].Reason = job.ID{}, "", ""
	}
	return named
}

// Window is how many tasks the queue holds at most.
const Window = 2000

// Queue is the queue as all see it. A task's name stays taken while the task is
// active and after it has ended, until it is forgotten.
type Queue struct {
	Mu        sync.Mutex
	Tasks     map[string]Queued
	enqueued  []job.Task // by Enqueue, in order
	signals   []job.ID
	Published []job.Notification
	woken     []job.ID                    // clients, in order
	Wakes     chan struct{}               // holds a token while Woken has something to give
	progress  map[job.ID]job.Notification // the latest of each job
	Sentinel  int64
	RunID     string

	attempted []job.Delivery          // as they were after each attempt, in order
	waiting   map[job.ID]job.Delivery // those that have a task

	Deaf bool // Enqueue loses its tasks
	Err  error
}

// Queued is a task and its state: pending, active, abandoned (active, its worker
// is gone) or completed.
type Queued struct {
	job.Task
	State string
}

// NewQueue makes an empty queue.
func NewQueue() *Queue {
	return &Queue{
		Tasks: map[string]Queued{}, progress: map[job.ID]job.Notification{}, Sentinel: 1, Wakes: make(chan struct{}, 1),
		waiting: map[job.ID]job.Delivery{},
	}
}

// TaskName is what a task is known by.
func TaskName(t job.Task) string { return fmt.Sprintf("%s:%d:%d", t.JobID, t.Attempt, t.Dispatch) }

// Change changes the queue under its lock, and gives what f does.
func (q *Queue) Change(f func()) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	f()
}

func (q *Queue) Enqueue(t job.Task) {
	q.Change(func() {
		q.enqueued = append(q.enqueued, t)
		if !q.Deaf {
			q.put(t)
		}
	})
}

func (q *Queue) put(t job.Task) job.Dispatched {
	known, ok := q.Tasks[TaskName(t)]
	switch {
	case !ok:
		q.Tasks[TaskName(t)] = Queued{t, "pending"}
		return job.TaskEnqueued
	case known.State == "pending":
		return job.TaskPresent
	}
	return job.TaskIDUsed
}

func (q *Queue) Remove(t job.Task) {
	q.Change(func() {
		if q.Tasks[TaskName(t)].State == "pending" {
			delete(q.Tasks, TaskName(t))
		}
	})
}

func (q *Queue) SignalCancel(id job.ID) { q.Change(func() { q.signals = append(q.signals, id) }) }

func (q *Queue) Publish(n job.Notification) {
	q.Change(func() {
		q.Published = append(q.Published, n)
		if n.Progress != nil {
			q.progress[n.JobID] = n
		}
	})
}

func (q *Queue) WakeDelivery(client job.ID) { q.Change(func() { q.wake(client) }) }

func (q *Queue) WakeDeliveries(_ context.Context, clients []job.ID) (err error) {
	q.Change(func() {
		if err = q.Err; err == nil {
			q.wake(clients...)
		}
	})
	return err
}

func (q *Queue) wake(clients ...job.ID) {
	q.woken = append(q.woken, clients...)
	select {
	case q.Wakes <- struct{}{}:
	default:
	}
}

// Woken gives the clients for which workers were woken since the last call.
func (q *Queue) Woken() (clients []job.ID) {
	q.Change(func() { clients, q.woken = q.woken, nil })
	return clients
}

// Notifications gives what was published since the last call.
func (q *Queue) Notifications() (published []job.Notification) {
	q.Change(func() { published, q.Published = q.Published, nil })
	return published
}

func (q *Queue) Progress(_ context.Context, id job.ID, attempt int) *job.Progress {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if n := q.progress[id]; n.Attempt == attempt {
		return n.Progress
	}
	return nil
}

func (q *Queue) Dispatch(_ context.Context, tasks []job.Task) (answers []job.Dispatched, err error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	for _, t := range tasks {
		if q.Err == nil {
			answers = append(answers, q.put(t))
		}
	}
	return answers, q.Err
}

func (q *Queue) Missing(_ context.Context, tasks []job.Task) ([]job.Task, error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return slices.DeleteFunc(slices.Clone(tasks), func(t job.Task) bool {
		known, ok := q.Tasks[TaskName(t)]
		return q.Err != nil || ok && known.State != "completed" && known.State != "abandoned"
	}), q.Err
}

func (q *Queue) Depth(context.Context) (map[string]int64, error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	depth := map[string]int64{}
	for _, t := range q.Tasks {
		state := t.State
		if state == "pending" && t.RunAt.After(time.Now()) {
			state = "scheduled"
		}
		depth[state]++
	}
	return depth, q.Err
}

func (q *Queue) LastScheduled(context.Context) (last time.Time, err error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	for _, t := range q.Tasks {
		if t.State == "pending" && t.RunAt.After(time.Now()) && t.RunAt.After(last) {
			last = t.RunAt
		}
	}
	return last, q.Err
}

func (q *Queue) Epoch(context.Context) (int64, string, error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return q.Sentinel, q.RunID, q.Err
}

func (q *Queue) SetEpoch(_ context.Context, epoch int64) error {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.Err == nil {
		q.Sentinel = epoch
	}
	return q.Err
}

// Flush empties the queue.
func (q *Queue) Flush() {
	q.Change(func() {
		clear(q.Tasks)
		clear(q.waiting)
		q.Sentinel = 0
	})
}

// State says where a task is, "" for nowhere.
func (q *Queue) State(t job.Task) (state string) {
	q.Change(func() { state = q.Tasks[TaskName(t)].State })
	return state
}

// Sent gives what Enqueue was given so far.
func (q *Queue) Sent() (tasks []job.Task) {
	q.Change(func() { tasks = slices.Clone(q.enqueued) })
	return tasks
}

// Signaled gives the jobs whose cancel was signaled so far.
func (q *Queue) Signaled() (ids []job.ID) {
	q.Change(func() { ids = slices.Clone(q.signals) })
	return ids
}
