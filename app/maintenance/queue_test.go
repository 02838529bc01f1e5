package maintenance

import (
	"context"
	"errors"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

const (
	testStream    = "outcomes"
	testStreamLen = 1000
)

// fakeQueue adds the stream of outcomes to the shared queue, and hooks.
type fakeQueue struct {
	*apptest.Queue
	offered     []job.Task // by Dispatch, in order
	stream      []job.StreamEntry
	appendsLost bool   // an error of AppendOutcomes comes after the entries are there
	onDispatch  func() // after the tasks are in the queue
	onSetEpoch  func() error
}

func (q *fakeQueue) Dispatch(ctx context.Context, tasks []job.Task) ([]job.Dispatched, error) {
	answers, err := q.Queue.Dispatch(ctx, tasks)
	if err != nil {
		return nil, err
	}
	var then func()
	q.Change(func() {
		q.offered = append(q.offered, tasks...)
		then = q.onDispatch
	})
	if then != nil {
		then()
	}
	return answers, nil
}

func (q *fakeQueue) SetEpoch(ctx context.Context, epoch int64) error {
	if q.onSetEpoch != nil {
		if err := q.onSetEpoch(); err != nil {
			return err
		}
	}
	return q.Queue.SetEpoch(ctx, epoch)
}

func (q *fakeQueue) AppendOutcomes(_ context.Context, stream string, maxLen int64, entries []job.StreamEntry) error {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if stream != testStream || maxLen != testStreamLen {
		return errors.New("another stream")
	}
	if q.Err == nil || q.appendsLost {
		q.stream = append(q.stream, entries...)
	}
	return q.Err
}

// set gives a task a state of its own.
func (q *fakeQueue) set(t job.Task, state string) {
	q.Change(func() { q.Tasks[apptest.TaskName(t)] = apptest.Queued{Task: t, State: state} })
}
