package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// emitting is a Runner that emits events, and then does what is planned.
type emitting struct {
	events  []job.Emission
	outcome func(job.Definition) (*job.Result, error)
}

func (e emitting) Run(_ context.Context, d job.Definition, _ int, on job.Observer) (*job.Result, error) {
	for i, event := range e.events {
		if err := on.Emit(i, event); err != nil {
			return nil, err
		}
	}
	return e.outcome(d)
}

func (emitting) Probe(context.Context, job.Kind) error { return nil }

func succeed(d job.Definition) (*job.Result, error) { return apptest.GoodResult(d), nil }

func TestEventsAreRecordedOnTheWay(t *testing.T) {
	events := []job.Emission{{Name: "a"}, {Name: "b"}}
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.worker.runner = emitting{events, succeed}
		w.start()
		trouble := 3
		w.Store.Hook("Emit", apptest.Hook{After: func(context.Context) error {
			if trouble--; trouble >= 0 {
				return errors.New("the answer is lost")
			}
			return nil
		}})
		task := w.Add()
		require.NoError(t, w.handle(task))
		row := w.Store.RowOf(task.JobID)
		require.Equal(t, events, row.Emitted, "as often as it takes, each once")
		require.Equal(t, job.Succeeded, row.State)
	})
}

func TestEventsEndWithTheClaim(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.worker.runner = emitting{[]job.Emission{{Name: "a"}}, func(job.Definition) (*job.Result, error) { panic("must not go on") }}
		w.start()
		w.Store.Hook("Emit", apptest.Hook{Before: func(context.Context) error { return job.ErrStale }})
		task := w.Add()
		require.NoError(t, w.handle(task))
		require.Empty(t, w.Store.RowOf(task.JobID).Ends, "nothing is written")
		require.Equal(t, 1.0, w.Metric(w.Metrics.FencedWrites.WithLabelValues("emit")))
	})
}

func TestPlannedFailureIsWritten(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			return nil, apptest.Failure{Reason: job.CustomFailed}
		}
		w.start()
		d := job.DefineCustom(job.Execute, &job.Behavior{Failures: []job.PlannedFailure{{Attempts: []int{1},
			Problem: job.PlannedProblem{Detail: "planned", RetryAfter: 7}}}}, time.Now(), nil)
		task := w.Add(func(r *apptest.Row) { r.WorkKind, r.Definition, r.AutoRetry = job.Custom, &d, true })
		require.NoError(t, w.handle(task))
		end := w.Store.RowOf(task.JobID).Ends[0]
		require.Equal(t, "planned", end.Failure.Detail)
		require.Equal(t, 7, end.Failure.RetryAfter)
		require.Equal(t, 7*time.Second, *end.RetryWait)
	})
}
