package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// fullDisk is a machine on which one kind cannot be run for a while.
type fullDisk struct {
	full atomic.Bool
	kind job.Kind
	ran  int
}

func (f *fullDisk) Probe(_ context.Context, k job.Kind) error {
	if f.full.Load() && k == f.kind {
		return fmt.Errorf("%w: no space left", job.ErrExhausted)
	}
	return nil
}

func (f *fullDisk) Run(ctx context.Context, d job.Definition, _ int, _ job.Observer) (*job.Result, error) {
	f.ran++
	if err := f.Probe(ctx, d.WorkKind); err != nil {
		return nil, err
	}
	return apptest.GoodResult(d), nil
}

func TestWorkThatThisMachineCannotDoIsRefused(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		disk := &fullDisk{kind: job.IOHeavy}
		disk.full.Store(true)
		w.worker.runner = disk
		w.start()
		w.Background(w.worker.ProbeRefused)
		heavy := func(r *apptest.Row) { r.WorkKind, r.Definition = job.IOHeavy, apptest.DefinitionOf(job.IOHeavy) }
		first := w.Add(heavy)
		require.NoError(t, w.handle(first))
		end := w.Store.RowOf(first.JobID)
		require.Equal(t, job.Failed, end.State)
		require.Equal(t, []any{job.WorkerExhausted, true}, []any{end.Failure.Reason, end.Failure.Retryable})
		require.Equal(t, []job.Kind{job.IOHeavy}, w.worker.Refused())
		require.Equal(t, 1.0, w.Metric(w.Metrics.KindsRefused))

		named, unnamed, other := w.Add(heavy), w.Add(heavy), w.Add()
		named.WorkKind = job.IOHeavy
		var early *job.TaskEarly
		require.True(t, errors.As(w.worker.Handle(context.Background(), named), &early), "others may take it")
		require.NoError(t, w.handle(unnamed))
		row := w.Store.RowOf(unnamed.JobID)
		require.Equal(t, []any{job.Queued, 1}, []any{row.State, row.Attempt}, "given back, in the same attempt")
		require.NoError(t, w.handle(other))
		require.Equal(t, job.Succeeded, w.Store.RowOf(other.JobID).State)
		require.Equal(t, 2, disk.ran)

		apptest.Pass(time.Minute)
		require.NotEmpty(t, w.worker.Refused())
		disk.full.Store(false)
		apptest.Pass(2 * probeInterval)
		require.Empty(t, w.worker.Refused())
		require.Zero(t, w.Metric(w.Metrics.KindsRefused))
		require.NoError(t, w.handle(named))
		require.Equal(t, job.Succeeded, w.Store.RowOf(named.JobID).State)
	})
}
