package scenario_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

func TestReadyMadeScenarios(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"autoscale", "burst", "mixed", "moved-clock", "soak", "steady", "tour"}, scenario.Names())
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
		require.Contains(t, string(text), "\nexpect:\n  ", name)
		require.NotNil(t, s.Expect.Refused, name)
		switch {
		case name == "tour": // has jobs instead
		case name == "soak":
			require.Equal(t, 10*time.Minute, s.Duration)
		case name == "autoscale":
			require.Equal(t, 2*time.Minute, s.Duration)
		default:
			require.True(t, s.Duration >= 20*time.Second && s.Duration <= time.Minute, name)
		}
	}
	_, err := scenario.Text("none")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestTourExpectsSomethingOfEachKind(t *testing.T) {
	t.Parallel()
	s, err := scenario.Load("tour")
	require.NoError(t, err)
	seen := map[string]bool{}
	intents := first(s, 1000)
	for _, i := range intents {
		seen[i.Kind] = true
		require.NotEmpty(t, i.Work.Expect, i.Kind)
		for prefix, ok := range map[string]bool{
			"CANCEL_": i.Cancel.In != "", "RETRY_": i.Retries > 0, "DUPLICATE_": i.Copies > 0,
			"WEBHOOK_": i.Work.Callback != "", "SCHEDULED_": i.Work.Type == scenario.Deferred,
			"SCHEDULED_LATE": i.Ahead > s.Service.Down.Min && i.Ahead < s.Service.Down.Max,
		} {
			require.True(t, ok || !strings.HasPrefix(i.Kind, prefix), "%s", i.Kind)
		}
		require.Equal(t, strings.HasSuffix(i.Kind, "SAME_KEY"), i.SameKey)
	}
	require.Len(t, seen, 31)
	require.EqualValues(t, s.Jobs, len(intents))
	require.EqualValues(t, s.Jobs, s.Arrival.Closed.Clients, "all at once")
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
