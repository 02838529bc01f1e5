package erasures_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/erasures"
	"github.com/forgerun/forgerun/job"
)

// fake is a store with prepared steps, a canceler and a queue.
type fake struct {
	open     []*job.Erasure
	steps    map[job.ID][]job.ErasureStep
	failing  job.ID
	refuse   error
	canceled []job.ID
	dropped  []job.ID
	removed  []job.Task
}

func (f *fake) OpenErasures(context.Context) ([]*job.Erasure, error) { return f.open, nil }

func (f *fake) EraseStep(_ context.Context, id job.ID) (s job.ErasureStep, err error) {
	if id == f.failing {
		return s, apptest.ErrStorage
	}
	if all := f.steps[id]; len(all) > 0 {
		s, f.steps[id] = all[0], all[1:]
	}
	return s, nil
}

func (f *fake) Cancel(_ context.Context, _, id job.ID) (job.Change, error) {
	f.canceled = append(f.canceled, id)
	return job.Change{}, f.refuse
}

func (f *fake) Remove(t job.Task) { f.removed = append(f.removed, t) }

func (f *fake) RemoveDeliveries(ids ...job.ID) { f.dropped = append(f.dropped, ids...) }

func (f *fake) round(t *testing.T, leading func() bool) error {
	t.Helper()
	return erasures.NewRunner(f, f, f, nil, slog.New(slog.DiscardHandler)).Round(t.Context(), leading)
}

func always() bool { return true }

func newFake(n int) *fake {
	f := &fake{steps: map[job.ID][]job.ErasureStep{}}
	for range n {
		e := &job.Erasure{ID: app.NewID(), ClientID: app.NewID()}
		f.open = append(f.open, e)
	}
	return f
}

func TestRunnerCancelsWhatStepsFindAndGoesOn(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		f := newFake(1)
		e := f.open[0]
		a, b, hook := app.NewID(), app.NewID(), app.NewID()
		f.steps[e.ID] = []job.ErasureStep{
			{Erasure: e, Progress: true, Deliveries: []job.ID{hook}},
			{Erasure: e, Progress: true, Unfinished: []job.ID{a, b}},
			{Erasure: e, Progress: true, Tasks: []job.Task{{JobID: a}}},
			{Erasure: e}, // it must wait
			{Erasure: e, Progress: true},
		}
		f.refuse = job.Errorf(job.CodeJobNotFound, "It is gone.")
		require.NoError(t, f.round(t, always))
		require.Equal(t, []job.ID{hook}, f.dropped)
		require.Equal(t, []job.ID{a, b}, f.canceled)
		require.Equal(t, []job.Task{{JobID: a}}, f.removed)
		require.Len(t, f.steps[e.ID], 1, "the next round goes on")
		require.NoError(t, f.round(t, always))
		require.Empty(t, f.steps[e.ID])
	})
}

func TestRunnerThatCannotCancelTriesAgainLater(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		f := newFake(1)
		e := f.open[0]
		step := job.ErasureStep{Erasure: e, Progress: true, Unfinished: []job.ID{app.NewID()}}
		f.steps[e.ID] = []job.ErasureStep{step, step}
		f.refuse = apptest.ErrStorage
		require.ErrorIs(t, f.round(t, always), apptest.ErrStorage)
		require.Len(t, f.steps[e.ID], 1)
	})
}

func TestAnErasureThatFailsDoesNotKeepTheOthers(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		f := newFake(2)
		f.failing = f.open[0].ID
		f.steps[f.open[1].ID] = []job.ErasureStep{{Erasure: f.open[1], Progress: true}}
		require.True(t, errors.Is(f.round(t, always), apptest.ErrStorage))
		require.Empty(t, f.steps[f.open[1].ID])
	})
}

func TestRunnerStopsWithTheLead(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		f := newFake(1)
		e := f.open[0]
		step := job.ErasureStep{Erasure: e, Progress: true}
		f.steps[e.ID] = []job.ErasureStep{step, step, step}
		asked := 0
		require.NoError(t, f.round(t, func() bool { asked++; return asked <= 2 }))
		require.Len(t, f.steps[e.ID], 2)
	})
}
