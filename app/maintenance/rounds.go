package maintenance

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/batches"
)

const (
	rescuerBatch    = 500
	completerLook   = 10_000
	cleanerBatch    = 500
	backlogLimit    = 1_000_000
	historyInterval = 10 * time.Second

	throttleInterval     = 250 * time.Millisecond
	throttleIntervalIdle = 5 * time.Second // if no limit per client is set; jobs may still wait because of an earlier limit
	throttleBatch        = 1000
)

func (m *Maintenance) rescue(ctx context.Context, leading func() bool) error {
	for leading() {
		held, err := m.Store.Orphans(ctx, rescuerBatch)
		if err != nil {
			return err
		}
		if err := m.rescuer.GiveBack(ctx, held); err != nil || len(held) < rescuerBatch {
			return err
		}
	}
	return nil
}

// completeBatches completes batches that stayed open because a process died after the end of the batch's last job. Each round continues
// after the last batch that the previous round checked.
func (m *Maintenance) completeBatches(ctx context.Context, leading func() bool) error {
	ready, last, err := m.Store.ReadyBatches(ctx, m.completeAfter, completerLook)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(ready, batches.ChunkSize) {
		if !leading() {
			return nil
		}
		n, err := m.Completer.Complete(ctx, chunk)
		m.Metrics.Repaired.WithLabelValues("batch_completer").Add(float64(n))
		if err != nil {
			return err
		}
	}
	m.completeAfter = last
	return nil
}

// After each batch, clean pauses for as long as the batch took, because removals are not urgent.
func (m *Maintenance) clean(ctx context.Context, leading func() bool) error {
	for leading() {
		began := time.Now()
		more, err := m.Store.Clean(ctx, cleanerBatch)
		if err != nil || !more || !app.Sleep(ctx, time.Since(began)) {
			return err
		}
	}
	return nil
}

func (m *Maintenance) countBacklog(ctx context.Context, _ func() bool) error {
	backlog, err := m.Store.Backlog(ctx, backlogLimit)
	if err == nil {
		m.leader.show(backlog)
	}
	return err
}

// writeHistory writes the missing buckets of the history, latest first. If a bucket cannot be written, the round ends, to spare a slow
// Postgres. The next round starts again with the latest missing bucket.
func (m *Maintenance) writeHistory(ctx context.Context, leading func() bool) error {
	missing, err := m.Store.MissingHistory(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, at := range missing {
		if !leading() {
			return failed
		}
		if failed = m.Store.WriteHistory(ctx, at); failed != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return failed
	}
	return errors.Join(failed, m.Store.RollUpHistory(ctx))
}

func (m *Maintenance) throttleInterval() time.Duration {
	if m.ClientMaxRunning == 0 {
		return throttleIntervalIdle
	}
	return throttleInterval
}

// resumeThrottled enqueues jobs that waited because of their client's limit. It enqueues as many as the limit allows. If the limit was
// removed, it enqueues all of them.
func (m *Maintenance) resumeThrottled(ctx context.Context, leading func() bool) error {
	most := m.ClientMaxRunning
	if most == 0 {
		most = math.MaxInt32
	}
	for leading() {
		tasks, err := m.Store.ResumeThrottled(ctx, most, throttleBatch)
		if err != nil || len(tasks) == 0 {
			return err
		}
		if _, err := m.relay.ensure(ctx, tasks, app.Resumed); err != nil || len(tasks) < throttleBatch {
			return err
		}
	}
	return nil
}
