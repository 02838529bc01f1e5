package scenario_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func times(t *testing.T, head, phases string) []time.Duration {
	t.Helper()
	s := parse(t, fmt.Sprintf("{%s, arrival: {open: [%s]}, mix: [{kind: SUCCESS_FAST}]}", head, phases))
	var at []time.Duration
	for _, i := range first(s, 1_000_000) {
		at = append(at, i.At)
	}
	return at
}

func TestRampArrivalsMatchIntegral(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from, to float64
	}{{10, 110}, {110, 10}, {0, 100}, {100, 0}, {50, 50}, {0.5, 7}} {
		at := times(t, "duration: 20s", fmt.Sprintf("{from: %v, to: %v}", test.from, test.to))
		whole := (test.from + test.to) / 2 * 20
		require.InDelta(t, whole, len(at), 1, "%v", test)
		for n, x := range at {
			seconds := x.Seconds()
			area := test.from*seconds + (test.to-test.from)*seconds*seconds/40
			require.InDelta(t, n, area, 1e-4, "arrival %d of %v", n, test)
		}
	}
}

func TestPhasesRepeatWithoutLosingArrivals(t *testing.T) {
	t.Parallel()
	at := times(t, "duration: 100s", "{for: 1s, rate: 0.5}, {for: 1s, rate: 0}, {for: 1s, from: 0, to: 1}")
	require.InDelta(t, 34, len(at), 1, "one and a half seconds' worth of arrivals, in each of 33 rounds, at 0.5/s on average")
	for n := 1; n < len(at); n++ {
		require.Greater(t, at[n], at[n-1])
		require.NotEqual(t, time.Duration(1), at[n]/time.Second%3, "the second phase is a pause")
	}
}

func TestBursts(t *testing.T) {
	t.Parallel()
	at := times(t, "duration: 20s", "{for: 5s, burst: 3, every: 2s}, {for: 3s, rate: 1}")
	var want []time.Duration
	for _, second := range []int{0, 0, 0, 2, 2, 2, 4, 4, 4, 5, 6, 7, 8, 8, 8, 10, 10, 10, 12, 12, 12, 13, 14, 15, 16, 16, 16, 18, 18, 18} {
		want = append(want, time.Duration(second)*time.Second)
	}
	require.Equal(t, want, at)
	require.Len(t, times(t, "duration: 20s", "{burst: 7}"), 7, "a burst without every occurs once")
}

func TestPoissonRateAndVariance(t *testing.T) {
	t.Parallel()
	at := times(t, "duration: 1000s", "{rate: 50, arrivals: poisson}")
	require.InDelta(t, 50_000, len(at), 4*math.Sqrt(50_000))
	// In a Poisson process, the variance of the number of arrivals per second equals its mean.
	counts := make([]float64, 1000)
	for _, x := range at {
		counts[int(x.Seconds())]++
	}
	require.True(t, slices.IsSorted(at))
	variance := 0.0
	for _, c := range counts {
		variance += (c - 50) * (c - 50) / 1000
	}
	require.InDelta(t, 50, variance, 10)
}

func TestDurationOrJobsEndPlan(t *testing.T) {
	t.Parallel()
	require.Len(t, times(t, "duration: 10s, jobs: 5", "{rate: 1}"), 5)
	require.Len(t, times(t, "duration: 3s, jobs: 50", "{rate: 1}"), 3)
	require.Len(t, times(t, "jobs: 50", "{rate: 1}"), 50)
	slow := times(t, "jobs: 1000", "{rate: 1/m}")
	require.Len(t, slow, 1000)
	require.InDelta(t, 999*float64(time.Minute), slow[999], 1000)
	require.Len(t, times(t, "jobs: 1000000", "{for: 1s, rate: 0.001}"), 605, "no run is longer than a week")
}
