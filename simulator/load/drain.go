package load

import (
	"context"
	"sync"
	"time"

	"github.com/forgerun/forgerun/client"
)

const (
	drainStep = 200 * time.Millisecond
	// quiet is how long a job may be without news at the end before it is asked
	// for, and how long nothing may arrive before deliveries count as settled.
	quiet     = 3 * time.Second
	askAtOnce = 32
)

// Drain waits until all accepted jobs have ended, but for those that are
// scheduled for later, and until their deliveries are settled: at most the
// scenario's drain time for each. What is left then is left to the judge.
func (e *Engine) Drain(ctx context.Context) (unfinished int, pending int64) {
	limit := time.Now().Add(e.o.Scenario.Drain)
	asked := map[string]time.Time{}
	for e.jobs.waiting(limit) > 0 && time.Now().Before(limit) {
		if sleep(ctx, drainStep) != nil {
			break
		}
		e.askFor(ctx, asked)
	}
	unfinished = e.jobs.waiting(limit)
	limit = time.Now().Add(e.o.Scenario.Drain)
	for {
		pending = e.pending(ctx)
		if pending <= 0 || time.Now().After(limit) || sleep(ctx, drainStep) != nil {
			return unfinished, max(pending, 0)
		}
	}
}

// askFor looks at jobs that have been silent: their events may be late, or the
// service may have forgotten them.
func (e *Engine) askFor(ctx context.Context, asked map[string]time.Time) {
	var group sync.WaitGroup
	for _, j := range e.jobs.unfinished(quiet, askAtOnce) {
		if j.ticket == 0 || time.Since(asked[j.id]) < quiet {
			continue
		}
		asked[j.id] = time.Now()
		group.Go(func() {
			etag := ""
			e.lookAt(ctx, j.id, j.ticket, j.tenant, &etag)
		})
	}
	group.Wait()
}

// pending counts unsettled deliveries: all of them where that can be known, else
// whether any webhook has one. -1: there is nothing to wait for.
func (e *Engine) pending(ctx context.Context) int64 {
	if e.o.Receiver == nil {
		return -1
	}
	if e.o.Pending != nil {
		if n, err := e.o.Pending(ctx); err == nil {
			return n
		}
	}
	n := int64(0)
	for _, a := range e.accounts {
		for _, w := range a.Webhooks {
			for _, err := range a.slow.Deliveries(ctx, w.ID, client.DeliveryFilter{State: "PENDING", PageSize: 1}) {
				if err == nil {
					n++
				}
				break
			}
		}
	}
	return n
}
