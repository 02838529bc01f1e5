package maintenance

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
)

// obstacle fails or hangs a vital task of one process, while it is set.
type obstacle struct {
	mu     sync.Mutex
	before func(context.Context) error
}

func (o *obstacle) set(before func(context.Context) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.before = before
}

func (o *obstacle) meet(ctx context.Context) error {
	o.mu.Lock()
	before := o.before
	o.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(ctx)
}

func (o *obstacle) put(m *Maintenance, name string) {
	for _, t := range m.tasks {
		if run := t.run; t.name == name {
			t.run = func(ctx context.Context, leading func() bool) error {
				if err := o.meet(ctx); err != nil {
					return err
				}
				return run(ctx, leading)
			}
		}
	}
}

// behind runs a maintenance with an obstacle in the way of a task.
func (w *worldMaint) behind(o *obstacle, name string) *Maintenance {
	m := w.maintenance()
	o.put(m, name)
	w.Background(m.Run)
	return m
}

func TestALeaderThatCannotWorkIsReplaced(t *testing.T) {
	for _, name := range []string{"scheduler", "relay", "rescuer", "deliveries"} {
		for kind, before := range map[string]func(context.Context) error{"fails": apptest.Fails(-1, apptest.ErrStorage), "hangs": apptest.Hangs} {
			apptest.Run(t, name+" "+kind, func(t *testing.T) {
				w := newWorldMaint(t)
				o := &obstacle{}
				first := w.behind(o, name)
				second, _ := w.lead()
				apptest.Pass(10 * time.Second)
				require.True(t, first.Leading())
				o.set(before)
				apptest.Pass(blockedAfter - time.Second)
				require.True(t, first.Leading())
				apptest.Pass(4 * time.Second)
				require.False(t, first.Leading())
				require.True(t, second.Leading())
				require.Equal(t, 1.0, w.Sum("maintenance_blocked"))
				apptest.Pass(time.Minute)
				require.True(t, second.Leading())
			})
		}
	}
}

// Once the obstacle is gone, a process can lead again.
func TestAProcessFindsOutThatItCanLead(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		o := &obstacle{before: apptest.Fails(-1, apptest.ErrStorage)}
		first := w.behind(o, "relay")
		second, stop := w.lead()
		apptest.Pass(blockedAfter + 3*time.Second)
		require.True(t, second.Leading())
		o.set(nil)
		apptest.Pass(2 * time.Second)
		require.Zero(t, w.Sum("maintenance_blocked"))
		require.True(t, second.Leading(), "it asks nobody to step back")
		stop()
		apptest.Pass(2 * time.Second)
		require.True(t, first.Leading())
	})
}

// Where nobody can do all of it, one does what it can, without a pause.
func TestSomebodyLeadsThoughAllAreBlocked(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		o := &obstacle{}
		all := []*Maintenance{w.behind(o, "relay"), w.behind(o, "relay"), w.behind(o, "relay")}
		apptest.Pass(time.Second)
		o.set(apptest.Fails(-1, apptest.ErrStorage))
		for range 300 {
			apptest.Pass(100 * time.Millisecond)
			leading := 0
			for _, m := range all {
				if m.Leading() {
					leading++
				}
			}
			require.Positive(t, leading)
		}
		changes := len(w.Log.Lines(t, map[string]any{"msg": "leadership changed"}))
		apptest.Pass(time.Minute)
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "leadership changed"}), changes, "it does not go round and round")
	})
}

// A round that takes long is not one that hangs.
func TestALongRoundIsNoObstacle(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		m := w.maintenance()
		for _, task := range m.tasks {
			if task.name == "scheduler" {
				task.run = func(_ context.Context, leading func() bool) error {
					for range 100 {
						leading()
						time.Sleep(time.Second)
					}
					return nil
				}
			}
		}
		w.Background(m.Run)
		second, _ := w.lead()
		apptest.Pass(time.Minute)
		require.True(t, m.Leading())
		require.False(t, second.Leading())
	})
}
