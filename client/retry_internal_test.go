package client

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackoffGrowsToItsEnd(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Second, exponential(time.Second, time.Minute, 1))
	require.Equal(t, 8*time.Second, exponential(time.Second, time.Minute, 4))
	require.Equal(t, time.Minute, exponential(time.Second, time.Minute, 1000), "without running over")
}
