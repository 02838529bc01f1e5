package judge

import (
	"fmt"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// unattributed has the deliveries of events that belong to no job, but to batches
// and webhooks. Their facts are not read together, so only counts are kept.
type unattributed struct {
	byID  map[string]*unattributedDelivery
	pairs map[string]string // event and webhook to delivery
}

type unattributedDelivery struct {
	deliveryAttempts
	stored *history.Fact // nil for none
	body   string
}

// add takes a fact and says what is wrong with it by itself.
func (u *unattributed) add(f *history.Fact, run *RunContext) (invariant, wrong string) {
	d := f.Delivery
	known := u.byID[d.ID]
	if known == nil {
		known = &unattributedDelivery{}
		u.byID[d.ID] = known
	}
	if w := run.webhook(f); w != nil && w.Tenant != f.Tenant {
		return foreign, fmt.Sprintf("delivery %s of tenant %d goes to a webhook of tenant %d", d.ID, f.Tenant, w.Tenant)
	}
	known.deliveryAttempts.add(f)
	switch f.Kind {
	case history.StoredDeliver:
		stored := *f // without the slice that it is in
		known.stored = &stored
		pair := d.EventID + " " + d.Webhook
		if other, twice := u.pairs[pair]; twice {
			return delivered, fmt.Sprintf("event %s (%s) has two deliveries to webhook %s: %s and %s", d.EventID, d.EventName, d.Webhook, other, d.ID)
		}
		u.pairs[pair] = d.ID
	case history.Received:
		if known.body != "" && known.body != d.Body {
			return received, fmt.Sprintf("delivery %s came again with other bytes", d.ID)
		}
		known.body = d.Body
	}
	return "", ""
}

func (b *verdictBuilder) addUnattributed(f *history.Fact) {
	b.mu.Lock()
	invariant, wrong := b.unattributed.add(f, b.run)
	b.mu.Unlock()
	b.look(delivered)
	if wrong != "" {
		b.violate(Violation{Invariant: invariant, Job: f.Job, What: wrong}, *f)
	}
}

// checkUnattributedDeliveries says what is wrong now that all facts are known.
func (b *verdictBuilder) checkUnattributedDeliveries() {
	if !b.run.complete(Rows) {
		return
	}
	for id, d := range b.unattributed.byID {
		if d.stored == nil {
			b.violate(Violation{Invariant: received, What: fmt.Sprintf("delivery %s came, and there is none of that id", id)})
			continue
		}
		for _, wrong := range d.check(d.stored, b.run) {
			b.violate(Violation{Invariant: delivered, What: wrong})
		}
	}
}

// checkUnattributed checks one of the facts about no job. They are not held in
// memory: there are as many as the run has refused submissions.
func (b *verdictBuilder) checkUnattributed(f history.Fact) error {
	b.verdict.Facts++
	switch {
	case f.Submission != nil: // ended without a job
		b.tickets.mark(f.Ticket, flagsOf(f.Submission))
		b.look(answered)
		checkRefusals(f.Submission, func(ok bool, invariant, format string, args ...any) {
			if !ok {
				b.violate(Violation{Invariant: invariant, Ticket: f.Ticket, What: fmt.Sprintf(format, args...)}, f)
			}
		})
	case f.Kind == history.Strange:
		b.look(foreign)
		b.violate(Violation{Invariant: foreign, Ticket: f.Ticket, What: strange(&f)}, f)
	case f.Kind == history.QueuedTask:
		b.look(tasked)
		if f.Note != "" {
			b.violate(Violation{Invariant: tasked, Ticket: f.Ticket, What: fmt.Sprintf("task %s: %s", f.Task.ID, f.Note)}, f)
		}
	case f.Delivery != nil:
		b.addUnattributed(&f)
	}
	return nil
}
