package delivery

import (
	"context"
	"maps"
	"slices"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// fakeQueue adds the tasks of deliveries to the shared queue.
type fakeQueue struct {
	*apptest.Queue
	attempted []job.Delivery          // as they were after each attempt, in order
	waiting   map[job.ID]job.Delivery // those that have a task
}

// Attempted notes an attempt to deliver, and that a delivery waits for its next one.
func (q *fakeQueue) Attempted(d job.Delivery) {
	q.Change(func() {
		q.attempted = append(q.attempted, d)
		delete(q.waiting, d.ID)
		if d.State == job.DeliveryPending {
			q.waiting[d.ID] = d
		}
	})
}

// DropDeliveries forgets what waits for an endpoint.
func (q *fakeQueue) DropDeliveries(endpoint job.ID) {
	q.Change(func() {
		maps.DeleteFunc(q.waiting, func(_ job.ID, d job.Delivery) bool { return d.Endpoint == endpoint })
	})
}

// ScheduleDeliveries makes tasks of those that have none.
func (q *fakeQueue) ScheduleDeliveries(_ context.Context, waiting []job.Delivery) (n int, err error) {
	q.Change(func() {
		before := len(q.waiting)
		for _, d := range waiting {
			if q.Err == nil {
				q.waiting[d.ID] = d
			}
		}
		n, err = len(q.waiting)-before, q.Err
	})
	return n, err
}

// attempts gives the deliveries as they were after each attempt since the last call.
func (q *fakeQueue) attempts() (attempted []job.Delivery) {
	q.Change(func() { attempted, q.attempted = q.attempted, nil })
	return attempted
}

// waitingNow gives the deliveries that have a task, in any order.
func (q *fakeQueue) waitingNow() (waiting []job.Delivery) {
	q.Change(func() { waiting = slices.Collect(maps.Values(q.waiting)) })
	return waiting
}
