package maintenance

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

const (
	schedulerBatch = 2000 // jobs per statement; 2000 take 0.1 s
	// If the first statement does not queue all due jobs, schedulerLanes lanes run statements in parallel. More lanes would take connections
	// and cores from submissions.
	schedulerLanes = 2
	// A lane queues up to schedulerUnpublished batches before their events are published. With fewer batches, publishing would delay the other
	// due jobs. With more batches, the events would use more memory.
	schedulerUnpublished = 25
)

// schedule queues all due jobs (API contract, section 10). It publishes the events of these jobs afterwards, so that notifications do not
// delay scheduling.
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

// Schedule submits the jobs of due schedules, and queues due jobs. It skips jobs locked by another process. Any process may call it, not
// only the leader.
func (m *Maintenance) Schedule(ctx context.Context) error {
	always := func() bool { return true }
	if err := m.Schedules(ctx, always); err != nil {
		return err
	}
	return m.schedule(ctx, always)
}

// queueDue queues due jobs. It returns the queued jobs, also after an error. `more` is true if further jobs may be due.
func (m *Maintenance) queueDue(ctx context.Context, leading func() bool) (due [][]job.Job, more bool, err error) {
	var mu sync.Mutex // guards due
	queue := func() (full bool, err error) {
		if !leading() {
			return false, nil
		}
		batch, err := m.Store.QueueDue(ctx, schedulerBatch)
		mu.Lock()
		defer mu.Unlock()
		due = append(due, batch)
		return len(batch) == schedulerBatch, err
	}
	if full, err := queue(); err != nil || !full {
		return due, false, err
	}
	var lanes errgroup.Group
	var busy atomic.Bool // a lane has stopped at schedulerUnpublished batches, so more jobs may be due
	for range schedulerLanes {
		lanes.Go(func() (err error) {
			full := true
			for n := 0; n < schedulerUnpublished && full && err == nil; n++ {
				full, err = queue()
			}
			if full {
				busy.Store(true)
			}
			return err
		})
	}
	err = lanes.Wait()
	return due, busy.Load(), err
}
