package judge

import (
	"fmt"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// unattributedDelivery is one of an event that belongs to no job, but to a batch
// or a webhook. Its facts are not read together, so only counts are kept.
type unattributedDelivery struct {
	deliveryAttempts
	stored *history.Fact // nil for none
	body   string
}

// addUnattributed adds a fact, and checks what can be checked by itself.
func (b *verdictBuilder) addUnattributed(f history.Fact) {
	b.look(delivered)
	if invariant, wrong := b.recordUnattributed(f); wrong != "" {
		b.must(false, f, invariant, "%s", wrong)
	}
}

func (b *verdictBuilder) recordUnattributed(f history.Fact) (invariant, wrong string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := f.Delivery
	known := b.unattributed[d.ID]
	if known == nil {
		known = &unattributedDelivery{}
		b.unattributed[d.ID] = known
	}
	if w := b.run.webhook(&f); w != nil && w.Tenant != f.Tenant {
		return foreign, fmt.Sprintf("delivery %s of tenant %d goes to a webhook of tenant %d", d.ID, f.Tenant, w.Tenant)
	}
	known.deliveryAttempts.add(&f)
	switch f.Kind {
	case history.StoredDeliver:
		known.stored = &f
		pair := d.EventID + " " + d.Webhook
		if other, twice := b.pairs[pair]; twice {
			return delivered, fmt.Sprintf("event %s (%s) has two deliveries to webhook %s: %s and %s",
				d.EventID, d.EventName, d.Webhook, other, d.ID)
		}
		b.pairs[pair] = d.ID
	case history.Received:
		if known.body != "" && known.body != d.Body {
			return received, fmt.Sprintf("delivery %s came again with other bytes", d.ID)
		}
		known.body = d.Body
	}
	return "", ""
}

// checkUnattributedDeliveries checks the deliveries when all facts are known.
func (b *verdictBuilder) checkUnattributedDeliveries() {
	for id, d := range b.unattributed {
		if !b.run.complete(Rows) {
			return
		}
		b.must(d.stored != nil, history.Fact{}, received, "delivery %s came, and there is none of that id", id)
		if d.stored != nil {
			for _, wrong := range d.check(d.stored, b.run) {
				b.must(false, history.Fact{}, delivered, "%s", wrong)
			}
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
		checkRefusals(f.Submission, b.run, func(ok bool, invariant, format string, args ...any) { b.must(ok, f, invariant, format, args...) })
	case f.Schedule != nil:
		b.run.schedules[f.Schedule.ID] = &scheduleRuns{Schedule: *f.Schedule, tenant: f.Tenant, jobs: map[int64]int{}}
	case f.Kind == history.Strange:
		b.look(foreign)
		b.must(false, f, foreign, "%s", strange(&f))
	case f.Kind == history.QueuedTask:
		b.look(tasked)
		b.must(f.Note == "", f, tasked, "task %s: %s", f.Task.ID, f.Note)
	case f.Delivery != nil:
		b.addUnattributed(f)
	}
	return nil
}
