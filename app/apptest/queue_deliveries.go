package apptest

import (
	"context"
	"maps"
	"slices"

	"github.com/forgerun/forgerun/job"
)

// Attempted notes an attempt to deliver, and that a delivery waits for its next one.
func (q *Queue) Attempted(d job.Delivery) {
	q.Change(func() {
		q.attempted = append(q.attempted, d)
		delete(q.waiting, d.ID)
		if d.State == job.DeliveryPending {
			q.waiting[d.ID] = d
		}
	})
}

// DropDeliveries forgets what waits for an endpoint.
func (q *Queue) DropDeliveries(endpoint job.ID) {
	q.Change(func() {
		maps.DeleteFunc(q.waiting, func(_ job.ID, d job.Delivery) bool { return d.Endpoint == endpoint })
	})
}

// ScheduleDeliveries makes tasks of those that have none.
func (q *Queue) ScheduleDeliveries(_ context.Context, waiting []job.Delivery) (n int, err error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.Err != nil {
		return 0, q.Err
	}
	for _, d := range waiting {
		if _, ok := q.waiting[d.ID]; !ok {
			q.waiting[d.ID] = d
			n++
		}
	}
	return n, nil
}

// Attempts gives the deliveries as they were after each attempt since the last call.
func (q *Queue) Attempts() (attempted []job.Delivery) {
	q.Change(func() { attempted, q.attempted = q.attempted, nil })
	return attempted
}

// WaitingDeliveries gives the deliveries that have a task, in any order.
func (q *Queue) WaitingDeliveries() (waiting []job.Delivery) {
	q.Change(func() { waiting = slices.Collect(maps.Values(q.waiting)) })
	return waiting
}

func (SilentQueue) Attempted(job.Delivery) {}
func (SilentQueue) DropDeliveries(job.ID)  {}
