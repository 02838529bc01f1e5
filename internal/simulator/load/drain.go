package load

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/forgerun/forgerun/client"
)

const (
	drainStep = 200 * time.Millisecond
	// quiet is how long a job may be without an update before it is asked for.
	quiet     = 3 * time.Second
	askAtOnce = 32
	described = 5 // unfinished jobs whose state Drain tells
)

// Drain waits, at most the scenario's drain time for each, until all accepted jobs
// have ended, but for those scheduled for later, and then for their deliveries;
// without Options.Pending only for those to webhooks, not those to callbacks.
// It returns the number of jobs that have not ended, and what the service says of the first ones.
func (e *Engine) Drain(ctx context.Context) (unfinished int, which []string, pending int64) {
	limit := time.Now().Add(e.o.Scenario.Drain)
	for len(e.jobs.waiting(e.serviceTime(limit))) > 0 && time.Now().Before(limit) {
		e.askForSilent(ctx)
		if Sleep(ctx, drainStep) != nil {
			break
		}
	}
	left := e.jobs.waiting(e.serviceTime(limit))
	for _, j := range left[:min(len(left), described)] {
		which = append(which, e.describe(ctx, j))
	}
	limit = time.Now().Add(e.o.Scenario.Drain)
	for {
		pending = e.pending(ctx)
		if pending <= 0 || time.Now().After(limit) || Sleep(ctx, drainStep) != nil {
			return len(left), which, max(pending, 0)
		}
	}
}

// Waiting returns the number of jobs whose end Drain would wait for now.
func (e *Engine) Waiting() int {
	return len(e.jobs.waiting(e.serviceTime(time.Now().Add(e.o.Scenario.Drain))))
}

// describe returns the id of an unfinished job, its state, and why it waits.
func (e *Engine) describe(ctx context.Context, j job) string {
	shown, err := e.accounts[j.tenant].quick.Job(ctx, j.id)
	switch {
	case err != nil:
		return fmt.Sprintf("%s (last seen %s; %v)", j.id, cmp.Or(j.state, "nowhere"), err)
	case shown.Final():
		return fmt.Sprintf("%s (%s, but its end was not on the stream)", j.id, shown.State)
	case shown.Waiting != nil:
		return fmt.Sprintf("%s (%s, attempt %d, waiting: %s)", j.id, shown.State, shown.Attempt, shown.Waiting.Reason)
	}
	return fmt.Sprintf("%s (%s, attempt %d)", j.id, shown.State, shown.Attempt)
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
