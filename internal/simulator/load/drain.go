package load

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/client"
)

const (
	drainStep = 200 * time.Millisecond
	// A job without an update for this time is polled.
	quiet     = 3 * time.Second
	askAtOnce = 32
	described = 5 // maximum number of unfinished jobs that Drain describes
)

// Drain waits until the accepted jobs have ended, and then until no delivery is pending. Each of the two waits takes at most the scenario's
// drain time. Drain ignores jobs that are due after the end of the first wait. It returns the number of unfinished jobs, descriptions of
// some of them, and the number of pending deliveries.
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

// Waiting returns the number of jobs that Drain would wait for now.
func (e *Engine) Waiting() int {
	return len(e.jobs.waiting(e.serviceTime(time.Now().Add(e.o.Scenario.Drain))))
}

func (e *Engine) describe(ctx context.Context, j job) string {
	shown, err := e.accounts[j.tenant].Quick.Job(ctx, j.id)
	switch {
	case err != nil:
		return fmt.Sprintf("%s (last seen %s; %v)", j.id, cmp.Or(j.state, "unknown"), err)
	case shown.Final():
		return fmt.Sprintf("%s (%s, but the event stream did not show its end)", j.id, shown.State)
	case shown.Waiting != nil:
		return fmt.Sprintf("%s (%s, attempt %d, waiting: %s)", j.id, shown.State, shown.Attempt, shown.Waiting.Reason)
	}
	return fmt.Sprintf("%s (%s, attempt %d)", j.id, shown.State, shown.Attempt)
}

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

// At most this many jobs with a callback are checked for pending deliveries over the API.
const mostCallbacks = 1000

func (e *Engine) addCallback(t *ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.callbacks) < mostCallbacks {
		e.callbacks = append(e.callbacks, t)
	}
}

// pending returns the number of pending deliveries. If Options.Pending is nil or fails, pending asks the API. Then each webhook and each
// callback with pending deliveries counts as 1. Each failed request also counts as 1. If the scenario has no receiver, pending returns
// -1.
func (e *Engine) pending(ctx context.Context) int64 {
	if e.o.Receiver == nil {
		return -1
	}
	if e.o.Pending != nil {
		if n, err := e.o.Pending(ctx); err == nil {
			return n
		}
	}
	n, filter := int64(0), client.DeliveryFilter{State: "PENDING", PageSize: 1}
	none := func(deliveries iter.Seq2[client.Delivery, error]) bool {
		for _, err := range deliveries {
			_ = err
			n++
			return false
		}
		return true
	}
	for _, a := range e.accounts {
		for _, w := range a.Webhooks {
			none(a.Client.Deliveries(ctx, w.ID, filter))
		}
	}
	e.callbacks = slices.DeleteFunc(e.callbacks, func(t *ticket) bool { // a job without pending deliveries is not polled again
		return none(e.accounts[t.tenant].Client.JobDeliveries(ctx, t.job, filter))
	})
	return n
}
