package batch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// forwarder has asynq's script that moves tasks whose time has come run at that time, to the microsecond. asynq calls it again and
// again: once for the tasks that were scheduled, as often as there are some, and once for those that are to be retried.
type forwarder struct {
	client  redis.UniversalClient
	keys    queueKeys
	every   time.Duration   // how long it waits at most
	due     chan struct{}   // tells that a task's time comes soon
	clock   *clock.Clock    // by which they wait; nil: the machine's
	stop    <-chan struct{} // closed: it waits no more
	more    atomic.Bool     // the latest run moved tasks: there may be more of them
	failing atomic.Bool     // the latest exchange failed
}

// tell says that a task's time comes soon. It never waits.
func (f *forwarder) tell() {
	select {
	case f.due <- struct{}{}:
	default:
	}
}

// await waits until the time of a task has come, and reports false if there is none within the interval. Any task's time may have
// come if that is not known.
func (f *forwarder) await(ctx context.Context) bool {
	if f.more.Load() {
		return true
	}
	timer := time.NewTimer(f.every)
	defer timer.Stop()
	end := time.Now().Add(f.every)
	for {
		moved := f.clock.Changed()
		next, known := f.next(ctx)
		left := time.Until(end)
		if known && !f.failing.Load() {
			left = min(left, f.clock.Wait(next.Sub(f.clock.Now())))
		}
		if left <= 0 {
			return !known || !next.After(f.clock.Now())
		}
		timer.Reset(left)
		select {
		case <-timer.C:
		case <-f.due:
		case <-moved:
		case <-f.stop:
			return false
		}
	}
}

// next is when the next task's time comes. It is not known when Redis does not answer; without a task it is in a year.
func (f *forwarder) next(ctx context.Context) (time.Time, bool) {
	first, err := f.client.ZRangeWithScores(ctx, f.keys.scheduled, 0, 0).Result()
	switch {
	case err != nil:
		return time.Time{}, false
	case len(first) == 0:
		return f.clock.Now().AddDate(1, 0, 0), true
	}
	return redisconn.ScoreTime(first[0].Score), true
}

// ran notes the answer of the script.
func (f *forwarder) ran(answer *redis.Cmd) {
	n, err := answer.Int()
	f.more.Store(err == nil && n > 0)
	f.failing.Store(err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT"))
}

// exactly gives the script the present time with its microseconds in place of asynq's whole seconds.
func (f *forwarder) exactly(args []any) []any {
	exact := append([]any(nil), args...)
	exact[0] = redisconn.Score(f.clock.Now().Truncate(time.Microsecond))
	return exact
}
