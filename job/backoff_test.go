package job_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestBackoffCeiling(t *testing.T) {
	t.Parallel()
	b := job.Backoff{Base: time.Second, Max: 60 * time.Second}
	for attempt, seconds := range []int{1: 1, 2: 2, 3: 4, 4: 8, 5: 16, 6: 32, 7: 60, 8: 60, 9: 60} {
		if attempt > 0 {
			require.Equal(t, time.Duration(seconds)*time.Second, b.Ceiling(attempt), "attempt %d", attempt)
		}
	}
	require.Equal(t, 7*time.Second, job.Backoff{Base: 5 * time.Second, Max: 7 * time.Second}.Ceiling(2))
	require.Equal(t, 8*time.Second, job.Backoff{Base: 4 * time.Second, Max: 8 * time.Second}.Ceiling(2))
	require.Equal(t, 2*time.Second, job.Backoff{Base: 9 * time.Second, Max: 2 * time.Second}.Ceiling(1), "Max bounds the first wait too")
	require.Equal(t, time.Second, b.Ceiling(0), "there is no attempt 0; it waits as the first does")
}

func TestBackoffOfExtremeValues(t *testing.T) {
	t.Parallel()
	const forever = time.Duration(math.MaxInt64)
	for _, attempt := range []int{1, 2, 63, 64, 65, 1000, math.MaxInt32, math.MaxInt} {
		for _, b := range []job.Backoff{
			{Base: time.Second, Max: time.Minute}, {Base: 1, Max: forever}, {Base: time.Second, Max: forever},
			{Base: forever, Max: forever}, {Base: 0, Max: time.Minute}, {Base: time.Second, Max: 0},
			{Base: -time.Second, Max: time.Minute}, {Base: time.Second, Max: -time.Second},
		} {
			c := b.Ceiling(attempt)
			require.GreaterOrEqual(t, c, time.Duration(0), "%+v, attempt %d", b, attempt)
			require.LessOrEqual(t, c, max(0, b.Max), "%+v, attempt %d", b, attempt)
			if attempt >= 64 && b.Base > 0 {
				require.Equal(t, max(0, b.Max), c, "%+v, attempt %d", b, attempt)
			}
			require.GreaterOrEqual(t, b.RetryAfter(attempt), 1)
			require.GreaterOrEqual(t, float64(b.RetryAfter(attempt)), c.Seconds())
			require.LessOrEqual(t, b.Wait(attempt, math.Nextafter(1, 0)), c)
		}
	}
}

func TestBackoffJitter(t *testing.T) {
	t.Parallel()
	b := job.Backoff{Base: time.Second, Max: 60 * time.Second}
	require.Zero(t, b.Wait(3, 0))
	require.Equal(t, time.Second, b.Wait(3, 0.25))
	require.Equal(t, 3*time.Second, b.Wait(3, 0.75))
	require.Less(t, b.Wait(3, math.Nextafter(1, 0)), 4*time.Second+1)
	require.Equal(t, 30*time.Second, b.Wait(100, 0.5))
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		base    time.Duration
		attempt int
		want    int
	}{
		{time.Second, 1, 1},
		{time.Second, 2, 2},
		{time.Second, 7, 60},
		{time.Second, 50, 60},
		{0, 1, 1},
		{time.Nanosecond, 1, 1},
		{20 * time.Millisecond, 3, 1},
		{1001 * time.Millisecond, 1, 2},
		{1500 * time.Millisecond, 2, 3},
		{1600 * time.Millisecond, 2, 4},
	} {
		require.Equal(t, c.want, job.Backoff{Base: c.base, Max: time.Minute}.RetryAfter(c.attempt), "%+v", c)
	}
}
