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

var ErrQueue = errors.New("the queue cannot be reached")

// fakeQueue is the queue as all see it. A task's name stays taken while the
// task is active and after it has ended, until it is forgotten.
type Queue struct {
	Mu       sync.Mutex
	Tasks    map[string]queued
	enqueued []job.Task // by Enqueue, in order
	Offered  []job.Task // by Dispatch, in order
	signals  []job.ID
	Heard    []job.Notification
	woken    []job.ID      // by Wake and WakeDeliveries, in order
	Hinted   chan struct{} // holds a token while hints has something to give
	Stream   []job.StreamEntry
	progress map[job.ID]job.Notification // the latest of each job
	Sentinel int64
	RunID    string

	Deaf        bool // Enqueue loses its tasks
	AppendsLost bool // an error of AppendOutcomes comes after the entries are there
	Err         error
	OnDispatch  func() // after the tasks are in the queue
	OnSetEpoch  func() error
}

type queued struct {
	job.Task
	state string // pending, active, abandoned (active, its worker is gone) or completed
}

func NewQueue() *Queue {
	return &Queue{Tasks: map[string]queued{}, progress: map[job.ID]job.Notification{}, Sentinel: 1, RunID: "", Hinted: make(chan struct{}, 1)}
}

func TaskName(t job.Task) string { return fmt.Sprintf("%s:%d:%d", t.JobID, t.Attempt, t.Dispatch) }

func (q *Queue) Enqueue(t job.Task) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.enqueued = append(q.enqueued, t)
	if !q.Deaf {
		q.put(t)
	}
}

func (q *Queue) put(t job.Task) job.Dispatched {
	known, ok := q.Tasks[TaskName(t)]
	switch {
	case !ok:
		q.Tasks[TaskName(t)] = queued{t, "pending"}
		return job.TaskEnqueued
	case known.state == "pending":
		return job.TaskPresent
	}
	return job.TaskIDUsed
}

func (q *Queue) SignalCancel(id job.ID) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.signals = append(q.signals, id)
}

func (q *Queue) Publish(n job.Notification) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.Heard = append(q.Heard, n)
	if n.Progress != nil {
		q.progress[n.JobID] = n
	}
}

func (q *Queue) WakeDelivery(client job.ID) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.wake(client)
}

func (q *Queue) WakeDeliveries(_ context.Context, clients []job.ID) error {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.Err == nil {
		q.wake(clients...)
	}
	return q.Err
}

func (q *Queue) wake(clients ...job.ID) {
	q.woken = append(q.woken, clients...)
	select {
	case q.Hinted <- struct{}{}:
	default:
	}
}

// hints gives the clients for which workers were woken since it was last asked for.
func (q *Queue) Hints() []job.ID {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	woken := q.woken
	q.woken = nil
	return woken
}

func (q *Queue) AppendOutcomes(_ context.Context, stream string, maxLen int64, entries []job.StreamEntry) error {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if stream != Stream || maxLen != StreamLen {
		return errors.New("another stream")
	}
	if q.Err == nil || q.AppendsLost {
		q.Stream = append(q.Stream, entries...)
	}
	return q.Err
}

// News gives what was published since it was last asked for.
func (q *Queue) News() []job.Notification {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	heard := q.Heard
	q.Heard = nil
	return heard
}

func (q *Queue) Progress(_ context.Context, id job.ID, attempt int) *job.Progress {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if n := q.progress[id]; n.Attempt == attempt {
		return n.Progress
	}
	return nil
}

func (q *Queue) Dispatch(_ context.Context, tasks []job.Task) ([]job.Dispatched, error) {
	q.Mu.Lock()
	if q.Err != nil {
		defer q.Mu.Unlock()
		return nil, q.Err
	}
	answers := make([]job.Dispatched, len(tasks))
	for i, t := range tasks {
		answers[i] = q.put(t)
	}
	q.Offered = append(q.Offered, tasks...)
	then := q.OnDispatch
	q.Mu.Unlock()
	if then != nil {
		then()
	}
	return answers, nil
}

func (q *Queue) Missing(_ context.Context, tasks []job.Task) ([]job.Task, error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.Err != nil {
		return nil, q.Err
	}
	return slices.DeleteFunc(slices.Clone(tasks), func(t job.Task) bool {
		known, ok := q.Tasks[TaskName(t)]
		return ok && known.state != "completed" && known.state != "abandoned"
	}), nil
}

func (q *Queue) Depth(context.Context) (map[string]int64, error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	depth := map[string]int64{}
	for _, t := range q.Tasks {
		if t.state == "pending" && t.RunAt.After(time.Now()) {
			depth["scheduled"]++
			continue
		}
		depth[t.state]++
	}
	return depth, q.Err
}

func (q *Queue) Epoch(context.Context) (int64, string, error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return q.Sentinel, q.RunID, q.Err
}

func (q *Queue) SetEpoch(_ context.Context, epoch int64) error {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.OnSetEpoch != nil {
		if err := q.OnSetEpoch(); err != nil {
			return err
		}
	}
	if q.Err == nil {
		q.Sentinel = epoch
	}
	return q.Err
}

// flush empties the queue.
func (q *Queue) Flush() {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	clear(q.Tasks)
	q.Sentinel = 0
}

// set gives a task a state of its own.
func (q *Queue) Set(t job.Task, state string) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.Tasks[TaskName(t)] = queued{t, state}
}

func (q *Queue) Change(f func()) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	f()
}

// state says where a task is, "" for nowhere.
func (q *Queue) State(t job.Task) string {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return q.Tasks[TaskName(t)].state
}

// sent gives what Enqueue was given so far.
func (q *Queue) Sent() []job.Task {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return slices.Clone(q.enqueued)
}

// signaled gives the jobs whose cancel was signalled so far.
func (q *Queue) Signaled() []job.ID {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return slices.Clone(q.signals)
}

// take gives a task that is due, and makes it active.
func (q *Queue) Take() (job.Task, bool) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.Err != nil {
		return job.Task{}, false
	}
	for name, t := range q.Tasks {
		if t.state == "pending" && !t.RunAt.After(time.Now()) {
			t.state = "active"
			q.Tasks[name] = t
			return t.Task, true
		}
	}
	return job.Task{}, false
}

// done ends an active task; with an error it is offered again later.
func (q *Queue) Done(t job.Task, err error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if _, ok := q.Tasks[TaskName(t)]; !ok {
		return // flushed meanwhile
	}
	delete(q.Tasks, TaskName(t))
	if err != nil {
		t.RunAt = time.Now().Add(time.Second)
		q.put(t)
	}
}

const (
	Stream    = "outcomes"
	StreamLen = 1000
	Window    = 2000 // of the queue
)
