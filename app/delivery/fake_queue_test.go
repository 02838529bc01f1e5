package delivery

import (
	"cmp"
	"context"
	"errors"
	"slices"
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
	order   []*fakeTask // those that no worker has, by their time
	ended   map[job.ID]error
	removed []job.ID
	changed chan struct{} // holds a token after a change
}

type fakeTask struct {
	job.DeliveryTask
	active, gone bool
}

func newFakeQueue(q *apptest.Queue) *fakeQueue {
	return &fakeQueue{Queue: q, tasks: map[job.ID]*fakeTask{}, ended: map[job.ID]error{}, changed: make(chan struct{}, 1)}
}

// update changes the tasks, and has them looked at.
func (q *fakeQueue) update(f func()) {
	q.Change(f)
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// EnqueueDelivery makes a task if there is none.
func (q *fakeQueue) EnqueueDelivery(t job.DeliveryTask) { q.update(func() { q.add(t) }) }

func (q *fakeQueue) add(t job.DeliveryTask) (made int) {
	if q.tasks[t.ID] == nil {
		made = 1
		q.tasks[t.ID] = &fakeTask{DeliveryTask: t}
		q.push(q.tasks[t.ID])
	}
	return made
}

// push puts a task behind those whose time is the same or earlier.
func (q *fakeQueue) push(t *fakeTask) {
	i, _ := slices.BinarySearchFunc(q.order, t.At, func(other *fakeTask, at time.Time) int { return cmp.Or(other.At.Compare(at), -1) })
	q.order = slices.Insert(q.order, i, t)
}

// EnsureDeliveries makes the tasks that are missing.
func (q *fakeQueue) EnsureDeliveries(_ context.Context, ts []job.DeliveryTask) (made int, err error) {
	q.update(func() {
		for _, t := range ts {
			if err = q.Err; err == nil {
				made += q.add(t)
			}
		}
	})
	return made, err
}

// RemoveDeliveries removes tasks.
func (q *fakeQueue) RemoveDeliveries(ids ...job.ID) {
	q.update(func() {
		q.removed = append(q.removed, ids...)
		for _, id := range ids {
			q.end(id)
		}
	})
}

func (q *fakeQueue) end(id job.ID) {
	if t := q.tasks[id]; t != nil {
		t.gone = true
		delete(q.tasks, id)
	}
}

// flush loses all tasks that no worker has.
func (q *fakeQueue) flush() {
	q.update(func() {
		for id, t := range q.tasks {
			if !t.active {
				q.end(id)
			}
		}
	})
}

// waiting returns the deliveries whose task no worker has taken.
func (q *fakeQueue) waiting() (n int) {
	q.Change(func() {
		for _, t := range q.tasks {
			if !t.active {
				n++
			}
		}
	})
	return n
}

// next takes the first task whose time has come, and tells how long until there is one.
func (q *fakeQueue) next() (t *fakeTask, wait time.Duration) {
	wait = time.Hour
	q.Change(func() {
		for len(q.order) > 0 && t == nil {
			first := q.order[0]
			if wait = time.Until(first.At); wait > 0 {
				return
			}
			q.order = q.order[1:]
			if !first.gone {
				first.active, t = true, first
			}
		}
	})
	return t, wait
}

// run hands tasks to a handler, at most so many at once, as an asynq server does.
func (q *fakeQueue) run(ctx context.Context, concurrency int, handle func(context.Context, job.DeliveryTask) error) {
	var handling sync.WaitGroup
	defer handling.Wait()
	slots := make(chan struct{}, concurrency)
	for ctx.Err() == nil {
		t, wait := q.next()
		if t == nil {
			app.Rest(ctx, wait, q.changed)
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		handling.Go(func() {
			err := handle(ctx, t.DeliveryTask)
			<-slots
			q.update(func() { q.handled(t, err) })
		})
	}
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
		q.end(t.ID)
	} else if !t.gone {
		q.push(t)
	}
}
