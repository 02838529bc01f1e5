package clock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/clock"
)

var base = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestSetting(t *testing.T) {
	t.Parallel()
	later := base.Add(24 * time.Hour)
	for name, c := range map[string]struct {
		setting clock.Setting
		after   time.Duration // time of Postgres' clock, relative to base
		want    time.Time
		wait    time.Duration // real time until an hour has passed
	}{
		"never moved": {clock.Setting{}, time.Hour, base.Add(time.Hour), time.Hour},
		"advanced":    {clock.Setting{Number: 1, Real: base, Time: later, Rate: 1}, time.Minute, later.Add(time.Minute), time.Hour},
		"frozen":      {clock.Setting{Number: 2, Real: base, Time: later}, time.Minute, later, clock.Never},
		"fast":        {clock.Setting{Number: 3, Real: base, Time: later, Rate: 60}, time.Minute, later.Add(time.Hour), time.Minute},
		"slow":        {clock.Setting{Number: 3, Real: base, Time: later, Rate: 0.1}, time.Minute, later.Add(6 * time.Second), 10 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, c.setting.At(base.Add(c.after)))
			require.Equal(t, c.wait, c.setting.Wait(time.Hour))
			require.Zero(t, c.setting.Wait(-time.Second))
		})
	}
}

func TestMoves(t *testing.T) {
	t.Parallel()
	after := base.Add
	moves := clock.Moves{
		{Number: 1, Real: base, Time: after(10 * time.Hour), Rate: 1},
		{Number: 2, Real: after(time.Minute), Time: after(10*time.Hour + time.Minute)},
		{Number: 3, Real: after(2 * time.Minute), Time: after(10*time.Hour + time.Minute), Rate: 60},
	}
	for shown, real := range map[time.Duration]time.Duration{
		-time.Hour: -time.Hour, time.Hour: 0, 10 * time.Hour: 0, 10*time.Hour + time.Second: time.Second,
		10*time.Hour + time.Minute: time.Minute, 10*time.Hour + 2*time.Minute: 2*time.Minute + time.Second,
	} {
		require.Equal(t, after(real), moves.Real(after(shown)), shown)
		require.Equal(t, after(shown), clock.Moves(nil).Real(after(shown)))
	}
	require.True(t, moves[:2].Real(after(11*time.Hour)).After(after(24*time.Hour)), "a frozen clock does not reach the time")
}

func TestSleepUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		start := time.Now()
		require.NoError(t, c.SleepUntil(t.Context(), c.Now().Add(time.Hour)))
		require.Equal(t, time.Hour, time.Since(start))

		woken := make(chan time.Duration, 1)
		start = time.Now()
		due := c.Now().Add(time.Hour)
		go func() {
			_ = c.SleepUntil(t.Context(), due)
			woken <- time.Since(start)
		}()
		time.Sleep(time.Minute)
		c.Set(clock.Setting{Number: 1, Real: time.Now(), Time: c.Now()}, 0) // frozen
		time.Sleep(10 * time.Hour)
		require.Empty(t, woken)
		c.Set(clock.Setting{Number: 2, Real: time.Now(), Time: c.Now(), Rate: 59}, 0) // the remaining 59 minutes pass in one minute
		require.Equal(t, time.Minute+10*time.Hour+time.Minute, <-woken)

		go func() {
			_ = c.SleepUntil(t.Context(), c.Now().Add(time.Hour))
			woken <- 0
		}()
		synctest.Wait()
		c.Set(clock.Setting{Number: 3, Real: time.Now(), Time: c.Now().Add(2 * time.Hour), Rate: 1}, 0)
		require.Zero(t, <-woken, "a jump past the time wakes the sleeper")

		c.Set(clock.Setting{Number: 4, Real: time.Now(), Time: c.Now(), Rate: 60}, 0)
		require.Equal(t, time.Now().Add(time.Minute), c.Real(c.Now().Add(time.Hour)))

		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		cancel(gone)
		require.ErrorIs(t, c.SleepUntil(ctx, c.Now().Add(time.Hour)), gone)
	})
}

func TestSettingsComeInAnyOrder(t *testing.T) {
	t.Parallel()
	c := clock.New()
	changed := c.Changed()
	c.Set(clock.Setting{Number: 2, Real: base, Time: base}, 0)
	<-changed
	changed = c.Changed()
	c.Set(clock.Setting{Number: 1, Real: base, Time: base.Add(-time.Hour)}, 0)
	require.Equal(t, base, c.Now())
	select {
	case <-changed:
		t.Fatal("nothing has changed")
	default:
	}
}
