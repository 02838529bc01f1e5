package fault

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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

// A rule with Times and For ends when both limits are reached.
func TestWindows(t *testing.T) {
	t.Parallel()
	at := func(m Match, seen, applied int64, age time.Duration) bool {
		c := Counted{Rule: Rule{Match: m}, Seen: seen, Applied: applied}
		if applied > 0 {
			c.Age = &age
		}
		return c.Applies()
	}
	m := Match{Nth: 2, Times: 3}
	require.False(t, at(m, 1, 0, 0))
	require.True(t, at(m, 2, 0, 0))
	require.True(t, at(m, 9, 2, time.Hour), "another rule applied to some of the requests")
	require.False(t, at(m, 10, 3, 0))
	m.For = Duration(time.Second)
	require.True(t, at(m, 10, 3, time.Second-1))
	require.False(t, at(m, 11, 4, time.Second))
	require.True(t, at(Match{Nth: 1, For: Duration(time.Second)}, 1, 0, 0))
	require.False(t, at(Match{Nth: 1, For: Duration(time.Second)}, 2, 1, time.Minute))
}

var someAPI = API{Operations: map[Use][]string{
	Submissions: {"order", "orders"}, Lookups: {"status"}, Outcomes: {"receipt"}, Streams: {"events"},
}, Full: "full", Limited: "limited"}

func TestProfilesAreRules(t *testing.T) {
	t.Parallel()
	for _, p := range Profiles {
		orders := map[string]bool{}
		for seed := range int64(50) {
			rules := p.Rules(someAPI, seed)
			require.NotEmpty(t, rules, p)
			require.LessOrEqual(t, len(rules), MaxRules)
			sure, order := map[string]map[int]bool{}, ""
			for _, r := range rules {
				require.NotEqual(t, Effect{}, r.Effect, p)
				text, err := json.Marshal(r)
				require.NoError(t, err)
				require.LessOrEqual(t, len(text), MaxRuleBytes)
				var read Rule
				require.NoError(t, json.Unmarshal(text, &read))
				require.Equal(t, r, read, "%s: %s", p, text)
				if m := r.Match; m.Operation != "" && m.Nth > 0 {
					if sure[m.Operation] == nil {
						sure[m.Operation] = map[int]bool{}
					}
					require.False(t, sure[m.Operation][m.Nth], "two faults at one request: only one would apply")
					sure[m.Operation][m.Nth] = true
					order += string(text)
				}
			}
			for operation, uses := range sure {
				require.LessOrEqual(t, len(uses), 12)
				for n := range uses {
					require.True(t, n == 1 || n == later || uses[n-1], "%s of %s", operation, p)
				}
			}
			require.Equal(t, rules, p.Rules(someAPI, seed), "the same for the same seed")
			orders[order] = true
		}
		if !slices.Contains([]Profile{MaintenanceWindow, SlowEverything, Failover, Credentials, Outage}, p) { // profiles with a fixed order
			require.Greater(t, len(orders), 1, p)
		}
	}
	require.Empty(t, Profile("").Rules(someAPI, 1))
}

// The profile `moved` redirects with 303 only if the API allows that.
func TestMovedBy303(t *testing.T) {
	t.Parallel()
	for _, allowed := range []bool{true, false} {
		api, statuses := someAPI, map[int]bool{}
		api.SeeOther = allowed
		for _, r := range Moved.Rules(api, 1) {
			statuses[r.Effect.Moved] = true
		}
		require.Equal(t, []bool{allowed, true, true}, []bool{statuses[303], statuses[307], statuses[308]})
	}
}

// A client may give up on a read after three tries.
func TestReadsAreRefused(t *testing.T) {
	t.Parallel()
	for _, p := range []Profile{Default, Overloaded} {
		for seed := range int64(50) {
			failing, full := map[int]bool{}, false
			for _, r := range p.Rules(someAPI, seed) {
				if r.Match.Operation == "status" && r.Match.Nth > 0 {
					failing[r.Match.Nth] = r.Effect.Status >= 400 || r.Effect.Close != ""
					full = full || r.Effect.Status == 503
				}
			}
			require.True(t, full, p)
			for n := range failing {
				require.False(t, failing[n] && failing[n+1] && failing[n+2], "%s, seed %d", p, seed)
			}
		}
	}
}

func TestTimesMayBeLowerCase(t *testing.T) {
	t.Parallel()
	var upper, lower Match
	require.NoError(t, json.Unmarshal([]byte(`{"from":"2030-01-31T12:00:00.5Z"}`), &upper))
	require.NoError(t, json.Unmarshal([]byte(`{"from":"2030-01-31t12:00:00.5z"}`), &lower))
	require.Equal(t, upper, lower)
}
