package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

var errQueue = errors.New("the queue cannot be reached")

// fakeQueue is the queue as all see it. A task's name stays taken while the
// task is active and after it has ended, until it is forgotten.
type fakeQueue struct {
	mu       sync.Mutex
	tasks    map[string]queued
	enqueued []job.Task // by Enqueue, in order
	offered  []job.Task // by Dispatch, in order
	signals  []job.ID
	heard    []job.Notification
	woken    []job.ID      // by Wake and WakeDeliveries, in order
	hinted   chan struct{} // holds a token while hints has something to give
	stream   []job.StreamEntry
	progress map[job.ID]job.Notification // the latest of each job
	sentinel int64
	runID    string

	deaf        bool // Enqueue loses its tasks
	appendsLost bool // an error of AppendOutcomes comes after the entries are there
	err         error
	onDispatch  func() // after the tasks are in the queue
	onSetEpoch  func() error
}

type queued struct {
	job.Task
	state string // pending, active, abandoned (active, its worker is gone) or completed
}

func newFakeQueue() *fakeQueue {
	return &fakeQueue{tasks: map[string]queued{}, progress: map[job.ID]job.Notification{}, sentinel: 1, runID: "", hinted: make(chan struct{}, 1)}
}

func taskName(t job.Task) string { return fmt.Sprintf("%s:%d:%d", t.JobID, t.Attempt, t.Dispatch) }

func (q *fakeQueue) Enqueue(t job.Task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.enqueued = append(q.enqueued, t)
	if !q.deaf {
		q.put(t)
	}
}

func (q *fakeQueue) put(t job.Task) job.Dispatched {
	known, ok := q.tasks[taskName(t)]
	switch {
	case !ok:
		q.tasks[taskName(t)] = queued{t, "pending"}
		return job.TaskEnqueued
	case known.state == "pending":
		return job.TaskPresent
	}
	return job.TaskIDUsed
}

func (q *fakeQueue) SignalCancel(id job.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.signals = append(q.signals, id)
}

func (q *fakeQueue) Publish(n job.Notification) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heard = append(q.heard, n)
	if n.Progress != nil {
		q.progress[n.JobID] = n
	}
}

func (q *fakeQueue) WakeDelivery(client job.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake(client)
}

func (q *fakeQueue) WakeDeliveries(_ context.Context, clients []job.ID) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.wake(clients...)
	}
	return q.err
}

func (q *fakeQueue) wake(clients ...job.ID) {
	q.woken = append(q.woken, clients...)
	select {
	case q.hinted <- struct{}{}:
	default:
	}
}

// hints gives the clients that were hinted since it was last asked for.
func (q *fakeQueue) hints() []job.ID {
	q.mu.Lock()
	defer q.mu.Unlock()
	woken := q.woken
	q.woken = nil
	return woken
}

func (q *fakeQueue) AppendOutcomes(_ context.Context, stream string, maxLen int64, entries []job.StreamEntry) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if stream != testStream || maxLen != testMaxLen {
		return errors.New("another stream")
	}
	if q.err == nil || q.appendsLost {
		q.stream = append(q.stream, entries...)
	}
	return q.err
}

// news gives what was announced since it was last asked for.
func (q *fakeQueue) news() []job.Notification {
	q.mu.Lock()
	defer q.mu.Unlock()
	heard := q.heard
	q.heard = nil
	return heard
}

func (q *fakeQueue) Progress(_ context.Context, id job.ID, attempt int) *job.Progress {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.progress[id]; n.Attempt == attempt {
		return n.Progress
	}
	return nil
}

func (q *fakeQueue) Dispatch(_ context.Context, tasks []job.Task) ([]job.Dispatched, error) {
	q.mu.Lock()
	if q.err != nil {
		defer q.mu.Unlock()
		return nil, q.err
	}
	answers := make([]job.Dispatched, len(tasks))
	for i, t := range tasks {
		answers[i] = q.put(t)
	}
	q.offered = append(q.offered, tasks...)
	then := q.onDispatch
	q.mu.Unlock()
	if then != nil {
		then()
	}
	return answers, nil
}

func (q *fakeQueue) Missing(_ context.Context, tasks []job.Task) ([]job.Task, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return nil, q.err
	}
	return slices.DeleteFunc(slices.Clone(tasks), func(t job.Task) bool {
		known, ok := q.tasks[taskName(t)]
		return ok && known.state != "completed" && known.state != "abandoned"
	}), nil
}

func (q *fakeQueue) Depth(context.Context) (map[string]int64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	depth := map[string]int64{}
	for _, t := range q.tasks {
		if t.state == "pending" && t.RunAt.After(time.Now()) {
			depth["scheduled"]++
			continue
		}
		depth[t.state]++
	}
	return depth, q.err
}

func (q *fakeQueue) Epoch(context.Context) (int64, string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sentinel, q.runID, q.err
}

func (q *fakeQueue) SetEpoch(_ context.Context, epoch int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.onSetEpoch != nil {
		if err := q.onSetEpoch(); err != nil {
			return err
		}
	}
	if q.err == nil {
		q.sentinel = epoch
	}
	return q.err
}

// flush empties the queue.
func (q *fakeQueue) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.tasks)
	q.sentinel = 0
}

// set gives a task a state of its own.
func (q *fakeQueue) set(t job.Task, state string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tasks[taskName(t)] = queued{t, state}
}

func (q *fakeQueue) change(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
}

// state tells where a task is, "" for nowhere.
func (q *fakeQueue) state(t job.Task) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tasks[taskName(t)].state
}

// sent gives what Enqueue was given so far.
func (q *fakeQueue) sent() []job.Task {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.enqueued)
}

// signaled gives the jobs whose cancel was signalled so far.
func (q *fakeQueue) signaled() []job.ID {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.signals)
}

// take gives a task that is due, and makes it active.
func (q *fakeQueue) take() (job.Task, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return job.Task{}, false
	}
	for name, t := range q.tasks {
		if t.state == "pending" && !t.RunAt.After(time.Now()) {
			t.state = "active"
			q.tasks[name] = t
			return t.Task, true
		}
	}
	return job.Task{}, false
}

// done ends an active task; with an error it is offered again later.
func (q *fakeQueue) done(t job.Task, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.tasks[taskName(t)]; !ok {
		return // flushed meanwhile
	}
	delete(q.tasks, taskName(t))
	if err != nil {
		t.RunAt = time.Now().Add(time.Second)
		q.put(t)
	}
}
