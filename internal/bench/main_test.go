package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
)

func names(list []experiment) (names []string) {
	for _, e := range list {
		names = append(names, e.name)
	}
	return names
}

func TestExperimentsAreChosen(t *testing.T) {
	t.Parallel()
	parsed := func(args ...string) command {
		c, err := parse(args)
		require.NoError(t, err)
		return c
	}
	require.Equal(t, []string{"throughput", "half", "idle"}, names(parsed("quick").chosen))
	require.Equal(t, names(parsed("standard").chosen), names(parsed().chosen))
	require.Subset(t, names(parsed().chosen), []string{"throughput", "redis"})
	require.NotContains(t, names(parsed().chosen), "deliveries")
	require.Equal(t, names(all), names(parsed("full").chosen))
	require.Equal(t, []string{"deliveries"}, names(parsed("deliveries").chosen))
	require.Equal(t, []string{"idle", "generator"}, names(parsed("generator", "idle").chosen), "in the order of the list")
	require.Equal(t, []string{"redis"}, names(parsed("-only", "^red", "quick").chosen), "of any kind")

	for _, args := range [][]string{{"fast"}, {"quick", "idle"}, {"-only", "("}, {"-only", "nothing"}, {"-nonsense"}} {
		_, err := parse(args)
		require.Error(t, err, args)
	}
}

func TestDefaultsAreThoseOfTheKind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args     []string
		duration time.Duration
		rounds   int
		json     string
	}{
		{[]string{"quick"}, 4 * time.Second, 1, "bench-quick.json"},
		{nil, 8 * time.Second, 3, "bench-standard.json"},
		{[]string{"idle"}, 8 * time.Second, 3, "bench-selected.json"},
		{[]string{"-only", "idle", "quick"}, 4 * time.Second, 1, "bench-selected.json"},
		{[]string{"-rounds", "5", "-duration", "1s", "-json", "x", "full"}, time.Second, 5, "x"},
	} {
		got, err := parse(c.args)
		require.NoError(t, err)
		require.Equal(t, c.duration, got.o.Duration)
		require.Equal(t, c.rounds, got.o.Rounds)
		require.Equal(t, c.json, got.json)
	}
}

func TestExperimentNamesAreUniqueAndNoKinds(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{"quick": true, "standard": true, "full": true}
	for _, e := range all {
		require.False(t, seen[e.name], e.name)
		seen[e.name] = true
		require.NotEmpty(t, e.about)
		require.NotContains(t, roles, e.name, "the program would take it for a role")
	}
}

// One experiment that fails does not stop the others.
func TestAllExperimentsRun(t *testing.T) {
	t.Parallel()
	broken := errors.New("no")
	l := &lab.Lab{}
	got, err := runAll(t.Context(), l, []experiment{
		{name: "a", run: func(context.Context, *lab.Lab) ([]figures.Figure, error) { return nil, broken }},
		{name: "b", run: func(context.Context, *lab.Lab) ([]figures.Figure, error) { return []figures.Figure{{Figure: "f"}}, nil }},
	})
	require.ErrorIs(t, err, broken)
	require.Len(t, got, 1)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err = runAll(ctx, l, []experiment{{name: "c"}})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, got)
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	good, bad := figures.Figure{OK: true}, figures.Figure{}
	require.Equal(t, 0, exitCode([]figures.Figure{good}, nil))
	require.Equal(t, 1, exitCode([]figures.Figure{good, bad}, nil))
	require.Equal(t, 2, exitCode([]figures.Figure{bad}, errors.New("not measured")), "what could not be measured counts more")
}
