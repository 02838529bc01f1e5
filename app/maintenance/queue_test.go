package maintenance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

const testStream = "outcomes"

// fakeQueue has tasks by their names. A name stays taken while the task is active and after it has ended, until it is forgotten.
type fakeQueue struct {
	*apptest.Queue
	tasks    map[taskName]*queued
	sentinel int64
	runID    string

	offered     []job.Task // by Dispatch, in order
	stream      []job.StreamEntry
	appendsLost bool   // an error of AppendOutcomes comes after the entries are there
	onDispatch  func() // after the tasks are in the queue
	onSetEpoch  func() error
}

// taskName is what a task is known by.
type taskName struct {
	id                job.ID
	attempt, dispatch int
}

func nameOf(t job.Task) taskName { return taskName{t.JobID, t.Attempt, t.Dispatch} }

// queued is a task and its state: pending, active, abandoned (active, its worker is gone) or completed.
type queued struct {
	job.Task
	state string
}

func newFakeQueue(q *apptest.Queue) *fakeQueue {
	return &fakeQueue{Queue: q, tasks: map[taskName]*queued{}, sentinel: 1}
}

func (q *fakeQueue) put(t job.Task) job.Dispatched {
	known := q.tasks[nameOf(t)]
	switch {
	case known == nil:
		q.tasks[nameOf(t)] = &queued{t, "pending"}
		return job.TaskEnqueued
	case known.state == "pending":
		return job.TaskPresent
	}
	return job.TaskIDUsed
}

func (q *fakeQueue) Dispatch(_ context.Context, tasks []job.Task) (answers []job.Dispatched, err error) {
	then := func() {}
	q.Change(func() {
		if err = q.Err; err != nil {
			return
		}
		for _, t := range tasks {
			answers = append(answers, q.put(t))
		}
		q.offered = append(q.offered, tasks...)
		if q.onDispatch != nil {
			then = q.onDispatch
		}
	})
	then()
	return answers, err
}

func (q *fakeQueue) Missing(_ context.Context, tasks []job.Task) (missing []job.Task, err error) {
	q.Change(func() {
		missing, err = slices.DeleteFunc(slices.Clone(tasks), func(t job.Task) bool {
			known := q.tasks[nameOf(t)]
			return q.Err != nil || known != nil && known.state != "completed" && known.state != "abandoned"
		}), q.Err
	})
	return missing, err
}

func (t *queued) scheduled() bool { return t.state == "pending" && t.RunAt.After(time.Now()) }

func (q *fakeQueue) Depth(context.Context) (map[string]int64, error) {
	depth := map[string]int64{}
	q.Change(func() {
		for _, t := range q.tasks {
			if t.scheduled() {
				depth["scheduled"]++
			} else {
				depth[t.state]++
			}
		}
	})
	return depth, q.Err
}

func (q *fakeQueue) LastScheduled(context.Context) (last time.Time, err error) {
	q.Change(func() {
		for _, t := range q.tasks {
			if t.scheduled() && t.RunAt.After(last) {
				last = t.RunAt
			}
		}
	})
	return last, q.Err
}

func (q *fakeQueue) Epoch(context.Context) (epoch int64, runID string, err error) {
	q.Change(func() { epoch, runID, err = q.sentinel, q.runID, q.Err })
	return epoch, runID, err
}

func (q *fakeQueue) SetEpoch(_ context.Context, epoch int64) (err error) {
	if q.onSetEpoch != nil {
		if err := q.onSetEpoch(); err != nil {
			return err
		}
	}
	q.Change(func() {
		if err = q.Err; err == nil {
			q.sentinel = epoch
		}
	})
	return err
}

func (q *fakeQueue) Mend(context.Context) (err error) {
	q.Change(func() { err = q.Err })
	return err
}

func (*fakeQueue) ScheduleDeliveries(context.Context, []job.Delivery) (int, error) { return 0, nil }

func (q *fakeQueue) AppendOutcomes(_ context.Context, stream string, maxLen int64, entries []job.StreamEntry) (err error) {
	if stream != testStream || maxLen != streamLength {
		return errors.New("another stream")
	}
	q.Change(func() {
		if q.Err == nil || q.appendsLost {
			q.stream = append(q.stream, entries...)
		}
		err = q.Err
	})
	return err
}

// flush empties the queue.
func (q *fakeQueue) flush() {
	q.Change(func() {
		clear(q.tasks)
		q.sentinel = 0
	})
}

// forget removes a task.
func (q *fakeQueue) forget(t job.Task) { q.Change(func() { delete(q.tasks, nameOf(t)) }) }

// state says where a task is, "" if it has none.
func (q *fakeQueue) state(t job.Task) (state string) {
	q.Change(func() {
		if known := q.tasks[nameOf(t)]; known != nil {
			state = known.state
		}
	})
	return state
}

// set gives a task a state of its own.
func (q *fakeQueue) set(t job.Task, state string) {
	q.Change(func() { q.tasks[nameOf(t)] = &queued{t, state} })
}
