package testbed

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// applied gives which of n requests a rule has its effect on.
func applied(m Match, seed int64, n int64) (list []int64) {
	for i := int64(1); i <= n; i++ {
		c := Counted{Rule: Rule{Match: m}, Seed: seed, Position: 1, Seen: i}
		if c.Applies() {
			list = append(list, i)
		}
	}
	return list
}

func TestRulesApply(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int64{1, 2, 3}, applied(Match{}, 1, 3))
	require.Equal(t, []int64{2}, applied(Match{Nth: 2}, 1, 9))
	require.Equal(t, []int64{3, 6, 9}, applied(Match{Every: 3}, 1, 10))

	const n = 20_000
	for _, p := range []float64{0.01, 0.3, 0.9, 1} {
		first := applied(Match{Probability: p}, 1, n)
		require.Equal(t, first, applied(Match{Probability: p}, 1, n), "the same for the same seed")
		deviation := math.Sqrt(n * p * (1 - p))
		require.InDelta(t, n*p, len(first), 5*deviation)
		if p < 1 {
			require.NotEqual(t, first, applied(Match{Probability: p}, 2, n))
		}
	}
}

// Each status of the contract has a code whose status it is.
func TestStatusesHaveCodes(t *testing.T) {
	t.Parallel()
	for _, spec := range job.Codes {
		code, ok := CodeOf(spec.Status)
		require.True(t, ok)
		require.Equal(t, spec.Status, code.Spec().Status)
	}
	code, _ := CodeOf(503)
	require.Equal(t, job.CodeStorageUnavailable, code)
	_, ok := CodeOf(418)
	require.False(t, ok)
}

// Rules are what they were after they have been stored, and each profile has some.
func TestProfilesAreRules(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	for _, p := range Profiles {
		rules := p.Rules(now)
		require.NotEmpty(t, rules, p)
		require.LessOrEqual(t, len(rules), MaxRules)
		for _, r := range rules {
			require.NotEqual(t, Effect{}, r.Effect, p)
			text, err := json.Marshal(r)
			require.NoError(t, err)
			require.LessOrEqual(t, len(text), MaxRuleBytes)
			var read Rule
			require.NoError(t, json.Unmarshal(text, &read))
			require.Equal(t, r, read, "%s: %s", p, text)
		}
	}
	require.Empty(t, Profile("").Rules(now))
}
