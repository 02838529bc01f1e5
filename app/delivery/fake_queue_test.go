package delivery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// fakeQueue adds the tasks of deliveries to the shared queue, as asynq has them.
type fakeQueue struct {
	*apptest.Queue
	tasks   map[job.ID]*fakeTask
	ended   map[job.ID]error
	removed []job.ID
	start   func(*fakeTask) // has it handled; nil: no server runs
}

type fakeTask struct {
	job.DeliveryTask
	active, gone bool
}

func newFakeQueue(q *apptest.Queue) *fakeQueue {
	return &fakeQueue{Queue: q, tasks: map[job.ID]*fakeTask{}, ended: map[job.ID]error{}}
}

// EnqueueDelivery makes a task if there is none.
func (q *fakeQueue) EnqueueDelivery(t job.DeliveryTask) {
	_, _ = q.EnsureDeliveries(context.Background(), []job.DeliveryTask{t})
}

// EnsureDeliveries makes the tasks that are missing.
func (q *fakeQueue) EnsureDeliveries(_ context.Context, ts []job.DeliveryTask) (made int, err error) {
	q.Change(func() {
		if err = q.Err; err != nil {
			return
		}
		for _, t := range ts {
			if q.tasks[t.ID] != nil {
				continue
			}
			made++
			q.tasks[t.ID] = &fakeTask{DeliveryTask: t}
			if q.start != nil {
				q.start(q.tasks[t.ID])
			}
		}
	})
	return made, err
}

// RemoveDeliveries removes tasks.
func (q *fakeQueue) RemoveDeliveries(ids ...job.ID) {
	q.Change(func() {
		q.removed = append(q.removed, ids...)
		for _, id := range ids {
			q.end(q.tasks[id])
		}
	})
}

func (q *fakeQueue) end(t *fakeTask) {
	if t != nil {
		t.gone = true
		delete(q.tasks, t.ID)
	}
}

// waiting returns how many tasks no worker has taken.
func (q *fakeQueue) waiting() (n int) { return q.inactive(func(*fakeTask) {}) }

// flush loses all tasks that no worker has.
func (q *fakeQueue) flush() { q.inactive(q.end) }

func (q *fakeQueue) inactive(f func(*fakeTask)) (n int) {
	q.Change(func() {
		for _, t := range q.tasks {
			if !t.active {
				n++
				f(t)
			}
		}
	})
	return n
}

// run hands tasks to a handler when their time comes, at most so many at once, as an asynq server does.
func (q *fakeQueue) run(ctx context.Context, concurrency int, handle func(context.Context, job.DeliveryTask) error) {
	var handling sync.WaitGroup
	slots := make(chan struct{}, concurrency)
	start := func(t *fakeTask) {
		handling.Go(func() {
			for gone := false; !gone && app.Sleep(ctx, time.Until(t.At)); {
				slots <- struct{}{}
				q.Change(func() { t.active, gone = !t.gone, t.gone })
				if !gone {
					err := handle(ctx, t.DeliveryTask)
					q.Change(func() { q.handled(t, err); gone = t.gone })
				}
				<-slots
			}
		})
	}
	q.Change(func() {
		q.start = start
		for _, t := range q.tasks {
			start(t)
		}
	})
	<-ctx.Done()
	q.Change(func() { q.start = nil })
	handling.Wait()
}

// handled does with a task what asynq does.
func (q *fakeQueue) handled(t *fakeTask, err error) {
	var early *job.TaskEarly
	var failed *job.TaskFailed
	again := time.Second
	switch {
	case err == nil, errors.Is(err, job.ErrTaskStale):
		again = 0
	case errors.As(err, &early):
		again = max(early.Wait, 1)
	case errors.As(err, &failed):
		again = failed.Again
	}
	q.ended[t.ID] = err
	t.active = false
	t.At = time.Now().Add(again).Truncate(time.Second)
	if again == 0 {
		q.end(t)
	}
}
