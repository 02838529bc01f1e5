package maintenance

import (
	"context"
	"math"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// ThrottleStore is what jobs that wait for others of their client need of storage.
type ThrottleStore interface {
	// ResumeThrottled makes at most limit of them due, in the order of their creation: as many of each client as it may have. It
	// returns their tasks.
	ResumeThrottled(ctx context.Context, most, limit int) ([]job.Task, error)
}

const (
	throttleInterval     = 250 * time.Millisecond
	throttleIntervalIdle = 5 * time.Second // where no limit is set: one may have been before
	throttleBatch        = 1000
)

// Throttle is the limit of the jobs of one client that workers hold at once.
type Throttle struct {
	Store ThrottleStore
	Most  int // 0: there is no limit
}

func (t Throttle) task(relay *Relay) *task {
	interval, most := throttleInterval, t.Most
	if most == 0 {
		interval, most = throttleIntervalIdle, math.MaxInt32
	}
	return &task{name: "throttle", interval: interval, run: func(ctx context.Context, leading func() bool) error {
		for leading() {
			tasks, err := t.Store.ResumeThrottled(ctx, most, throttleBatch)
			if err != nil || len(tasks) == 0 {
				return err
			}
			if _, err := relay.ensure(ctx, tasks, app.Resumed); err != nil || len(tasks) < throttleBatch {
				return err
			}
		}
		return nil
	}}
}
