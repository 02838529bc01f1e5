package scenario_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

// milliseconds is how long each kind runs at time scale 1 (specification, section
// 6). RUNS_OVER_TIMEOUT ends at the limit of a second at least.
var milliseconds = map[string]float64{
	"SUCCESS_FAST": 1_000, "SUCCESS_NORMAL": 10_000, "SUCCESS_SLOW": 90_000, "FAIL_IMMEDIATE": 500,
	"FAIL_AFTER_PROGRESS": 20_000, "FAIL_AFTER_RETRYABLE": 5_000, "RUNS_LONG": 110_000, "RUNS_OVER_TIMEOUT": 121_000,
	"CPU_BURST": 8_000, "MEMORY_SPIKE": 12_000, "IO_HEAVY": 15_000, "MANY_SMALL_OUTPUTS": 9_000, "LARGE_OUTPUT": 9_000,
	"CANCEL_BEFORE_START": 5_000, "CANCEL_DURING_RUN": 10_000, "RETRY_ON_FAIL": 3_000, "RETRY_LIMIT_REACHED": 3_000,
	"PAYLOAD_INVALID": 0,
}

// attempts is how often a failing kind runs if it is retried.
var attempts = map[string]float64{
	"RETRY_ON_FAIL": 2, "RETRY_LIMIT_REACHED": 4, "FAIL_AFTER_RETRYABLE": 4, "FAIL_AFTER_PROGRESS": 4, "RUNS_OVER_TIMEOUT": 4,
}

func slotSeconds(w *scenario.Work, kind string, scale float64) float64 {
	ms, ok := milliseconds[kind]
	if !ok {
		ms = 2_000
	}
	seconds := ms / 1000 * scale
	if kind == "RUNS_OVER_TIMEOUT" {
		seconds = max(seconds, 1)
	}
	if n := attempts[kind]; n > 0 && (w.AutoRetry || w.Retry != nil) {
		seconds *= n
	}
	return seconds
}

func TestReadyMadeScenarios(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"burst", "cancel-storm", "duplicate-storm", "moved-clock", "overload", "retry-limits", "scheduled-wave", "schedules",
		"slow-consumers", "soak", "steady", "tenants", "tour", "webhook-chaos",
	}, scenario.Names())
	for _, name := range scenario.Names() {
		text, err := scenario.Text(name)
		require.NoError(t, err)
		require.Regexp(t, `^# [A-Z]`, string(text), "%s begins with what it is for", name)
		require.Contains(t, string(text), "\n# It shows ", name)
		s, err := scenario.Load(name)
		require.NoError(t, err)
		require.Equal(t, name, s.Name)
		require.NotEmpty(t, s.Description)
		require.NotNil(t, s.Service.TimeScale)
		require.Equal(t, "600000", s.Service.Env["FORGERUN_RATE_LIMIT_PER_MINUTE"], name)
		if len(s.Receivers) > 0 {
			require.Equal(t, "true", s.Service.Env["FORGERUN_WEBHOOK_ALLOW_PRIVATE"], name)
		}
		require.Empty(t, s.Chaos)
		switch {
		case name == "tour": // has jobs instead
		case name == "soak":
			require.Equal(t, 10*time.Minute, s.Duration)
		default:
			require.True(t, s.Duration >= 20*time.Second && s.Duration <= time.Minute, name)
		}
	}
	_, err := scenario.Text("none")
	require.ErrorIs(t, err, os.ErrNotExist)
}

var firstNumber = regexp.MustCompile(`^[0-9]+`)

// All but overload leave the workers room: the slots that are used on average,
// over the slots that there are at the start.
func TestReadyMadeScenariosFitTheirWorkers(t *testing.T) {
	t.Parallel()
	for _, name := range scenario.Names() {
		s, err := scenario.Load(name)
		require.NoError(t, err)
		if s.Arrival.Closed != nil {
			continue // it cannot ask for more than it gets
		}
		used, jobs := 0.0, 0.0
		for _, i := range first(s, 1_000_000) {
			kinds := slices.Concat(i.Kinds, []string{i.Kind}[:min(len(i.Kind), 1)])
			for _, kind := range kinds {
				n := float64(i.Tickets) / float64(len(kinds))
				used += n * slotSeconds(i.Work, kind, *s.Service.TimeScale)
				jobs += n
			}
		}
		workers := firstNumber.FindString(s.Service.Workers)
		slots := float64(s.Service.Concurrency * int(workers[0]-'0'))
		busy := used / s.Duration.Seconds() / slots
		t.Logf("%-16s %6.1f jobs/s, %5.1f of %3.0f slots, %3.0f %%", name, jobs/s.Duration.Seconds(), busy*slots, slots, 100*busy)
		if name == "overload" {
			require.Greater(t, busy, 2.0)
			continue
		}
		require.Less(t, busy, 0.8, name)
		require.Less(t, jobs/s.Duration.Seconds(), 150.0, "jobs per second of %s", name)
	}
}

func TestTourHasEachKindAndTheClientsPart(t *testing.T) {
	t.Parallel()
	s, err := scenario.Load("tour")
	require.NoError(t, err)
	seen := map[string]int{}
	intents := first(s, 1000)
	for _, i := range intents {
		if i.Kind == "" {
			continue
		}
		seen[i.Kind]++
		for prefix, ok := range map[string]bool{
			"CANCEL_": i.Cancel.In != "", "RETRY_": i.Retries > 0, "DUPLICATE_": i.Copies > 0,
			"WEBHOOK_": i.Callback != "", "SCHEDULED_": i.Type == scenario.Deferred && i.Ahead >= time.Second,
		} {
			require.True(t, ok || !strings.HasPrefix(i.Kind, prefix), "%s", i.Kind)
		}
		require.Equal(t, strings.HasSuffix(i.Kind, "SAME_KEY"), i.SameKey)
	}
	require.Len(t, seen, 31)
	for kind, n := range seen {
		require.Equal(t, 10, n, "whole rounds: %s", kind)
	}
}

func TestSoakHasEverything(t *testing.T) {
	t.Parallel()
	s, err := scenario.Load("soak")
	require.NoError(t, err)
	seen := map[string]bool{}
	tenants := map[int]bool{}
	for _, i := range first(s, 20_000) {
		seen[i.Kind] = true
		tenants[i.Tenant] = true
	}
	delete(seen, "") // batches and EMIT_EVENT
	require.Len(t, seen, 31)
	require.Len(t, tenants, 4)
}
