package load

import (
	"context"
	"sync"
	"time"

	"github.com/forgerun/forgerun/client"
)

const (
	drainStep = 200 * time.Millisecond
	// quiet is how long a job may be without an update before it is asked for.
	quiet     = 3 * time.Second
	askAtOnce = 32
)

// Drain waits, at most the scenario's drain time for each, until all accepted jobs
// have ended, but for those scheduled for later, and then for their deliveries;
// without Options.Pending only for those to webhooks, not those to callbacks.
func (e *Engine) Drain(ctx context.Context) (unfinished int, pending int64) {
	limit := time.Now().Add(e.o.Scenario.Drain)
	for e.jobs.waiting(e.serviceTime(limit)) > 0 && time.Now().Before(limit) {
		e.askForSilent(ctx)
		if Sleep(ctx, drainStep) != nil {
			break
		}
	}
	unfinished = e.jobs.waiting(e.serviceTime(limit))
	limit = time.Now().Add(e.o.Scenario.Drain)
	for {
		pending = e.pending(ctx)
		if pending <= 0 || time.Now().After(limit) || Sleep(ctx, drainStep) != nil {
			return unfinished, max(pending, 0)
		}
	}
}

// askForSilent polls jobs without a recent update.
func (e *Engine) askForSilent(ctx context.Context) {
	wait := quiet
	if !e.watched() {
		wait = drainStep
	}
	var group sync.WaitGroup
	for _, j := range e.jobs.silent(wait, askAtOnce) {
		group.Go(func() {
			etag := ""
			e.lookAt(ctx, j.id, j.ticket, j.tenant, &etag)
		})
	}
	group.Wait()
}

// askOn polls silent jobs during the load, so that those that ended are forgotten.
func (e *Engine) askOn(ctx context.Context) {
	for Sleep(ctx, drainStep) == nil {
		e.askForSilent(ctx)
	}
}

// pending counts pending deliveries, or else the webhooks that have one or cannot
// be asked; -1 without a receiver.
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
			for _, err := range a.Client.Deliveries(ctx, w.ID, client.DeliveryFilter{State: "PENDING", PageSize: 1}) {
				_ = err // who cannot be asked may have one too
				n++
				break
			}
		}
	}
	return n
}
