package tour

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// answers is a service that answers each request so; 0: not at all.
type answers func() (status int)

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	if status := a(); status > 0 {
		return &http.Response{StatusCode: status, Body: http.NoBody}, nil
	}
	return nil, errors.New("connection refused")
}

// A service that stays away, or busy, ends the tour; one that comes back does not.
func TestTourEndsWithItsService(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(second int) (status int)
		ends   int // after so many seconds; 0: not
		why    error
	}{
		"good":               {func(int) int { return 200 }, 0, nil},
		"away":               {func(int) int { return 0 }, 11, errAway},
		"busy":               {func(int) int { return 503 }, 91, errBusy},
		"limited":            {func(int) int { return 429 }, 91, errBusy},
		"away now and then":  {func(second int) int { return 200 * (second / 10 % 2) }, 0, nil},
		"busy and then away": {func(second int) int { return map[bool]int{true: 503}[second < 60] }, 71, errAway},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, abort := context.WithCancelCause(t.Context())
				began := time.Now()
				m := &monitored{abort: abort, RoundTripper: answers(func() int { return c.answer(int(time.Since(began).Seconds())) })}
				for ctx.Err() == nil && time.Since(began) < time.Hour {
					r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service/v1/jobs/1", nil)
					require.NoError(t, err)
					_, _ = m.RoundTrip(r)
					time.Sleep(time.Second)
				}
				require.ErrorIs(t, context.Cause(ctx), c.why)
				if c.ends > 0 {
					require.Equal(t, time.Duration(c.ends+1)*time.Second, time.Since(began))
				}
			})
		})
	}
}

// While the service is down on purpose, requests wait, and those that are given up end.
func TestRequestsWaitForAnOutageToEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		m := &monitored{RoundTripper: answers(func() int { asked++; return 200 })}
		release := m.hold()
		given, giveUp := context.WithCancelCause(t.Context())
		errs := make(chan error, 2)
		for _, ctx := range []context.Context{given, t.Context()} {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service", nil)
			require.NoError(t, err)
			go func() {
				_, err := m.RoundTrip(r)
				errs <- err
			}()
		}
		synctest.Wait()
		giveUp(errTimeUp)
		require.ErrorIs(t, <-errs, errTimeUp)
		require.Zero(t, asked)
		release()
		require.NoError(t, <-errs)
		require.Equal(t, 1, asked)
	})
}
