package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/lifecycle"
)

type journal struct{ entries []string }

func (j *journal) part(name string, start, stop error) lifecycle.Part {
	return lifecycle.Part{
		Name:  name,
		Start: func(context.Context) error { j.entries = append(j.entries, "start "+name); return start },
		Stop:  func(context.Context) error { j.entries = append(j.entries, "stop "+name); return stop },
	}
}

func TestPartsStopInReverseOrderAndOnce(t *testing.T) {
	t.Parallel()
	var j journal
	var out bytes.Buffer
	g := lifecycle.Group{Log: slog.New(slog.NewTextHandler(&out, nil))}
	g.Stop()
	require.NoError(t, g.Start(t.Context(), j.part("a", nil, nil), j.part("b", nil, errors.New("stuck"))))
	failed := errors.New("no")
	require.ErrorIs(t, g.Start(t.Context(), j.part("c", nil, nil), j.part("d", failed, nil), j.part("e", nil, nil)), failed)
	g.Stop()
	g.Stop()
	require.Equal(t, []string{"start a", "start b", "start c", "start d", "stop c", "stop b", "stop a"}, j.entries)
	require.Contains(t, out.String(), "part=b")
	require.Contains(t, out.String(), "stuck")
}

func TestEachPartHasItsOwnGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g lifecycle.Group
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		g.Log = slog.New(slog.DiscardHandler)
		require.NoError(t, g.Start(t.Context(), lifecycle.Part{Stop: hang}, lifecycle.Part{Stop: hang, Grace: time.Minute}))
		began := time.Now()
		g.Stop()
		require.Equal(t, time.Minute+lifecycle.DefaultGrace, time.Since(began))
	})
}

func TestLoopEndsBeforeStopReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := false
		var g lifecycle.Group
		require.NoError(t, g.Start(t.Context(), lifecycle.Loop("loop", func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second)
			over = true
		})))
		g.Stop()
		require.True(t, over)
	})
}
