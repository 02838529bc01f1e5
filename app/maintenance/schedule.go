package maintenance

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// Bounds of the scheduler.
const (
	schedulerBatch = 2000 // jobs that one statement queues: a tenth of a second of one connection
	// schedulerLanes is how many statements queue jobs at the same time, when one
	// is not enough: so many jobs a second as fit into the last moment before they
	// are late, and connections and cores are left for those who submit.
	schedulerLanes = 2
	// schedulerUnpublished is how many batches a lane queues before they are published: log lines and messages
	// would delay what follows, and cost some hundred bytes of memory for each job until then.
	schedulerUnpublished = 25
)

// schedule queues all jobs whose time has come (section 10). It
// publishes after the batches, so that notification cost cannot delay scheduling.
func (m *Maintenance) schedule(ctx context.Context, leading func() bool) error {
	for more := true; more; {
		var due [][]job.Job
		var err error
		due, more, err = m.queueDue(ctx, leading)
		for _, batch := range due {
			for i := range batch {
				app.LogTransition(ctx, m.Log, "schedule", &batch[i], job.Created, job.Queued)
				m.Metrics.Scheduled(ctx, &batch[i])
				app.Publish(m.Queue, &batch[i], app.NotificationOf(&batch[i]))
			}
			m.Metrics.Repaired.WithLabelValues("scheduler").Add(float64(len(batch)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Schedule queues all jobs whose time has come, but for those that another process is queueing, and submits those of
// schedules that are due. It may run without being the leader.
func (m *Maintenance) Schedule(ctx context.Context) error {
	always := func() bool { return true }
	if err := m.Schedules(ctx, always); err != nil {
		return err
	}
	return m.schedule(ctx, always)
}

// queueDue queues jobs, and returns them in batches, also when it fails. more reports whether some may be left.
func (m *Maintenance) queueDue(ctx context.Context, leading func() bool) (due [][]job.Job, more bool, err error) {
	if !leading() {
		return nil, false, nil
	}
	first, err := m.Store.QueueDue(ctx, schedulerBatch)
	due = append(due, first)
	if err != nil || len(first) < schedulerBatch {
		return due, false, err
	}
	var mu sync.Mutex // of due and more
	var lanes errgroup.Group
	for range schedulerLanes {
		lanes.Go(func() error {
			for range schedulerUnpublished {
				if !leading() {
					return nil
				}
				batch, err := m.Store.QueueDue(ctx, schedulerBatch)
				mu.Lock()
				due = append(due, batch)
				mu.Unlock()
				if err != nil || len(batch) < schedulerBatch {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			more = true
			return nil
		})
	}
	err = lanes.Wait()
	return due, more, err
}
