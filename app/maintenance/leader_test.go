package maintenance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

type election struct {
	*apptest.World
	mu      sync.Mutex
	holder  job.ID
	until   time.Time
	before  func(context.Context) error
	after   func(context.Context) error
	resigns func(context.Context) error
}

func newElection(t *testing.T) *election {
	return &election{World: apptest.NewWorld(t), before: works, after: works, resigns: works}
}

func works(context.Context) error { return nil }

func fails(context.Context) error { return errors.New("storage is away") }

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func takes(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error { app.Sleep(ctx, d); return ctx.Err() }
}

func electing(t *testing.T, f func(t *testing.T, e *election)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) { f(t, newElection(t)) })
}

func (e *election) set(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

func (e *election) elect(ctx context.Context, id job.ID, lease, vacant time.Duration) (leads bool, err error) {
	var before, after func(context.Context) error
	e.set(func() { before, after = e.before, e.after })
	if err := before(ctx); err != nil {
		return false, err
	}
	e.set(func() {
		if leads = e.holder == id || !time.Now().Before(e.until.Add(vacant)); leads {
			e.holder, e.until = id, time.Now().Add(lease)
		}
	})
	return leads, after(ctx)
}

func (e *election) resign(ctx context.Context, id job.ID) error {
	err := e.resigns(ctx)
	e.set(func() {
		if err == nil && e.holder == id {
			e.holder, e.until = job.ID{}, time.Time{}
		}
	})
	return err
}

func (e *election) run(tasks ...*task) (l *leader, stop func()) {
	l = newLeader(e.elect, e.resign, e.Metrics, e.Logger)
	l.tasks = tasks
	return l, e.Background(l.run)
}

type obstacle struct {
	atomic.Pointer[func(context.Context) error]
}

func (o *obstacle) set(f func(context.Context) error) { o.Store(&f) }

func vital(o *obstacle) *task {
	o.set(works)
	return &task{name: "relay", interval: 500 * time.Millisecond, vital: true, run: func(ctx context.Context, leading func() bool) error {
		leading()
		return (*o.Load())(ctx)
	}}
}

func counting(name string, rounds *atomic.Int64) *task {
	return &task{name: name, interval: time.Second, run: func(context.Context, func() bool) error { rounds.Add(1); return nil }}
}

func TestOnlyTheLeaderWorks(t *testing.T) {
	electing(t, func(t *testing.T, e *election) {
		var rounds atomic.Int64
		e.holder, e.until = app.NewID(), time.Now().Add(time.Minute)
		l := newLeader(e.elect, e.resign, e.Metrics, e.Logger)
		work := counting("backlog", &rounds)
		work.interval, work.wake = time.Hour, func() <-chan struct{} { return l.elected }
		l.tasks = []*task{work}
		e.Background(l.run)
		apptest.Pass(30 * time.Second)
		require.False(t, l.leading())
		require.Zero(t, rounds.Load())
		apptest.Pass(30*time.Second + leaderInterval)
		require.True(t, l.leading())
		require.EqualValues(t, 1, rounds.Load(), "waking starts a round")
	})
}

func TestLeaderStopsByItsOwnClock(t *testing.T) {
	for name, before := range map[string]func(context.Context) error{
		"storage fails": fails, "storage hangs": hangs,
	} {
		apptest.Run(t, name, func(t *testing.T) {
			e := newElection(t)
			var parts atomic.Int64
			l, _ := e.run(&task{name: "cleaner", interval: time.Second, run: func(ctx context.Context, leading func() bool) error {
				for leading() && app.Sleep(ctx, 100*time.Millisecond) {
					parts.Add(1)
				}
				return nil
			}})
			apptest.Pass(10 * time.Second)
			require.Greater(t, parts.Load(), int64(80))
			var until time.Time
			e.set(func() { e.before, until = before, e.until })
			apptest.Pass(time.Until(until))
			require.False(t, l.leading())
			ended := parts.Load()
			apptest.Pass(time.Minute)
			require.LessOrEqual(t, parts.Load(), ended+1)
			require.Zero(t, e.Metric(e.Metrics.Leading))
			require.Equal(t, name == "storage fails", e.Metric(e.Metrics.MaintenanceErrors.WithLabelValues("leader")) > 0)
			require.Len(t, e.Log.Lines(t, map[string]any{"msg": "leadership changed", "leading": false}), 1)
		})
	}
}

func TestLateAnswerDoesNotMakeLeader(t *testing.T) {
	electing(t, func(t *testing.T, e *election) {
		e.after = takes(leaderLease + time.Second)
		l, _ := e.run()
		for range 50 {
			require.False(t, l.leading())
			require.Zero(t, e.Metric(e.Metrics.Leading))
			apptest.Pass(300 * time.Millisecond)
		}
	})
}

func TestStoppingWhileStorageHangs(t *testing.T) {
	for name, hang := range map[string]func(*election, *task){
		"election": func(e *election, _ *task) { e.before = hangs },
		"resign":   func(e *election, _ *task) { e.resigns = hangs },
		"a round": func(_ *election, work *task) {
			work.run = func(ctx context.Context, _ func() bool) error { return hangs(ctx) }
		},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			e := newElection(t)
			work := counting("scheduler", &atomic.Int64{})
			hang(e, work)
			_, stop := e.run(work)
			apptest.Pass(10 * time.Second)
			began := time.Now()
			stop()
			require.LessOrEqual(t, time.Since(began), leaderInterval)
		})
	}
}

func TestBlockedLeaderIsReplaced(t *testing.T) {
	for kind, meets := range map[string]func(context.Context) error{"fails": fails, "hangs": hangs} {
		apptest.Run(t, kind, func(t *testing.T) {
			e := newElection(t)
			var ofFirst, ofSecond obstacle
			first, _ := e.run(vital(&ofFirst))
			second, _ := e.run(vital(&ofSecond))
			apptest.Pass(10 * time.Second)
			require.True(t, first.leading())
			ofFirst.set(meets)
			apptest.Pass(blockedAfter - time.Second)
			require.True(t, first.leading())
			apptest.Pass(4 * time.Second)
			require.False(t, first.leading())
			require.True(t, second.leading())
			require.Equal(t, 1.0, e.Sum("maintenance_blocked"))
			apptest.Pass(time.Minute)
			require.True(t, second.leading())
		})
	}
}

func TestUnblockedProcessCanLeadAgain(t *testing.T) {
	electing(t, func(t *testing.T, e *election) {
		var ofFirst, ofSecond obstacle
		first, _ := e.run(vital(&ofFirst))
		ofFirst.set(fails)
		second, stop := e.run(vital(&ofSecond))
		apptest.Pass(blockedAfter + 3*time.Second)
		require.True(t, second.leading())
		ofFirst.set(works)
		apptest.Pass(2 * time.Second)
		require.Zero(t, e.Sum("maintenance_blocked"))
		require.True(t, second.leading(), "the process does not ask the leader to step back")
		stop()
		apptest.Pass(2 * time.Second)
		require.True(t, first.leading())
	})
}

func TestBlockedProcessLeadsIfAllAreBlocked(t *testing.T) {
	electing(t, func(t *testing.T, e *election) {
		var o obstacle
		var all []*leader
		for range 3 {
			l, _ := e.run(vital(&o))
			all = append(all, l)
		}
		apptest.Pass(time.Second)
		o.set(fails)
		for range 300 {
			apptest.Pass(100 * time.Millisecond)
			leading := 0
			for _, l := range all {
				if l.leading() {
					leading++
				}
			}
			require.Positive(t, leading)
		}
		changes := len(e.Log.Lines(t, map[string]any{"msg": "leadership changed"}))
		apptest.Pass(time.Minute)
		require.Len(t, e.Log.Lines(t, map[string]any{"msg": "leadership changed"}), changes, "the leadership does not change any more")
	})
}

func TestSlowRoundIsNotBlocked(t *testing.T) {
	electing(t, func(t *testing.T, e *election) {
		long := &task{name: "scheduler", vital: true, run: func(ctx context.Context, leading func() bool) error {
			for range 100 {
				leading()
				app.Sleep(ctx, time.Second)
			}
			return nil
		}}
		first, _ := e.run(long)
		second, _ := e.run()
		apptest.Pass(time.Minute)
		require.True(t, first.leading())
		require.False(t, second.leading())
	})
}

func TestBacklogIsHiddenAfterLeadership(t *testing.T) {
	away := func(e *election) { e.set(func() { e.before = fails }) }
	lost := func(e *election) {
		e.set(func() { e.holder, e.until = app.NewID(), time.Now().Add(time.Hour) })
		apptest.Pass(2 * leaderInterval)
	}
	for name, end := range map[string]func(e *election, l *leader, stop func()){
		"resigned":                func(_ *election, _ *leader, stop func()) { stop() },
		"lost to another process": func(e *election, _ *leader, _ func()) { lost(e) },
		"storage down for long": func(e *election, _ *leader, _ func()) {
			away(e)
			apptest.Pass(leaderLease)
			require.Equal(e.T, 3.0, e.Sum("job_queue_depth"), "the last backlog stays visible for a while")
			apptest.Pass(backlogMemory)
		},
		"counted too late": func(e *election, l *leader, _ func()) {
			lost(e)
			l.show(job.Backlog{Jobs: map[job.State]int{job.Queued: 4}})
		},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			e := newElection(t)
			l, stop := e.run()
			l.show(job.Backlog{Jobs: map[job.State]int{job.Queued: 3}})
			require.Equal(t, 3.0, e.Sum("job_queue_depth"))
			require.Equal(t, float64(time.Now().Unix()), e.Sum("backlog_timestamp_seconds"))
			end(e, l, stop)
			for range 2 {
				require.Zero(t, e.Sum("job_queue_depth"))
				require.Zero(t, e.Sum("backlog_timestamp_seconds"))
				apptest.Pass(time.Minute)
			}
		})
	}
}
