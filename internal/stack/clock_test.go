package stack

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func drawn(seed uint64) (m clockMove, kind string) {
	m = drawMove(rand.New(rand.NewPCG(seed, 0)))
	return m, strings.Fields(m.name)[1]
}

func clockFaults(t *testing.T, s *Stack) {
	c, err := ParseChaos("clock=1s")
	require.NoError(t, err)
	require.True(t, c.MovesClock())
	require.NoError(t, c.Check(s))

	seen := map[string]bool{}
	for seed := uint64(1); len(seen) < 3; seed++ {
		if m, kind := drawn(seed); !seen[kind] {
			seen[kind] = true
			require.Equal(t, m.name, injectFault(testContext(t), t, s, "clock", seed).Target)
		}
	}
	require.NoError(t, s.move(testContext(t), frozen(0)))
	require.NoError(t, s.Heal(testContext(t)))

	shown, err := s.clock.Clock(testContext(t))
	require.NoError(t, err)
	require.Equal(t, 1.0, shown.Rate)
	require.False(t, shown.Frozen)
	require.ErrorContains(t, s.move(testContext(t), atRate(mostRate+1, 0)), "400", "a refused move is not repeated")
}
