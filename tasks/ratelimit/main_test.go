package ratelimit

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

type world struct {
	t     testing.TB
	mini  *miniredis.Miniredis
	redis *redisconn.Redis
	us    atomic.Int64 // microseconds since 1970
	all   []*Limiter
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, mini: miniredis.RunT(t)}
	w.redis = redistest.Connect(t, "redis://"+w.mini.Addr())
	w.us.Store(noon.UnixMicro())
	w.mini.SetTime(noon)
	return w
}

func (w *world) now() time.Time { return time.UnixMicro(w.us.Load()).UTC() }

// advance waits for pending requests to Redis, then advances the time. Redis' clock advances first, so that Redis never sees a request
// before the process has sent it.
func (w *world) advance(d time.Duration) {
	for _, l := range w.all {
		l.asking.Wait()
	}
	w.mini.SetTime(w.now().Add(d))
	w.mini.FastForward(d)
	w.us.Add(d.Microseconds())
}

func (w *world) process(cfg Config, wrong time.Duration) *Limiter {
	w.t.Helper()
	cfg.Clock = func() time.Time { return w.now().Add(wrong) }
	l := newLimiter(w.t, w.redis, cfg)
	w.all = append(w.all, l)
	return l
}

func (w *world) sweep() {
	for _, l := range w.all {
		l.sweep()
	}
	for _, l := range w.all {
		l.asking.Wait()
	}
}

// The limiter waits long for Redis, so that it does not go on without Redis in a slow test.
func newLimiter(t testing.TB, r *redisconn.Redis, cfg Config) *Limiter {
	t.Helper()
	if cfg.Wait == 0 {
		cfg.Wait = redistest.Within
	}
	l := New(r, cfg)
	t.Cleanup(func() { _ = l.Stop(context.Background()) })
	return l
}

// hammer sends requests to all limiters until each has refused a request. It returns the number of passed requests.
func hammer(t testing.TB, client job.ID, limiters ...*Limiter) int {
	var passed atomic.Int64
	var senders sync.WaitGroup
	for _, l := range limiters {
		for range 8 {
			senders.Go(func() {
				for l.Allow(t.Context(), client).OK {
					passed.Add(1)
				}
			})
		}
	}
	senders.Wait()
	return int(passed.Load())
}
