package scenario_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

func parse(t testing.TB, text string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test.yaml", []byte(text))
	require.NoError(t, err)
	return s
}

func first(s *scenario.Scenario, n int) []scenario.Intent {
	var intents []scenario.Intent
	p := s.Plan()
	for range n {
		i, ok := p.Next()
		if !ok {
			break
		}
		intents = append(intents, i)
	}
	return intents
}

const mixed = `
duration: 1h
tenants: 5
arrival: {open: [{for: 10s, rate: 100/s, arrivals: poisson}, {for: 10s, from: 100/s, to: 300/s}, {for: 2s, burst: 50, every: 1s}]}
receivers: [{name: here, callback: true}]
readers: {poll: 25%}
mix:
  - {kind: SUCCESS_FAST, weight: 5, callback: here, params_bytes: 100}
  - {kinds: [CANCEL_DURING_RUN, RUNS_LONG], weight: 2, cancel: {in: RUNNING, after: 1s..3s, share: 50%}}
  - {kind: RETRY_ON_FAIL, weight: 1, retry: {share: 30%, max: 4}, auto_retry: true}
  - {kind: SUCCESS_FAST, weight: 1, duplicate: {share: 60%, copies: 3, key: different, at_once: true}}
  - {kind: SUCCESS_FAST, weight: 1, duplicate: {share: 60%, copies: 2, key: same}}
  - {kinds: [SCHEDULED_ON_TIME], type: DEFERRED, ahead: 5s..20s}
  - {kinds: ALL, batch: 7, weight: 0.5}
  - {type: EMIT_EVENT, weight: 0.5}
`

func TestSameSeedSameIntents(t *testing.T) {
	t.Parallel()
	s := parse(t, mixed)
	want := first(s, 5000)
	require.Equal(t, want, first(s, 5000))
	other := *s
	other.Seed++
	require.NotEqual(t, want[:3], first(&other, 3))

	again := parse(t, mixed)
	got := first(again, 5000)
	for n := range got {
		require.Equal(t, *want[n].Work, *got[n].Work)
		got[n].Work = want[n].Work
	}
	require.Equal(t, want, got)
}

func TestWeights(t *testing.T) {
	t.Parallel()
	const n = 50_000
	s := parse(t, mixed)
	works, tenants := map[*scenario.Work]float64{}, map[int]float64{}
	kinds := map[string]float64{}
	canceled, cancelable, polled := 0.0, 0.0, 0.0
	after := time.Duration(0)
	for _, i := range first(s, n) {
		works[i.Work]++
		tenants[i.Tenant]++
		if i.Work == &s.Mix[1] {
			kinds[i.Kind]++
			cancelable++
			if i.Cancel.In != "" {
				canceled++
				after += i.Cancel.After
			}
		}
		if i.Polled {
			polled++
		}
	}
	total := 0.0
	for _, w := range s.Mix {
		total += w.Weight
	}
	for m := range s.Mix {
		require.InDelta(t, s.Mix[m].Weight/total, works[&s.Mix[m]]/n, 0.005)
	}
	require.Len(t, tenants, 5)
	for _, seen := range tenants {
		require.InDelta(t, 0.2, seen/n, 0.006)
	}
	require.Len(t, kinds, 2)
	require.InDelta(t, 0.5, kinds["RUNS_LONG"]/cancelable, 0.02)
	require.InDelta(t, 0.5, canceled/cancelable, 0.02)
	require.InDelta(t, 0.25, polled/n, 0.01)
	require.InDelta(t, 2.0, after.Seconds()/canceled, 0.03)
}

func TestInTurn(t *testing.T) {
	t.Parallel()
	s := parse(t, `
jobs: 12
pick: in_turn
arrival: {closed: {clients: 1}}
mix:
  - kinds: [SUCCESS_FAST, RUNS_LONG]
  - {type: EMIT_EVENT}
  - {kinds: [FAIL_IMMEDIATE, CPU_BURST, IO_HEAVY], batch: 4}
`)
	var got []string
	for _, i := range first(s, 100) {
		got = append(got, i.Work.Type+" "+i.Kind)
		if i.Work.Batch > 0 {
			require.Subset(t, i.Kinds, []string{"FAIL_IMMEDIATE", "CPU_BURST", "IO_HEAVY"}, "a batch with as many items has all kinds")
		}
	}
	round := []string{"EXECUTE SUCCESS_FAST", "EXECUTE RUNS_LONG", "EMIT_EVENT ", "EXECUTE "}
	require.Equal(t, slices.Concat(round, round, round), got)
}
