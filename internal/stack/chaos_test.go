package stack

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseChaos(t *testing.T) {
	t.Parallel()
	c, err := ParseChaos(" kill=30s, cut=500ms,redis-pause=2m")
	require.NoError(t, err)
	got := map[string]time.Duration{}
	for _, m := range c.means {
		got[m.kind.name] = m.every
	}
	require.Equal(t, map[string]time.Duration{"kill": 30 * time.Second, "cut": 500 * time.Millisecond, "redis-pause": 2 * time.Minute}, got)
	c, err = ParseChaos(" ")
	require.NoError(t, err)
	require.Empty(t, c.means)
	require.Len(t, kinds, 13)
	for _, k := range kinds {
		require.NotEmpty(t, k.does)
		_, err := ParseChaos(k.name + "=1s")
		require.NoError(t, err)
	}
}

func TestBadChaos(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"kill":             `"kill" must be a kind of fault with its mean interval, such as kill=30s`,
		"explode=1s":       `unknown fault "explode"; known faults: kill, stop, term, flush, redis,`,
		"kill=often":       `the mean interval of kill is "often", but must be a duration from 100ms to 24h`,
		"kill=25h":         `but must be a duration from 100ms`,
		"kill=1s,kill=20s": `kill is listed twice`,
	} {
		_, err := ParseChaos(text)
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, "chaos ", text)
	}
}

func planned(seed uint64, name string, every time.Duration, n int) []plannedFault {
	var all []plannedFault
	for next := range plan(seed, name, every) {
		if all = append(all, next); len(all) == n {
			break
		}
	}
	return all
}

func TestSameSeedSamePlan(t *testing.T) {
	t.Parallel()
	const n = 5000
	kill := planned(7, "kill", time.Second, n)
	require.Equal(t, kill, planned(7, "kill", time.Second, n))
	require.NotEqual(t, kill[:3], planned(8, "kill", time.Second, 3), "another seed")
	require.NotEqual(t, kill[:3], planned(7, "stop", time.Second, 3), "another kind")
	twice := planned(7, "kill", 2*time.Second, 3)
	require.InDelta(t, float64(2*kill[2].at), float64(twice[2].at), 10, "the interval only scales the times")
	require.Equal(t, kill[2].seed, twice[2].seed)
	require.InDelta(t, n, kill[n-1].at.Seconds(), n/10, "the mean interval")
}
