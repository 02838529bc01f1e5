package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
)

func TestCommandLine(t *testing.T) {
	t.Parallel()
	names := func(list []experiment) (names []string) {
		for _, e := range list {
			names = append(names, e.name)
		}
		return names
	}
	c, err := parse(nil)
	require.NoError(t, err)
	require.Equal(t, names(all), names(c.chosen))
	require.Equal(t, 3, c.options.Rounds)

	self, err := os.Executable()
	require.NoError(t, err)
	// As "make bench-quick" does: what the user gives comes after its own options.
	c, err = parse([]string{"-duration", "4s", "-rounds", "1", "-against", self, "-rounds", "5", "throughput", "idle"})
	require.NoError(t, err)
	require.Equal(t, lab.Options{Duration: 4 * time.Second, Rounds: 5, Rows: 1_000_000, Against: self}, c.options)
	require.Equal(t, []string{"throughput", "idle"}, names(c.chosen))

	for _, args := range [][]string{{"fast"}, {"-nonsense"}, {"-rounds", "0"}, {"-against", self + ".missing"}} {
		_, err := parse(args)
		require.Error(t, err, args)
	}
}

// One experiment that fails does not stop the others.
func TestAllExperimentsRun(t *testing.T) {
	t.Parallel()
	broken := errors.New("no")
	got, err := runAll(t.Context(), &lab.Lab{}, []experiment{
		{name: "a", run: func(context.Context, *lab.Lab) ([]figures.Figure, error) { return nil, broken }},
		{name: "b", run: func(context.Context, *lab.Lab) ([]figures.Figure, error) { return []figures.Figure{{Name: "f"}}, nil }},
	})
	require.ErrorIs(t, err, broken)
	require.Len(t, got, 1)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err = runAll(ctx, &lab.Lab{}, []experiment{{name: "c"}})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, got)
}
